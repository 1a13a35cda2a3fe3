// SPDX-License-Identifier: GPL-2.0-or-later
//! Files with random access: decides whether to read the neighbours of a page that the app waited
//! for.
//!
//! A file is divided into regions. After a single wait in a region, nothing is read. After a
//! *second* wait within 5 s, the region is read. A file is trusted while the app returns to at
//! least half of the regions that were not read at the first wait. In a trusted file, a region is
//! read at the first wait. Every eighth time it is not, to see whether the app still returns to a
//! region by itself. For an app that jumps about without returning, nothing is read.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Device and inode number of a file.
pub type File = (u64, u64);

/// Maximum number of remembered regions.
const REGIONS_MAX: usize = 512;
/// How long a wait in a region counts.
const FRESH: Duration = Duration::from_secs(5);

/// Maximum number of remembered files.
const FILES_MAX: usize = 64;

/// Number of regions that must have been observed (not read at the first wait) before a file can be
/// trusted.
const OBSERVED_MIN: u32 = 4;
/// When this many regions have been observed, both counts are halved, so that newer regions weigh
/// more.
const OBSERVED_MAX: u32 = 64;

/// In a trusted file, one region in this many is not read at the first wait.
const SAMPLE: u32 = 8;

/// Smallest and largest region in bytes.
const REGION_MIN: u64 = 64 << 10;
const REGION_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Region {
    file: File,
    number: u64,
    at: Duration,
    /// Whether the region has been read.
    done: bool,
}

/// How often the app returned to regions of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Trust {
    /// Number of regions that were not read at the first wait.
    observed: u32,
    /// Number of these regions to which the app returned.
    returned: u32,
    /// Number of first waits while the file was trusted.
    early: u32,
}

impl Trust {
    fn holds(self) -> bool {
        self.observed >= OBSERVED_MIN && self.returned * 2 >= self.observed
    }

    fn observe_one(&mut self) {
        if self.observed >= OBSERVED_MAX {
            self.observed /= 2;
            self.returned /= 2;
        }
        self.observed += 1;
    }
}

/// Recent waits of the topmost app for pages of files.
#[derive(Debug, Clone, Default)]
pub struct Places {
    regions: VecDeque<Region>,
    files: BTreeMap<File, Trust>,
}

/// Region size in bytes. `read_ahead`: the device's own read-ahead in bytes; `factor`: the
/// configured multiple of it for the topmost app.
pub fn region(read_ahead: u64, factor: u8) -> u64 {
    // The kernel itself reads `read_ahead` bytes around a fault. With the default factor 8, a
    // region is 2 × `read_ahead`: about half is what the kernel has just read, the rest is new.
    (read_ahead * u64::from(factor) / 4)
        .next_power_of_two()
        .clamp(REGION_MIN, REGION_MAX)
}

impl Places {
    /// Starts without remembered waits.
    pub fn new() -> Places {
        Places::default()
    }

    /// Forgets all waits, because another app is topmost.
    pub fn clear(&mut self) {
        self.regions.clear();
        self.files.clear();
    }

    /// Notes that the app waited for `len` bytes at `offset`, in a file with regions of `region`
    /// bytes. Returns the region to read now, as offset and length; it may extend past the end of
    /// the file.
    pub fn waited(
        &mut self,
        file: File,
        (offset, len): (u64, u64),
        region: u64,
        now: Duration,
    ) -> Option<(u64, u64)> {
        let region = region.max(1);
        // The kernel reads around a fault, so the fault was in the middle of these bytes.
        let number = offset.saturating_add(len / 2) / region;
        self.wanted(file, number, now)
            .then(|| (number * region, region))
    }

