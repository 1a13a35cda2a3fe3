// SPDX-License-Identifier: GPL-2.0-or-later
//! Waiting for a compositor to come (again): the directories where they put their sockets are
//! watched, and each change is followed by a few attempts, because a socket is there before anybody
//! answers on it. Between changes nothing wakes up.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use limelight_sys::inotify::Inotify;
use rustix::fs::inotify::WatchFlags;

use super::environment::X11_SOCKETS;

/// After a change attempts are made at these distances.
const ATTEMPTS: [Duration; 6] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(5),
];

/// Attempts to come.
#[derive(Debug)]
pub struct Arrivals {
    /// `None` where no directory can be watched: then the last distance repeats.
    watched: Option<Inotify>,
    next: Option<Duration>,
    made: usize,
}

impl Arrivals {
    /// Watches from now on; the first attempts follow at once.
    pub fn watch(runtime: Option<&Path>, now: Duration) -> Arrivals {
        let hypr = runtime.map(|runtime| runtime.join("hypr"));
        let places = [runtime, hypr.as_deref(), Some(Path::new(X11_SOCKETS))];
        Arrivals::watch_places(places.into_iter().flatten(), now)
    }

    fn watch_places<'a>(places: impl Iterator<Item = &'a Path>, now: Duration) -> Arrivals {
        let watched = Inotify::new().ok().filter(|queue| {
            let kinds = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
            let watched = places.map(|place| queue.watch(place, kinds));
            watched.filter(Result::is_ok).count() > 0
        });
        Arrivals {
            watched,
            next: Some(now + ATTEMPTS[0]),
            made: 0,
        }
    }

    /// To wait for.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.watched.as_ref().map(AsFd::as_fd)
    }

    /// When the next attempt is due whatever the descriptor says.
    pub fn deadline(&self) -> Option<Duration> {
        self.next
    }

    /// Whether an attempt is to be made now.
    pub fn is_due(&mut self, now: Duration) -> bool {
        let events = self.watched.as_ref().map(Inotify::events);
        if events.is_some_and(|events| events.is_ok_and(|events| !events.is_empty())) {
            self.made = 0;
            self.next = Some(now + ATTEMPTS[0]);
        }
        let due = self.next.is_some_and(|at| at <= now);
        if due {
            self.made += 1;
            let again = ATTEMPTS.get(self.made).copied();
            let forever = self.watched.is_none().then_some(ATTEMPTS[5]);
            self.next = again.or(forever).map(|pause| now + pause);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn attempts_end_until_something_comes() {
        let temp = tempfile::tempdir().unwrap();
        let mut arrivals = Arrivals::watch_places([temp.path()].into_iter(), S);
        assert!(!arrivals.is_due(S));
        let mut attempts = 0;
        while let Some(at) = arrivals.deadline() {
            assert!(!arrivals.is_due(at - Duration::from_millis(1)));
            assert!(arrivals.is_due(at));
            attempts += 1;
        }
        assert_eq!(attempts, ATTEMPTS.len());
        assert!(!arrivals.is_due(S * 1000));
        std::fs::write(temp.path().join("wayland-0"), "").unwrap();
        assert!(!arrivals.is_due(S * 1000));
        assert!(arrivals.is_due(S * 1001));
    }

    #[test]
    fn without_a_directory_attempts_do_not_end() {
        let mut arrivals = Arrivals::watch_places([Path::new("/nonexistent")].into_iter(), S);
        for _ in 0..20 {
            let at = arrivals.deadline().unwrap();
            assert!(arrivals.is_due(at));
        }
        assert!(arrivals.deadline().unwrap() > S * 60);
    }
}
