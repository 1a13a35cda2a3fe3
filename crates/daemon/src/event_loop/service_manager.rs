// SPDX-License-Identifier: GPL-2.0-or-later
//! Notifications for the service manager: ready, reloading, stopping, alive.

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::debug;

/// Notifies systemd, if it listens.
#[derive(Debug)]
pub struct Service {
    /// Interval between watchdog notifications.
    watchdog: Option<Duration>,
    next: Duration,
}

impl Service {
    /// Reads whether systemd expects watchdog notifications.
    pub fn new(now: Duration) -> Service {
        // Half of the limit, as sd_watchdog_enabled(3) advises.
        let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 2);
        Service {
            watchdog,
            next: now,
        }
    }

    /// Reports that the daemon is ready.
    pub fn ready(&self) {
        tell(&[
            NotifyState::Ready,
            NotifyState::Status("watching for the foreground app"),
        ]);
    }

    /// Reports a reload of the configuration.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(time) => tell(&[NotifyState::Reloading, time]),
            Err(error) => debug!("no monotonic clock: {error}"),
        }
    }

    /// Reports that the daemon is stopping.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// When the next watchdog notification is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.watchdog.map(|_| self.next)
    }

    /// Sends a watchdog notification if one is due.
    pub fn pass_time(&mut self, now: Duration) {
        if let Some(interval) = self.watchdog {
            if self.next <= now {
                tell(&[NotifyState::Watchdog]);
                self.next = now + interval;
            }
        }
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        debug!("cannot notify the service manager: {error}");
    }
}
