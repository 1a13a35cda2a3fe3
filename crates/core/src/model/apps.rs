// SPDX-License-Identifier: GPL-2.0-or-later
//! All known apps, with the history of their use and their memory (SWAP).

use std::collections::BTreeMap;
use std::time::Duration;

pub use limelight_proto::Use;

use super::app::{App, AppKey, ProcessId};
use super::class::{Class, Reasoned};
use super::never::{Avoid, Exceptions};

/// A background app leaks if, within [`LEAK_WITHIN`], it grew by more than 1/`LEAK_PART` of the
/// memory that apps can use, and it is still growing.
const LEAK_PART: u64 = 20;

/// An app's growth is measured from its smallest size. Once that size is older than this, growth is
/// measured from the current size.
pub const LEAK_WITHIN: Duration = Duration::from_secs(60);

/// Time after its launch during which an app counts as starting. An app grows while it starts, and
/// the user may be waiting for it.
pub const STARTS: Duration = Duration::from_secs(10);

/// An app that has not grown for this long has stopped growing. Until then it counts as growing,
/// because it may be waiting for memory.
const STALLED: Duration = Duration::from_secs(3);

/// Growth in bytes above which a background app counts as leaking. `total`: the memory that apps
/// can use, in bytes.
pub fn leak(total: u64) -> u64 {
    total / LEAK_PART
}

/// Memory of an app, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AppMemory {
    /// Resident memory, file pages included.
    pub resident: u64,
    /// The part of `resident` that reclaim can free only by swapping it out.
    pub anonymous: u64,
    /// Swapped memory.
    pub swapped: u64,
}

impl AppMemory {
    /// All anonymous memory, resident or swapped.
    pub fn allocated(&self) -> u64 {
        self.anonymous.saturating_add(self.swapped)
    }
}

/// One app as found by a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The app.
    pub app: App,
    /// User id of its owner.
    pub uid: u32,
    /// When it was started, since boot.
    pub started: Duration,
    /// Its class, with the reason.
    pub class: Reasoned,
    /// Why it is in use in the background; empty if it is not.
    pub uses: Vec<Use>,
    /// The reason why no action may affect it: it contains the compositor, for example. `None` if
    /// there is none.
    pub untouchable: Option<String>,
    /// What Limelight never does for or to it.
    pub exceptions: Exceptions,
    /// The wish that it be closed after the other apps of its class, if there is one.
    pub avoid: Option<Avoid>,
    /// The app that contains it: for a program in a terminal's tab, the terminal.
    pub part_of: Option<AppKey>,
    /// Its memory.
    pub memory: AppMemory,
    /// Processor time that its processes have used so far.
    pub cpu: Duration,
    /// Its processes, ascending.
    pub members: Vec<ProcessId>,
}

impl Found {
    /// An app with default values: class normal, started at boot, not in use, without memory and
    /// processes.
    pub fn new(app: App, uid: u32) -> Found {
        Found {
            app,
            uid,
            started: Duration::ZERO,
            class: Reasoned {
                class: Class::Normal,
                why: String::new(),
            },
            uses: Vec::new(),
            untouchable: None,
            exceptions: Exceptions::default(),
            avoid: None,
            part_of: None,
            memory: AppMemory::default(),
            cpu: Duration::ZERO,
            members: Vec::new(),
        }
    }

    /// Whether it started less than [`STARTS`] ago.
    fn is_starting(&self, now: Duration) -> bool {
        let age = now.checked_sub(self.started);
        age.is_some_and(|age| age < STARTS)
    }
}

/// A cgroup that is not an app but uses much memory: a service, a container, a nightly build. It is
/// squeezed before any app is frozen or killed, and is itself never frozen or killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its cgroup, as the target of an action; `process` is `None`.
    pub app: App,
    /// Its memory.
    pub memory: AppMemory,
    /// Bytes by which its allocated memory exceeds its smallest size. A smallest size older than
    /// [`LEAK_WITHIN`] is replaced by the current size.
    pub grown: u64,
}

/// An app with its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Result of the last scan.
    pub found: Found,
    /// When it started or was first found, whichever was earlier, since boot.
    pub appeared: Duration,
    /// When it was last in the foreground, since boot; `None`: never.
    pub last_topmost: Option<Duration>,
    /// The size from which its growth is measured ([`LEAK_WITHIN`]): when it had that size, and its
    /// allocated memory then, in bytes. `None` from its last time in the foreground until the next
    /// scan.
    low: Option<(Duration, u64)>,
    /// Its allocated memory at the scan before the last one, in bytes; after its first scan, at
    /// that scan.
    before: u64,
    /// When a scan last found that it had grown, since boot; `None`: never.
    grew_at: Option<Duration>,
    /// Minimum of its allocated memory over the last one to two minutes, including time in the
    /// foreground.
    floor: Floor,
    /// Processor time that it used within [`STARTS`] of its launch, as of the last scan in that
    /// time; `None` if no scan saw the app in that time.
    start: Option<Duration>,
}

