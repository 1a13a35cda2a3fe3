// SPDX-License-Identifier: GPL-2.0-or-later
//! Rate limit.

use std::time::Duration;

/// A token bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    per_second: u64,
    burst: u64,
    /// Saved tokens in millionths, so that frequent calls lose nothing to rounding.
    saved: u128,
    at: Duration,
}

const MILLION: u128 = 1_000_000;

impl Rate {
    /// Starts with a full bucket of `burst` tokens; `per_second` tokens are added per second.
    pub fn new(per_second: u64, burst: u64, now: Duration) -> Rate {
        Rate {
            per_second,
            burst,
            saved: u128::from(burst) * MILLION,
            at: now,
        }
    }

    /// Takes up to `amount` tokens and returns the number of tokens granted.
    pub fn take(&mut self, amount: u64, now: Duration) -> u64 {
        let passed = now.saturating_sub(self.at).as_micros().min(3600 * MILLION);
        let earned = u128::from(self.per_second) * passed;
        self.saved = (self.saved + earned).min(u128::from(self.burst) * MILLION);
        self.at = now;
        let taken = u64::try_from(self.saved / MILLION).map_or(amount, |saved| saved.min(amount));
        self.saved -= u128::from(taken) * MILLION;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn rate_saves_up_no_more_than_its_burst() {
        let mut rate = Rate::new(10 * MIB, 20 * MIB, MS(0));
        assert_eq!(rate.take(30 * MIB, MS(0)), 20 * MIB);
        assert_eq!(rate.take(30 * MIB, MS(0)), 0);
        assert_eq!(rate.take(30 * MIB, MS(500)), 5 * MIB);
        assert_eq!(rate.take(30 * MIB, MS(100_000)), 20 * MIB);
    }

    #[test]
    fn small_rate_accumulates_over_short_intervals() {
        let mut rate = Rate::new(400, 10, MS(0));
        assert_eq!(rate.take(10, MS(0)), 10);
        let earned: u64 = (1..=1000).map(|ms| rate.take(1, MS(ms))).sum();
        assert_eq!(earned, 400);
    }
}
