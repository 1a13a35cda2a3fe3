// SPDX-License-Identifier: GPL-2.0-or-later
//! Observes what `boost` depends on: the schedulers of CPUs and disks, the app's threads, and the
//! helper programs that serve the app.

use std::collections::BTreeMap;
use std::time::Duration;

use limelight_core::model::boost::{Autogroup, Disk, Helper, Role, Schedulers, Threads, View};
use limelight_core::model::snapshot::Measured;
use limelight_core::model::terminal::Part;
use limelight_core::model::{Home, ProcessId};
use limelight_core::settings::BoostSettings;
use limelight_sys::cgroup::{CgroupPath, WeightKnob};
use limelight_sys::schedulers;
use limelight_sys::tree::is_kernel_thread;

use crate::restore::undo::threads::own_slice_ns;
use crate::system::identify;
use crate::system::System;

/// Interval between scans for helpers and schedulers. Helpers start with the session, not with
/// every app.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// A thread of the kernel that works for apps, or a program with a helper's name.
#[derive(Debug)]
struct Known {
    name: String,
    role: Role,
    process: ProcessId,
    uid: u32,
    home: Option<Home>,
}

/// The schedulers and the helpers, as of the last scan.
#[derive(Debug, Default)]
pub struct Surroundings {
    looked_at: Option<Duration>,
    schedulers: Schedulers,
    helpers: Vec<Known>,
    /// Whether the scheduler treats each session as a group (autogroup).
    autogroups: bool,
    /// Whether realtime tasks are scheduled in groups. Determined once, and only where Limelight
    /// owns the cgroup tree, because the search in the kernel's list of functions takes long.
    realtime_groups: Option<bool>,
}

impl Surroundings {
    /// Scans again if the last scan is too old and `boost` is enabled.
    pub fn look(&mut self, system: &System, settings: &BoostSettings, now: Duration) {
        let fresh = |then: Duration| now.saturating_sub(then) < LOOK_EVERY;
        if !settings.enabled || self.looked_at.is_some_and(fresh) {
            return;
        }
        self.looked_at = Some(now);
        self.autogroups = schedulers::autogroup(&system.proc);
        let realtime_groups = *self
            .realtime_groups
            .get_or_insert_with(|| system.owns_tree() && schedulers::realtime_groups(&system.proc));
        self.schedulers = Schedulers {
            realtime_groups,
            sched_ext: schedulers::sched_ext(&system.sys),
            slices: own_slice_ns() > 0,
            disks: schedulers::disks(&system.sys, &system.cgroups)
                .into_iter()
                .map(|disk| Disk {
                    name: disk.name,
                    scheduler: disk.scheduler,
                    cost: disk.cost,
                })
                .collect(),
        };
        let helps = |name: &str| settings.helpers.iter().any(|helper| helper == name);
        let wanted = |_: i32, name: &str| helps(name) || kernel_role(name).is_some();
        let found = system.proc.named(wanted).unwrap_or_default();
        let second = system.proc.stat(2).ok().flatten();
        self.helpers = found
            .iter()
            .filter_map(|stat| {
                let is_kernel = || is_kernel_thread(stat, second.as_ref());
                let kernel = || kernel_role(&stat.comm).filter(|_| is_kernel());
                let role = match helps(&stat.comm) {
                    true => Role::Helper,
                    false => kernel()?,
                };
                let id = ProcessId {
                    pid: stat.pid,
                    starttime: stat.start_ticks,
                };
                known(system, &stat.comm, role, id)
            })
            .collect();
    }

    /// Whether there has been a scan.
    pub fn is_known(&self) -> bool {
        self.looked_at.is_some()
    }

    /// How many helpers the last scan found.
    pub fn helpers(&self) -> usize {
        let programs = self.helpers.iter();
        programs.filter(|known| known.role != Role::Worker).count()
    }

    /// Forgets the last scan: the configured helper names may have changed.
    pub fn forget(&mut self) {
        self.looked_at = None;
    }

    /// What the policy needs to know about this app, and about another app that is starting
    /// meanwhile. Does not fill in the competitors.
    pub fn view(&self, system: &System, measured: &Measured, starting: Option<&Measured>) -> View {
        let (app, members) = (&measured.app, measured.members.as_slice());
        let home = app.own_home();
        let io = match self.schedulers.disks.iter().any(|disk| disk.cost) {
            true => WeightKnob::Io,
            false => WeightKnob::Bfq,
        };
        let first = members.first().or(app.process.as_ref());
        let owner = first.and_then(|id| system.same_process(*id)?.owner_uid().ok());
        let helpers: Vec<Helper> = self
            .helpers
            .iter()
            .filter(|known| known.role != Role::Worker || measured.terminal.is_some())
            .filter_map(|known| helper(system, known, owner))
            .collect();
        let path = home.and_then(|home| CgroupPath::parse(&home.path));
        let without = |knob: WeightKnob| {
            let found = system.cgroups.first_without(path.as_ref()?, knob.file())?;
            Some(found.as_str().to_owned())
        };
        let weightless = home.is_none() || without(WeightKnob::Cpu).is_some();
        let groups = match self.autogroups && weightless {
            true => {
                let more = starting.map_or(&[][..], |starting| &starting.members);
                let serving = helpers.iter().map(|helper| &helper.threads.process);
                // A tab is a session of its own, with its builds in it.
                let windows = members.iter().filter(|id| in_window(measured, **id));
                autogroups(system, windows.chain(more).chain(serving))
            }
            false => Vec::new(),
        };
        let threads_of = |measured: &Measured| {
            let all = roles(measured).into_iter();
            all.filter_map(|(id, role)| threads(system, id, role))
                .collect()
        };
        View {
            schedulers: self.schedulers.clone(),
            without_cpu: without(WeightKnob::Cpu),
            without_io: without(io),
            autogrouped: groups.iter().any(|group| members.contains(&group.process)),
            autogroups: groups,
            threads: threads_of(measured),
            starting: starting.map_or_else(Vec::new, threads_of),
            helpers,
            competitors: Vec::new(),
        }
    }
}

