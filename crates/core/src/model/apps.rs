// SPDX-License-Identifier: GPL-2.0-or-later
//! The apps that the daemon knows, in the order in which they were used (SWAP).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::app::{App, AppKey, ProcessId};
use super::class::Reasoned;

/// An app that keeps growing behind the user's back leaks: by this part of the machine's memory
/// within [`LEAK_WITHIN`] at the least.
const LEAK_PART: u64 = 20;

/// Growth is counted from the smallest that the app was in this time.
pub const LEAK_WITHIN: Duration = Duration::from_secs(60);

/// Growth by which an app that nobody looks at takes memory without end, in bytes, on a machine with `total` of them.
pub fn leak(total: u64) -> u64 {
    total / LEAK_PART
}

/// Why an app that is not in front is in use all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// It plays or records sound.
    Audio,
    /// It holds an inhibitor lock.
    Inhibitor,
    /// Its window can be seen beside the topmost one.
    Visible,
    /// It told that there is unsaved work.
    Unsaved,
    /// It installs, upgrades or removes packages: stopped half-way, the system may not start again.
    Packages,
    /// It runs a virtual machine, with a whole system's unsaved work in it.
    Machine,
}

impl Use {
    /// As a clause behind "it".
    pub fn clause(self) -> &'static str {
        match self {
            Use::Audio => "plays or records sound",
            Use::Inhibitor => "holds an inhibitor lock",
            Use::Visible => "can be seen",
            Use::Unsaved => "has unsaved work",
            Use::Packages => "installs or removes packages",
            Use::Machine => "runs a virtual machine",
        }
    }
}

/// Memory of an app, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AppMemory {
    /// In memory, its files included.
    pub resident: u64,
    /// The part of it that can only go to swap.
    pub anonymous: u64,
    /// In swap.
    pub swapped: u64,
}

impl AppMemory {
    /// What it allocated, wherever that is now.
    pub fn allocated(&self) -> u64 {
        self.anonymous.saturating_add(self.swapped)
    }
}

/// What a look at the machine says of one app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The app.
    pub app: App,
    /// Its owner.
    pub uid: u32,
    /// When it was started, since boot.
    pub started: Duration,
    /// Its class, and why it is that.
    pub class: Reasoned,
    /// Why it is in use, if it is.
    pub uses: Vec<Use>,
    /// Why it is never touched, if it is not: it holds the session's leader or the compositor.
    pub untouchable: Option<String>,
    /// The app of which it is a part: of a terminal, where it is what runs in one of its tabs.
    pub part_of: Option<AppKey>,
    /// Its memory.
    pub memory: AppMemory,
    /// Its processes, ascending.
    pub members: Vec<ProcessId>,
}

/// A cgroup that is no app and holds much memory: a service, a container, a nightly build. It is
/// asked for memory before any app is stopped or closed, and never killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its cgroup as a target; `process` is `None`.
    pub app: App,
    /// Its memory.
    pub memory: AppMemory,
    /// Bytes by which it grew within the last minute.
    pub grown: u64,
}

/// An app that the daemon knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// As it was seen last.
    pub found: Found,
    /// When it was started, or seen first if that was earlier, since boot.
    pub appeared: Duration,
    /// When it was in front last, since boot; `None`: never.
    pub last_topmost: Option<Duration>,
    /// The least that it had allocated lately, and when; `None` from when it comes to the front, or leaves it, to the next look.
    low: Option<(Duration, u64)>,
    /// What it had allocated at the look before the last one.
    before: u64,
}

impl Known {
    fn new(found: Found, last_topmost: Option<Duration>, now: Duration) -> Known {
        Known {
            appeared: found.started.min(now),
            last_topmost,
            low: Some((now, found.memory.allocated())),
            before: found.memory.allocated(),
            found,
        }
    }

    /// Identity.
    pub fn key(&self) -> AppKey {
        self.found.app.key
    }

    /// When it was used last: in front, or started.
    pub fn used(&self) -> Duration {
        self.last_topmost.unwrap_or(self.appeared)
    }

