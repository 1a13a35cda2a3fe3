// SPDX-License-Identifier: GPL-2.0-or-later
//! Rate limits of the control socket, by user: token buckets.
//!
//! Any user may connect, and the daemon has the same CPU weight as the topmost app, so a flood of
//! requests would slow that app. *Lines* are limited by delay: requests of a user without tokens
//! wait, so a session agent is delayed at worst and loses nothing. *Lookups* scan `/proc` or all
//! apps. A lookup without enough tokens is refused, and the refusal says when there will be enough.
//! Users who are not at the screen also share one bucket of lookups, because one person may have
//! thousands of uids (`/etc/subuid`). Root is not limited.

use std::collections::BTreeMap;
use std::time::Duration;

/// Lines of 1 KiB that a user may send at once, and per second. Each costs some tens of
/// microseconds, even if it is refused.
const LINES: Size = Size {
    most: 400,
    a_second: 200,
};

/// The same for a user who reports the foreground app: each key press and each frame may cause a
/// line.
const LINES_AT_SCREEN: Size = Size {
    most: 2000,
    a_second: 1000,
};

/// Lookups that a user may request at once, and per second. One token is about a millisecond of
/// work.
const LOOKUPS: Size = Size {
    most: 100,
    a_second: 20,
};

/// How long a user counts as at the screen after a report of the foreground app. This exceeds the 2
/// s for which a permission to report input is cached, because only a new check of the permission
/// counts as such a report.
const AT_SCREEN: Duration = Duration::from_secs(5);

/// Maximum number of users with stored buckets; users with full buckets are dropped first.
const USERS_MAX: usize = 256;

/// A line costs one token, and one more for each of this many bytes.
const LINE_BYTES: usize = 1024;

#[derive(Debug, Clone, Copy)]
struct Size {
    /// Capacity, in tokens.
    most: u32,
    /// Tokens that are added per second.
    a_second: u32,
}

/// Tokens in thousandths, refilled over time.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    size: Size,
    thousandths: i64,
    at: Duration,
}

impl Bucket {
    fn full(size: Size, now: Duration) -> Bucket {
        Bucket {
            size,
            thousandths: i64::from(size.most) * 1000,
            at: now,
        }
    }

    fn refill(&mut self, now: Duration) {
        // Each millisecond adds as many thousandths as each second adds tokens.
        let passed = now.saturating_sub(self.at).as_millis();
        let gained = i64::try_from(passed).unwrap_or(i64::MAX);
        let gained = gained.saturating_mul(i64::from(self.size.a_second));
        let most = i64::from(self.size.most) * 1000;
        self.thousandths = self.thousandths.saturating_add(gained).min(most);
        // Not `now`: that would lose the fraction of a millisecond since the last refill.
        self.at += Duration::from_millis(u64::try_from(passed).unwrap_or(u64::MAX));
    }

    /// Changes the size, and drops tokens beyond it.
    fn resize(&mut self, size: Size) {
        self.size = size;
        self.thousandths = self.thousandths.min(i64::from(size.most) * 1000);
    }

    fn is_full(&self) -> bool {
        self.thousandths >= i64::from(self.size.most) * 1000
    }

    /// Time until this many tokens are available.
    fn wait_for(&self, tokens: u32) -> Duration {
        let missing = (i64::from(tokens) * 1000 - self.thousandths).max(0);
        let ms = missing / i64::from(self.size.a_second) + 1;
        Duration::from_millis(ms.unsigned_abs())
    }

    fn has(&self, tokens: u32) -> bool {
        self.thousandths >= i64::from(tokens) * 1000
    }

    /// Removes tokens. The balance may become negative.
    fn spend(&mut self, tokens: u32) {
        self.thousandths -= i64::from(tokens) * 1000;
    }
}

#[derive(Debug)]
struct User {
    lines: Bucket,
    lookups: Bucket,
    /// The user counts as at the screen until this time.
    at_screen: Option<Duration>,
}