/// Minimum of a value over a recent period, one to two times [`LEAK_WITHIN`] long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Floor {
    /// Start of the current period.
    since: Duration,
    /// Minimum of the current period.
    least: u64,
    /// Minimum of the previous period.
    before: u64,
}

impl Floor {
    /// By how much `value` exceeds the minimum.
    fn grown(&self, value: u64) -> u64 {
        value.saturating_sub(self.least.min(self.before))
    }

    /// The minimum after a further reading of the value.
    fn follow(self, value: u64, now: Duration) -> Floor {
        match now.saturating_sub(self.since) > LEAK_WITHIN {
            true => Floor {
                since: now,
                least: value,
                before: self.least,
            },
            false => Floor {
                least: self.least.min(value),
                ..self
            },
        }
    }
}

impl Known {
    /// An app at its first scan. `fresh`: the previous scan did not find its cgroup, so all charges
    /// of the cgroup are new.
    fn new(found: Found, last_topmost: Option<Duration>, now: Duration, fresh: bool) -> Known {
        let allocated = found.memory.allocated();
        let age = now.checked_sub(found.started);
        let starts = age.is_some_and(|age| age <= LEAK_WITHIN);
        let before = if fresh || starts { 0 } else { allocated };
        Known {
            appeared: found.started.min(now),
            last_topmost,
            low: Some((now, allocated)),
            before: allocated,
            grew_at: None,
            floor: Floor {
                since: now,
                least: allocated,
                before,
            },
            start: found.is_starting(now).then_some(found.cpu),
            found,
        }
    }

    /// Processor time that it used within [`STARTS`] of its launch, as of the last scan in that
    /// time: a lower bound. `None` if no scan saw the app in that time.
    pub fn start(&self) -> Option<Duration> {
        self.start
    }

    /// The same app, with this result of [`Known::start`].
    #[cfg(test)]
    pub(crate) fn with_start(self, start: Duration) -> Known {
        Known {
            start: Some(start),
            ..self
        }
    }

    /// Bytes by which its allocated memory grew within the last one to two minutes. All memory of a
    /// new app counts as growth. An app is new if it started at most a minute before its first
    /// scan, or if an earlier scan did not find its cgroup.
    pub fn taken(&self) -> u64 {
        let allocated = self.found.memory.allocated();
        self.floor.grown(allocated)
    }

    /// Its identity.
    pub fn key(&self) -> AppKey {
        self.found.app.key
    }

    /// When it was last in the foreground; if never, when it appeared. Since boot.
    pub fn used(&self) -> Duration {
        self.last_topmost.unwrap_or(self.appeared)
    }

    /// Bytes by which its allocated memory exceeds [`Known::least`], or 0 if it did not grow
    /// between the last two scans.
    pub fn grown(&self) -> u64 {
        let allocated = self.found.memory.allocated();
        match allocated > self.before {
            true => allocated.saturating_sub(self.least()),
            false => 0,
        }
    }

    /// Like [`Known::grown`], but falls to 0 only 3 s after the last growth. While no memory is
    /// left, no app can grow, so a short pause does not mean that the app has stopped growing.
    pub fn grown_until_stalled(&self, now: Duration) -> u64 {
        let recent = |at: Duration| now.saturating_sub(at) <= STALLED;
        match self.grew_at.is_some_and(recent) {
            true => self.found.memory.allocated().saturating_sub(self.least()),
            false => self.grown(),
        }
    }

    /// When its allocated memory was [`Known::least`], since boot; `None` from its last time in the
    /// foreground until the next scan.
    pub fn least_at(&self) -> Option<Duration> {
        self.low.map(|(at, _)| at)
    }

    /// The size in bytes (allocated memory) from which its growth is measured ([`LEAK_WITHIN`]).
    pub fn least(&self) -> u64 {
        let allocated = self.found.memory.allocated();
        self.low.map_or(allocated, |(_, least)| least)
    }

    /// Whether its growth counts as a leak. `total`: the memory that apps can use, in bytes.
    pub fn leaks(&self, total: u64) -> bool {
        self.grown() > leak(total)
    }
}

/// Growth of each user's memory, measured by the charges of the user's slice. A process cannot hide
/// its growth by a new name or by a move to another cgroup of the slice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users {
    known: BTreeMap<u32, Taker>,
}

/// Growth of one user's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Taker {
    floor: Floor,
    /// The largest growth within [`LEAK_WITHIN`], in bytes, and when. It counts even after an OOM
    /// kill freed the memory, because the user's next process may take the memory again.
    most: (u64, Duration),
}

