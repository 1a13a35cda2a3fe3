// SPDX-License-Identifier: GPL-2.0-or-later
//! `readahead`: what the topmost app reads is in memory before it asks.
//!
//! 1. *The device*: our kernel reads ahead `factor` times as far for the topmost app's requests.
//! 2. *Streams*, on a kernel that cannot do that: the daemon looks where the app stands in the
//!    files that it reads from front to back, and has the next pieces read in windows of `factor`
//!    times the device's own. [`Stream`] decides what and when.
//!    Files that it reads here and there have the neighbours of what it waits for read ([`places`]).
//! 3. *Cold start*, on every kernel: [`crate::model::coldstart`].
//!
//! Reading ahead is a loan of memory and of the disk's time, so 2 and 3 pause while memory is
//! short ([`room`]), and 2 has a rate limit ([`Rate`]).

pub mod places;

use std::time::Duration;

use super::plan::Event;
use crate::model::pressure::Memory;
use crate::model::snapshot::Snapshot;

/// One step of `readahead`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Switch the kernel's `readahead` on with this factor, or off.
    Switch {
        /// How many times as far the topmost app's requests reach; `None`: off.
        factor: Option<u8>,
    },
}

fn wanted(event: &Event, snapshot: &Snapshot) -> Option<u8> {
    let settings = &snapshot.settings.readahead;
    let on = *event != Event::Stop && settings.enabled && snapshot.device_readahead;
    on.then_some(settings.factor)
}

/// What has to be taken back first.
pub fn withdraw(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    let on = snapshot.in_force.device_readahead.is_some() && snapshot.device;
    if on && wanted(event, snapshot).is_none() {
        return vec![Step::Switch { factor: None }];
    }
    Vec::new()
}

/// What is given then.
pub fn grant(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    match wanted(event, snapshot) {
        Some(factor) if snapshot.in_force.device_readahead != Some(factor) => vec![Step::Switch {
            factor: Some(factor),
        }],
        _ => Vec::new(),
    }
}

/// Whether the daemon follows the app's streams itself.
pub fn follows_streams(snapshot: &Snapshot) -> bool {
    let settings = &snapshot.settings.readahead;
    settings.enabled && settings.factor > 1 && !snapshot.device_readahead
}

/// Bytes that may be read ahead now without pushing anything else out: nothing below an eighth of
/// memory that is available, and nothing while protection is being lowered.
pub fn room(memory: &Memory, lowered_steps: u8) -> u64 {
    if lowered_steps > 0 {
        return 0;
    }
    memory.available.saturating_sub(memory.total / 8)
}

/// What a person should know, one sentence each.
pub fn notes(snapshot: &Snapshot) -> Vec<String> {
    let mut notes = Vec::new();
    if !snapshot.settings.readahead.enabled {
        notes.push(
            "readahead is switched off by the configuration ([readahead] enabled)".to_owned(),
        );
    } else if room(&snapshot.memory, snapshot.lowered_steps) == 0 {
        notes.push("readahead pauses: memory is short".to_owned());
    }
    notes
}

/// So much a second, and so much at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    per_second: u64,
    burst: u64,
    /// In millionths, so that nothing is lost to rounding between two close calls.
    saved: u128,
    at: Duration,
}

const MILLION: u128 = 1_000_000;

impl Rate {
    /// Starts with `burst` in hand.
    pub fn new(per_second: u64, burst: u64, now: Duration) -> Rate {
        Rate {
            per_second,
            burst,
            saved: u128::from(burst) * MILLION,
            at: now,
        }
    }

    /// Takes up to `amount`; what it returns may be spent.
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

/// Bytes that must have been read from front to back before anything is read ahead: smaller files
/// are read whole by the kernel's own read-ahead, and a few jumps forward are no stream.
const PROOF: u64 = 64 << 10;

/// Windows that are kept ahead of a slow reader, and of a fast one at the most.
const LEAD_MIN: u64 = 2;
const LEAD_MAX: u64 = 16;

/// Shortest and longest time between two looks at a stream that moves.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(100);

/// Longest time between two looks at one that stands still.
const LOOK_IDLE: Duration = Duration::from_millis(500);

/// A file that the topmost app reads, and how far ahead it was read.
///
/// The kernel's read-ahead of a few windows hides the disk as long as the app takes longer over a
/// window than the disk; the cost of a request, and every wait beyond that, is what larger windows
/// save. How far ahead is a matter of speed: the lead lasts until the next two looks. It grows with
/// what was read in sequence, so that never more is wasted than was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Bytes of one window.
    window: u64,
    /// Where the app stood at the last look.
    position: u64,
    at: Duration,
    /// Bytes read in sequence up to there.
    run: u64,
    /// Everything before this was read by the app or asked for by us.
    ahead: u64,
    /// Looks in a row that found it standing still.
    idle: u32,
    /// Time that the last look left until the next one.
    pace: Duration,
}

/// What a look at a stream gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Bytes to read ahead now: first byte and number.
    pub read: Option<(u64, u64)>,
    /// Time until the next look.
    pub next: Duration,
}

