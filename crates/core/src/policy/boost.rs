// SPDX-License-Identifier: GPL-2.0-or-later
//! `boost`: the topmost app gets processor and disk first.
//!
//! EIMOS gives the topmost process extra weight in the scheduler. Here that is, in this order:
//!
//! 1. *A weight*: `cpu.weight` of the app's own cgroup and of all its ancestors, because each level
//!    is shared out by itself.
//! 2. *Nice values* of all its threads, where there is no such cgroup, its controller is not
//!    enabled, or a sched_ext scheduler does not look at groups. Where a weight acts, nice values
//!    would only shift time between the app's own threads, and are left alone.
//! 3. *A short slice* for its threads: a thread that wakes up may interrupt whoever has a longer one
//!    at once. It gives no time, only an earlier turn.
//! 4. `io.weight` and I/O priorities, where some disk's scheduler looks at them.
//!
//! # Those who serve the app
//!
//! A frame is not shown before the display server has had its turn, and with all processors given
//! to the app it would wait for long. Helpers are therefore treated as the app is: the same weight
//! from where their cgroups part, the same nice value, and a slice that is even shorter. A helper that lives among others
//! (an X server in `system.slice`) cannot be given the weight of the slice without giving it to the
//! others there; at that level the app gets no more than [`BESIDE_HELPER`], which leaves the helper's
//! slice a fifth of a processor.
//!
//! The kernel serves it as well: without `kswapd` each allocation of the app reclaims for itself. It is
//! in no cgroup and competes with the app's whole branch, so it gets the nice value that comes to the
//! branch's weight.

use super::plan::Event;
use crate::model::app::{AppKey, Home};
use crate::model::boost::{Helper, Role, Threads, View};
use crate::model::snapshot::{Measured, Snapshot};
use crate::settings::BoostSettings;

/// Weight of the app's branch beside one that a helper shares with others: four times the ordinary.
pub const BESIDE_HELPER: u32 = 400;

/// The weight of a cgroup that nobody has given another one.
const WEIGHT_DEFAULT: u32 = 100;

/// How many times shorter the slice of a helper is than the app's.
const HELPER_SLICE: u32 = 3;

/// The shortest slice that the kernel gives, in microseconds.
const SLICE_MIN_US: u32 = 100;

/// A file that holds a cgroup's weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WeightFile {
    /// `cpu.weight`.
    Cpu,
    /// `io.weight`, which iocost follows.
    Io,
    /// `io.bfq.weight`, which BFQ follows.
    Bfq,
}

impl WeightFile {
    /// The file's name.
    pub fn name(self) -> &'static str {
        match self {
            WeightFile::Cpu => "cpu.weight",
            WeightFile::Io => "io.weight",
            WeightFile::Bfq => "io.bfq.weight",
        }
    }

    /// The largest weight.
    pub fn max(self) -> u32 {
        match self {
            WeightFile::Cpu | WeightFile::Io => 10_000,
            WeightFile::Bfq => 1000,
        }
    }
}

/// A weight for one cgroup. One that has more already keeps it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight {
    /// Which file.
    pub file: WeightFile,
    /// Path of the cgroup below the mount point, with a leading slash.
    pub cgroup: String,
    /// Inode number of the cgroup where it is known.
    pub inode: Option<u64>,
    /// The weight, 1 to [`WeightFile::max`].
    pub weight: u32,
}

/// What threads are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tuning {
    /// Points by which each nice value is lowered, down to -20; 0: not at all.
    pub nice_points: u8,
    /// The same, for the kernel's own reclaim.
    pub reclaim_points: u8,
    /// Slice in microseconds; 0: left alone.
    pub slice_us: u32,
    /// Level of the best-effort I/O class; `None`: left alone.
    pub io_level: Option<u8>,
}

impl Tuning {
    /// The slice in microseconds for a thread. One that serves the app has a shorter one than the
    /// app, because it sleeps most of the time and what it does cannot wait for the app.
    pub fn slice_us(&self, role: Role) -> u32 {
        match (self.slice_us, role) {
            (0, _) => 0,
            (us, Role::App) => us,
            (us, Role::Helper | Role::Reclaim) => (us / HELPER_SLICE).max(SLICE_MIN_US),
        }
    }

    fn points(&self, role: Role) -> u8 {
        match role {
            Role::App | Role::Helper => self.nice_points,
            Role::Reclaim => self.reclaim_points,
        }
    }

    /// The nice value for a thread that has this one. The order of an app's own threads stays.
    pub fn nice(&self, role: Role, original: i32) -> i32 {
        (original - i32::from(self.points(role))).max(-20)
    }

