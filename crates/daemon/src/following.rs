// SPDX-License-Identifier: GPL-2.0-or-later
//! While memory is short, the ancestors of the app in front hold little more for it than it uses, and
//! follow it: an app that comes back takes its memory within less than a second.

use std::time::Duration;

use limelight_core::model::shortage::Level;
use limelight_core::model::App;
use limelight_core::policy::{protect, Action};
use limelight_sys::cgroup::CgroupPath;

use crate::actuators::Context;
use crate::daemon::Daemon;

/// The first look waits so long, each one after it twice as long as the one before, and after the
/// last one the tick looks.
const FIRST: Duration = Duration::from_millis(8);
const LAST: Duration = Duration::from_millis(256);

/// When the next look is due.
#[derive(Debug, Default)]
pub(crate) struct Following {
    next: Option<(Duration, Duration)>,
}

impl Following {
    /// When, since boot.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        self.next.map(|(at, _)| at)
    }

    fn begin(&mut self, at: Duration, pause: Duration) {
        self.next.get_or_insert((at + pause, pause));
    }

    /// Whether a look is due; the next one is then set.
    fn take(&mut self, now: Duration) -> bool {
        let Some((_, pause)) = self.next.filter(|(at, _)| *at <= now) else {
            return false;
        };
        self.next = (pause < LAST).then_some((now + pause * 2, pause * 2));
        true
    }
}

impl Daemon {
    /// The app in front is about to take memory, or memory became short.
    pub(crate) fn begin_following(&mut self, at: Duration) {
        self.look_after(FIRST, at);
    }

    /// Whoever works with the app may have it grow. One look, which does not disturb the answer.
    pub(crate) fn follow_use(&mut self, at: Duration) {
        if self.windows.is_open() {
            self.look_after(LAST, at);
        }
    }

    fn look_after(&mut self, pause: Duration, at: Duration) {
        let recursive = self.doors.cgroups.has_recursive_protection();
        if recursive && self.actuators.shortage().level() > Level::Plenty {
            self.following.begin(at, pause);
        }
    }

    /// Has the ancestors hold what the app needs by now.
    pub(crate) fn follow_if_due(&mut self, at: Duration) {
        if !self.following.take(at) {
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
                doors: &self.doors,
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
        self.doors.cgroups.open(&path).ok()?.memory_current().ok()
    }
}