impl User {
    fn refill(&mut self, now: Duration) {
        self.lines.refill(now);
        self.lookups.refill(now);
        if self.at_screen.is_some_and(|until| until <= now) {
            self.at_screen = None;
            self.lines.resize(LINES);
        }
    }
}

/// The buckets of all users.
#[derive(Debug)]
pub struct Limiter {
    users: BTreeMap<u32, User>,
    /// Shared by all users who are not at the screen.
    elsewhere: Bucket,
}

impl Default for Limiter {
    fn default() -> Self {
        Limiter {
            users: BTreeMap::new(),
            elsewhere: Bucket::full(LOOKUPS, Duration::ZERO),
        }
    }
}

impl Limiter {
    fn user(&mut self, uid: u32, now: Duration) -> &mut User {
        if !self.users.contains_key(&uid) && self.users.len() >= USERS_MAX {
            self.forget(now);
        }
        let user = self.users.entry(uid).or_insert_with(|| User {
            lines: Bucket::full(LINES, now),
            lookups: Bucket::full(LOOKUPS, now),
            at_screen: None,
        });
        user.refill(now);
        user
    }

    /// Makes room for another user. Drops users with full buckets, who lose nothing. If that is not
    /// enough, drops users with the most lookup tokens.
    fn forget(&mut self, now: Duration) {
        self.users.retain(|_, user| {
            user.refill(now);
            !(user.lines.is_full() && user.lookups.is_full())
        });
        while self.users.len() >= USERS_MAX {
            let fullest = self
                .users
                .iter()
                .max_by_key(|(_, user)| user.lookups.thousandths);
            let Some((&uid, _)) = fullest else {
                return;
            };
            self.users.remove(&uid);
        }
    }

    /// Checks whether this user's next line may be read now. The error is the time from which it
    /// may be read.
    pub fn may_read(&self, uid: u32, now: Duration) -> Result<(), Duration> {
        let Some(user) = self.users.get(&uid).filter(|_| uid != 0) else {
            return Ok(());
        };
        let mut lines = user.lines;
        lines.refill(now);
        match lines.has(1) {
            true => Ok(()),
            false => Err(now + lines.wait_for(1)),
        }
    }

    /// Charges a line that was read to its user.
    pub fn was_read(&mut self, uid: u32, bytes: usize, now: Duration) {
        if uid != 0 {
            let tokens = u32::try_from(1 + bytes / LINE_BYTES).unwrap_or(u32::MAX);
            self.user(uid, now).lines.spend(tokens);
        }
    }

    /// Charges extra work to a user, which delays the user's next line.
    pub fn was_work(&mut self, uid: u32, tokens: u32, now: Duration) {
        if uid != 0 && tokens > 0 {
            self.user(uid, now).lines.spend(tokens);
        }
    }

    /// Marks this user as at the screen, after a permitted report of the foreground app.
    pub fn was_at_screen(&mut self, uid: u32, now: Duration) {
        if uid != 0 {
            let user = self.user(uid, now);
            user.at_screen = Some(now + AT_SCREEN);
            user.lines.resize(LINES_AT_SCREEN);
        }
    }