impl Stream {
    /// Starts to follow a reader that stands at `position`. `window` is at least a page.
    pub fn new(position: u64, window: u64, now: Duration) -> Stream {
        Stream {
            window: window.max(4096),
            position,
            at: now,
            run: 0,
            ahead: position,
            idle: 0,
            pace: LOOK_MIN,
        }
    }

    /// How long it has stood still, in looks.
    pub fn idle(&self) -> u32 {
        self.idle
    }

    /// Whether enough was read in sequence to read ahead.
    pub fn is_proven(&self) -> bool {
        self.run >= PROOF
    }

    /// Looks where the reader is now in a file of `size` bytes.
    pub fn look(&mut self, position: u64, size: u64, now: Duration) -> Look {
        let look = self.judge(position, size, now);
        self.pace = look.next;
        look
    }

    fn judge(&mut self, position: u64, size: u64, now: Duration) -> Look {
        let passed = now.saturating_sub(self.at);
        let lead_max = self.window * LEAD_MAX;
        let moved = position.wrapping_sub(self.position);
        let before = std::mem::replace(&mut self.position, position);
        self.at = now;
        if position == before {
            self.idle = self.idle.saturating_add(1);
            let next = LOOK_MIN * 2u32.saturating_pow(self.idle.min(10));
            return Look {
                read: None,
                next: next.min(LOOK_IDLE),
            };
        }
        let soon = Look {
            read: None,
            next: LOOK_MIN,
        };
        // How long it has moved since it stood still nobody knows, so its speed is not known.
        let woken = std::mem::take(&mut self.idle) > 0;
        // A jump is a seek: no disk is that much faster than what was asked for.
        if position < before || moved > lead_max.max(self.ahead.saturating_sub(before)) * 2 {
            self.run = 0;
            self.ahead = position;
            return soon;
        }
        self.run = self.run.saturating_add(moved);
        // One that has overtaken us was held up by the disk, and so is one that waits for the first
        // window: it will be faster than it was.
        let held_up = woken || self.ahead <= position;
        self.ahead = self.ahead.max(position);
        if self.run < PROOF {
            return soon;
        }
        // Bytes a millisecond.
        let speed = moved.saturating_mul(1000) / (passed.as_micros().max(1) as u64);
        let lead = (speed.saturating_mul(2 * LOOK_MAX.as_millis() as u64))
            .clamp(self.window * LEAD_MIN, lead_max)
            .min(self.run.saturating_mul(2).max(self.window));
        let in_hand = self.ahead - position;
        let read = (in_hand <= lead / 2 && self.ahead < size).then(|| {
            // Whole windows, so that requests are as large as the device allows.
            let end = (position + lead).div_ceil(self.window) * self.window;
            (self.ahead, end.min(size).saturating_sub(self.ahead))
        });
        let read = read.filter(|&(_, len)| len > 0);
        let in_hand = in_hand + read.map_or(0, |(_, len)| len);
        // Half of what is in hand may be used up until the next look, if it goes on at this speed.
        // Whether it does, a look that is not much later tells.
        let used = Duration::from_millis(in_hand / 2 / speed.max(1));
        let next = match held_up {
            true => LOOK_MIN,
            false => used.min(self.pace * 2).clamp(LOOK_MIN, LOOK_MAX),
        };
        Look { read, next }
    }

