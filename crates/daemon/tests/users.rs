// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests the limits of what one user's growth may do to other users' apps. One of three
//! unprivileged users (the taker) takes memory. While the taker's processes account for most of the
//! growth ([`World::takes_most`]), these rules hold for the apps of the other two users (the
//! bystanders):
//!
//! - An app is killed only if it leaks itself.
//! - No app is frozen.
//! - An app is squeezed only if no app of the taker can be squeezed.
//!
//! The taker's untouchable apps never hold more than a sixteenth of memory. When the daemon stops,
//! no cgroup stays frozen or limited.
//!
//! Random sequences of actions that need no privilege go through the real scan, model, policy, gate
//! and mechanisms, in simulated time.

mod parts;

use std::collections::BTreeMap;
use std::time::Duration;

use limelight_core::model::apps::{leak, Known, Use};
use limelight_core::model::class::Class;
use limelight_core::model::AppKey;
use limelight_core::policy::swap::culprit::Culprits;
use limelight_core::policy::swap::{self, account, order, Step};
use limelight_core::policy::Event;
use limelight_daemon::sources::apps::Override;
use parts::{Machine, Random, TestDaemon, MIB, SWAP, TOTAL};

/// Sequences in one run, unless `LIMELIGHT_USERS_SEQUENCES` sets another number.
const SEQUENCES: usize = 600;
/// Times that the daemon plans in one sequence.
const STEPS: u32 = 12;
const PROCESSES: usize = 18;

const USERS: [u32; 3] = [1001, 1002, 1003];

/// Number of cgroups into which one user's processes can move: the session's cgroup, then the
/// cgroups for apps.
const PLACES: usize = 6;

macro_rules! groups {
    ($($uid:literal)*) => {
        &[
            "/user.slice",
            $(
                concat!("/user.slice/user-", $uid, ".slice"),
                concat!("/user.slice/user-", $uid, ".slice/user@", $uid, ".service"),
                concat!("/user.slice/user-", $uid, ".slice/user@", $uid, ".service/app.slice"),
                concat!("/user.slice/user-", $uid, ".slice/session-1.scope"),
                concat!("/user.slice/user-", $uid, ".slice/user@", $uid, ".service/app.slice/app-one-1.scope"),
                concat!("/user.slice/user-", $uid, ".slice/user@", $uid, ".service/app.slice/app-one-1.scope/app-in-2.scope"),
                concat!("/user.slice/user-", $uid, ".slice/user@", $uid, ".service/app.slice/app-two-3.scope"),
                concat!("/user.slice/user-", $uid, ".slice/user@", $uid, ".service/app.slice/app-agent@autostart.service"),
                concat!("/user.slice/user-", $uid, ".slice/user@", $uid, ".service/app.slice/vte-spawn-4.scope"),
            )*
        ]
    };
}

const GROUPS: &[&str] = groups!(1001 1002 1003);

/// Names that a process may choose: an ordinary name, names of programs that a session needs, and a
/// name whose line break forges a second line of output.
const NAMES: [&str; 7] = [
    "p",
    "Xorg",
    "sway",
    "tmux: server",
    "gnome-session-b",
    "systemd",
    "x\nkilled: all",
];

/// Path of the user's cgroup number `at`, which is less than [`PLACES`].
fn place(user: usize, at: usize) -> &'static str {
    GROUPS[1 + user * (PLACES + 3) + 3 + at]
}

/// The state of one sequence.
struct World {
    machine: Machine,
    daemon: TestDaemon,
    /// Indices of the user that takes memory, and of the user at the screen.
    taker: usize,
    seated: usize,
    /// Free swap in MiB; 0 means that the machine has none.
    swap: u64,
    /// Each user's lowest memory so far, in bytes.
    least: [u64; 3],
    /// Time of the last squeeze of each app.
    squeezed: BTreeMap<AppKey, Duration>,
    /// Actions so far, for the failure message.
    trail: Vec<String>,
}

