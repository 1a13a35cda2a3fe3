// SPDX-License-Identifier: GPL-2.0-or-later
//! Carries out overdue restores: those that failed, for example because no file descriptor was
//! free, and those that need a second look. The pause between two attempts doubles from 1 s to
//! 300 s, so that a permanent failure rarely wakes the machine.

use std::time::Duration;

use tracing::{debug, info};

use crate::restore::undo::{undo_again, Undone};
use crate::restore::{Entry, Ledger};
use crate::system::System;

/// Shortest and longest pause between two attempts.
const SOON: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(300);

/// The schedule of the attempts.
#[derive(Debug, Default)]
pub struct Attempts {
    next: Option<Duration>,
    pause: Duration,
    /// Number of overdue restores ([`Ledger::owed`]) at the last check.
    owed: usize,
}

impl Attempts {
    /// Advances the retry timer; `owed` is the number of overdue restores. Returns whether an
    /// attempt is due now.
    fn advance(&mut self, owed: usize, now: Duration) -> bool {
        if owed == 0 {
            *self = Attempts::default();
            return false;
        }
        let more = owed > self.owed;
        self.owed = owed;
        let due = self.next.is_some_and(|next| next <= now);
        if more {
            self.pause = SOON;
        } else if due {
            self.pause = (self.pause * 2).min(SELDOM);
        }
        if more || due {
            self.next = Some(now + self.pause);
        }
        due
    }

    /// Time of the next attempt, since boot; `None` if no restore was overdue at the last check.
    pub fn next_attempt(&self) -> Option<Duration> {
        self.next
    }

    /// Carries out the overdue restores if an attempt is due.
    pub fn put_back_owed(&mut self, ledger: &mut Ledger, system: &System, now: Duration) {
        let owed = ledger.owed().to_vec();
        if !self.advance(owed.len(), now) {
            return;
        }
        let results = undo_again(ledger, system, |entry: &Entry| owed.contains(entry));
        for (entry, undone) in results {
            match undone {
                Undone::Failed { why } => debug!("still cannot put back {entry}: {why}"),
                Undone::Restored => info!("put back: {entry}"),
                Undone::Theirs { found } => {
                    info!("not put back: {entry}; another program has since set it to {found}");
                }
                Undone::Gone => {}
            }
        }
        self.advance(ledger.owed().len(), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn retries_become_rare_until_another_entry_fails() {
        let mut attempts = Attempts::default();
        assert!(!attempts.advance(0, S(0)));
        assert_eq!(attempts.next, None);
        // A restore that has just failed is not retried at once.
        assert!(!attempts.advance(1, S(10)));
        let mut times = Vec::new();
        for second in 10..2000 {
            if attempts.advance(1, S(second)) {
                times.push(second - 10);
            }
        }
        assert_eq!(
            times,
            [1, 3, 7, 15, 31, 63, 127, 255, 511, 811, 1111, 1411, 1711]
        );
        assert!(!attempts.advance(2, S(2000)));
        assert_eq!(attempts.next, Some(S(2001)));
        assert!(!attempts.advance(0, S(2000)));
        assert_eq!(attempts.next, None);
    }
}