    /// `len` bytes from where the last look asked for them on are being read.
    pub fn granted(&mut self, len: u64) {
        self.ahead = self.ahead.saturating_add(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// A reader of `speed` bytes a millisecond from the start to the end of a file: bytes of each
    /// request, and the most that was read ahead of it.
    fn read_all(speed: u64, size: u64) -> (Vec<u64>, u64) {
        let mut stream = Stream::new(0, MIB, MS(0));
        let (mut now, mut position, mut requests, mut most) = (MS(0), 0, Vec::new(), 0);
        while position < size {
            now += MS(1);
            position = (position + speed).min(size);
            let look = stream.look(position, size, now);
            if let Some((offset, len)) = look.read {
                assert!(offset >= position && offset + len <= size);
                stream.granted(len);
                requests.push(len);
                most = most.max(offset + len - position);
            }
            let wait = look.next.saturating_sub(MS(1));
            now += wait;
            position = (position + speed * wait.as_millis() as u64).min(size);
        }
        (requests, most)
    }

    #[test]
    fn a_stream_is_read_ahead_in_large_windows_and_to_its_end() {
        for speed in [4 * KIB, 100 * KIB, MIB, 8 * MIB] {
            let size = 64 * MIB;
            let (requests, most) = read_all(speed, size);
            let bytes: u64 = requests.iter().sum();
            assert!(bytes >= size / 2, "{speed}: {bytes}");
            assert!(bytes <= size, "{speed}: {bytes}");
            assert!(requests.len() <= 64, "{speed}: {} requests", requests.len());
            assert!(most <= 17 * MIB, "{speed}: {most}");
        }
    }

    #[test]
    fn the_lead_grows_with_what_was_read() {
        let mut stream = Stream::new(0, MIB, MS(0));
        assert_eq!(stream.look(32 * KIB, 64 * MIB, MS(1)).read, None);
        let look = stream.look(96 * KIB, 64 * MIB, MS(2));
        assert_eq!(look.read, Some((96 * KIB, 2 * MIB - 96 * KIB)));
    }

    #[test]
    fn one_that_wakes_is_looked_at_again_at_once() {
        let mut stream = Stream::new(0, MIB, MS(0));
        assert_eq!(stream.look(0, 64 * MIB, MS(1)).read, None);
        let look = stream.look(4 * KIB, 64 * MIB, MS(3000));
        assert_eq!(look.next, LOOK_MIN);
    }

    #[test]
    fn one_that_the_disk_holds_up_is_not_taken_for_a_slow_one() {
        let mut stream = Stream::new(0, MIB, MS(0));
        assert!(stream.look(96 * KIB, 64 * MIB, MS(1)).read.is_some());
        stream.granted(2 * MIB - 96 * KIB);
        // What it was given is not there yet.
        let look = stream.look(100 * KIB, 64 * MIB, MS(2));
        assert!(look.next <= 2 * LOOK_MIN, "{look:?}");
        let look = stream.look(104 * KIB, 64 * MIB, MS(4));
        assert!(look.next <= 4 * LOOK_MIN, "{look:?}");
    }

    #[test]
    fn a_slow_reader_is_looked_at_less_and_less() {
        let mut stream = Stream::new(0, MIB, MS(0));
        let (mut now, mut position) = (MS(0), 0);
        let mut looks = 0;
        while now < MS(10_000) {
            // 1 MiB a second.
            let look = stream.look(position, 64 * MIB, now);
            if let Some((_, len)) = look.read {
                stream.granted(len);
            }
            now += look.next;
            position = now.as_millis() as u64 * KIB;
            looks += 1;
        }
        assert!(looks < 200, "{looks} looks in 10 s");
    }

    #[test]
    fn jumps_and_returns_are_no_stream() {
        let mut stream = Stream::new(0, MIB, MS(0));
        let mut now = MS(0);
        for position in [40 * MIB, MIB, 90 * MIB, 30 * KIB, 80 * MIB] {
            now += MS(1);
            assert_eq!(stream.look(position, 100 * MIB, now).read, None);
        }
    }

    #[test]
    fn a_stream_that_stands_still_is_looked_at_less_and_less() {
        let mut stream = Stream::new(0, MIB, MS(0));
        let mut last = MS(0);
        for _ in 0..12 {
            let next = stream.look(0, MIB, MS(5)).next;
            assert!(next >= last);
            last = next;
        }
        assert_eq!(last, LOOK_IDLE);
        assert_eq!(stream.idle(), 12);
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let mut stream = Stream::new(0, MIB, MS(0));
        let look = stream.look(100 * KIB, 120 * KIB, MS(1));
        assert_eq!(look.read, Some((100 * KIB, 20 * KIB)));
        stream.granted(20 * KIB);
        assert_eq!(stream.look(120 * KIB, 120 * KIB, MS(2)).read, None);
    }

    #[test]
    fn a_rate_saves_up_no_more_than_its_burst() {
        let mut rate = Rate::new(10 * MIB, 20 * MIB, MS(0));
        assert_eq!(rate.take(30 * MIB, MS(0)), 20 * MIB);
        assert_eq!(rate.take(30 * MIB, MS(0)), 0);
        assert_eq!(rate.take(30 * MIB, MS(500)), 5 * MIB);
        assert_eq!(rate.take(30 * MIB, MS(100_000)), 20 * MIB);
    }

    #[test]
    fn a_small_rate_earns_in_small_steps() {
        let mut rate = Rate::new(400, 10, MS(0));
        assert_eq!(rate.take(10, MS(0)), 10);
        let earned: u64 = (1..=1000).map(|ms| rate.take(1, MS(ms))).sum();
        assert_eq!(earned, 400);
    }

    #[test]
    fn memory_that_is_short_leaves_no_room() {
        let memory = |available| Memory {
            free: available,
            total: 800 * MIB,
            available,
            reachable: 800 * MIB,
            swap_total: 0,
            swap_free: 0,
        };
        assert_eq!(room(&memory(300 * MIB), 0), 200 * MIB);
        assert_eq!(room(&memory(90 * MIB), 0), 0);
        assert_eq!(room(&memory(300 * MIB), 1), 0);
    }

    proptest! {
        #[test]
        fn any_reader_is_survived(
            looks in proptest::collection::vec((any::<u64>(), 0u64..1_000_000), 1..50),
            size in any::<u64>(),
            window in any::<u32>(),
        ) {
            let mut now = MS(0);
            let mut stream = Stream::new(0, u64::from(window), now);
            for (position, step) in looks {
                let position = position / 4;
                let size = size / 4;
                now += Duration::from_micros(step);
                let look = stream.look(position, size, now);
                prop_assert!(look.next >= LOOK_MIN && look.next <= LOOK_IDLE);
                if let Some((offset, len)) = look.read {
                    prop_assert!(offset >= position && offset + len <= size && len > 0);
                    stream.granted(len);
                }
            }
        }
    }
}