impl World {
    fn begin(machine: Machine, random: &mut Random) -> World {
        let mut daemon = TestDaemon::new(&machine);
        daemon.services = Some(Default::default());
        let mut world = World {
            machine,
            daemon,
            taker: random.below(3),
            seated: random.below(3),
            swap: [0, SWAP / 2][random.below(2)],
            least: [0; 3],
            squeezed: BTreeMap::new(),
            trail: Vec::new(),
        };
        world.machine.ticks = 10_000;
        for user in 0..3 {
            for _ in 0..2 {
                let mib = 2 + random.below(30) as u64;
                world.start(user, random.below(PLACES), 1, mib, random);
            }
        }
        world.daemon.now += Duration::from_secs(100);
        world.machine.charge();
        world.daemon.scan(&world.machine);
        world.least = [0, 1, 2].map(|user| world.held(user));
        world
    }

    fn pids(&self, user: usize) -> Vec<i32> {
        let own = self.machine.live.iter();
        let own = own.filter(|(_, real)| real.uid == USERS[user]);
        own.map(|(pid, _)| *pid).collect()
    }

    /// Memory of a user's processes, in bytes.
    fn held(&self, user: usize) -> u64 {
        let all = self.pids(user);
        let kib: u64 = all.iter().map(|pid| self.machine.live[pid].kib).sum();
        kib << 10
    }

    fn start(&mut self, user: usize, at: usize, ppid: i32, mib: u64, random: &mut Random) {
        let Some(pid) = self.machine.free() else {
            return;
        };
        let since_boot = self.daemon.now.as_millis() as u64 / 10;
        self.machine.ticks = self.machine.ticks.max(since_boot);
        let asks = ["", "LIMELIGHT_CLASS=disposable", "LIMELIGHT_CLASS=keep"];
        let asks = asks[random.below(4) % 3];
        self.machine.write(&format!("proc/{pid}/environ"), asks);
        self.machine.born(pid, ppid, USERS[user], place(user, at));
        self.resize(pid, mib << 10);
    }

    /// Changes the memory of a process and the charge of its current cgroup.
    fn resize(&mut self, pid: i32, kib: u64) {
        let real = self.machine.live.get_mut(&pid).unwrap();
        let before = std::mem::replace(&mut real.kib, kib);
        let charged = real.charged.entry(real.group).or_default();
        *charged = *charged + kib - before;
        self.machine.status(pid);
    }

    /// Free memory and swap, in MiB.
    fn room(&self) -> u64 {
        (TOTAL / MIB + self.swap).saturating_sub(self.machine.held() / MIB)
    }

    /// One random action that needs no privilege.
    fn act(&mut self, user: usize, random: &mut Random) {
        let all = self.pids(user);
        let Some(&pid) = all.get(random.below(all.len().max(1))) else {
            return self.start(user, random.below(PLACES), 1, 1, random);
        };
        let takes = user == self.taker;
        let what = random.below(if takes { 16 } else { 9 });
        self.trail.push(format!("user {user} pid {pid}: {what}"));
        match what {
            0 => self.start(user, random.below(PLACES), pid, 0, random),
            1 => self.start(user, random.below(PLACES), 1, 0, random),
            2 => {
                // It is reparented to init, as after a double fork.
                self.machine.live.get_mut(&pid).unwrap().ppid = 1;
                self.machine.stat(pid);
            }
            3 => self.machine.move_to(pid, place(user, random.below(PLACES))),
            4 => {
                let name = NAMES[random.below(NAMES.len())];
                self.machine.live.get_mut(&pid).unwrap().comm = name;
                self.machine.stat(pid);
            }
            5 if all.len() > 1 => self.machine.exit(pid),
            6 => {
                let id = self.machine.live[&pid].id;
                let known = self.daemon.announced.len();
                self.daemon.announced.retain(|(one, _)| *one != id);
                if known == self.daemon.announced.len() {
                    self.daemon.announced.push((id, Use::Unsaved));
                }
            }
            7 if user == self.seated => self.daemon.focus(&self.machine, pid),
            8 => {
                let uid = USERS[user];
                let mut own = self.daemon.last.apps.iter();
                let own = own.find(|known| known.found.uid == uid);
                let class = Class::Disposable;
                if let Some(key) = own.map(Known::key) {
                    let set = Override { class, uid };
                    self.daemon.source.set_override(key, Some(set));
                }
            }
            _ if takes => self.grow(pid, 1 + random.below(40) as u64),
            _ => {}
        }
    }

    /// Makes a process touch `mib` MiB more memory, but leaves at least 1 MiB free.
    fn grow(&mut self, pid: i32, mib: u64) {
        let mib = mib.min(self.room().saturating_sub(1));
        let kib = self.machine.live[&pid].kib + (mib << 10);
        self.resize(pid, kib);
        self.trail.push(format!("  grew by {mib} MiB"));
    }

