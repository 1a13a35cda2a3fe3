// SPDX-License-Identifier: GPL-2.0-or-later
//! Waits for a compositor or another server to appear, by watching the directories in which such
//! servers create their sockets. After each change, the caller makes a few attempts, because a
//! socket exists before its server answers. Between changes there are no wakeups.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use limelight_sys::inotify::Inotify;
use rustix::fs::inotify::WatchFlags;

/// Delay before each attempt, counted from the attempt before; the first, from the change.
const ATTEMPTS: [Duration; 6] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(5),
];

/// The watched directories, and the schedule of attempts.
#[derive(Debug)]
pub struct Arrivals {
    places: Vec<PathBuf>,
    /// `None` if no directory can be watched. Attempts then continue at the last delay, without an
    /// end.
    watched: Option<Inotify>,
    next: Option<Duration>,
    made: usize,
}

impl Arrivals {
    /// Watches these directories, and schedules the first attempts. A directory that does not exist
    /// yet is watched after the next change in one of the others.
    pub fn watch(places: Vec<PathBuf>, now: Duration) -> Arrivals {
        let queue = Inotify::new().ok();
        Arrivals {
            watched: queue.filter(|queue| watch_all(queue, &places)),
            places,
            next: Some(now + ATTEMPTS[0]),
            made: 0,
        }
    }

    /// The descriptor to wait for.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.watched.as_ref().map(AsFd::as_fd)
    }

    /// When the next attempt is due, even if the descriptor has no event.
    pub fn deadline(&self) -> Option<Duration> {
        self.next
    }

    /// Whether an attempt is due now; schedules the next one.
    pub fn is_due(&mut self, now: Duration) -> bool {
        let events = self.watched.as_ref().map(Inotify::events);
        if events.is_some_and(|events| events.is_ok_and(|events| !events.is_empty())) {
            self.watched = self
                .watched
                .take()
                .filter(|queue| watch_all(queue, &self.places));
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

/// Watches these directories. Returns whether any of them can be watched.
fn watch_all(queue: &Inotify, places: &[PathBuf]) -> bool {
    let kinds = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
    let watched = places.iter().map(|place| queue.watch(place, kinds));
    watched.filter(Result::is_ok).count() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn attempts_stop_until_the_next_change() {
        let temp = tempfile::tempdir().unwrap();
        let mut arrivals = Arrivals::watch(vec![temp.path().to_owned()], S);
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
    fn directory_created_later_is_watched_too() {
        let temp = tempfile::tempdir().unwrap();
        let later = temp.path().join("pulse");
        let mut arrivals = Arrivals::watch(vec![temp.path().to_owned(), later.clone()], S);
        let exhaust = |arrivals: &mut Arrivals| {
            while let Some(at) = arrivals.deadline() {
                assert!(arrivals.is_due(at));
            }
        };
        exhaust(&mut arrivals);
        std::fs::create_dir(&later).unwrap();
        assert!(!arrivals.is_due(S * 1000));
        exhaust(&mut arrivals);
        std::fs::write(later.join("native"), "").unwrap();
        assert!(!arrivals.is_due(S * 1000));
        assert!(arrivals.deadline().is_some());
    }

    #[test]
    fn attempts_never_end_without_a_watch() {
        let mut arrivals = Arrivals::watch(vec!["/nonexistent".into()], S);
        for _ in 0..20 {
            let at = arrivals.deadline().unwrap();
            assert!(arrivals.is_due(at));
        }
        assert!(arrivals.deadline().unwrap() > S * 60);
    }
}