    /// Whether there is nothing for threads of this role.
    fn spares(&self, role: Role) -> bool {
        self.points(role) == 0 && self.slice_us == 0 && self.io_level.is_none()
    }
}

/// One step of `boost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Give these cgroups their weights, and put every other one back.
    Weigh {
        /// The app.
        app: AppKey,
        /// All weights, ancestors first.
        weights: Vec<Weight>,
    },
    /// Put all weights back.
    Unweigh {
        /// The app.
        app: AppKey,
    },
    /// Give these threads nice value, slice and I/O priority; forget those that ended.
    Tune {
        /// The app.
        app: AppKey,
        /// What they are given.
        tuning: Tuning,
        /// All threads of the app and of its helpers, by process.
        threads: Vec<Threads>,
    },
    /// Put all threads back.
    Untune {
        /// The app.
        app: AppKey,
    },
}

/// Whether a knob is turned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is, and it acts.
    Live,
    /// It would act, and is not needed or not wanted: why.
    Unused(String),
    /// It would have no effect: why.
    Inert(String),
}

impl Standing {
    /// Whether the knob is turned.
    pub fn is_live(&self) -> bool {
        *self == Standing::Live
    }
}

/// All knobs of `boost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knobs {
    /// `cpu.weight`.
    pub cpu_weight: Standing,
    /// Nice values.
    pub nice: Standing,
    /// Slices.
    pub slice: Standing,
    /// `io.weight` or `io.bfq.weight`.
    pub io_weight: Standing,
    /// I/O priorities.
    pub io_priority: Standing,
}

impl Knobs {
    /// The knobs by name.
    pub fn all(&self) -> [(&'static str, &Standing); 5] {
        [
            ("cpu.weight", &self.cpu_weight),
            ("nice", &self.nice),
            ("slice", &self.slice),
            ("io.weight", &self.io_weight),
            ("ioprio", &self.io_priority),
        ]
    }
}

/// Which knobs act for an app in this cgroup; `None`: one that has none.
pub fn knobs(settings: &BoostSettings, view: &View, home: Option<&Home>) -> Knobs {
    let cpu_weight = cpu_weight(view, home);
    Knobs {
        nice: nice(settings, view, &cpu_weight),
        cpu_weight,
        slice: slice(settings, view),
        io_weight: io_weight(view, home),
        io_priority: io_priority(view),
    }
}

fn own(home: Option<&Home>) -> Result<&Home, String> {
    match home {
        Some(home) if home.own => Ok(home),
        Some(home) => Err(format!("the app shares {} with other programs", home.path)),
        None => Err("the app has no cgroup".to_owned()),
    }
}

fn cpu_weight(view: &View, home: Option<&Home>) -> Standing {
    if let Some(name) = &view.schedulers.sched_ext {
        return Standing::Inert(format!(
            "the sched_ext scheduler {name} rules, and most do not look at groups"
        ));
    }
    match (own(home), &view.without_cpu) {
        (Err(why), _) => Standing::Inert(why),
        (Ok(_), Some(cgroup)) => {
            Standing::Inert(format!("the cpu controller is not enabled for {cgroup}"))
        }
        (Ok(_), None) => Standing::Live,
    }
}

fn nice(settings: &BoostSettings, view: &View, cpu_weight: &Standing) -> Standing {
    if cpu_weight.is_live() {
        return Standing::Unused("cpu.weight acts".to_owned());
    }
    if settings.nice_points == 0 {
        return Standing::Unused("switched off ([boost] nice_points = 0)".to_owned());
    }
    if view.autogrouped && view.schedulers.sched_ext.is_none() {
        return Standing::Inert(
            "the app's session is a group of its own (kernel.sched_autogroup_enabled = 1), so nice \
             values count only inside it"
                .to_owned(),
        );
    }
    Standing::Live
}

fn slice(settings: &BoostSettings, view: &View) -> Standing {
    if settings.slice_us == 0 {
        return Standing::Unused("switched off ([boost] slice_us = 0)".to_owned());
    }
    if !view.schedulers.slices {
        return Standing::Inert("kernels before 6.12 know no slices of threads".to_owned());
    }
    match &view.schedulers.sched_ext {
        Some(name) => Standing::Inert(format!("the sched_ext scheduler {name} rules")),
        None => Standing::Live,
    }
}

fn has_bfq(view: &View) -> bool {
    let mut disks = view.schedulers.disks.iter();
    disks.any(|disk| disk.scheduler == "bfq")
}

/// How the disks are scheduled, for people.
fn disks(view: &View) -> String {
    let disks = view.schedulers.disks.iter();
    let all: Vec<String> = disks
        .map(|disk| format!("{}: {}", disk.name, disk.scheduler))
        .collect();
    match all.is_empty() {
        true => "no disk".to_owned(),
        false => all.join(", "),
    }
}

fn io_file(view: &View) -> Option<WeightFile> {
    if view.schedulers.disks.iter().any(|disk| disk.cost) {
        return Some(WeightFile::Io);
    }
    has_bfq(view).then_some(WeightFile::Bfq)
}

fn io_weight(view: &View, home: Option<&Home>) -> Standing {
    if io_file(view).is_none() {
        return Standing::Inert(format!(
            "no disk is scheduled by BFQ or iocost ({})",
            disks(view)
        ));
    }
    match (own(home), &view.without_io) {
        (Err(why), _) => Standing::Inert(why),
        (Ok(_), Some(cgroup)) => {
            Standing::Inert(format!("the io controller is not enabled for {cgroup}"))
        }
        (Ok(_), None) => Standing::Live,
    }
}

fn io_priority(view: &View) -> Standing {
    match has_bfq(view) {
        true => Standing::Live,
        false => Standing::Inert(format!(
            "no disk is scheduled by BFQ, and others do not look at levels ({})",
            disks(view)
        )),
    }
}

/// The app that should be boosted now.
fn wanted<'a>(event: &Event, snapshot: &'a Snapshot) -> Option<&'a Measured> {
    if *event == Event::Stop || !snapshot.settings.boost.enabled {
        return None;
    }
    snapshot.topmost.as_ref()
}

