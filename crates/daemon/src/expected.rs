// SPDX-License-Identifier: GPL-2.0-or-later
//! Units that were made for apps and hold nobody yet. What a disposable app allocates before it is
//! first looked at could be swapped, so its limit is written as soon as its cgroup is there.

use std::collections::BTreeMap;
use std::time::Duration;

use limelight_core::model::class::Class;
use limelight_core::model::{AppKey, Home};
use limelight_core::policy::{swap, Action};
use limelight_sys::cgroup::CgroupPath;

use crate::actuators::Context;
use crate::daemon::Daemon;
use crate::doors::now;

/// Who makes units by the hundred is not followed one by one: so many between two looks.
const BETWEEN_LOOKS: usize = 8;

/// A unit that nobody has come into after so long is let go.
const EXPECTED_FOR: Duration = Duration::from_secs(10);

/// The units, and when they were made.
#[derive(Debug, Default)]
pub struct Expected {
    units: BTreeMap<AppKey, (String, Duration)>,
    since_look: usize,
}

impl Expected {
    /// Whether the next unit is to be waited for at once, and not at the next look.
    pub fn has_room(&self) -> bool {
        self.since_look < BETWEEN_LOOKS
    }

    fn add(&mut self, key: AppKey, path: String, at: Duration) {
        self.units.insert(key, (path, at));
    }

    /// There was a look. Who has come is expected no longer; returns those who will not come: their
    /// cgroup is gone, or it has been too long.
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

    /// When the next look is due at the latest.
    pub fn until(&self) -> Option<Duration> {
        self.units.values().map(|(_, at)| *at + EXPECTED_FOR).min()
    }
}

impl Daemon {
    /// Units were made, with these paths.
    pub(crate) fn expect(&mut self, units: &[String]) {
        let acts = self.config.settings.swap.enabled && !self.options.dry_run;
        if !acts || !self.last.storage.is_there() {
            return;
        }
        let mut exempted = false;
        for path in units {
            if !self.expected.has_room() {
                break;
            }
            self.expected.since_look += 1;
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
                doors: &self.doors,
                now: at,
                front: None,
                apps: &self.last.apps,
            };
            let exempt = Action::Swap(swap::Step::Exempt { app, home, rule });
            self.actuators.apply(&exempt, context);
            self.expected.add(app, path.clone(), at);
            self.household.look_by(at + EXPECTED_FOR);
            exempted = true;
        }
        if exempted {
            self.last.in_force = self.actuators.in_force.clone();
        }
    }

    /// After a look at all apps.
    pub(crate) fn look_at_expected(&mut self, at: Duration) {
        let mut expected = std::mem::take(&mut self.expected);
        let there = |key: AppKey, path: &str| {
            let inode = self.inode(path);
            inode.is_some_and(|inode| key == AppKey::Cgroup { inode })
        };
        let late = expected.looked(at, |key| self.apps.get(key).is_some(), there);
        self.expected = expected;
        if !late.is_empty() {
            self.actuators.forget_apps(&self.doors, late);
        }
    }

    fn inode(&self, path: &str) -> Option<u64> {
        let group = self.doors.cgroups.open(&CgroupPath::parse(path)?).ok()?;
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
    fn whoever_does_not_come_is_let_go() {
        let mut expected = Expected::default();
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
