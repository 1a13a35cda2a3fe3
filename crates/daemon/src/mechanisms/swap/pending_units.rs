// SPDX-License-Identifier: GPL-2.0-or-later
//! Tracks units that were created for apps and hold no process yet. Memory that a disposable app
//! allocates before the first scan could be swapped out, so the app's limit is written as soon as
//! its cgroup exists.

use std::collections::BTreeMap;
use std::time::Duration;

use limelight_core::model::AppKey;

/// Rate limit: at most this many new units are tracked between two scans.
const BETWEEN_LOOKS: usize = 8;

/// A unit that is still empty after this time is dropped.
const EXPECTED_FOR: Duration = Duration::from_secs(10);

/// The units, and when they were created.
#[derive(Debug, Default)]
pub struct PendingUnits {
    units: BTreeMap<AppKey, (String, Duration)>,
    since_look: usize,
}

impl PendingUnits {
    /// Whether another unit can be tracked before the next scan.
    pub fn has_room(&self) -> bool {
        self.since_look < BETWEEN_LOOKS
    }

    /// Counts a new unit. Returns whether it may be tracked.
    pub fn count(&mut self) -> bool {
        let room = self.has_room();
        self.since_look += usize::from(room);
        room
    }

    /// Tracks a unit. Returns when it is dropped if it stays empty.
    pub fn add(&mut self, key: AppKey, path: String, at: Duration) -> Duration {
        self.units.insert(key, (path, at));
        at + EXPECTED_FOR
    }

    /// Handles the result of a scan. Units whose app has appeared (`came`) are dropped. Empty units
    /// whose cgroup is gone (not `there`) or whose time is over are dropped and returned.
    pub fn looked(
        &mut self,
        now: Duration,
        came: impl Fn(AppKey) -> bool,
        there: impl Fn(AppKey, &str) -> bool,
    ) -> Vec<AppKey> {
        self.since_look = 0;
        self.units.retain(|key, _| !came(*key));
        let late = |(key, (path, at)): (&AppKey, &(String, Duration))| {
            let late = now.saturating_sub(*at) >= EXPECTED_FOR;
            (late || !there(*key, path)).then_some(*key)
        };
        let late: Vec<AppKey> = self.units.iter().filter_map(late).collect();
        self.units.retain(|key, _| !late.contains(key));
        late
    }

    /// Latest time for the next scan; `None`: no unit is tracked.
    pub fn until(&self) -> Option<Duration> {
        self.units.values().map(|(_, at)| *at + EXPECTED_FOR).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(inode: u64) -> AppKey {
        AppKey::Cgroup { inode }
    }

    #[test]
    fn unit_that_stays_empty_is_dropped() {
        let mut expected = PendingUnits::default();
        for inode in 1..=4 {
            expected.add(key(inode), format!("/{inode}"), Duration::from_secs(inode));
        }
        assert_eq!(expected.until(), Some(Duration::from_secs(11)));
        let came = |app| app == key(2);
        let there = |_, path: &str| path != "/3";
        let late = expected.looked(Duration::from_secs(11), came, there);
        assert_eq!(late, [key(1), key(3)]);
        assert_eq!(expected.until(), Some(Duration::from_secs(14)));
    }
}
