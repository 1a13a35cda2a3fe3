// SPDX-License-Identifier: GPL-2.0-or-later
//! The gate's guarantee, on a machine of plain files: whatever processes and cgroups do, no action
//! ever reaches a protected process. Random sequences of focus, fork, exec, move, exit and shortage
//! go through the real scan, model, policy, gate and mechanisms. The test derives the protected
//! processes from the processes alone.
//!
//! The processes are real (`sleep`), because a pidfd cannot be faked. When a process of the machine
//! ends, only its files are removed.

mod parts;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use limelight_core::model::protected::PREVIOUS_FOR;
use limelight_core::model::{Harm, ProcessId};
use limelight_core::policy::swap::{self, order, Step};
use limelight_core::policy::Event;
use limelight_daemon::mechanisms::swap::guard::Target;
use limelight_sys::persistent_file::PersistentFile;
use parts::{Machine, Random, Real, TestDaemon};

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

/// Derives the processes that no action may harm, independently of the daemon. It treats each app
/// unit as one app.
struct Oracle {
    front: Option<ProcessId>,
    previous: Option<(ProcessId, Duration)>,
    /// The protected processes when the daemon last made a plan.
    seen: BTreeSet<ProcessId>,
    /// Start time of the newest process at that plan, in clock ticks.
    ticks: u64,
}

/// The app unit that contains a cgroup.
fn unit(group: &str) -> Option<String> {
    let end = group.match_indices('/').nth(2);
    let end = end.map_or(group.len(), |(at, _)| at);
    let is_app = group.starts_with("/app.slice/app-");
    is_app.then(|| group[..end].to_owned())
}

impl Oracle {
    /// Records the protected processes right before the daemon makes a plan.
    fn look(&mut self, machine: &Machine, now: Duration) {
        let recent = |left: Duration| now.saturating_sub(left) < PREVIOUS_FOR;
        let previous = self.previous.filter(|(_, left)| recent(*left));
        let roots = self.front.into_iter().chain(previous.map(|(id, _)| id));
        let mut all: BTreeSet<i32> = roots.flat_map(|id| Oracle::tree(machine, id)).collect();
        // All processes in the unit of the foreground process belong to its app.
        let front = self.front.and_then(|id| living(machine, id));
        if let Some(unit) = front.and_then(|real| unit(real.group)) {
            all.extend(machine.inside(&unit));
        }
        self.seen = all.iter().map(|pid| machine.live[pid].id).collect();
        self.ticks = machine.ticks;
    }

    /// The recorded processes that still live, and the children that they have forked since.
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