/// The processes of an app that `boost` changes, with their roles.
fn roles(measured: &Measured) -> Vec<(ProcessId, Role)> {
    let members = measured.members.iter();
    match &measured.terminal {
        Some(terminal) => terminal.roles().collect(),
        None => members.map(|process| (*process, Role::App)).collect(),
    }
}

fn in_window(measured: &Measured, process: ProcessId) -> bool {
    let terminal = measured.terminal.as_ref();
    terminal.is_none_or(|terminal| terminal.part(process) == Some(Part::Window))
}

/// The threads of these processes, in the role of competitors.
pub fn competing(system: &System, all: &[ProcessId]) -> Vec<Threads> {
    let all = all.iter();
    all.filter_map(|id| threads(system, *id, Role::Competitor))
        .collect()
}

/// The autogroups of these processes, each once, ordered by number.
fn autogroups<'a>(system: &System, all: impl Iterator<Item = &'a ProcessId>) -> Vec<Autogroup> {
    let mut groups: BTreeMap<u64, Autogroup> = BTreeMap::new();
    for id in all {
        let Some(process) = system.same_process(*id) else {
            continue;
        };
        // Autogroups have no effect in a cgroup with the cpu controller.
        let path = process.cgroup().ok().flatten();
        let path = path.and_then(|path| CgroupPath::parse(&path));
        let weighed = path.is_some_and(|path| system.cgroups.groups_for_cpu(&path));
        if let (false, Ok(Some(group))) = (weighed, process.autogroup()) {
            groups.entry(group.number).or_insert(Autogroup {
                number: group.number,
                process: *id,
            });
        }
    }
    groups.into_values().collect()
}

fn threads(system: &System, process: ProcessId, role: Role) -> Option<Threads> {
    let tids = system.same_process(process)?.threads().ok()?;
    Some(Threads {
        process,
        tids,
        role,
    })
}

/// The role of a kernel thread of this name: reclaim, or a worker that is bound to no processor. Any
/// program can have such a name.
fn kernel_role(name: &str) -> Option<Role> {
    let reclaims = name.strip_prefix("kswapd");
    if reclaims.is_some_and(|number| number.parse::<u32>().is_ok()) {
        return Some(Role::Reclaim);
    }
    name.starts_with("kworker/u").then_some(Role::Worker)
}

fn known(system: &System, name: &str, role: Role, id: ProcessId) -> Option<Known> {
    Some(Known {
        name: name.to_owned(),
        role,
        process: id,
        uid: system.same_process(id)?.owner_uid().ok()?,
        home: identify::home_of_helper(system, id),
    })
}

/// Returns a helper with its threads if it still runs and belongs to root or to the app's owner.
/// The name is not enough: another user's program must not be boosted.
fn helper(system: &System, known: &Known, owner: Option<u32>) -> Option<Helper> {
    if known.uid != 0 && Some(known.uid) != owner {
        return None;
    }
    let alone = known.home.as_ref().is_some_and(|home| home.own);
    let role = match known.role {
        Role::Helper if !alone => Role::HelperAmong,
        role => role,
    };
    Some(Helper {
        name: known.name.clone(),
        home: known.home.clone(),
        threads: threads(system, known.process, role)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Roots;
    use std::fs;

    #[test]
    fn only_kernel_threads_have_the_roles_of_kernel_threads() {
        let temp = tempfile::tempdir().unwrap();
        for directory in ["proc", "sys", "cgroup"] {
            fs::create_dir(temp.path().join(directory)).unwrap();
        }
        for (pid, ppid, comm) in [
            (1, 0, "init"),
            (2, 0, "kthreadd"),
            (45, 2, "kswapd0"),
            (46, 2, "kswapper"),
            (47, 2, "kworker/u8:1"),
            (48, 2, "kworker/0:1"),
            (500, 1, "kthreadd"),
            (501, 500, "kswapd1"),
            (502, 1, "kswapd0"),
            (503, 1, "kworker/u8:1"),
            (504, 1, "pipewire"),
        ] {
            let directory = temp.path().join(format!("proc/{pid}"));
            fs::create_dir(&directory).unwrap();
            let stat =
                format!("{pid} ({comm}) S {ppid} 0 0 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 7 0 0\n");
            let status = format!("Tgid:\t{pid}\nUid:\t0\t0\t0\t0\n");
            let comm = format!("{comm}\n");
            for (file, text) in [("stat", stat), ("comm", comm), ("status", status)] {
                fs::write(directory.join(file), text).unwrap();
            }
        }
        let system = System::open(Roots::below(temp.path())).unwrap();
        let settings = BoostSettings {
            helpers: vec!["pipewire".to_owned()],
            ..BoostSettings::default()
        };
        let mut surroundings = Surroundings::default();
        surroundings.look(&system, &settings, Duration::ZERO);
        let all = surroundings.helpers.iter();
        let found: Vec<(i32, Role)> = all.map(|one| (one.process.pid, one.role)).collect();
        assert_eq!(
            found,
            [(45, Role::Reclaim), (47, Role::Worker), (504, Role::Helper)]
        );
    }
}