    /// Whether to read the whole region, now that the app waited in it.
    fn wanted(&mut self, file: File, number: u64, now: Duration) -> bool {
        while self
            .regions
            .front()
            .is_some_and(|region| now.saturating_sub(region.at) > FRESH)
        {
            self.regions.pop_front();
        }
        let mut known = self.regions.iter_mut();
        let known = known.find(|region| region.file == file && region.number == number);
        if let Some(region) = known {
            let first = !std::mem::replace(&mut region.done, true);
            if first {
                if let Some(trust) = self.files.get_mut(&file) {
                    trust.returned += 1;
                }
            }
            return first;
        }
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&file) {
            self.files.pop_first();
        }
        let trust = self.files.entry(file).or_default();
        let mut early = trust.holds();
        if early {
            trust.early += 1;
            early = !trust.early.is_multiple_of(SAMPLE);
        }
        if !early {
            trust.observe_one();
        }
        if self.regions.len() >= REGIONS_MAX {
            self.regions.pop_front();
        }
        self.regions.push_back(Region {
            file,
            number,
            at: now,
            done: early,
        });
        early
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const FILE: File = (8, 1);
    const REGION: u64 = 256 * KIB;
    const PAGE: u64 = 4 * KIB;

    #[test]
    fn second_wait_in_a_region_reads_the_rest_of_it_once() {
        let mut places = Places::new();
        let now = Duration::from_secs(1);
        let at = |kib: u64| (kib * KIB, PAGE);
        assert_eq!(places.waited(FILE, at(300), REGION, now), None);
        let read = places.waited(FILE, at(500), REGION, now);
        assert_eq!(read, Some((256 * KIB, 256 * KIB)));
        assert_eq!(places.waited(FILE, at(400), REGION, now), None);
        assert_eq!(places.waited((8, 2), at(400), REGION, now), None);
    }

    #[test]
    fn jumps_without_return_read_nothing() {
        let mut places = Places::new();
        for jump in 0..200u64 {
            let now = Duration::from_millis(jump);
            let at = (jump * MIB % (64 * MIB) + jump / 64 * 256 * KIB, PAGE);
            assert_eq!(places.waited(FILE, at, REGION, now), None, "{jump}");
        }
    }

    #[test]
    fn trusted_file_is_read_at_the_first_wait_until_the_app_stops_returning() {
        let mut places = Places::new();
        let now = Duration::from_secs(1);
        let mut next = 0;
        let mut jump = |places: &mut Places, back: bool| {
            next += 1;
            let at = next * 256 * KIB;
            let first = places.waited(FILE, (at, PAGE), REGION, now);
            if back && first.is_none() {
                assert!(places
                    .waited(FILE, (at + PAGE, PAGE), REGION, now)
                    .is_some());
            }
            first.is_some()
        };
        let early = (0..40).filter(|_| jump(&mut places, true)).count();
        assert!((25..=36).contains(&early), "{early}");
        // The app stops returning. The regions that are left unread (every eighth) show that.
        let early: Vec<bool> = (0..200).map(|_| jump(&mut places, false)).collect();
        assert!(early.iter().rev().take(50).all(|early| !early));
    }

    #[test]
    fn stale_wait_does_not_count() {
        let mut places = Places::new();
        assert_eq!(places.waited(FILE, (0, PAGE), REGION, Duration::ZERO), None);
        let later = FRESH * 2;
        assert_eq!(places.waited(FILE, (8 * KIB, PAGE), REGION, later), None);
    }

    #[test]
    fn region_is_twice_the_kernel_read_ahead_by_default() {
        assert_eq!(region(128 * KIB, 8), 256 * KIB);
        assert_eq!(region(128 * KIB, 16), 512 * KIB);
        assert_eq!(region(8 * MIB, 8), MIB);
        assert_eq!(region(4 * KIB, 2), 64 * KIB);
    }

    proptest! {
        #[test]
        fn region_to_read_contains_the_wait(
            waits in proptest::collection::vec(
                (0u64..8, any::<u64>(), any::<u32>(), 0u64..4000), 1..80
            ),
            region in any::<u32>(),
        ) {
            let (mut places, mut now) = (Places::new(), Duration::ZERO);
            for (file, offset, len, step) in waits {
                now += Duration::from_millis(step);
                let (offset, len) = (offset / 4, u64::from(len));
                let read = places.waited((0, file), (offset, len), u64::from(region), now);
                if let Some((start, bytes)) = read {
                    let middle = offset + len / 2;
                    prop_assert!(start <= middle && middle < start + bytes);
                }
                prop_assert!(places.regions.len() <= REGIONS_MAX);
                prop_assert!(places.files.len() <= FILES_MAX);
            }
        }
    }
}
