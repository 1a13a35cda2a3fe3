// SPDX-License-Identifier: GPL-2.0-or-later
//! `readahead`: reads data of the topmost app into memory before the app requests it.
//!
//! 1. *The device*: the Limelight kernel reads `factor` times as far ahead for the topmost app.
//! 2. *Streams*, on a kernel that cannot do that: the daemon samples the app's position in the
//!    files that the app reads sequentially. It reads ahead in windows of `factor` times the disk's
//!    own read-ahead. [`Stream`] decides what to read and when. In files with random access, the
//!    daemon reads the neighbours of pages that the app waits for ([`places`]).
//! 3. *Cold start*, on every kernel: [`crate::model::coldstart`].
//!
//! Reading ahead takes memory and disk time for data that the app may never request. So streams and
//! cold starts pause while memory is short ([`room`]), and streams have a rate limit.

pub mod flight;
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
        /// Read-ahead distance for the topmost app, as a multiple of the usual one; `None`: off.
        factor: Option<u8>,
    },
}

fn wanted(event: &Event, snapshot: &Snapshot) -> Option<u8> {
    let settings = &snapshot.settings.readahead;
    let on = *event != Event::Stop && settings.enabled && snapshot.device_readahead;
    on.then_some(settings.factor)
}

/// Steps that undo settings which no longer apply; they run before the steps of [`grant`].
pub fn withdraw(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    let on = snapshot.in_force.device_readahead.is_some() && snapshot.device;
    if on && wanted(event, snapshot).is_none() {
        return vec![Step::Switch { factor: None }];
    }
    Vec::new()
}

/// Steps that put settings in force; they run after the steps of [`withdraw`].
pub fn grant(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    match wanted(event, snapshot) {
        Some(factor) if snapshot.in_force.device_readahead != Some(factor) => vec![Step::Switch {
            factor: Some(factor),
        }],
        _ => Vec::new(),
    }
}

/// Whether the daemon tracks the app's streams itself.
pub fn follows_streams(snapshot: &Snapshot) -> bool {
    let settings = &snapshot.settings.readahead;
    settings.enabled && settings.factor > 1 && !snapshot.device_readahead
}

/// Bytes that may be read ahead now without evicting other data. An eighth of memory stays
/// available, and nothing is read ahead while protection is lowered.
pub fn room(memory: &Memory, lowered_steps: u8) -> u64 {
    if lowered_steps > 0 {
        return 0;
    }
    memory.available.saturating_sub(memory.total / 8)
}

/// Notes for the user, one sentence each.
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

/// Bytes that the app must have read sequentially before anything is read ahead: the kernel's own
/// read-ahead covers smaller files, and a few forward jumps are not a stream.
const PROOF: u64 = 64 << 10;

/// Minimum and maximum lead over the reader, in windows.
const LEAD_MIN: u64 = 2;
const LEAD_MAX: u64 = 16;

/// Shortest and longest interval between two samples of a moving stream.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
const INTERVAL_MAX: Duration = Duration::from_millis(100);

/// Longest interval between two samples of an idle stream.
const INTERVAL_IDLE_MAX: Duration = Duration::from_millis(500);

/// A file that the topmost app reads sequentially, and how far the daemon has read ahead in it.
///
/// The kernel's own read-ahead hides the disk's time as long as the app takes longer to process a
/// window than the disk takes to read it. Larger windows reduce the cost per request and the
/// remaining waits. The lead is the distance from the reader to the end of the read-ahead. At the
/// reader's speed it lasts for two of the longest sample intervals, within `LEAD_MIN` and
/// `LEAD_MAX`. It never exceeds the larger of one window and twice the bytes read in sequence so
/// far, which limits the waste if the app stops reading. The end of the read-ahead is rounded up to
/// a whole window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Size of one window in bytes.
    window: u64,
    /// The app's offset in the file at the last sample.
    position: u64,
    at: Duration,
    /// Bytes read in sequence up to `position`.
    run: u64,
    /// The app has read, or the daemon has requested, all data before this offset.
    ahead: u64,
    /// Samples in a row without movement.
    idle: u32,
    /// Interval from the last sample to the next one.
    pace: Duration,
}