/// What should be in force for an app.
fn target(snapshot: &Snapshot, topmost: &Measured) -> (Vec<Weight>, Tuning, Vec<Threads>) {
    let (settings, view) = (&snapshot.settings.boost, &snapshot.boost);
    let knobs = knobs(settings, view, topmost.app.home.as_ref());
    let mut weights = Vec::new();
    if let Some(home) = topmost.app.own_home() {
        if knobs.cpu_weight.is_live() {
            let file = WeightFile::Cpu;
            weights.extend(share(file, settings.cpu_weight, home, &view.helpers));
        }
        if let (true, Some(file)) = (knobs.io_weight.is_live(), io_file(view)) {
            weights.extend(share(file, settings.io_weight, home, &view.helpers));
        }
    }
    let tuning = Tuning {
        nice_points: match knobs.nice.is_live() {
            true => settings.nice_points,
            false => 0,
        },
        reclaim_points: match (knobs.cpu_weight.is_live(), knobs.nice.is_live()) {
            (true, _) => points_of(settings.cpu_weight),
            (false, true) => settings.nice_points,
            (false, false) => 0,
        },
        slice_us: match knobs.slice.is_live() {
            true => settings.slice_us,
            false => 0,
        },
        io_level: knobs.io_priority.is_live().then_some(settings.io_level),
    };
    let mut threads = view.threads.clone();
    for helper in &view.helpers {
        if !threads
            .iter()
            .any(|app| app.process == helper.threads.process)
        {
            threads.push(helper.threads.clone());
        }
    }
    threads.retain(|threads| !threads.tids.is_empty() && !tuning.spares(threads.role));
    (weights, tuning, threads)
}

/// How many points of nice come to a cgroup's weight: each is a quarter more time
/// (sched_prio_to_weight[] in the kernel's kernel/sched/core.c).
fn points_of(weight: u32) -> u8 {
    let points = (f64::from(weight) / f64::from(WEIGHT_DEFAULT)).ln() / 1.25f64.ln();
    points.round().clamp(0.0, 20.0) as u8
}

