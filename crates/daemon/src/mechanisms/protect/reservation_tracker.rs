// SPDX-License-Identifier: GPL-2.0-or-later
//! While memory is short, the ancestors of the topmost app reserve little more for it than it uses,
//! and follow its growth: an app that comes back takes its memory within less than a second.

use std::time::Duration;

use limelight_core::model::shortage::Level;
use limelight_core::model::App;
use limelight_core::policy::{protect, Action};
use limelight_sys::cgroup::CgroupPath;

use crate::event_loop::Daemon;
use crate::mechanisms::Context;

/// The first and the last delay of an update. Each delay is twice the one before; after the last
/// one the periodic tick takes over.
const FIRST: Duration = Duration::from_millis(8);
const LAST: Duration = Duration::from_millis(256);

/// When the next update is due.
#[derive(Debug, Default)]
pub(crate) struct ReservationTracker {
    next: Option<(Duration, Duration)>,
}

impl ReservationTracker {
    /// Time of the next update, since boot.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        self.next.map(|(at, _)| at)
    }

    fn begin(&mut self, at: Duration, pause: Duration) {
        self.next.get_or_insert((at + pause, pause));
    }

    /// Whether an update is due; the next one is then set.
    fn take(&mut self, now: Duration) -> bool {
        let Some((_, pause)) = self.next.filter(|(at, _)| *at <= now) else {
            return false;
        };
        self.next = (pause < LAST).then_some((now + pause * 2, pause * 2));
        true
    }
}

impl Daemon {
    /// Starts the updates: the topmost app is about to take memory, or memory became short.
    pub(crate) fn begin_following(&mut self, at: Duration) {
        self.look_after(FIRST, at);
    }

    /// Schedules one update after input, which may make the app grow. It comes late enough not to
    /// disturb the response.
    pub(crate) fn follow_use(&mut self, at: Duration) {
        if self.windows.is_open() {
            self.look_after(LAST, at);
        }
    }

    fn look_after(&mut self, pause: Duration, at: Duration) {
        let recursive = self.system.cgroups.has_recursive_protection();
        if recursive && self.actuators.shortage().level() > Level::Plenty {
            self.reservation_tracker.begin(at, pause);
        }
    }

    /// Adjusts the ancestors' reservations to what the app needs by now, if an update is due.
    pub(crate) fn follow_if_due(&mut self, at: Duration) {
        if !self.reservation_tracker.take(at) {
            return;
        }
        self.last.shortage = self.actuators.shortage();
        self.last.in_force.reserved = self.actuators.in_force.reserved;
        let front = self.last.topmost.as_ref().map(|topmost| &topmost.app);
        let Some(used) = front.and_then(|front| self.used_by(front)) else {
            return;
        };
        if let Some(step) = protect::follow(&self.last, used) {
            let context = Context {
                system: &self.system,
                now: at,
                front,
                apps: &self.last.apps,
            };
            self.actuators.apply(&Action::Protect(step), context);
            self.last.in_force.reserved = self.actuators.in_force.reserved;
        }
    }

    /// Bytes that are charged to an app's own cgroup.
    fn used_by(&self, app: &App) -> Option<u64> {
        let path = CgroupPath::parse(&app.own_home()?.path)?;
        self.system.cgroups.open(&path).ok()?.memory_current().ok()
    }
}