impl Taker {
    fn follow(self, held: u64, now: Duration) -> Taker {
        let floor = self.floor.follow(held, now);
        let grown = floor.grown(held);
        let (most, at) = self.most;
        let stays = grown < most && now.saturating_sub(at) < LEAK_WITHIN;
        Taker {
            floor,
            most: if stays { (most, at) } else { (grown, now) },
        }
    }
}

impl Users {
    /// Adds a reading. `held`: each user's id and allocated memory in bytes.
    pub fn observe(&mut self, held: Vec<(u32, u64)>, now: Duration) {
        let mut old = std::mem::take(&mut self.known);
        let first = old.is_empty();
        for (user, held) in held {
            let known = old.remove(&user).unwrap_or(Taker {
                floor: Floor {
                    since: now,
                    least: held,
                    // A slice created after the first scan has only new charges.
                    before: if first { held } else { 0 },
                },
                most: (0, now),
            });
            self.known.insert(user, known.follow(held, now));
        }
    }

    /// Each user's id, and the largest growth that was measured within [`LEAK_WITHIN`], in bytes.
    pub fn taken(&self) -> Vec<(u32, u64)> {
        let all = self.known.iter();
        all.map(|(user, taker)| (*user, taker.most.0)).collect()
    }
}

/// All known apps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Apps {
    /// Growth per user.
    pub users: Users,
    known: BTreeMap<AppKey, Known>,
    /// When each app was last in the foreground, including apps that no scan has found yet.
    fronts: BTreeMap<AppKey, Duration>,
}

impl Apps {
    /// Notes that the app is in the foreground, or was until now.
    pub fn was_topmost(&mut self, key: AppKey, now: Duration) {
        self.fronts.insert(key, now);
        if let Some(known) = self.known.get_mut(&key) {
            known.last_topmost = Some(now);
            // Growth in the foreground is not a leak, and the last scan may be older than the app's
            // time in the foreground.
            known.low = None;
        }
    }

    /// Adds the result of a scan. Returns the known apps that this scan did not find.
    pub fn observe(&mut self, found: Vec<Found>, now: Duration) -> Vec<Known> {
        let mut gone = std::mem::take(&mut self.known);
        let first = gone.is_empty();
        for found in found {
            let key = found.app.key;
            let known = match gone.remove(&key) {
                Some(known) => follow(known, found, now),
                None => {
                    let fresh = !first && matches!(key, AppKey::Cgroup { .. });
                    Known::new(found, self.fronts.get(&key).copied(), now, fresh)
                }
            };
            self.known.insert(key, known);
        }
        for key in gone.keys() {
            self.fronts.remove(key);
        }
        self.share_use();
        gone.into_values().collect()
    }

    /// An app's parts count as used whenever the app was used.
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

    /// Adds an app between two scans. Does nothing if the app is known.
    pub fn meet(&mut self, found: Found, now: Duration) {
        let key = found.app.key;
        let last_topmost = self.fronts.get(&key).copied();
        self.known
            .entry(key)
            .or_insert_with(|| Known::new(found, last_topmost, now, false));
    }

    /// The app with this key.
    pub fn get(&self, key: AppKey) -> Option<&Known> {
        self.known.get(&key)
    }

    /// All apps, least recently used first.
    pub fn by_use(&self) -> Vec<&Known> {
        let mut all: Vec<&Known> = self.known.values().collect();
        all.sort_by_key(|known| (known.used(), known.key()));
        all
    }
}