/// Result of a sample of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Bytes to read ahead now: offset and length.
    pub read: Option<(u64, u64)>,
    /// Time until the next sample.
    pub next: Duration,
}

impl Stream {
    /// Starts to track a reader at offset `position`. A `window` below a page counts as one page.
    pub fn new(position: u64, window: u64, now: Duration) -> Stream {
        Stream {
            window: window.max(4096),
            position,
            at: now,
            run: 0,
            ahead: position,
            idle: 0,
            pace: INTERVAL_MIN,
        }
    }

    /// Number of samples in a row without movement.
    pub fn idle(&self) -> u32 {
        self.idle
    }

    /// Whether the app read enough in sequence to read ahead.
    pub fn is_proven(&self) -> bool {
        self.run >= PROOF
    }

    /// Samples the reader's position in a file of `size` bytes.
    pub fn look(&mut self, position: u64, size: u64, now: Duration) -> Look {
        let look = self.sample(position, size, now);
        self.pace = look.next;
        look
    }

    fn sample(&mut self, position: u64, size: u64, now: Duration) -> Look {
        let passed = now.saturating_sub(self.at);
        let lead_max = self.window * LEAD_MAX;
        let moved = position.wrapping_sub(self.position);
        let before = std::mem::replace(&mut self.position, position);
        self.at = now;
        if position == before {
            self.idle = self.idle.saturating_add(1);
            let next = INTERVAL_MIN * 2u32.saturating_pow(self.idle.min(10));
            return Look {
                read: None,
                next: next.min(INTERVAL_IDLE_MAX),
            };
        }
        let soon = Look {
            read: None,
            next: INTERVAL_MIN,
        };
        // It is unknown when an idle reader moved again, and so is its speed.
        let woken = std::mem::take(&mut self.idle) > 0;
        // A large jump is a seek: no sequential reader gets that far beyond the requested data.
        if position < before || moved > lead_max.max(self.ahead.saturating_sub(before)) * 2 {
            self.run = 0;
            self.ahead = position;
            return soon;
        }
        self.run = self.run.saturating_add(moved);
        // A reader that has reached the end of the read-ahead has waited for the disk, and will be
        // faster once data is read ahead for it.
        let held_up = woken || self.ahead <= position;
        self.ahead = self.ahead.max(position);
        if self.run < PROOF {
            return soon;
        }
        // Bytes per millisecond.
        let speed = moved.saturating_mul(1000) / (passed.as_micros().max(1) as u64);
        let lead = (speed.saturating_mul(2 * INTERVAL_MAX.as_millis() as u64))
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
        // The next sample is due when half of the lead is used up at this speed. The interval at
        // most doubles, so that a change of speed is detected soon.
        let used = Duration::from_millis(in_hand / 2 / speed.max(1));
        let next = match held_up {
            true => INTERVAL_MIN,
            false => used.min(self.pace * 2).clamp(INTERVAL_MIN, INTERVAL_MAX),
        };
        Look { read, next }
    }

    /// Notes that the daemon has requested `len` bytes from the offset that the last sample
    /// returned.
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