    /// Whether the taker grew by more than `leak(TOTAL)`, and by more than the two bystanders
    /// together. Calculated from the true sizes of the processes, not from the daemon's model.
    fn takes_most(&self) -> bool {
        let grown = |user: usize| self.held(user).saturating_sub(self.least[user]);
        let taken = grown(self.taker);
        let all: u64 = [0, 1, 2].map(grown).iter().sum();
        taken > leak(TOTAL) && taken > all / 2
    }

    fn known(&self, app: AppKey) -> Option<&Known> {
        let mut all = self.daemon.last.apps.iter();
        all.find(|known| known.key() == app)
    }

    /// Whether an app belongs to a bystander.
    fn is_bystander(&self, app: AppKey) -> bool {
        let known = self.known(app);
        known.is_some_and(|known| known.found.uid != USERS[self.taker])
    }

    fn fail(&self, what: &str) -> ! {
        let uid = USERS[self.taker];
        let culprits = Culprits::of(&self.daemon.last);
        let apps = self.daemon.last.apps.iter().map(|known| {
            let found = &known.found;
            let spared = order::spared(known, &self.daemon.last, &culprits);
            format!(
                "uid {} {} {} MiB, {:?}, uses {:?}, spared {spared:?}, path {:?}",
                found.uid,
                found.app.name,
                found.memory.allocated() / MIB,
                found.class.class,
                found.uses,
                found.app.home.as_ref().map(|home| &home.path)
            )
        });
        let apps: Vec<String> = apps.collect();
        panic!(
            "{what}\nuid {uid} takes the memory; {:?}\n{apps:#?}\n{:#?}",
            self.daemon.last.shortage.situation(),
            self.trail
        );
    }

    /// Checks that the taker's untouchable apps hold at most a sixteenth of memory.
    fn check_untouchable(&self) {
        let uid = USERS[self.taker];
        let own = self.daemon.last.apps.iter();
        let owners = order::Owners::of(&self.daemon.last);
        let untouchable = |known: &&Known| {
            let spared = order::never_killed(known, &self.daemon.last, owners);
            matches!(spared, Some(order::Spared::Untouchable(_)))
        };
        let own = own
            .filter(|known| known.found.uid == uid)
            .filter(untouchable);
        let held: u64 = own.map(|known| known.found.memory.allocated()).sum();
        if held > TOTAL / 16 {
            self.fail(&format!("untouchable apps hold {} MiB", held / MIB));
        }
    }

    /// While the taker takes most, a bystander's app may be killed only if it leaks itself.
    fn check_kill(&self, victim: &Known) {
        let healthy = !victim.leaks(TOTAL);
        if healthy && self.is_bystander(victim.key()) && self.takes_most() {
            self.fail(&format!(
                "uid {}'s {} is killed",
                victim.found.uid, victim.found.app.name
            ));
        }
    }

    /// While the taker takes most, no bystander's app may be frozen.
    fn check_freeze(&self, app: AppKey) {
        if self.is_bystander(app) && self.takes_most() {
            self.fail("a bystander's app is frozen");
        }
    }

    /// While the taker takes most, a bystander's app may be squeezed only if no app of the taker
    /// can be squeezed.
    fn check_squeeze(&self, app: AppKey) {
        if !self.is_bystander(app) || !self.takes_most() {
            return;
        }
        let last = &self.daemon.last;
        let recent = |at: &Duration| self.daemon.now.saturating_sub(*at) < Duration::from_secs(5);
        let better = last.apps.iter().find(|known| {
            let own = known.found.uid == USERS[self.taker];
            let lately = self.squeezed.get(&known.key()).is_some_and(recent);
            let refused = &last.in_force.swapping.refused;
            let refused = refused.iter().any(|one| one.app == known.key());
            let large = known.found.memory.anonymous >= MIB;
            own && large && !lately && !refused && account::unsqueezed(known, last).is_none()
        });
        if better.is_some() {
            self.fail("a bystander's app is squeezed before the taker's");
        }
    }

