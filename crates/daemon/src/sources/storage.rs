// SPDX-License-Identifier: GPL-2.0-or-later
//! Where swapped memory goes: the swap areas, what they lie on, and how much was written there.

use std::collections::VecDeque;
use std::time::Duration;

use limelight_core::model::storage::{Area, Compressed, Medium, Storage};
use limelight_sys::keyed::Keyed;
use limelight_sys::meminfo::page_bytes;
use limelight_sys::swap::{Spin, SwapMedium, Zswap};

use crate::doors::Doors;

/// For how long what was written to flash counts, and how exactly.
const DAY: Duration = Duration::from_secs(24 * 3600);
const HOUR: Duration = Duration::from_secs(3600);

/// Less says nothing about how fast storage is.
const TELLING: u64 = 1 << 20;

/// Follows the storage.
#[derive(Debug, Default)]
pub struct StorageSource {
    /// Bytes that were swapped out since boot, an hour apart.
    hours: VecDeque<(Duration, u64)>,
    read_rate: Option<u64>,
}

impl StorageSource {
    /// Looks at the swap areas. What cannot be read is not there.
    pub fn look(&mut self, doors: &Doors, counters: &Keyed, at: Duration) -> Storage {
        let mut storage = Storage {
            read_rate: self.read_rate,
            ..Storage::default()
        };
        for area in doors.proc.swaps().unwrap_or_default() {
            let (medium, used) = match area.medium(&doors.sys) {
                Ok(SwapMedium::Zram(zram)) => {
                    storage.compressed = Compressed {
                        stored: storage.compressed.stored + zram.stored_bytes,
                        taken: storage.compressed.taken + zram.taken_bytes,
                    };
                    (Medium::Zram, zram.stored_bytes)
                }
                Ok(SwapMedium::Disk(Spin::Rotational) | SwapMedium::File(Spin::Rotational)) => {
                    (Medium::Rotational, area.used_bytes)
                }
                // Of what is not known the dearer is assumed: wear.
                Ok(_) | Err(_) => (Medium::Flash, area.used_bytes),
            };
            storage.areas.push(Area {
                medium,
                size: area.size_bytes,
                used,
            });
        }
        let zswap = Zswap::read(&doors.sys, &doors.proc);
        storage.zswap = zswap.is_ok_and(|zswap| zswap.enabled);
        let pages = counters.get("pswpout");
        let out = pages.unwrap_or(0).saturating_mul(page_bytes());
        // The kernel counts what goes to zram too, which wears nothing out.
        let worn = storage
            .areas
            .iter()
            .any(|area| area.medium == Medium::Flash)
            && storage.areas.iter().all(|area| area.medium != Medium::Zram);
        storage.written = match worn {
            true => self.within_a_day(out, at),
            false => 0,
        };
        storage
    }

    fn within_a_day(&mut self, out: u64, at: Duration) -> u64 {
        let due = self
            .hours
            .back()
            .is_none_or(|(then, _)| at.saturating_sub(*then) >= HOUR);
        if due {
            // Before the first look nothing is known; what was written since boot counts.
            let known = if self.hours.is_empty() { 0 } else { out };
            self.hours.push_back((at, known));
        }
        while self.hours.len() > 1
            && at.saturating_sub(self.hours.front().map_or(at, |h| h.0)) > DAY
        {
            self.hours.pop_front();
        }
        out.saturating_sub(self.hours.front().map_or(0, |(_, out)| *out))
    }

    /// So many bytes were read back in this time.
    pub fn read_back(&mut self, bytes: u64, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if bytes < TELLING || us == 0 {
            return;
        }
        let rate = bytes.saturating_mul(1_000_000) / us;
        // A single time may have been an unlucky one.
        self.read_rate = Some(self.read_rate.map_or(rate, |known| (known * 3 + rate) / 4));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_day_is_counted_from_a_day_ago() {
        let mut source = StorageSource::default();
        assert_eq!(source.within_a_day(5, HOUR), 5, "since boot");
        for hour in 2..=40u32 {
            let written = source.within_a_day(u64::from(hour) * 10, HOUR * hour);
            let day = u64::from(hour.min(25)) * 10;
            assert!(written <= day, "{hour}: {written}");
        }
        assert_eq!(source.within_a_day(410, HOUR * 41), 240);
        assert!(source.hours.len() <= 26);
    }

    #[test]
    fn speed_is_learnt_from_what_is_worth_it() {
        let mut source = StorageSource::default();
        source.read_back(4096, Duration::from_millis(1));
        assert_eq!(source.read_rate, None);
        source.read_back(8 * MIB, Duration::from_millis(100));
        assert_eq!(source.read_rate, Some(80 * MIB));
        source.read_back(8 * MIB, Duration::from_millis(200));
        assert_eq!(source.read_rate, Some(70 * MIB));
    }
}