    /// Simulates a reader of `speed` bytes per millisecond over a whole file. Returns the size of
    /// each request and the largest lead, in bytes.
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
    fn stream_is_read_ahead_in_large_windows_up_to_its_end() {
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
    fn lead_grows_with_the_bytes_read() {
        let mut stream = Stream::new(0, MIB, MS(0));
        assert_eq!(stream.look(32 * KIB, 64 * MIB, MS(1)).read, None);
        let look = stream.look(96 * KIB, 64 * MIB, MS(2));
        assert_eq!(look.read, Some((96 * KIB, 2 * MIB - 96 * KIB)));
    }

    #[test]
    fn stream_that_moves_again_is_sampled_at_the_shortest_interval() {
        let mut stream = Stream::new(0, MIB, MS(0));
        assert_eq!(stream.look(0, 64 * MIB, MS(1)).read, None);
        let look = stream.look(4 * KIB, 64 * MIB, MS(3000));
        assert_eq!(look.next, INTERVAL_MIN);
    }

    #[test]
    fn stream_held_up_by_the_disk_is_not_taken_for_slow() {
        let mut stream = Stream::new(0, MIB, MS(0));
        assert!(stream.look(96 * KIB, 64 * MIB, MS(1)).read.is_some());
        stream.granted(2 * MIB - 96 * KIB);
        // The granted bytes have not arrived yet.
        let look = stream.look(100 * KIB, 64 * MIB, MS(2));
        assert!(look.next <= 2 * INTERVAL_MIN, "{look:?}");
        let look = stream.look(104 * KIB, 64 * MIB, MS(4));
        assert!(look.next <= 4 * INTERVAL_MIN, "{look:?}");
    }

    #[test]
    fn slow_reader_is_sampled_less_often() {
        let mut stream = Stream::new(0, MIB, MS(0));
        let (mut now, mut position) = (MS(0), 0);
        let mut samples = 0;
        while now < MS(10_000) {
            // 1 MiB per second.
            let look = stream.look(position, 64 * MIB, now);
            if let Some((_, len)) = look.read {
                stream.granted(len);
            }
            now += look.next;
            position = now.as_millis() as u64 * KIB;
            samples += 1;
        }
        assert!(samples < 200, "{samples} samples in 10 s");
    }

    #[test]
    fn seeks_are_not_a_stream() {
        let mut stream = Stream::new(0, MIB, MS(0));
        let mut now = MS(0);
        for position in [40 * MIB, MIB, 90 * MIB, 30 * KIB, 80 * MIB] {
            now += MS(1);
            assert_eq!(stream.look(position, 100 * MIB, now).read, None);
        }
    }

    #[test]
    fn idle_stream_is_sampled_less_and_less_often() {
        let mut stream = Stream::new(0, MIB, MS(0));
        let mut last = MS(0);
        for _ in 0..12 {
            let next = stream.look(0, MIB, MS(5)).next;
            assert!(next >= last);
            last = next;
        }
        assert_eq!(last, INTERVAL_IDLE_MAX);
        assert_eq!(stream.idle(), 12);
    }

    #[test]
    fn nothing_is_read_past_the_end_of_the_file() {
        let mut stream = Stream::new(0, MIB, MS(0));
        let look = stream.look(100 * KIB, 120 * KIB, MS(1));
        assert_eq!(look.read, Some((100 * KIB, 20 * KIB)));
        stream.granted(20 * KIB);
        assert_eq!(stream.look(120 * KIB, 120 * KIB, MS(2)).read, None);
    }

    #[test]
    fn short_memory_leaves_no_room() {
        let memory = |available| Memory {
            free: available,
            total: 800 * MIB,
            available,
            reachable: 800 * MIB,
            compressed: 0,
            anonymous: None,
            swap_total: 0,
            swap_free: 0,
        };
        assert_eq!(room(&memory(300 * MIB), 0), 200 * MIB);
        assert_eq!(room(&memory(90 * MIB), 0), 0);
        assert_eq!(room(&memory(300 * MIB), 1), 0);
    }

    proptest! {
        #[test]
        fn any_sequence_of_positions_gives_valid_requests(
            samples in proptest::collection::vec((any::<u64>(), 0u64..1_000_000), 1..50),
            size in any::<u64>(),
            window in any::<u32>(),
        ) {
            let mut now = MS(0);
            let mut stream = Stream::new(0, u64::from(window), now);
            for (position, step) in samples {
                let position = position / 4;
                let size = size / 4;
                now += Duration::from_micros(step);
                let look = stream.look(position, size, now);
                prop_assert!(look.next >= INTERVAL_MIN && look.next <= INTERVAL_IDLE_MAX);
                if let Some((offset, len)) = look.read {
                    prop_assert!(offset >= position && offset + len <= size && len > 0);
                    stream.granted(len);
                }
            }
        }
    }
}
