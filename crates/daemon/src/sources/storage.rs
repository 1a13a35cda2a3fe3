// SPDX-License-Identifier: GPL-2.0-or-later
//! Swap storage: the swap areas, their media, and the bytes written to them.

use std::collections::VecDeque;
use std::time::Duration;

use limelight_core::model::storage::{Area, Compressed, Medium, Storage};
use limelight_sys::keyed::Keyed;
use limelight_sys::meminfo::page_bytes;
use limelight_sys::swap::{Spin, SwapMedium, Transfers, Zswap};

use crate::system::System;

/// Period over which writes to flash are counted, and its resolution.
const DAY: Duration = Duration::from_secs(24 * 3600);
const HOUR: Duration = Duration::from_secs(3600);

/// Smallest read, in bytes, that is used to measure the storage's speed.
const TELLING: u64 = 1 << 20;
/// Reads are used to measure a disk's speed only if they are at least this many times as much as
/// was written meanwhile.
const MOSTLY_READ: u64 = 8;

/// State of the swap storage over time.
#[derive(Debug, Default)]
pub struct StorageSource {
    /// Bytes written to flash since boot, sampled once an hour.
    hours: VecDeque<(Duration, u64)>,
    /// Measured speed of reads from swap, in bytes per second.
    read_rate: Option<u64>,
    /// The name of the swap area on a disk whose speed is measured, and what it had transferred
    /// when the present measurement began.
    disk: Option<(String, Transfers)>,
    /// Whether all swap is zram, which has read a page when the request for it ends.
    is_zram: bool,
}

impl StorageSource {
    /// Reads the state of the swap storage. An unreadable list of areas counts as empty.
    pub fn look(&mut self, system: &System, counters: &Keyed, at: Duration) -> Storage {
        let areas = system.proc.swaps().unwrap_or_default();
        let mut disks = areas.iter().filter(|area| !area.is_zram());
        let disk = disks.find_map(|area| Some((area.path.clone(), area.transfers(&system.sys)?)));
        self.measure_disk(disk);
        self.is_zram = areas.iter().all(|area| area.is_zram());
        let mut storage = Storage {
            read_rate: self.read_rate,
            ..Storage::default()
        };
        let mut backing_writes = 0;
        for area in areas {
            let (medium, used) = match area.medium(&system.sys) {
                Ok(SwapMedium::Zram(zram)) => {
                    // The kernel counts pages on the backing device as stored.
                    let stored = zram.stored_bytes.saturating_sub(zram.written_back_bytes);
                    storage.compressed = Compressed {
                        stored: storage.compressed.stored + stored,
                        taken: storage.compressed.taken + zram.taken_bytes,
                    };
                    storage.backed |= zram.backed;
                    backing_writes += zram.backing_writes_bytes;
                    (Medium::Zram, stored)
                }
                Ok(SwapMedium::Disk(Spin::Rotational) | SwapMedium::File(Spin::Rotational)) => {
                    (Medium::Rotational, area.used_bytes)
                }
                // An unknown medium counts as flash, so that it is spared in case it wears out.
                Ok(_) | Err(_) => (Medium::Flash, area.used_bytes),
            };
            storage.areas.push(Area {
                medium,
                size: area.size_bytes,
                used,
            });
        }
        storage.zswap = Zswap::is_enabled(&system.sys).unwrap_or(false);
        let pages = counters.get("pswpout");
        let out = pages.unwrap_or(0).saturating_mul(page_bytes());
        // The counter includes pages written to zram, which does not wear out. So if there is any
        // zram, only the writes to its backing device count.
        let worn = storage
            .areas
            .iter()
            .any(|area| area.medium == Medium::Flash)
            && storage.areas.iter().all(|area| area.medium != Medium::Zram);
        storage.written = match (worn, storage.backed) {
            (true, _) => self.within_a_day(out, at),
            (false, true) => self.within_a_day(backing_writes, at),
            (false, false) => 0,
        };
        storage
    }