    /// Bytes by which it grew lately, if it goes on growing.
    pub fn grown(&self) -> u64 {
        let allocated = self.found.memory.allocated();
        match allocated > self.before {
            true => allocated.saturating_sub(self.least()),
            false => 0,
        }
    }

    /// When that was, since boot.
    pub fn least_at(&self) -> Option<Duration> {
        self.low.map(|(at, _)| at)
    }

    /// The least that it had allocated lately, in bytes.
    pub fn least(&self) -> u64 {
        let allocated = self.found.memory.allocated();
        self.low.map_or(allocated, |(_, least)| least)
    }

    /// Whether it takes memory without end, as far as can be seen, on a machine with `total` bytes.
    pub fn leaks(&self, total: u64) -> bool {
        self.grown() > leak(total)
    }
}

/// All apps that the daemon knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Apps {
    known: BTreeMap<AppKey, Known>,
    /// When apps were in front last, those included that no look has found yet.
    fronts: BTreeMap<AppKey, Duration>,
}

impl Apps {
    /// An app is, or until now was, in front.
    pub fn was_topmost(&mut self, key: AppKey, now: Duration) {
        self.fronts.insert(key, now);
        if let Some(known) = self.known.get_mut(&key) {
            known.last_topmost = Some(now);
            // What it took while the user worked with it is no leak, and the last look may be older than that.
            known.low = None;
        }
    }

    /// Takes in what a look found. Returns the apps that are gone.
    pub fn observe(&mut self, found: Vec<Found>, now: Duration) -> Vec<Known> {
        let mut gone = std::mem::take(&mut self.known);
        for found in found {
            let key = found.app.key;
            let known = match gone.remove(&key) {
                Some(known) => follow(known, found, now),
                None => Known::new(found, self.fronts.get(&key).copied(), now),
            };
            self.known.insert(key, known);
        }
        for key in gone.keys() {
            self.fronts.remove(key);
        }
        self.share_use();
        gone.into_values().collect()
    }

    /// A part was used when its app was.
    fn share_use(&mut self) {
        let used = |known: &Known| {
            let whole = self.known.get(&known.found.part_of?)?;
            Some((known.key(), whole.last_topmost?))
        };
        let shared: Vec<(AppKey, Duration)> = self.known.values().filter_map(used).collect();
        for (key, at) in shared {
            if let Some(known) = self.known.get_mut(&key) {
                known.last_topmost = known.last_topmost.max(Some(at));
            }
        }
    }

    /// Takes in an app that nobody has looked for yet.
    pub fn meet(&mut self, found: Found, now: Duration) {
        let key = found.app.key;
        let last_topmost = self.fronts.get(&key).copied();
        self.known
            .entry(key)
            .or_insert_with(|| Known::new(found, last_topmost, now));
    }

    /// One app.
    pub fn get(&self, key: AppKey) -> Option<&Known> {
        self.known.get(&key)
    }

    /// All of them, the one that was used longest ago first.
    pub fn by_use(&self) -> Vec<&Known> {
        let mut all: Vec<&Known> = self.known.values().collect();
        all.sort_by_key(|known| (known.used(), known.key()));
        all
    }
}