    /// Takes tokens for a lookup, or returns how long to wait. `at_screen` returns whether the user
    /// is at the screen or otherwise trusted. It is not called if the user has too few tokens.
    pub fn look_up(
        &mut self,
        uid: u32,
        tokens: u32,
        at_screen: impl FnOnce() -> bool,
        now: Duration,
    ) -> Result<(), Duration> {
        if uid == 0 {
            return Ok(());
        }
        self.elsewhere.refill(now);
        let elsewhere = self.elsewhere;
        let own = &mut self.user(uid, now).lookups;
        if !own.has(tokens) {
            return Err(own.wait_for(tokens));
        }
        let at_screen = at_screen();
        if !at_screen && !elsewhere.has(tokens) {
            return Err(elsewhere.wait_for(tokens));
        }
        own.spend(tokens);
        if !at_screen {
            self.elsewhere.spend(tokens);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Number of lookups that are granted without waiting.
    fn burst(limiter: &mut Limiter, uid: u32, at_screen: bool, now: Duration) -> u32 {
        (0..10_000)
            .take_while(|_| limiter.look_up(uid, 1, || at_screen, now).is_ok())
            .count() as u32
    }

    #[test]
    fn burst_is_followed_by_the_sustained_rate() {
        let mut limiter = Limiter::default();
        assert_eq!(burst(&mut limiter, 1000, true, MS(0)), LOOKUPS.most);
        let wait = limiter.look_up(1000, 2, || true, MS(0)).unwrap_err();
        assert!(wait >= MS(100) && wait <= MS(102), "waits {wait:?}");
        assert!(limiter.look_up(1000, 2, || true, wait).is_ok());
        assert_eq!(
            burst(&mut limiter, 1000, true, wait + MS(1000)),
            LOOKUPS.a_second
        );
        assert_eq!(burst(&mut limiter, 1000, true, MS(1_000_000)), LOOKUPS.most);
    }

    #[test]
    fn short_time_steps_lose_no_tokens() {
        let mut limiter = Limiter::default();
        burst(&mut limiter, 1000, true, MS(0));
        for us in (0..1_000_000).step_by(300) {
            let now = Duration::from_micros(us);
            let refused = limiter.look_up(1000, LOOKUPS.most, || true, now);
            refused.unwrap_err();
        }
        let granted = burst(&mut limiter, 1000, true, MS(1000));
        assert!(granted.abs_diff(LOOKUPS.a_second) <= 1, "{granted} lookups");
    }

    #[test]
    fn only_users_who_are_not_at_the_screen_share_a_bucket() {
        let mut limiter = Limiter::default();
        let all: u32 = (2000..3000)
            .map(|uid| burst(&mut limiter, uid, false, MS(0)))
            .sum();
        assert_eq!(all, LOOKUPS.most);
        assert_eq!(burst(&mut limiter, 1000, true, MS(0)), LOOKUPS.most);
        assert!(limiter.users.len() <= USERS_MAX);
        for _ in 0..10_000 {
            limiter.look_up(0, 100, || false, MS(0)).unwrap();
        }
    }

    #[test]
    fn excess_lines_wait_and_large_lines_cost_more() {
        let mut limiter = Limiter::default();
        for _ in 0..6 {
            limiter.may_read(1000, MS(0)).unwrap();
            limiter.was_read(1000, 64 << 10, MS(0));
        }
        limiter.was_work(1000, LINES.most, MS(0));
        let when = limiter.may_read(1000, MS(0)).unwrap_err();
        assert!(limiter.may_read(1000, when).is_ok());
        assert!(limiter.may_read(1001, MS(0)).is_ok());
        limiter.was_read(0, 64 << 20, MS(0));
        assert!(limiter.may_read(0, MS(0)).is_ok());
    }

    #[test]
    fn user_who_reports_the_foreground_app_has_a_higher_limit() {
        let mut limiter = Limiter::default();
        let lines = |limiter: &mut Limiter, now| {
            let sent = (0..10_000).take_while(|_| {
                let may = limiter.may_read(1000, now).is_ok();
                limiter.was_read(1000, 80, now);
                may
            });
            sent.count() as u32
        };
        limiter.was_at_screen(1000, MS(0));
        limiter.was_at_screen(1000, MS(2000));
        assert_eq!(lines(&mut limiter, MS(2000)), LINES_AT_SCREEN.most);
        limiter.was_at_screen(1000, MS(2001));
        let second = lines(&mut limiter, MS(3000));
        assert!(
            second.abs_diff(LINES_AT_SCREEN.a_second) <= 2,
            "{second} lines"
        );
        let later = MS(2001) + AT_SCREEN + MS(60_000);
        assert_eq!(lines(&mut limiter, later), LINES.most);
        assert!(limiter.may_read(1000, later).is_err());
        assert!(limiter.may_read(1001, MS(0)).is_ok());
        limiter.was_read(0, 64 << 20, MS(0));
        assert!(limiter.may_read(0, MS(0)).is_ok());
    }
}