    fn within_a_day(&mut self, out: u64, at: Duration) -> u64 {
        let due = self
            .hours
            .back()
            .is_none_or(|(then, _)| at.saturating_sub(*then) >= HOUR);
        if due {
            // The first sample counts as 0, so that all writes since boot count until it is a day
            // old.
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

    /// Measures the speed of swap on a disk while it is busy. The time of a request to bring memory
    /// back would not show it: such a request ends when the reads are queued. Small reads are
    /// accumulated.
    fn measure_disk(&mut self, disk: Option<(String, Transfers)>) {
        let Some((name, now)) = disk else {
            self.disk = None;
            return;
        };
        let before = self.disk.as_ref().filter(|(known, _)| *known == name);
        let passed = before.and_then(|(_, before)| now.since(before));
        let Some(passed) = passed else {
            self.disk = Some((name, now));
            return;
        };
        if passed.read.max(passed.written) < TELLING {
            return;
        }
        self.disk = Some((name, now));
        if passed.read >= passed.written.saturating_mul(MOSTLY_READ) {
            self.note_rate(passed.read, passed.busy);
        }
    }

    /// Records that a request to bring memory back asked for this many bytes and took this long.
    /// Ignored unless all swap is zram.
    pub fn read_back(&mut self, bytes: u64, took: Duration) {
        if self.is_zram && bytes >= TELLING {
            self.note_rate(bytes, took);
        }
    }

    fn note_rate(&mut self, bytes: u64, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if us == 0 {
            return;
        }
        let rate = bytes.saturating_mul(1_000_000) / us;
        // The average is weighted, because a single measurement may be an outlier.
        self.read_rate = Some(self.read_rate.map_or(rate, |known| (known * 3 + rate) / 4));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn daily_writes_are_counted_over_the_last_day() {
        let mut source = StorageSource::default();
        // At first, all writes since boot count.
        assert_eq!(source.within_a_day(5, HOUR), 5);
        for hour in 2..=40u32 {
            let written = source.within_a_day(u64::from(hour) * 10, HOUR * hour);
            let day = u64::from(hour.min(25)) * 10;
            assert!(written <= day, "hour {hour}: {written} bytes");
        }
        assert_eq!(source.within_a_day(410, HOUR * 41), 240);
        assert!(source.hours.len() <= 26);
    }

    #[test]
    fn speed_is_measured_only_on_large_reads() {
        let mut source = StorageSource {
            is_zram: true,
            ..StorageSource::default()
        };
        source.read_back(4096, Duration::from_millis(1));
        assert_eq!(source.read_rate, None);
        source.read_back(8 * MIB, Duration::from_millis(100));
        assert_eq!(source.read_rate, Some(80 * MIB));
        source.read_back(8 * MIB, Duration::from_millis(200));
        assert_eq!(source.read_rate, Some(70 * MIB));
    }

    #[test]
    fn speed_of_a_disk_is_measured_by_its_own_counters() {
        let mut source = StorageSource::default();
        let mut at = |read: u64, written: u64, busy: u64| {
            let transfers = Transfers {
                read: read * MIB / 4,
                written: written * MIB / 4,
                busy: Duration::from_millis(busy),
            };
            source.measure_disk(Some(("/dev/sda2".to_owned(), transfers)));
            source.read_rate
        };
        // What was transferred before the first reading says nothing.
        assert_eq!(at(400, 0, 10), None);
        // Three reads of 1/4, 1/4 and 1/2 MiB in 10 ms each.
        assert_eq!(at(401, 0, 20), None);
        assert_eq!(at(402, 0, 30), None);
        assert_eq!(at(404, 0, 40), Some(1_000_000 * MIB / 30_000));
        // Time that was mostly spent on writes.
        assert_eq!(at(404, 100, 1000), Some(1_000_000 * MIB / 30_000));
        // A request to bring memory back from a disk ends before the disk has read it.
        source.read_back(8 * MIB, Duration::from_millis(1));
        assert_eq!(source.read_rate, Some(1_000_000 * MIB / 30_000));
        // Another disk: its counters start a new measurement.
        source.measure_disk(Some(("/dev/sdb1".to_owned(), Transfers::default())));
        assert_eq!(source.read_rate, Some(1_000_000 * MIB / 30_000));
    }
}