/// What is known of an app after another look at it.
fn follow(known: Known, found: Found, now: Duration) -> Known {
    let allocated = found.memory.allocated();
    let counts = |(since, least): &(Duration, u64)| {
        *least < allocated && now.saturating_sub(*since) <= LEAK_WITHIN
    };
    Known {
        low: known.low.filter(counts).or(Some((now, allocated))),
        before: known.found.memory.allocated(),
        found,
        ..known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::class::Class;

    const MIB: u64 = 1 << 20;
    const S: fn(u64) -> Duration = Duration::from_secs;

    fn key(pid: i32) -> AppKey {
        AppKey::Tree(ProcessId { pid, starttime: 1 })
    }

    fn found(pid: i32, mib: u64) -> Found {
        Found {
            app: App {
                key: key(pid),
                name: format!("app{pid}"),
                process: None,
                home: None,
            },
            uid: 1000,
            started: Duration::MAX,
            class: Reasoned {
                class: Class::Normal,
                why: String::new(),
            },
            uses: Vec::new(),
            untouchable: None,
            part_of: None,
            memory: AppMemory {
                resident: mib * MIB,
                anonymous: mib * MIB,
                swapped: 0,
            },
            members: Vec::new(),
        }
    }

    fn order(apps: &Apps) -> Vec<String> {
        let names = apps.by_use().into_iter().map(|k| k.found.app.name.clone());
        names.collect()
    }

    #[test]
    fn use_is_the_time_in_front() {
        let mut apps = Apps::default();
        apps.was_topmost(key(2), S(1));
        apps.observe(vec![found(1, 1), found(2, 1), found(3, 1)], S(2));
        assert_eq!(order(&apps), ["app2", "app1", "app3"]);
        apps.was_topmost(key(2), S(5));
        assert_eq!(order(&apps), ["app1", "app3", "app2"]);
        let gone = apps.observe(vec![found(2, 1)], S(6));
        assert_eq!(gone.len(), 2);
        assert_eq!(order(&apps), ["app2"]);
    }

    #[test]
    fn an_app_that_was_met_is_one_that_was_found() {
        let mut apps = Apps::default();
        apps.was_topmost(key(2), S(1));
        apps.observe(vec![found(1, 1)], S(2));
        apps.meet(found(2, 1), S(3));
        assert_eq!(order(&apps), ["app2", "app1"]);
        assert_eq!(apps.get(key(2)).unwrap().last_topmost, Some(S(1)));
        // What is known of somebody is not forgotten.
        apps.meet(found(1, 50), S(4));
        assert_eq!(apps.get(key(1)).unwrap().grown(), 0);
        assert!(apps
            .observe(vec![found(1, 1), found(2, 1)], S(5))
            .is_empty());
    }

    #[test]
    fn apps_that_were_never_in_front_are_as_old_as_they_are() {
        let mut apps = Apps::default();
        let started = |pid, second| Found {
            started: S(second),
            ..found(pid, 1)
        };
        apps.observe(vec![started(1, 7), started(2, 3), started(3, 5)], S(9));
        assert_eq!(order(&apps), ["app2", "app3", "app1"]);
    }

    #[test]
    fn growth_in_the_background_is_a_leak_and_growth_in_front_is_not() {
        let mut apps = Apps::default();
        let total = 1000 * MIB;
        apps.observe(vec![found(1, 10), found(2, 10)], S(1));
        for second in 2..10 {
            apps.was_topmost(key(2), S(second));
            let size = 10 + second * 10;
            apps.observe(vec![found(1, size), found(2, size)], S(second));
        }
        assert!(apps.get(key(1)).unwrap().leaks(total));
        assert!(!apps.get(key(2)).unwrap().leaks(total));
        let size = 100;
        apps.observe(vec![found(1, size), found(2, size)], S(10));
        assert!(!apps.get(key(1)).unwrap().leaks(total), "it has stopped");
    }

    #[test]
    fn what_an_app_took_in_front_since_the_last_look_is_no_leak() {
        let mut apps = Apps::default();
        apps.observe(vec![found(1, 10)], S(1));
        apps.was_topmost(key(1), S(2));
        apps.was_topmost(key(1), S(60));
        apps.observe(vec![found(1, 200)], S(61));
        assert!(!apps.get(key(1)).unwrap().leaks(1000 * MIB));
        apps.observe(vec![found(1, 260)], S(62));
        assert!(apps.get(key(1)).unwrap().leaks(1000 * MIB), "nobody looks");
    }

    #[test]
    fn tab_was_used_when_its_terminal_was() {
        let mut apps = Apps::default();
        let tab = Found {
            part_of: Some(key(2)),
            started: S(1),
            ..found(1, 1)
        };
        apps.was_topmost(key(2), S(50));
        apps.observe(vec![tab, found(2, 1)], S(60));
        assert_eq!(apps.get(key(1)).unwrap().used(), S(50));
    }

    #[test]
    fn slow_growth_is_no_leak() {
        let mut apps = Apps::default();
        for minute in 0..60 {
            apps.observe(vec![found(1, 10 + minute * 10)], S(minute * 61));
            assert!(!apps.get(key(1)).unwrap().leaks(1000 * MIB));
        }
    }
}