    /// A process and its descendants, without those in the unit of another app.
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

fn place(machine: &Machine, id: ProcessId) -> Option<PersistentFile> {
    PersistentFile::open(machine.system.same_process(id)?.dir(), "cgroup").ok()
}

fn living(machine: &Machine, id: ProcessId) -> Option<&Real> {
    machine.live.get(&id.pid).filter(|real| real.id == id)
}

/// Fails if the cgroups or processes that an action reaches include a protected process.
fn check(machine: &Machine, protected: &BTreeSet<i32>, reached: &BTreeSet<i32>, what: &str) {
    let harmed: Vec<&i32> = reached.intersection(protected).collect();
    assert!(
        harmed.is_empty(),
        "{what} reaches {harmed:?} of {protected:?}: {:#?}",
        machine.live
    );
}

fn frozen(machine: &Machine) -> BTreeSet<i32> {
    limited_by(machine, "cgroup.freeze", "1")
}

fn kept_out_of_swap(machine: &Machine) -> BTreeSet<i32> {
    limited_by(machine, "memory.swap.max", "0")
}

/// The processes in the cgroups whose `file` has this value.
fn limited_by(machine: &Machine, file: &str, value: &str) -> BTreeSet<i32> {
    let groups = GROUPS
        .into_iter()
        .filter(|group| machine.read(&format!("cgroup{group}/{file}")) == value);
    groups
        .flat_map(|group| machine.inside(group).collect::<Vec<_>>())
        .collect()
}

/// One random change of the machine, unknown to the daemon.
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

/// Plans and applies as the daemon does. In half of the cases the machine changes in between.
/// Checks every target at the moment of the action.
fn act(
    machine: &mut Machine,
    daemon: &mut TestDaemon,
    oracle: &mut Oracle,
    random: &mut Random,
    counts: &mut BTreeMap<&'static str, u64>,
) {
    daemon.check_front(machine);
    oracle.look(machine, daemon.now);
    let available = [2, 4, 30, 200][random.below(4)];
    // As if the swapper had measured the working sets, some of which are all that is in memory.
    let set = [0, 20 << 20, 60 << 20][random.below(3)];
    let apps = daemon.apps.by_use();
    let sets = apps.iter().map(|known| (known.key(), set));
    daemon.shared.in_force.swapping.working_sets = sets.filter(|(_, set)| *set > 0).collect();
    daemon.plan(machine, available, 64);
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
                let gate = &daemon.shared.gate;
                let group = home.as_ref().map(|home| home.path.as_str());
                let refused =
                    group.is_some_and(|path| gate.group(path, Harm::Squeeze, *app).is_some());
                let open = members.iter().filter(|id| {
                    gate.process(**id, place(machine, **id).as_ref(), Harm::Squeeze)
                        .is_none()
                });
                // A reused pid is not reached, because its start time is compared.
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
        let in_force = daemon.shared.in_force.swapping.refused.len();
        daemon.carry_out(machine, &step);
        let refused = daemon.shared.in_force.swapping.refused.len()
            - in_force.min(daemon.shared.in_force.swapping.refused.len());
        *counts.entry("refused").or_default() += refused as u64;
        if refused > 0 {
            // Each refusal has a reason, which `explain` reports.
            let refusal = daemon.shared.in_force.swapping.refused.last().unwrap();
            assert!(!refusal.why.is_empty(), "{refusal:?}");
        }
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
    // If an app was frozen before and still is, it contains no protected process.
    if undisturbed {
        let protected = oracle.protected(machine);
        let known: BTreeSet<i32> = before.intersection(&frozen(machine)).copied().collect();
        check(machine, &protected, &known, "an old freeze");
        // No app is disposable here, so nothing may keep the foreground app out of swap.
        let front = oracle.front.filter(|id| living(machine, *id).is_some());
        let front = front.map(|id| Oracle::tree(machine, id));
        let front = front.unwrap_or_default();
        check(machine, &front, &kept_out_of_swap(machine), "an old limit");
    }
}

/// Arms the guard's targets and checks what it would kill, as if it killed all of them now.
fn arm(
    machine: &Machine,
    daemon: &TestDaemon,
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
        let Some(target) = Target::open(&machine.system, &found.app, &found.members) else {
            continue;
        };
        if target.blocked(&daemon.shared.gate) {
            *counts.entry("refused").or_default() += 1;
            continue;
        }
        *counts.entry("kill").or_default() += 1;
        // If the app has a cgroup, the kill goes through it, and does not reach processes that have
        // left the cgroup.
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
fn no_action_reaches_a_protected_process() {
    let sequences = std::env::var("LIMELIGHT_GATE_SEQUENCES");
    let sequences = sequences.map_or(SEQUENCES, |text| text.parse().unwrap());
    let mut machine = Machine::new(&GROUPS, PROCESSES);
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for sequence in 0..sequences {
        let mut random =
            Random::new(0x9e37_79b9_7f4a_7c15 ^ (sequence as u64 + 1).wrapping_mul(0xd6e8_feb8));
        machine.reset();
        for _ in 0..4 {
            let parent = machine
                .pids()
                .first()
                .copied()
                .filter(|_| random.below(2) == 0);
            machine.fork(parent, &mut random);
        }
        let mut daemon = TestDaemon::new(&machine);
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
    // A run without any action proves nothing.
    for what in ["freeze", "limit", "squeeze", "kill", "refused"] {
        let count = counts.get(what).copied().unwrap_or(0);
        assert!(
            count as usize > sequences / 500,
            "{what}: {count} in {counts:?}"
        );
    }
}
