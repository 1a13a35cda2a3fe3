// SPDX-License-Identifier: GPL-2.0-or-later
//! The gate's promise, on a machine of plain files: whatever processes and cgroups do, no protected
//! process is ever in the target of an action. Random sequences of focus, fork, exec, move, exit and
//! shortage go through the real scan, model, policy, gate and actuators; who is protected is worked out
//! here from the processes alone.
//!
//! Processes are real ones (`sleep`), because a pidfd cannot be faked; none of them is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use limelight_core::model::apps::Apps;
use limelight_core::model::class::Classes;
use limelight_core::model::protected::PREVIOUS_FOR;
use limelight_core::model::shortage::{Gauge, Shortage, Thresholds};
use limelight_core::model::snapshot::Measured;
use limelight_core::model::storage::{Area, Medium, Storage};
use limelight_core::model::topmost::{Claim, Topmost};
use limelight_core::model::{AppKey, Harm, ProcessId, Snapshot};
use limelight_core::policy::swap::{self, order, Step};
use limelight_core::policy::{Action, Event};
use limelight_daemon::actuators::device::DeviceDoor;
use limelight_daemon::actuators::{Actuators, Context};
use limelight_daemon::doors::{Doors, Roots};
use limelight_daemon::gate::collect::{homes, Collector};
use limelight_daemon::guard::Target;
use limelight_daemon::identify;
use limelight_daemon::restore::Ledger;
use limelight_daemon::sources::apps::AppsSource;
use limelight_sys::standing::StandingFile;

const MIB: u64 = 1 << 20;
/// Sequences in one run; set `LIMELIGHT_GATE_SEQUENCES` for more.
const SEQUENCES: usize = 10_000;
const EVENTS: u32 = 8;
const PROCESSES: usize = 10;

const GROUPS: [&str; 9] = [
    "/fg",
    "/fg/sub",
    "/fg/sub/deep",
    "/other",
    "/app.slice/app-one-1.scope",
    "/app.slice/app-one-1.scope/inner",
    "/app.slice/app-two-2.scope",
    "/app.slice/vte-spawn-3.scope",
    "/c1",
];

/// xorshift64*: the same choices each time.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.word() >> 33) as usize % end
    }
}

/// What really is: the oracle knows nothing of apps.
#[derive(Debug, Clone)]
struct Real {
    ppid: i32,
    group: &'static str,
    id: ProcessId,
}

