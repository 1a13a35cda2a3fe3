// SPDX-License-Identifier: GPL-2.0-or-later
//! While memory is short, the ancestors of the topmost app reserve little more for it than it uses,
//! and follow its growth: an app that comes back takes its memory within less than a second.

use std::time::Duration;

use limelight_core::model::shortage::Level;
use limelight_core::model::App;
use limelight_sys::cgroup::CgroupPath;

use crate::system::System;

/// The first and the last delay of an update. Each delay is twice the one before; after the last
/// one the periodic tick takes over.
const FIRST: Duration = Duration::from_millis(8);
const LAST: Duration = Duration::from_millis(256);

/// When the next update is due.
#[derive(Debug, Default)]
pub struct ReservationTracker {
    next: Option<(Duration, Duration)>,
}

impl ReservationTracker {
    /// Time of the next update, since boot.
    pub fn next_look(&self) -> Option<Duration> {
        self.next.map(|(at, _)| at)
    }

    /// Starts the updates: the topmost app is about to take memory, or memory became short.
    pub fn begin(&mut self, system: &System, level: Level, at: Duration) {
        self.look_after(FIRST, system, level, at);
    }

    /// Schedules one update after input, which may make the app grow. It comes late enough not to
    /// disturb the response.
    pub fn follow_use(&mut self, system: &System, level: Level, at: Duration) {
        self.look_after(LAST, system, level, at);
    }

    fn look_after(&mut self, pause: Duration, system: &System, level: Level, at: Duration) {
        if level > Level::Plenty && system.cgroups.has_recursive_protection() {
            self.next.get_or_insert((at + pause, pause));
        }
    }

    /// Whether an update is due; the next one is then set.
    pub fn take(&mut self, now: Duration) -> bool {
        let Some((_, pause)) = self.next.filter(|(at, _)| *at <= now) else {
            return false;
        };
        self.next = (pause < LAST).then_some((now + pause * 2, pause * 2));
        true
    }
}

/// Bytes that are charged to an app's own cgroup.
pub fn used_by(system: &System, app: &App) -> Option<u64> {
    let path = CgroupPath::parse(&app.own_home()?.path)?;
    system.cgroups.open(&path).ok()?.memory_current().ok()
}
