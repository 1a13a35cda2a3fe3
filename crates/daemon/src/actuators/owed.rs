// SPDX-License-Identifier: GPL-2.0-or-later
//! What could not be put back when it should have been, as without a descriptor left: it is tried again,
//! soon at first, then ever more seldom, so that what cannot be mended does not keep the machine awake.

use std::time::Duration;

use tracing::{debug, info};

use super::Actuators;
use crate::doors::Doors;
use crate::restore::Entry;
use crate::undo::{undo_again, Undone};

/// The first pause between two attempts, and the longest.
const SOON: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(300);

/// When it is tried again.
#[derive(Debug, Default)]
pub struct Attempts {
    next: Option<Duration>,
    pause: Duration,
    /// How much was owed at the last look.
    owed: usize,
}

impl Attempts {
    /// Time has passed while so much is owed. Whether it is to be tried now.
    fn are_due(&mut self, owed: usize, now: Duration) -> bool {
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
}

impl Actuators {
    /// When something that is owed is to be tried again.
    pub fn next_attempt(&self) -> Option<Duration> {
        self.attempts.next
    }

    /// Tries to put back what is owed, if that is due.
    pub fn put_back_owed(&mut self, doors: &Doors, now: Duration) {
        let owed = self.ledger.owed().to_vec();
        if !self.attempts.are_due(owed.len(), now) {
            return;
        }
        let results = undo_again(&mut self.ledger, doors, |entry: &Entry| {
            owed.contains(entry)
        });
        for (entry, undone) in results {
            match undone {
                Undone::Failed { why } => debug!("still cannot put back {entry}: {why}"),
                Undone::Restored => info!("put back after all: {entry}"),
                Undone::Theirs { found } => {
                    info!("left alone, somebody changed it to {found} since: {entry}");
                }
                Undone::Gone => {}
            }
        }
        self.attempts.are_due(self.ledger.owed().len(), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn attempts_become_rare_until_more_is_owed() {
        let mut attempts = Attempts::default();
        assert!(!attempts.are_due(0, S(0)));
        assert_eq!(attempts.next, None);
        // What failed a moment ago is not tried in the same moment.
        assert!(!attempts.are_due(1, S(10)));
        let mut times = Vec::new();
        for second in 10..2000 {
            if attempts.are_due(1, S(second)) {
                times.push(second - 10);
            }
        }
        assert_eq!(
            times,
            [1, 3, 7, 15, 31, 63, 127, 255, 511, 811, 1111, 1411, 1711]
        );
        assert!(!attempts.are_due(2, S(2000)));
        assert_eq!(attempts.next, Some(S(2001)));
        assert!(!attempts.are_due(0, S(2000)));
        assert_eq!(attempts.next, None);
    }
}
