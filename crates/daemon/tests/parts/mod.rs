// SPDX-License-Identifier: GPL-2.0-or-later
//! A machine of plain files, and parts of the daemon that run on it in simulated time: the scan for
//! apps, the model, the gate and the mechanism `swap`. The tests call the policy themselves, and
//! drive all of these with random sequences of events.
//!
//! The processes are real (`sleep`), because a pidfd cannot be faked. When a process of the machine
//! ends, only its files are removed; the real process is killed when the machine is dropped.

// Each test uses only some of these items.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use limelight_core::model::apps::{Apps, Service, Use};
use limelight_core::model::class::Classes;
use limelight_core::model::never::Exceptions;
use limelight_core::model::protected::PREVIOUS_FOR;
use limelight_core::model::shortage::{derive_thresholds, Gauge, Shortage};
use limelight_core::model::snapshot::Measured;
use limelight_core::model::storage::{Area, Medium, Storage};
use limelight_core::model::topmost::{Claim, Topmost};
use limelight_core::model::{AppKey, ProcessId, Snapshot};
use limelight_core::policy::swap::Step;
use limelight_daemon::mechanisms::device::DeviceDoor;
use limelight_daemon::mechanisms::swap::Swap;
use limelight_daemon::mechanisms::{Context, Mechanism, Shared, Writer};
use limelight_daemon::reconcile::gate::collect::{homes, Collector, Request};
use limelight_daemon::restore::Ledger;
use limelight_daemon::sources::apps::AppsSource;
use limelight_daemon::sources::services::{self, ServiceGrowth};
use limelight_daemon::system::{authorization, identify};
use limelight_daemon::system::{Roots, System};

#[path = "../common/random.rs"]
mod random;
pub use random::Random;

pub const MIB: u64 = 1 << 20;
/// Memory of the machine, in bytes.
pub const TOTAL: u64 = 256 * MIB;
/// Total swap in MiB, on a machine with swap.
pub const SWAP: u64 = 128;

/// The true state of a process. The tests derive the expected result from it, and not from what the
/// daemon believes about apps.
#[derive(Debug, Clone)]
pub struct Real {
    pub ppid: i32,
    pub group: &'static str,
    pub id: ProcessId,
    pub uid: u32,
    pub comm: &'static str,
    /// Anonymous memory in KiB.
    pub kib: u64,
    /// The same memory in KiB, by cgroup to which it is charged. When a process moves, memory that
    /// it already uses stays charged to the old cgroup.
    pub charged: BTreeMap<&'static str, u64>,
}

/// A machine of plain files with real processes.
pub struct Machine {
    pub temp: tempfile::TempDir,
    pub system: System,
    pool: Vec<Child>,
    pub live: BTreeMap<i32, Real>,
    /// Start time of the most recently started process, in clock ticks.
    pub ticks: u64,
    groups: &'static [&'static str],
}