/// Updates a known app with the next scan's result.
fn follow(known: Known, found: Found, now: Duration) -> Known {
    let allocated = found.memory.allocated();
    let grows = allocated > known.found.memory.allocated();
    let counts = |(since, least): &(Duration, u64)| {
        *least < allocated && now.saturating_sub(*since) <= LEAK_WITHIN
    };
    Known {
        low: known.low.filter(counts).or(Some((now, allocated))),
        before: known.found.memory.allocated(),
        grew_at: if grows { Some(now) } else { known.grew_at },
        floor: known.floor.follow(allocated, now),
        start: match found.is_starting(now) {
            true => Some(found.cpu.max(known.start.unwrap_or_default())),
            false => known.start,
        },
        found,
        ..known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const S: fn(u64) -> Duration = Duration::from_secs;

    fn key(pid: i32) -> AppKey {
        AppKey::Tree(ProcessId { pid, starttime: 1 })
    }

    fn found(pid: i32, mib: u64) -> Found {
        let app = App {
            key: key(pid),
            name: format!("app{pid}"),
            process: None,
            home: None,
        };
        Found {
            started: Duration::MAX,
            memory: AppMemory {
                resident: mib * MIB,
                anonymous: mib * MIB,
                swapped: 0,
            },
            ..Found::new(app, 1000)
        }
    }

    fn order(apps: &Apps) -> Vec<String> {
        let names = apps.by_use().into_iter().map(|k| k.found.app.name.clone());
        names.collect()
    }

    #[test]
    fn last_use_is_the_last_time_in_the_foreground() {
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
    fn start_is_the_processor_time_of_the_first_seconds() {
        let mut apps = Apps::default();
        let seen = |started, cpu| Found {
            started: S(started),
            cpu: S(cpu),
            ..found(1, 1)
        };
        let start = |apps: &Apps| apps.get(key(1)).unwrap().start();
        apps.observe(vec![seen(100, 2)], S(103));
        assert_eq!(start(&apps), Some(S(2)));
        apps.observe(vec![seen(100, 4)], S(109));
        assert_eq!(start(&apps), Some(S(4)));
        apps.observe(vec![seen(100, 60)], S(300));
        assert_eq!(start(&apps), Some(S(4)));
        // The daemon started later than the app.
        let mut late = Apps::default();
        late.observe(vec![seen(100, 60)], S(300));
        assert_eq!(start(&late), None);
    }

    #[test]
    fn app_added_between_scans_is_kept_by_the_next_scan() {
        let mut apps = Apps::default();
        apps.was_topmost(key(2), S(1));
        apps.observe(vec![found(1, 1)], S(2));
        apps.meet(found(2, 1), S(3));
        assert_eq!(order(&apps), ["app2", "app1"]);
        assert_eq!(apps.get(key(2)).unwrap().last_topmost, Some(S(1)));
        // The history of a known app is kept.
        apps.meet(found(1, 50), S(4));
        assert_eq!(apps.get(key(1)).unwrap().grown(), 0);
        assert!(apps
            .observe(vec![found(1, 1), found(2, 1)], S(5))
            .is_empty());
    }

    #[test]
    fn app_never_in_the_foreground_is_ordered_by_its_start() {
        let mut apps = Apps::default();
        let started = |pid, second| Found {
            started: S(second),
            ..found(pid, 1)
        };
        apps.observe(vec![started(1, 7), started(2, 3), started(3, 5)], S(9));
        assert_eq!(order(&apps), ["app2", "app3", "app1"]);
    }

    #[test]
    fn growth_is_a_leak_only_in_the_background() {
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
        assert!(
            !apps.get(key(1)).unwrap().leaks(total),
            "it has stopped growing"
        );
    }

    #[test]
    fn growth_in_the_foreground_since_the_last_scan_is_not_a_leak() {
        let mut apps = Apps::default();
        apps.observe(vec![found(1, 10)], S(1));
        apps.was_topmost(key(1), S(2));
        apps.was_topmost(key(1), S(60));
        apps.observe(vec![found(1, 200)], S(61));
        assert!(!apps.get(key(1)).unwrap().leaks(1000 * MIB));
        apps.observe(vec![found(1, 260)], S(62));
        assert!(
            apps.get(key(1)).unwrap().leaks(1000 * MIB),
            "it grew in the background"
        );
    }

    #[test]
    fn app_that_waits_for_memory_has_not_stopped_growing() {
        let mut apps = Apps::default();
        for (second, size) in [(1, 10), (2, 60), (3, 60), (5, 60), (6, 60)] {
            apps.observe(vec![found(1, size)], S(second));
        }
        let known = apps.get(key(1)).unwrap();
        assert_eq!(known.grown(), 0);
        assert_eq!(known.grown_until_stalled(S(5)), 50 * MIB);
        assert_eq!(known.grown_until_stalled(S(6)), 0);
    }

    #[test]
    fn tab_counts_as_used_with_its_terminal() {
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
    fn slow_growth_is_not_a_leak() {
        let mut apps = Apps::default();
        for minute in 0..60 {
            apps.observe(vec![found(1, 10 + minute * 10)], S(minute * 61));
            assert!(!apps.get(key(1)).unwrap().leaks(1000 * MIB));
        }
    }

    #[test]
    fn kill_does_not_erase_the_growth_of_a_user() {
        let mut users = Users::default();
        let mib = |mib: u64| mib << 20;
        let at = Duration::from_secs;
        users.observe(vec![(1001, mib(20)), (1002, mib(10))], at(1));
        users.observe(vec![(1001, mib(20)), (1002, mib(90))], at(2));
        // The OOM killer kills a process of user 1002, whose next process has hardly grown yet.
        users.observe(vec![(1001, mib(20)), (1002, mib(12))], at(3));
        assert_eq!(users.taken(), [(1001, 0), (1002, mib(80))]);
        users.observe(vec![(1001, mib(20)), (1002, mib(12))], at(63));
        assert_eq!(users.taken(), [(1001, 0), (1002, mib(2))]);
    }
}
