// SPDX-License-Identifier: GPL-2.0-or-later
//! The service manager: ready, reloading, stopping, still alive.

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::debug;

/// What systemd is told, where it listens.
#[derive(Debug)]
pub struct Service {
    /// How often it wants a sign of life.
    watchdog: Option<Duration>,
    next: Duration,
}

impl Service {
    /// Finds out whether a watchdog waits.
    pub fn new(now: Duration) -> Service {
        // Half of the limit, as sd_watchdog_enabled(3) advises.
        let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 2);
        Service {
            watchdog,
            next: now,
        }
    }

    /// The daemon serves.
    pub fn ready(&self) {
        tell(&[
            NotifyState::Ready,
            NotifyState::Status("watching for the topmost app"),
        ]);
    }

    /// The configuration is read again.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(time) => tell(&[NotifyState::Reloading, time]),
            Err(error) => debug!("no monotonic clock: {error}"),
        }
    }

    /// The daemon stops.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// When the next sign of life is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.watchdog.map(|_| self.next)
    }

    /// Gives a sign of life when one is due.
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
        debug!("the service manager cannot be told: {error}");
    }
}