impl Drop for Machine {
    fn drop(&mut self) {
        for child in &mut self.pool {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Machine {
    /// A machine with these cgroups, none of which has a process, and at most this many processes.
    pub fn new(groups: &'static [&'static str], processes: usize) -> Machine {
        let memory = PathBuf::from("/dev/shm");
        let temp = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        for directory in ["proc", "sys", "cgroup", "run"] {
            fs::create_dir(temp.path().join(directory)).unwrap();
        }
        let spawn = |_| Command::new("sleep").arg("1000").spawn().unwrap();
        let below = |name: &str| temp.path().join(name);
        let roots = Roots {
            proc: below("proc"),
            sys: below("sys"),
            cgroup: Some(below("cgroup")),
            sessions: below("sessions"),
            inhibit: below("inhibit"),
            data: vec![below("data")],
            runtime: below("run"),
            ..Roots::default()
        };
        let system = System::open(roots).unwrap();
        let machine = Machine {
            pool: (0..processes).map(spawn).collect(),
            live: BTreeMap::new(),
            ticks: 1,
            system,
            temp,
            groups,
        };
        machine.write("p", "");
        for group in groups.iter().chain(&[""]) {
            for (file, text) in [
                ("cgroup.procs", ""),
                ("cgroup.controllers", "memory\n"),
                ("cgroup.subtree_control", "memory\n"),
                ("cgroup.events", "populated 1\nfrozen 0\n"),
                ("memory.current", "50000000\n"),
                ("memory.stat", "anon 40000000\nshmem 0\n"),
                ("memory.swap.current", "0\n"),
                ("cgroup.kill", ""),
            ] {
                machine.write(&format!("cgroup{group}/{file}"), text);
            }
        }
        machine
    }

    pub fn write(&self, file: &str, text: &str) {
        let path = self.temp.path().join(file);
        if !path.parent().unwrap().is_dir() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, file: &str) -> String {
        let text = fs::read_to_string(self.temp.path().join(file)).unwrap_or_default();
        text.trim().to_owned()
    }

    /// Ends all processes and resets all cgroups.
    pub fn reset(&mut self) {
        for pid in self.live.keys().copied().collect::<Vec<_>>() {
            self.exit(pid);
        }
        for group in self.groups {
            self.write(&format!("cgroup{group}/cgroup.freeze"), "0\n");
            self.write(&format!("cgroup{group}/memory.swap.max"), "max\n");
        }
    }

    pub fn pids(&self) -> Vec<i32> {
        self.live.keys().copied().collect()
    }

    pub fn list(&self, group: &str) {
        let inside = self.live.iter().filter(|(_, real)| real.group == group);
        let text: String = inside.map(|(pid, _)| format!("{pid}\n")).collect();
        self.write(&format!("cgroup{group}/cgroup.procs"), &text);
    }

    /// An unused pid of the pool.
    pub fn free(&self) -> Option<i32> {
        let mut all = self.pool.iter().map(|child| child.id() as i32);
        all.find(|pid| !self.live.contains_key(pid))
    }

    /// Starts a process in its parent's cgroup; without a parent, in a random cgroup as a child of
    /// init.
    pub fn fork(&mut self, parent: Option<i32>, random: &mut Random) {
        let Some(pid) = self.free() else {
            return;
        };
        let group = match parent.and_then(|pid| self.live.get(&pid)) {
            Some(parent) => parent.group,
            None => self.groups[random.below(self.groups.len())],
        };
        self.born(pid, parent.unwrap_or(1), 0, group);
    }

    /// Starts a process of a user in this cgroup.
    pub fn born(&mut self, pid: i32, ppid: i32, uid: u32, group: &'static str) {
        self.ticks += 1;
        let real = Real {
            ppid,
            group,
            id: ProcessId {
                pid,
                starttime: self.ticks,
            },
            uid,
            comm: "p",
            kib: 20_000,
            charged: BTreeMap::from([(group, 20_000)]),
        };
        self.live.insert(pid, real);
        self.write(&format!("proc/{pid}/statm"), "9000 6000 1000 0 0 0 0\n");
        self.write(&format!("proc/{pid}/cgroup"), &format!("0::{group}\n"));
        self.write(&format!("proc/{pid}/oom_score_adj"), "0\n");
        // `exe` is the same file for every process, whatever the process's `comm` is.
        let exe = self.temp.path().join(format!("proc/{pid}/exe"));
        std::os::unix::fs::symlink(self.temp.path().join("p"), exe).unwrap();
        self.status(pid);
        self.stat(pid);
        self.list(group);
    }

    /// Writes `/proc/PID/status`.
    pub fn status(&self, pid: i32) {
        let Real { uid, kib, .. } = &self.live[&pid];
        let text = format!(
            "Tgid:\t{pid}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nRssAnon:\t{kib} kB\nVmSwap:\t0 kB\n"
        );
        self.write(&format!("proc/{pid}/status"), &text);
    }

    /// Writes /proc/meminfo and the memory files of each cgroup: the sum of the charges of that
    /// cgroup and of all cgroups below it.
    pub fn charge(&self) {
        let (total, held) = (TOTAL >> 10, self.held() >> 10);
        let left = total.saturating_sub(held);
        let meminfo =
            format!("MemTotal: {total} kB\nMemFree: {left} kB\nMemAvailable: {left} kB\n");
        self.write("proc/meminfo", &meminfo);
        for group in self.groups.iter().chain(&[""]) {
            let below = |charged: &str| within(charged, group);
            let all = self.live.values().flat_map(|real| &real.charged);
            let kib: u64 = all.filter(|(at, _)| below(at)).map(|(_, kib)| kib).sum();
            let bytes = kib << 10;
            let current = format!("{bytes}\n");
            self.write(&format!("cgroup{group}/memory.current"), &current);
            let stat = format!("anon {bytes}\nshmem 0\n");
            self.write(&format!("cgroup{group}/memory.stat"), &stat);
        }
    }

    /// Memory of all processes, in bytes.
    pub fn held(&self) -> u64 {
        let kib: u64 = self.live.values().map(|real| real.kib).sum();
        kib << 10
    }

    pub fn stat(&self, pid: i32) {
        let Real { ppid, id, comm, .. } = &self.live[&pid];
        let start = id.starttime;
        let stat =
            format!("{pid} ({comm}) S {ppid} 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 {start} 0 0\n");
        self.write(&format!("proc/{pid}/stat"), &stat);
        self.write(&format!("proc/{pid}/comm"), &format!("{comm}\n"));
    }

    pub fn move_to(&mut self, pid: i32, group: &'static str) {
        let real = self.live.get_mut(&pid).unwrap();
        let before = std::mem::replace(&mut real.group, group);
        self.write(&format!("proc/{pid}/cgroup"), &format!("0::{group}\n"));
        self.list(before);
        self.list(group);
    }

    pub fn exit(&mut self, pid: i32) {
        let Some(real) = self.live.remove(&pid) else {
            return;
        };
        fs::remove_dir_all(self.temp.path().join(format!("proc/{pid}"))).unwrap();
        self.list(real.group);
        let orphans = self.live.iter_mut().filter(|(_, child)| child.ppid == pid);
        let orphans: Vec<i32> = orphans
            .map(|(pid, child)| {
                child.ppid = 1;
                *pid
            })
            .collect();
        for orphan in orphans {
            self.stat(orphan);
        }
    }

    pub fn descendants(&self, pid: i32) -> BTreeSet<i32> {
        let mut found = BTreeSet::from([pid]);
        loop {
            let children = self
                .live
                .iter()
                .filter(|(_, real)| found.contains(&real.ppid));
            let children: Vec<i32> = children.map(|(pid, _)| *pid).collect();
            let before = found.len();
            found.extend(children);
            if found.len() == before {
                return found;
            }
        }
    }

    pub fn inside(&self, group: &str) -> impl Iterator<Item = i32> + '_ {
        let group = group.to_owned();
        let live = self.live.iter();
        let live = live.filter(move |(_, real)| within(real.group, &group));
        live.map(|(pid, _)| *pid)
    }
}

/// Whether the cgroup `path` is `group` or below it.
fn within(path: &str, group: &str) -> bool {
    let rest = path.strip_prefix(group);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Parts of the daemon, which a test calls as the daemon's loop does.
pub struct TestDaemon {
    pub source: AppsSource,
    pub apps: Apps,
    pub topmost: Topmost,
    pub previous: Option<(AppKey, Duration)>,
    pub swap: Swap,
    pub shared: Shared,
    collector: Collector,
    pub last: Snapshot,
    pub now: Duration,
    /// The scan for growing cgroups that are not apps; `None` skips it.
    pub services: Option<ServiceGrowth>,
    /// Processes announced as in use.
    pub announced: Vec<(ProcessId, Use)>,
}

impl TestDaemon {
    pub fn new(machine: &Machine) -> TestDaemon {
        let runtime = machine.temp.path().join("run");
        let _ = fs::remove_dir_all(&runtime);
        fs::create_dir(&runtime).unwrap();
        let ledger = Ledger::open(&runtime, String::new());
        let device = DeviceDoor::Unused(String::new());
        TestDaemon {
            source: AppsSource::new(&machine.system, Classes::default()),
            apps: Apps::default(),
            topmost: Topmost::new(Duration::ZERO),
            previous: None,
            swap: Swap::default(),
            shared: Shared::new(ledger, device, Writer::Live),
            collector: Collector::default(),
            last: Snapshot::default(),
            now: Duration::from_secs(1000),
            services: None,
            announced: Vec::new(),
        }
    }

    pub fn focus(&mut self, machine: &Machine, pid: i32) {
        let Ok(app) = identify::app_of_pid(&machine.system, pid) else {
            return;
        };
        let before = self.topmost.front().map(|front| front.app.key);
        let claim = Claim {
            app: Some(app),
            source: "test".to_owned(),
            uid: 0,
        };
        self.topmost.claim_explicit(claim, self.now);
        self.note_front(before);
    }

    pub fn note_front(&mut self, before: Option<AppKey>) {
        let front = self.topmost.front().map(|front| front.app.clone());
        if before != front.as_ref().map(|app| app.key) {
            self.previous = before.map(|key| (key, self.now)).or(self.previous);
        }
        if let Some(app) = front {
            self.source.was_topmost(&app);
            self.apps.was_topmost(app.key, self.now);
        }
    }

    /// Checks whether the topmost app has ended or has moved, as the daemon does at a tick.
    pub fn check_front(&mut self, machine: &Machine) {
        let front = self.topmost.front().map(|front| front.app.clone());
        let before = front.as_ref().map(|app| app.key);
        let Some(app) = front else {
            return;
        };
        if let Some(moved) = authorization::moved(&machine.system, &app) {
            self.topmost.moved(app.key, moved, self.now);
        } else if !identify::is_alive(&machine.system, &app) {
            self.topmost.vanished(app.key, self.now);
        }
        self.note_front(before);
    }

    pub fn scan(&mut self, machine: &Machine) {
        let found = self
            .source
            .look(&machine.system, &[], &self.announced, self.now);
        let gone = self.apps.observe(found.unwrap(), self.now);
        let users = services::users(&machine.system);
        self.apps.users.observe(users, self.now);
        let gone = gone.iter().map(|known| known.key()).collect();
        self.swap
            .forget_apps(&mut self.shared, &machine.system, gone);
    }

    /// Updates the gate and takes the snapshot `last`, with this much available memory and free
    /// swap, in MiB. The machine has [`SWAP`] MiB of swap, or none if `swap_free` is 0.
    pub fn plan(&mut self, machine: &Machine, available: u64, swap_free: u64) {
        let system = &machine.system;
        let front = self.topmost.front().map(|front| front.app.clone());
        let members = front
            .as_ref()
            .map(|app| identify::members(system, app).unwrap());
        let previous = self
            .previous
            .filter(|(_, left)| self.now.saturating_sub(*left) < PREVIOUS_FOR);
        let previous = previous.and_then(|(key, _)| {
            let app = self.topmost.previous().filter(|app| app.key == key);
            app.or_else(|| Some(&self.apps.get(key)?.found.app))
                .cloned()
        });
        let request = Request {
            front: front.as_ref().zip(members.as_deref()),
            previous: previous.as_ref(),
            descendants: true,
            ..Request::default()
        };
        let wanted = self.collector.collect(system, self.now, request);
        let homes = homes(front.as_ref(), previous.as_ref());
        let protected = self.shared.gate.update(system, wanted, homes);
        let swap_total = if swap_free == 0 { 0 } else { SWAP };
        let mut shortage = Shortage::new(derive_thresholds(TOTAL, 0));
        let gauge = |ms: u64, full: u64| Gauge {
            at: self.now - Duration::from_millis(ms),
            free: available * MIB,
            available: available * MIB,
            swap_free: swap_free * MIB,
            swap_total: swap_total * MIB,
            full: Duration::from_millis(full),
            ..Gauge::default()
        };
        shortage.observe(gauge(1000, 0));
        shortage.observe(gauge(0, 500));
        let area = Area {
            medium: Medium::Flash,
            size: swap_total * MIB,
            used: (swap_total - swap_free) * MIB,
        };
        let mut snapshot = Snapshot {
            topmost: front.map(|app| Measured {
                members: members.unwrap_or_default(),
                app,
                footprint: None,
                terminal: None,
                exceptions: Exceptions::default(),
            }),
            apps: self.apps.by_use().into_iter().cloned().collect(),
            users_taken: self.apps.users.taken(),
            previous: self.previous,
            protected,
            shortage,
            settled: true,
            storage: Storage {
                areas: (swap_total > 0).then_some(area).into_iter().collect(),
                ..Storage::default()
            },
            in_force: self.shared.in_force.clone(),
            ..Snapshot::default()
        };
        snapshot.services = self.services(machine, &snapshot);
        snapshot.memory.total = TOTAL;
        snapshot.memory.available = available * MIB;
        snapshot.memory.free = available * MIB;
        self.last = snapshot;
    }

    fn services(&mut self, machine: &Machine, snapshot: &Snapshot) -> Vec<Service> {
        let Some(services) = &mut self.services else {
            return Vec::new();
        };
        let homes = snapshot.apps.iter();
        let homes = homes.filter_map(|known| Some(known.found.app.home.as_ref()?.path.as_str()));
        let guarded = snapshot.protected.0.iter().map(|one| one.cgroup.as_str());
        let occupied: Vec<&str> = homes.chain(guarded).collect();
        let found = services::find(&machine.system, &occupied, TOTAL);
        services.follow(found, self.now)
    }

    pub fn carry_out(&mut self, machine: &Machine, step: &Step) {
        let context = Context {
            system: &machine.system,
            now: self.now,
            front: None,
            apps: &self.last.apps,
        };
        self.swap.apply(step, &mut self.shared, context);
    }
}