/// The weights of an app's cgroup, of its ancestors, and of its helpers' cgroups.
fn share(file: WeightFile, weight: u32, home: &Home, helpers: &[Helper]) -> Vec<Weight> {
    let weight = weight.min(file.max());
    let app = levels(&home.path);
    let mut weights: Vec<Weight> = app
        .iter()
        .map(|cgroup| Weight {
            file,
            cgroup: (*cgroup).to_owned(),
            inode: (*cgroup == home.path).then_some(home.inode),
            weight,
        })
        .collect();
    for helper in helpers.iter().filter_map(|helper| helper.home.as_ref()) {
        let branch = levels(&helper.path);
        let common = app.iter().zip(&branch).take_while(|(a, b)| a == b).count();
        let (Some(parting), Some(ours)) = (branch.get(common), weights.get_mut(common)) else {
            // One is inside the other: what the app's way gets, the helper gets.
            continue;
        };
        let only_helpers = is_session(parting) || *parting == helper.path;
        let shared = !(helper.own && only_helpers);
        if shared {
            ours.weight = ours.weight.min(BESIDE_HELPER);
        }
        let alike = branch.iter().skip(common + usize::from(shared));
        for cgroup in alike.filter(|_| helper.own) {
            let leaf = *cgroup == helper.path;
            let found = weights.iter().any(|known| known.cgroup == *cgroup);
            if !found {
                weights.push(Weight {
                    file,
                    cgroup: (*cgroup).to_owned(),
                    inode: leaf.then_some(helper.inode),
                    weight,
                });
            }
        }
    }
    weights
}

/// A slice that holds nothing but what a desktop itself is made of.
fn is_session(cgroup: &str) -> bool {
    cgroup.ends_with("/session.slice")
}

/// A cgroup and its ancestors, the one below the root first.
fn levels(path: &str) -> Vec<&str> {
    let mut ends: Vec<usize> = path.match_indices('/').skip(1).map(|(at, _)| at).collect();
    ends.push(path.len());
    ends.into_iter()
        .filter_map(|end| path.get(..end))
        .filter(|path| path.len() > 1)
        .collect()
}

/// What has to be taken back first.
pub fn withdraw(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    let in_force = &snapshot.in_force;
    let wanted = wanted(event, snapshot);
    let target = wanted.map(|topmost| (topmost.app.key, target(snapshot, topmost)));
    let mut steps = Vec::new();
    if let Some((app, _)) = &in_force.weighed {
        let stays =
            matches!(&target, Some((key, (weights, ..))) if key == app && !weights.is_empty());
        if !stays {
            steps.push(Step::Unweigh { app: *app });
        }
    }
    if let Some((app, tuning, _)) = &in_force.tuned {
        // Another tuning starts from what was there before.
        let stays = matches!(&target, Some((key, (_, wanted, threads)))
            if key == app && wanted == tuning && !threads.is_empty());
        if !stays {
            steps.push(Step::Untune { app: *app });
        }
    }
    steps
}

/// What is given then.
pub fn grant(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    let Some(topmost) = wanted(event, snapshot) else {
        return Vec::new();
    };
    let app = topmost.app.key;
    let (weights, tuning, threads) = target(snapshot, topmost);
    let in_force = &snapshot.in_force;
    let mut steps = Vec::new();
    let weighed =
        matches!(&in_force.weighed, Some((key, known)) if *key == app && *known == weights);
    if !weighed && !weights.is_empty() {
        steps.push(Step::Weigh { app, weights });
    }
    let tuned = matches!(&in_force.tuned, Some((key, known, seen))
        if *key == app && *known == tuning && *seen == threads);
    if !tuned && !threads.is_empty() {
        steps.push(Step::Tune {
            app,
            tuning,
            threads,
        });
    }
    steps
}

/// What a person should know about how far the boost reaches, one sentence each.
pub fn notes(snapshot: &Snapshot) -> Vec<String> {
    if !snapshot.settings.boost.enabled {
        return vec!["boost is switched off by the configuration ([boost] enabled)".to_owned()];
    }
    let Some(topmost) = &snapshot.topmost else {
        return Vec::new();
    };
    let view = &snapshot.boost;
    let knobs = knobs(&snapshot.settings.boost, view, topmost.app.home.as_ref());
    let mut notes: Vec<String> = knobs
        .all()
        .into_iter()
        .filter_map(|(name, standing)| match standing {
            Standing::Live => None,
            Standing::Unused(why) => Some(format!("boost: {name} is not used: {why}")),
            Standing::Inert(why) => Some(format!("boost: {name} is inert: {why}")),
        })
        .collect();
    if let Some(home) = topmost
        .app
        .own_home()
        .filter(|_| knobs.cpu_weight.is_live())
    {
        let shares = share(
            WeightFile::Cpu,
            snapshot.settings.boost.cpu_weight,
            home,
            &view.helpers,
        );
        if let Some(held) = shares.iter().find(|share| share.weight == BESIDE_HELPER) {
            notes.push(format!(
                "boost: {} gets no more than cpu.weight {BESIDE_HELPER}, because beside it a helper shares its cgroup with others",
                held.cgroup
            ));
        }
    }
    notes
}

#[cfg(test)]
#[path = "boost_tests.rs"]
mod tests;
