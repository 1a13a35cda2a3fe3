// SPDX-License-Identifier: GPL-2.0-or-later
//! Units that were made for apps and hold no process yet. What a disposable app allocates before
//! the first scan could be swapped, so its limit is written as soon as its cgroup exists.

use std::collections::BTreeMap;
use std::time::Duration;

use limelight_core::model::class::Class;
use limelight_core::model::{AppKey, Home};
use limelight_core::policy::{swap, Action};
use limelight_sys::cgroup::CgroupPath;

use crate::event_loop::Daemon;
use crate::mechanisms::Context;
use crate::system::now;

/// Rate limit: at most this many new units are tracked between two scans.
const BETWEEN_LOOKS: usize = 8;

/// A unit that is still empty after this time is dropped.
const EXPECTED_FOR: Duration = Duration::from_secs(10);

/// The units, and when they were made.
#[derive(Debug, Default)]
pub struct PendingUnits {
    units: BTreeMap<AppKey, (String, Duration)>,
    since_look: usize,
}

impl PendingUnits {
    /// Whether the next unit is tracked at once, and not left to the next scan.
    pub fn has_room(&self) -> bool {
        self.since_look < BETWEEN_LOOKS
    }

    fn add(&mut self, key: AppKey, path: String, at: Duration) {
        self.units.insert(key, (path, at));
    }

    /// Takes in a scan. Units whose app has appeared are dropped; returns those that stay empty:
    /// their cgroup is gone, or the time is over.
    fn looked(
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

    /// When the next scan is due at the latest.
    pub fn until(&self) -> Option<Duration> {
        self.units.values().map(|(_, at)| *at + EXPECTED_FOR).min()
    }
}

impl Daemon {
    /// Handles new units with these paths.
    pub(crate) fn expect(&mut self, units: &[String]) {
        let acts = self.config.settings.swap.enabled && !self.options.dry_run;
        if !acts || !self.last.storage.is_there() {
            return;
        }
        let mut exempted = false;
        for path in units {
            if !self.pending_units.has_room() {
                break;
            }
            self.pending_units.since_look += 1;
            let given = self.app_source.class_of_unit(path);
            if given.class != Class::Disposable {
                continue;
            }
            let Some(inode) = self.inode(path) else {
                continue;
            };
            let app = AppKey::Cgroup { inode };
            if self.apps.get(app).is_some() {
                continue;
            }
            let at = now();
            let home = Home {
                path: path.clone(),
                inode,
                own: true,
                adopted: false,
            };
            let rule = swap::DISPOSABLE.to_owned();
            let context = Context {
                system: &self.system,
                now: at,
                front: None,
                apps: &self.last.apps,
            };
            let exempt = Action::Swap(swap::Step::Exempt { app, home, rule });
            self.actuators.apply(&exempt, context);
            self.pending_units.add(app, path.clone(), at);
            self.app_scan.look_by(at + EXPECTED_FOR);
            exempted = true;
        }
        if exempted {
            self.last.in_force = self.actuators.in_force.clone();
        }
    }

    /// Updates the pending units after a scan of all apps.
    pub(crate) fn look_at_expected(&mut self, at: Duration) {
        let mut expected = std::mem::take(&mut self.pending_units);
        let there = |key: AppKey, path: &str| {
            let inode = self.inode(path);
            inode.is_some_and(|inode| key == AppKey::Cgroup { inode })
        };
        let late = expected.looked(at, |key| self.apps.get(key).is_some(), there);
        self.pending_units = expected;
        if !late.is_empty() {
            self.actuators.forget_apps(&self.system, late);
        }
    }

    fn inode(&self, path: &str) -> Option<u64> {
        let group = self.system.cgroups.open(&CgroupPath::parse(path)?).ok()?;
        Some(group.id().0)
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
