// SPDX-License-Identifier: GPL-2.0-or-later
//! Decides which knobs of `boost` act for an app, and why the other knobs do not.

use crate::model::app::Home;
use crate::model::boost::{View, WeightFile};
use crate::settings::BoostSettings;

/// Status of a knob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Set and effective.
    Live,
    /// Would be effective, but is not set because it is not needed or not wanted. Contains the
    /// reason.
    Unused(String),
    /// Not set because it would have no effect. Contains the reason.
    Inert(String),
}

impl Standing {
    /// Whether the knob is set.
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
    /// Nice values of autogroups.
    pub autogroup: Standing,
    /// Slices.
    pub slice: Standing,
    /// `io.weight` or `io.bfq.weight`.
    pub io_weight: Standing,
    /// I/O priorities.
    pub io_priority: Standing,
}

impl Knobs {
    /// The knobs by name.
    pub fn all(&self) -> [(&'static str, &Standing); 6] {
        [
            ("cpu.weight", &self.cpu_weight),
            ("nice", &self.nice),
            ("autogroup", &self.autogroup),
            ("slice", &self.slice),
            ("io.weight", &self.io_weight),
            ("ioprio", &self.io_priority),
        ]
    }
}

/// Status of all knobs for an app. `home`: its cgroup, if it has one.
pub fn knobs(settings: &BoostSettings, view: &View, home: Option<&Home>) -> Knobs {
    let cpu_weight = cpu_weight(view, home);
    Knobs {
        nice: nice(settings, &cpu_weight),
        autogroup: autogroup(settings, view, &cpu_weight),
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

/// Whether the cpu controller may be enabled for weights.
pub(super) fn may_weigh(view: &View) -> bool {
    view.schedulers.sched_ext.is_none() && !view.schedulers.realtime_groups
}

fn cpu_weight(view: &View, home: Option<&Home>) -> Standing {
    if let Some(name) = &view.schedulers.sched_ext {
        return Standing::Inert(format!(
            "the sched_ext scheduler {name} is loaded, and most such schedulers ignore cgroups"
        ));
    }
    match (own(home), &view.without_cpu) {
        (Err(why), _) => Standing::Inert(why),
        (Ok(home), Some(cgroup)) => {
            let why = match home.adopted && view.schedulers.realtime_groups {
                true => {
                    ", because if it were enabled, no program there could get a realtime priority \
                     (CONFIG_RT_GROUP_SCHED)"
                }
                false => "",
            };
            Standing::Inert(format!(
                "the cpu controller is not enabled for {cgroup}{why}"
            ))
        }
        (Ok(_), None) => Standing::Live,
    }
}

fn nice(settings: &BoostSettings, cpu_weight: &Standing) -> Standing {
    if cpu_weight.is_live() {
        return Standing::Unused("cpu.weight acts".to_owned());
    }
    if settings.nice_points == 0 {
        return Standing::Unused("switched off ([boost] nice_points = 0)".to_owned());
    }
    Standing::Live
}

/// Status of the autogroups' nice values. Nice values of threads count only inside an autogroup
/// (kernel.sched_autogroup_enabled); between autogroups only the autogroups' own nice values count.
fn autogroup(settings: &BoostSettings, view: &View, cpu_weight: &Standing) -> Standing {
    if cpu_weight.is_live() {
        return Standing::Unused("cpu.weight acts".to_owned());
    }
    if settings.nice_points == 0 {
        return Standing::Unused("switched off ([boost] nice_points = 0)".to_owned());
    }
    if let Some(name) = &view.schedulers.sched_ext {
        return Standing::Inert(format!("the sched_ext scheduler {name} is loaded"));
    }
    match view.autogrouped {
        true => Standing::Live,
        false => Standing::Unused("the app's session is not an autogroup".to_owned()),
    }
}

fn slice(settings: &BoostSettings, view: &View) -> Standing {
    if settings.slice_us == 0 {
        return Standing::Unused("switched off ([expert] boost_slice_us = 0)".to_owned());
    }
    if !view.schedulers.slices {
        return Standing::Inert("kernels before 6.12 have no slices per thread".to_owned());
    }
    match &view.schedulers.sched_ext {
        Some(name) => Standing::Inert(format!("the sched_ext scheduler {name} is loaded")),
        None => Standing::Live,
    }
}

fn has_bfq(view: &View) -> bool {
    let mut disks = view.schedulers.disks.iter();
    disks.any(|disk| disk.scheduler == "bfq")
}

/// The disks' schedulers, for display.
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

pub(super) fn io_file(view: &View) -> Option<WeightFile> {
    if view.schedulers.disks.iter().any(|disk| disk.cost) {
        return Some(WeightFile::Io);
    }
    has_bfq(view).then_some(WeightFile::Bfq)
}

fn io_weight(view: &View, home: Option<&Home>) -> Standing {
    if io_file(view).is_none() {
        return Standing::Inert(format!("no disk uses BFQ or iocost ({})", disks(view)));
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
            "no disk uses BFQ, and other schedulers ignore I/O priority levels ({})",
            disks(view)
        )),
    }
}
