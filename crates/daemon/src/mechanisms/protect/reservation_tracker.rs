// SPDX-License-Identifier: GPL-2.0-or-later
//! Schedules updates of the topmost app's reservation while memory is short. The ancestors of the
//! app's cgroup then reserve little more than the app uses, so their reservations must follow its
//! growth. The first updates are frequent, because an app that becomes topmost again takes its
//! memory within less than a second.

use std::time::Duration;

use limelight_core::model::shortage::Level;
use limelight_core::model::App;
use limelight_sys::cgroup::CgroupPath;

use crate::system::System;

/// First and last delay before an update. Each delay is twice the previous one. After the last
/// update the periodic tick takes over.
const FIRST: Duration = Duration::from_millis(8);
const LAST: Duration = Duration::from_millis(256);

/// The schedule of the updates: the time of the next one, and the delay before it.
#[derive(Debug, Default)]
pub struct ReservationTracker {
    next: Option<(Duration, Duration)>,
}

impl ReservationTracker {
    /// Time of the next update, since boot; `None`: none is scheduled.
    pub fn next_look(&self) -> Option<Duration> {
        self.next.map(|(at, _)| at)
    }

    /// Schedules the updates if memory is short, unless an update is scheduled already. Called when
    /// the topmost app is about to take memory, or memory has become short.
    pub fn begin(&mut self, system: &System, level: Level, at: Duration) {
        self.look_after(FIRST, system, level, at);
    }

    /// Schedules one update if memory is short, unless an update is scheduled already. Called after
    /// input, which may make the app grow. The update comes late enough not to disturb the app's
    /// response.
    pub fn follow_use(&mut self, system: &System, level: Level, at: Duration) {
        self.look_after(LAST, system, level, at);
    }

    fn look_after(&mut self, pause: Duration, system: &System, level: Level, at: Duration) {
        if level > Level::Plenty && system.cgroups.has_recursive_protection() {
            self.next.get_or_insert((at + pause, pause));
        }
    }

    /// Returns whether an update is due. If so, schedules the next one.
    pub fn take(&mut self, now: Duration) -> bool {
        let Some((_, pause)) = self.next.filter(|(at, _)| *at <= now) else {
            return false;
        };
        self.next = (pause < LAST).then_some((now + pause * 2, pause * 2));
        true
    }
}

/// Bytes that are charged to an app's own cgroup; `None` without one, or if it cannot be read.
pub fn used_by(system: &System, app: &App) -> Option<u64> {
    let path = CgroupPath::parse(&app.own_home()?.path)?;
    system.cgroups.open(&path).ok()?.memory_current().ok()
}