/// The machine.
struct Machine {
    temp: tempfile::TempDir,
    doors: Doors,
    pool: Vec<Child>,
    live: BTreeMap<i32, Real>,
    ticks: u64,
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
    fn new() -> Machine {
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
        let doors = Doors::open(roots).unwrap();
        let machine = Machine {
            pool: (0..PROCESSES).map(spawn).collect(),
            live: BTreeMap::new(),
            ticks: 1,
            doors,
            temp,
        };
        for group in GROUPS.iter().chain(&[""]) {
            for (file, text) in [
                ("cgroup.procs", ""),
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

    fn write(&self, file: &str, text: &str) {
        let path = self.temp.path().join(file);
        if !path.parent().unwrap().is_dir() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        fs::write(path, text).unwrap();
    }

    fn read(&self, file: &str) -> String {
        let text = fs::read_to_string(self.temp.path().join(file)).unwrap_or_default();
        text.trim().to_owned()
    }

    /// Nothing runs, and nothing is stopped or limited.
    fn reset(&mut self) {
        for pid in self.live.keys().copied().collect::<Vec<_>>() {
            self.exit(pid);
        }
        for group in GROUPS {
            self.write(&format!("cgroup{group}/cgroup.freeze"), "0\n");
            self.write(&format!("cgroup{group}/memory.swap.max"), "max\n");
        }
    }

    fn pids(&self) -> Vec<i32> {
        self.live.keys().copied().collect()
    }

    fn list(&self, group: &str) {
        let inside = self.live.iter().filter(|(_, real)| real.group == group);
        let text: String = inside.map(|(pid, _)| format!("{pid}\n")).collect();
        self.write(&format!("cgroup{group}/cgroup.procs"), &text);
    }

    /// A process is born in its parent's cgroup, or anywhere as a child of init.
    fn fork(&mut self, parent: Option<i32>, random: &mut Random) {
        let free = self.pool.iter().map(|child| child.id() as i32);
        let Some(pid) = free.clone().find(|pid| !self.live.contains_key(pid)) else {
            return;
        };
        self.ticks += 1;
        let group = match parent.and_then(|pid| self.live.get(&pid)) {
            Some(parent) => parent.group,
            None => GROUPS[random.below(GROUPS.len())],
        };
        let real = Real {
            ppid: parent.unwrap_or(1),
            group,
            id: ProcessId {
                pid,
                starttime: self.ticks,
            },
        };
        let status = format!("Tgid:\t{pid}\nUid:\t0\t0\t0\t0\nRssAnon:\t20000 kB\nVmSwap:\t0 kB\n");
        self.write(&format!("proc/{pid}/status"), &status);
        self.write(&format!("proc/{pid}/statm"), "9000 6000 1000 0 0 0 0\n");
        self.write(&format!("proc/{pid}/cgroup"), &format!("0::{group}\n"));
        self.write(&format!("proc/{pid}/oom_score_adj"), "0\n");
        self.live.insert(pid, real);
        self.stat(pid);
        self.list(group);
    }

    fn stat(&self, pid: i32) {
        let Real { ppid, id, .. } = &self.live[&pid];
        let start = id.starttime;
        let stat = format!("{pid} (p) S {ppid} 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 {start} 0 0\n");
        self.write(&format!("proc/{pid}/stat"), &stat);
    }

    fn move_to(&mut self, pid: i32, group: &'static str) {
        let real = self.live.get_mut(&pid).unwrap();
        let before = std::mem::replace(&mut real.group, group);
        self.write(&format!("proc/{pid}/cgroup"), &format!("0::{group}\n"));
        self.list(before);
        self.list(group);
    }

    fn exit(&mut self, pid: i32) {
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

    fn descendants(&self, pid: i32) -> BTreeSet<i32> {
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

    fn inside(&self, group: &str) -> impl Iterator<Item = i32> + '_ {
        let below = format!("{group}/");
        let inside = move |real: &Real| {
            real.group == below.trim_end_matches('/') || real.group.starts_with(&below)
        };
        let live = self.live.iter().filter(move |(_, real)| inside(real));
        live.map(|(pid, _)| *pid)
    }
}

/// The daemon's parts, in the order in which the daemon uses them.
struct Daemon {
    source: AppsSource,
    apps: Apps,
    topmost: Topmost,
    previous: Option<(AppKey, Duration)>,
    actuators: Actuators,
    collector: Collector,
    last: Snapshot,
    now: Duration,
}

impl Daemon {
    fn new(machine: &Machine) -> Daemon {
        let runtime = machine.temp.path().join("run");
        let _ = fs::remove_dir_all(&runtime);
        fs::create_dir(&runtime).unwrap();
        let ledger = Ledger::open(&runtime, String::new());
        let device = DeviceDoor::Unused(String::new());
        Daemon {
            source: AppsSource::new(&machine.doors, Classes::default()),
            apps: Apps::default(),
            topmost: Topmost::new(Duration::ZERO),
            previous: None,
            actuators: Actuators::new(ledger, device),
            collector: Collector::default(),
            last: Snapshot::default(),
            now: Duration::from_secs(1000),
        }
    }

    fn focus(&mut self, machine: &Machine, pid: i32) {
        let Ok(app) = identify::app_of_pid(&machine.doors, pid) else {
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

    fn note_front(&mut self, before: Option<AppKey>) {
        let front = self.topmost.front().map(|front| front.app.clone());
        if before != front.as_ref().map(|app| app.key) {
            self.previous = before.map(|key| (key, self.now)).or(self.previous);
        }
        if let Some(app) = front {
            self.source.was_topmost(&app);
            self.apps.was_topmost(app.key, self.now);
        }
    }

    /// What the daemon does at a tick: apps end, and processes move.
    fn check_front(&mut self, machine: &Machine) {
        let front = self.topmost.front().map(|front| front.app.clone());
        let before = front.as_ref().map(|app| app.key);
        let Some(app) = front else {
            return;
        };
        if let Some(moved) = identify::moved(&machine.doors, &app) {
            self.topmost.moved(app.key, moved, self.now);
        } else if !identify::is_alive(&machine.doors, &app) {
            self.topmost.vanished(app.key, self.now);
        }
        self.note_front(before);
    }

    fn scan(&mut self, machine: &Machine) {
        let found = self.source.look(&machine.doors, &[], &[], self.now);
        let gone = self.apps.observe(found.unwrap(), self.now);
        let gone = gone.iter().map(|known| known.key()).collect();
        self.actuators.forget_apps(&machine.doors, gone);
    }

    fn plan(&mut self, machine: &Machine, available: u64) {
        let doors = &machine.doors;
        let front = self.topmost.front().map(|front| front.app.clone());
        let members = front.as_ref().map(|app| identify::members(doors, app));
        let previous = self
            .previous
            .filter(|(_, left)| self.now.saturating_sub(*left) < PREVIOUS_FOR);
        let previous = previous.and_then(|(key, _)| {
            let app = self.topmost.previous().filter(|app| app.key == key);
            app.or_else(|| Some(&self.apps.get(key)?.found.app))
                .cloned()
        });
        let tree = doors.proc.tree().unwrap();
        let wanted = self.collector.collect(
            doors,
            self.now,
            front.as_ref().zip(members.as_deref()),
            previous.as_ref(),
            &[],
            Some(&tree),
        );
        let homes = homes(front.as_ref(), previous.as_ref());
        let protected = self.actuators.gate.update(doors, wanted, homes);
        let mut shortage = Shortage::new(Thresholds::derive(256 * MIB, 0));
        let gauge = |ms: u64, full: u64| Gauge {
            at: self.now - Duration::from_millis(ms),
            free: available * MIB,
            available: available * MIB,
            swap_free: 64 * MIB,
            swap_total: 128 * MIB,
            full: Duration::from_millis(full),
            ..Gauge::default()
        };
        shortage.observe(gauge(1000, 0));
        shortage.observe(gauge(0, 500));
        let area = Area {
            medium: Medium::Flash,
            size: 128 * MIB,
            used: 64 * MIB,
        };
        let mut snapshot = Snapshot {
            topmost: front.map(|app| Measured {
                members: members.unwrap_or_default(),
                app,
                footprint: None,
            }),
            apps: self.apps.by_use().into_iter().cloned().collect(),
            previous: self.previous,
            protected,
            shortage,
            settled: true,
            storage: Storage {
                areas: vec![area],
                ..Storage::default()
            },
            in_force: self.actuators.in_force.clone(),
            ..Snapshot::default()
        };
        snapshot.memory.total = 256 * MIB;
        snapshot.memory.available = available * MIB;
        snapshot.memory.free = available * MIB;
        self.last = snapshot;
    }

    fn context<'a>(&'a self, machine: &'a Machine) -> Context<'a> {
        Context {
            doors: &machine.doors,
            now: self.now,
            front: None,
            apps: &self.last.apps,
        }
    }
}

/// Processes that nothing may harm, by the processes alone.
struct Oracle {
    front: Option<ProcessId>,
    previous: Option<(ProcessId, Duration)>,
    /// Those that were protected when the daemon looked last, and how many processes there had been.
    seen: BTreeSet<ProcessId>,
    ticks: u64,
}

/// The unit of an app in which a cgroup lies.
fn unit(group: &str) -> Option<String> {
    let end = group.match_indices('/').nth(2);
    let end = end.map_or(group.len(), |(at, _)| at);
    let is_app = group.starts_with("/app.slice/app-");
    is_app.then(|| group[..end].to_owned())
}

impl Oracle {
    /// The daemon looks now.
    fn look(&mut self, machine: &Machine, now: Duration) {
        let recent = |left: Duration| now.saturating_sub(left) < PREVIOUS_FOR;
        let previous = self.previous.filter(|(_, left)| recent(*left));
        let roots = self.front.into_iter().chain(previous.map(|(id, _)| id));
        let mut all: BTreeSet<i32> = roots.flat_map(|id| Oracle::tree(machine, id)).collect();
        // Everything in the unit of the foreground process is its app.
        let front = self.front.and_then(|id| living(machine, id));
        if let Some(unit) = front.and_then(|real| unit(real.group)) {
            all.extend(machine.inside(&unit));
        }
        self.seen = all.iter().map(|pid| machine.live[pid].id).collect();
        self.ticks = machine.ticks;
    }

    /// Those of them that live, and the children that they have had since.
    fn protected(&self, machine: &Machine) -> BTreeSet<i32> {
        let alive = self
            .seen
            .iter()
            .filter(|id| living(machine, **id).is_some());
        let mut all: BTreeSet<i32> = alive.map(|id| id.pid).collect();
        for real in machine.live.values() {
            let born = real.id.starttime > self.ticks && all.contains(&real.ppid);
            if born {
                all.insert(real.id.pid);
            }
        }
        all
    }

    /// A process and its descendants, but for what has a unit of another app.
    fn tree(machine: &Machine, root: ProcessId) -> BTreeSet<i32> {
        let Some(real) = living(machine, root) else {
            return BTreeSet::new();
        };
        let own = unit(real.group);
        let mut all = machine.descendants(root.pid);
        all.retain(|pid| {
            let theirs = unit(machine.live[pid].group);
            *pid == root.pid || theirs.is_none() || theirs == own
        });
        all
    }
}

fn place(machine: &Machine, id: ProcessId) -> Option<StandingFile> {
    StandingFile::open(machine.doors.same_process(id)?.dir(), "cgroup").ok()
}

fn living(machine: &Machine, id: ProcessId) -> Option<&Real> {
    machine.live.get(&id.pid).filter(|real| real.id == id)
}

/// Whether a cgroup that is stopped, or a target, holds a protected process.
fn check(machine: &Machine, protected: &BTreeSet<i32>, reached: &BTreeSet<i32>, what: &str) {
    let harmed: Vec<&i32> = reached.intersection(protected).collect();
    assert!(
        harmed.is_empty(),
        "{what} reaches {harmed:?} of {protected:?}: {:#?}",
        machine.live
    );
}

fn frozen(machine: &Machine) -> BTreeSet<i32> {
    let groups = GROUPS
        .into_iter()
        .filter(|group| machine.read(&format!("cgroup{group}/cgroup.freeze")) == "1");
    groups
        .flat_map(|group| machine.inside(group).collect::<Vec<_>>())
        .collect()
}

/// One random change of the machine that the daemon is not told of.
fn disturb(machine: &mut Machine, random: &mut Random) {
    let pids = machine.pids();
    let any = |random: &mut Random| pids.get(random.below(pids.len().max(1))).copied();
    match random.below(4) {
        0 => machine.fork(any(random), random),
        1 => machine.fork(None, random),
        2 => {
            if let Some(pid) = any(random) {
                machine.move_to(pid, GROUPS[random.below(GROUPS.len())]);
            }
        }
        _ => {
            if let Some(pid) = any(random).filter(|_| pids.len() > 3) {
                machine.exit(pid);
            }
        }
    }
}

/// Plans and applies as the daemon does, with a change of the machine in between, and checks every
/// target at the moment at which the daemon acts on it.
fn act(
    machine: &mut Machine,
    daemon: &mut Daemon,
    oracle: &mut Oracle,
    random: &mut Random,
    counts: &mut BTreeMap<&'static str, u64>,
) {
    daemon.check_front(machine);
    oracle.look(machine, daemon.now);
    let available = [2, 4, 30, 200][random.below(4)];
    daemon.plan(machine, available);
    let mut steps = swap::withdraw(&Event::Tick, &daemon.last);
    steps.extend(swap::receive(&Event::Tick, &daemon.last));
    steps.extend(swap::grant(&Event::Tick, &daemon.last));
    let undisturbed = random.below(2) == 0;
    let before = frozen(machine);
    if !undisturbed {
        disturb(machine, random);
    }
    for step in steps {
        let protected = oracle.protected(machine);
        match &step {
            Step::Arm { order } => {
                arm(machine, daemon, order, &protected, counts);
                continue;
            }
            Step::Squeeze {
                app, home, members, ..
            } => {
                let gate = &daemon.actuators.gate;
                let group = home.as_ref().map(|home| home.path.as_str());
                let refused =
                    group.is_some_and(|path| gate.group(path, Harm::Squeeze, *app).is_some());
                let open = members.iter().filter(|id| {
                    gate.process(**id, place(machine, **id).as_ref(), Harm::Squeeze)
                        .is_none()
                });
                // A pid that was given to another process is not reached: it is compared with its start.
                let open = open.filter(|id| living(machine, **id).is_some());
                let mut reached: BTreeSet<i32> = open.map(|id| id.pid).collect();
                reached.extend(group.into_iter().flat_map(|path| machine.inside(path)));
                if !refused {
                    *counts.entry("squeeze").or_default() += 1;
                    let text = format!(
                        "{step:?} under {:?} with {:?} (front {:?})",
                        daemon.last.protected,
                        daemon.topmost.front(),
                        oracle.front
                    );
                    check(machine, &protected, &reached, &text);
                }
            }
            _ => {}
        }
        let frozen_before = frozen(machine);
        let action = Action::Swap(step.clone());
        let in_force = daemon.actuators.in_force.swapping.refused.len();
        let mut actuators = std::mem::replace(&mut daemon.actuators, spare(machine));
        actuators.apply(&action, daemon.context(machine));
        daemon.actuators = actuators;
        let refused = daemon.actuators.in_force.swapping.refused.len()
            - in_force.min(daemon.actuators.in_force.swapping.refused.len());
        *counts.entry("refused").or_default() += refused as u64;
        match &step {
            Step::Freeze { .. } => {
                *counts.entry("freeze").or_default() += 1;
                let fresh: BTreeSet<i32> = frozen(machine)
                    .difference(&frozen_before)
                    .copied()
                    .collect();
                check(machine, &protected, &fresh, "a freeze");
            }
            Step::Exempt { app, home, .. } if refused == 0 => {
                *counts.entry("limit").or_default() += 1;
                let own = daemon
                    .last
                    .topmost
                    .as_ref()
                    .is_some_and(|top| top.app.key == *app);
                let previous = daemon.previous.is_some_and(|(key, _)| key == *app);
                if !own && !previous {
                    let reached = machine.inside(&home.path).collect();
                    check(machine, &protected, &reached, "a limit");
                }
            }
            _ => {}
        }
    }
    // What was stopped before runs again as soon as it holds a protected process.
    if undisturbed {
        let protected = oracle.protected(machine);
        let known: BTreeSet<i32> = before.intersection(&frozen(machine)).copied().collect();
        check(machine, &protected, &known, "an old freeze");
    }
}

fn spare(machine: &Machine) -> Actuators {
    let ledger = Ledger::open(&machine.temp.path().join("spare"), String::new());
    Actuators::new(ledger, DeviceDoor::Unused(String::new()))
}

/// What the guard's thread would kill, had it to kill all of them now.
fn arm(
    machine: &Machine,
    daemon: &Daemon,
    order: &[order::Candidate],
    protected: &BTreeSet<i32>,
    counts: &mut BTreeMap<&'static str, u64>,
) {
    for candidate in order {
        let known = daemon
            .last
            .apps
            .iter()
            .find(|known| known.key() == candidate.app);
        let Some(known) = known else {
            continue;
        };
        let found = &known.found;
        let Some(target) = Target::open(&machine.doors, &found.app, &found.members) else {
            continue;
        };
        if target.blocked(&daemon.actuators.gate) {
            *counts.entry("refused").or_default() += 1;
            continue;
        }
        *counts.entry("kill").or_default() += 1;
        // Through its cgroup where it has one, and then not those that have left it.
        let reached: BTreeSet<i32> = match found.app.own_home() {
            Some(home) => machine.inside(&home.path).collect(),
            None => {
                let live = |id: &&ProcessId| living(machine, **id).is_some();
                found.members.iter().filter(live).map(|id| id.pid).collect()
            }
        };
        let text = format!("a kill of {found:?} under {:?}", daemon.last.protected);
        check(machine, protected, &reached, &text);
    }
}

#[test]
fn no_protected_process_is_ever_in_a_target() {
    let sequences = std::env::var("LIMELIGHT_GATE_SEQUENCES");
    let sequences = sequences.map_or(SEQUENCES, |text| text.parse().unwrap());
    let mut machine = Machine::new();
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for sequence in 0..sequences {
        let mut random =
            Random(0x9e37_79b9_7f4a_7c15 ^ (sequence as u64 + 1).wrapping_mul(0xd6e8_feb8));
        machine.reset();
        for _ in 0..4 {
            let parent = machine
                .pids()
                .first()
                .copied()
                .filter(|_| random.below(2) == 0);
            machine.fork(parent, &mut random);
        }
        let mut daemon = Daemon::new(&machine);
        let mut oracle = Oracle {
            front: None,
            previous: None,
            seen: BTreeSet::new(),
            ticks: 0,
        };
        for _ in 0..EVENTS {
            let pids = machine.pids();
            match random.below(8) {
                0..=2 => {
                    let pid = pids[random.below(pids.len())];
                    let id = machine.live[&pid].id;
                    daemon.focus(&machine, pid);
                    if oracle.front != Some(id) {
                        oracle.previous = oracle.front.map(|id| (id, daemon.now));
                        oracle.front = Some(id);
                    }
                }
                3..=4 => disturb(&mut machine, &mut random),
                _ => {}
            }
            daemon.now += Duration::from_millis([100, 700, 6000, 12_000][random.below(4)]);
            if random.below(3) > 0 {
                daemon.scan(&machine);
            }
            act(
                &mut machine,
                &mut daemon,
                &mut oracle,
                &mut random,
                &mut counts,
            );
        }
    }
    // A run in which nothing was done proves nothing.
    for what in ["freeze", "limit", "squeeze", "kill", "refused"] {
        let count = counts.get(what).copied().unwrap_or(0);
        assert!(
            count as usize > sequences / 500,
            "{what}: {count} in {counts:?}"
        );
    }
}