    /// Plans and carries out steps as the daemon does. Checks the kills, freezes and squeezes, and
    /// counts them in `counts`.
    fn plan(&mut self, counts: &mut BTreeMap<&'static str, u64>) {
        self.machine.charge();
        for user in 0..3 {
            self.least[user] = self.least[user].min(self.held(user));
        }
        self.daemon.check_front(&self.machine);
        self.daemon.scan(&self.machine);
        let resident = (TOTAL / MIB).saturating_sub(self.machine.held() / MIB);
        self.daemon.plan(&self.machine, resident, self.swap);
        self.check_untouchable();
        let mut count = |what| *counts.entry(what).or_default() += 1;
        if self.takes_most() {
            count("taker takes most");
        }
        let last = &self.daemon.last;
        let mut steps = swap::withdraw(&Event::Tick, last);
        steps.extend(swap::receive(&Event::Tick, last));
        steps.extend(swap::grant(&Event::Tick, last));
        for step in steps {
            match &step {
                Step::Arm { order } => {
                    count(match self.kill_one(order) {
                        Some(true) => "bystander's app killed",
                        Some(false) => "taker's app killed",
                        None => "armed",
                    });
                    continue;
                }
                Step::Freeze { app, .. } => {
                    self.check_freeze(*app);
                    count("freeze");
                }
                Step::Squeeze { app, .. } => {
                    self.check_squeeze(*app);
                    self.squeezed.insert(*app, self.daemon.now);
                    count("squeeze");
                }
                _ => {}
            }
            self.daemon.carry_out(&self.machine, &step);
        }
    }

    /// Kills the app that the guard would kill now, and returns whether it was a bystander's;
    /// `None` if the guard would kill none.
    fn kill_one(&mut self, all: &[order::Candidate]) -> Option<bool> {
        let held: Vec<u64> = all.iter().map(|one| one.held).collect();
        let now = self.daemon.last.shortage.situation();
        let victim = all[order::pick(all, &held, &now)?].app;
        let victim = self.known(victim)?.clone();
        self.check_kill(&victim);
        let name = &victim.found.app.name;
        self.trail
            .push(format!("uid {}'s {name} is killed", victim.found.uid));
        for id in &victim.found.members {
            self.machine.exit(id.pid);
        }
        Some(self.is_bystander(victim.key()))
    }

    /// Stops the daemon, and checks that no cgroup stays frozen or limited.
    fn end(mut self) -> Machine {
        self.daemon.last.in_force = self.daemon.shared.in_force.clone();
        for step in swap::withdraw(&Event::Stop, &self.daemon.last) {
            self.daemon.carry_out(&self.machine, &step);
        }
        for group in GROUPS {
            for (file, original) in [("cgroup.freeze", "0"), ("memory.swap.max", "max")] {
                let now = self.machine.read(&format!("cgroup{group}/{file}"));
                if now != original {
                    self.fail(&format!("{group}/{file} stays {now}"));
                }
            }
        }
        self.machine
    }
}

#[test]
fn one_users_growth_neither_freezes_nor_kills_healthy_apps_of_others() {
    let sequences = std::env::var("LIMELIGHT_USERS_SEQUENCES");
    let sequences = sequences.map_or(SEQUENCES, |text| text.parse().unwrap());
    let mut machine = Machine::new(GROUPS, PROCESSES);
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for sequence in 0..sequences {
        let seed = 0x51ed_270b_9c5f_3a11 ^ (sequence as u64 + 1).wrapping_mul(0x9e37_79b9);
        let mut random = Random::new(seed);
        machine.reset();
        let mut world = World::begin(machine, &mut random);
        world.trail.push(format!("sequence {sequence}"));
        for _ in 0..STEPS {
            let turns = 1 + random.below(4);
            for _ in 0..turns {
                let user = match random.below(2) {
                    0 => world.taker,
                    _ => random.below(3),
                };
                world.act(user, &mut random);
            }
            world.daemon.now += Duration::from_millis([300, 700, 2500][random.below(3)]);
            world.plan(&mut counts);
        }
        machine = world.end();
    }
    // The run proves something only if each of these happened often enough: on average once in
    // every `sequences_each` sequences, and at least once.
    for (what, sequences_each) in [
        ("taker takes most", 4),
        ("taker's app killed", 10),
        ("squeeze", 2),
        ("freeze", 500),
    ] {
        let count = counts.get(what).copied().unwrap_or(0);
        let wanted = (sequences / sequences_each).max(1);
        assert!(count as usize >= wanted, "{what}, too rarely: {counts:?}");
    }
    println!("{counts:?}");
}
