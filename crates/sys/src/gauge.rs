// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads the memory state without allocating: the files stay open, and one permanent buffer
//! receives their contents. The files are `/proc/meminfo`, `/proc/sys/fs/dentry-state`,
//! `/proc/vmstat`, `/proc/zoneinfo` and `/proc/pressure/memory`.

use std::time::Duration;

use rustix::io::Errno;

use crate::error::Result;
use crate::meminfo::page_bytes;
use crate::persistent_file::{keyed_lines, parse_number, PersistentFile};
use crate::proc::Proc;
use crate::watermarks::Watermarks;

/// Buffer size in bytes. The largest file, `vmstat`, has 6 KiB on Linux 6.12.
const ROOM: usize = 32 << 10;

/// Values of `meminfo`, in bytes. Values that the kernel does not report are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// `MemTotal`.
    pub total: u64,
    /// `MemFree`.
    pub free: u64,
    /// `MemAvailable`.
    pub available: u64,
    /// Estimate of the part of `available` that reclaim cannot free. The kernel counts the slab
    /// caches of dentries and inodes (`SReclaimable`) as available even if the objects are in use
    /// (`si_mem_available()` in mm/show_mem.c). The estimate applies the share of dentries in use
    /// to all of `SReclaimable`.
    pub pinned: u64,
    /// Sum of the low watermarks of all zones, plus the largest boost that fragmentation can cause.
    /// Read once in [`GaugeFiles::open`]. With less free memory, kswapd may not keep up.
    pub low: u64,
    /// `SwapTotal`.
    pub swap_total: u64,
    /// `SwapFree`.
    pub swap_free: u64,
}

/// Counters of `vmstat` and `pressure/memory`, since boot. Missing counters are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Paging {
    /// Pages read from swap (`pswpin`).
    pub swapped_in: u64,
    /// Pages written to swap (`pswpout`).
    pub swapped_out: u64,
    /// Refaults of file pages (`workingset_refault_file`).
    pub refaulted: u64,
    /// OOM kills (`oom_kill`).
    pub oom_kills: u64,
    /// Time in which at least one task was stalled on memory.
    pub some: Duration,
    /// Time in which all non-idle tasks were stalled on memory.
    pub full: Duration,
}

/// The open files and the buffer.
#[derive(Debug)]
pub struct GaugeFiles {
    meminfo: PersistentFile,
    /// `None` if the kernel does not report the number of dentries in use.
    dentries: Option<PersistentFile>,
    vmstat: PersistentFile,
    /// `None` if the file cannot be opened.
    zoneinfo: Option<PersistentFile>,
    /// `None` on a kernel without PSI.
    pressure: Option<PersistentFile>,
    marks: Watermarks,
    buffer: Box<[u8]>,
}

impl GaugeFiles {
    /// Opens the files.
    pub fn open(proc: &Proc) -> Result<GaugeFiles> {
        let mut files = GaugeFiles {
            meminfo: PersistentFile::open(proc.dir(), "meminfo")?,
            dentries: PersistentFile::open(proc.dir(), "sys/fs/dentry-state").ok(),
            vmstat: PersistentFile::open(proc.dir(), "vmstat")?,
            zoneinfo: PersistentFile::open(proc.dir(), "zoneinfo").ok(),
            pressure: PersistentFile::open(proc.dir(), "pressure/memory").ok(),
            marks: Watermarks::read(proc).unwrap_or_default(),
            // Filled with 1, not 0, so that the kernel allocates the pages of the buffer now.
            buffer: vec![1; ROOM].into_boxed_slice(),
        };
        // The kernel allocates a file's buffer at the first read.
        files.in_cpu_lists();
        Ok(files)
    }

    /// Reads the amounts of memory, in bytes.
    pub fn memory(&mut self) -> Result<Memory, Errno> {
        let low = self.marks.low_bytes;
        let mut memory = Memory {
            low: low.saturating_add(self.marks.most_boost_bytes),
            ..Memory::default()
        };
        let mut caches = 0;
        for (name, value) in keyed_lines(self.meminfo.read(&mut self.buffer)?) {
            let bytes = match name {
                b"MemTotal" => &mut memory.total,
                b"MemFree" => &mut memory.free,
                b"MemAvailable" => &mut memory.available,
                b"SReclaimable" => &mut caches,
                b"SwapTotal" => &mut memory.swap_total,
                b"SwapFree" => &mut memory.swap_free,
                _ => continue,
            };
            if let Some(kib) = value.number() {
                *bytes = kib.saturating_mul(1024);
            }
        }
        if let Some(Ok([all, unused])) = self.dentries.as_ref().map(PersistentFile::numbers) {
            memory.pinned = pinned(caches, low, all, unused);
        }
        Ok(memory)
    }

    /// Sum of the low watermarks of all zones, in bytes, without a boost. Read once in
    /// [`GaugeFiles::open`].
    pub fn low_watermark(&self) -> u64 {
        self.marks.low_bytes
    }

    /// Reads how many bytes of free pages are in the per-CPU lists of all zones; 0 if that is
    /// unknown. `MemFree` and `MemAvailable` do not count them. A list keeps up to an eighth of its
    /// zone, divided by the number of CPUs, so a dead process's memory can stay there for seconds
    /// (`nr_pcp_high()` and `decay_pcp_high()` in mm/page_alloc.c, since Linux 6.7). Where the file
    /// is longer than the buffer, the lists in the rest are not counted.
    pub fn in_cpu_lists(&mut self) -> u64 {
        let Some(zoneinfo) = &self.zoneinfo else {
            return 0;
        };
        let text = zoneinfo.read(&mut self.buffer).unwrap_or_default();
        let counts = keyed_lines(text).filter(|(name, _)| name == b"count");
        counts
            .filter_map(|(_, count)| count.number())
            .fold(0, u64::saturating_add)
            .saturating_mul(page_bytes())
    }

    /// Reads the paging counters. This takes the kernel ten times as long as
    /// [`GaugeFiles::memory`].
    pub fn paging(&mut self) -> Result<Paging, Errno> {
        let mut paging = Paging::default();
        for (name, value) in keyed_lines(self.vmstat.read(&mut self.buffer)?) {
            let counter = match name {
                b"pswpin" => &mut paging.swapped_in,
                b"pswpout" => &mut paging.swapped_out,
                b"workingset_refault_file" => &mut paging.refaulted,
                b"oom_kill" => &mut paging.oom_kills,
                _ => continue,
            };
            if let Some(count) = value.number() {
                *counter = count;
            }
        }
        if let Some(pressure) = &self.pressure {
            // If PSI was disabled at boot, the file can be opened but not read.
            let text = pressure.read(&mut self.buffer).unwrap_or_default();
            (paging.some, paging.full) = stalls(text);
        }
        Ok(paging)
    }
}

/// Estimates how many bytes of the slab caches count as available but are in use, if `unused` of
/// `all` dentries are unused.
fn pinned(caches: u64, low: u64, all: u64, unused: u64) -> u64 {
    let in_use = u128::from(all.saturating_sub(unused));
    let share = u128::from(caches) * in_use / u128::from(all.max(1));
    // `si_mem_available()` already excludes this part of the caches.
    u64::try_from(share).map_or(caches, |share| share.saturating_sub(low.min(caches / 2)))
}

/// Total stall times of `some` and `full`; 0 for a missing line.
fn stalls(text: &[u8]) -> (Duration, Duration) {
    let total = |name: &[u8]| {
        let mut lines = text.split(|&byte| byte == b'\n');
        let line = lines.find_map(|line| line.strip_prefix(name))?;
        let mut words = line.split(u8::is_ascii_whitespace);
        let total = words.find_map(|word| word.strip_prefix(b"total="))?;
        parse_number(total).map(Duration::from_micros)
    };
    let or_none = |total: Option<Duration>| total.unwrap_or_default();
    (or_none(total(b"some ")), or_none(total(b"full ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fake_tree_is_read_repeatedly() {
        let temp = tempfile::tempdir().unwrap();
        let write = |file: &str, text| std::fs::write(temp.path().join(file), text).unwrap();
        std::fs::create_dir(temp.path().join("pressure")).unwrap();
        write(
            "meminfo",
            "MemTotal: 100 kB\nMemFree: 5 kB\nMemAvailable: 40 kB\nSwapTotal: 8 kB\nSwapFree: 7 kB\n\
             SReclaimable: 36 kB\n",
        );
        std::fs::create_dir_all(temp.path().join("sys/fs")).unwrap();
        write("sys/fs/dentry-state", "900\t225\t45\t0\t10\t0\n");
        write(
            "zoneinfo",
            "Node 0, zone Normal\n low 2\n high 4\n  pagesets\n cpu: 0\n  count: 5\n  high: 9\n \
             cpu: 1\n  count:    6\n  high: 9\n",
        );
        std::fs::create_dir_all(temp.path().join("sys/vm")).unwrap();
        write("sys/vm/watermark_boost_factor", "10000\n");
        write(
            "vmstat",
            "nr_free_pages 1\npswpin 2\npswpout 3\nworkingset_refault_anon 9\n\
             workingset_refault_file 4\noom_kill 1\n",
        );
        write(
            "pressure/memory",
            "some avg10=1.50 avg60=0.20 avg300=0.00 total=12345\n\
             full avg10=0.75 avg60=0.10 avg300=0.00 total=999\n",
        );
        let proc = Proc::open(temp.path().to_str().unwrap()).unwrap();
        let mut files = GaugeFiles::open(&proc).unwrap();
        let memory = Memory {
            total: 100 << 10,
            free: 5 << 10,
            available: 40 << 10,
            // Three quarters of 36 KiB, minus the low watermark, which the kernel already excludes.
            pinned: (27 << 10) - 8192,
            low: 8192 + 10_000,
            swap_total: 8 << 10,
            swap_free: 7 << 10,
        };
        assert_eq!(files.memory(), Ok(memory));
        assert_eq!(files.in_cpu_lists(), 11 * page_bytes());
        let paging = Paging {
            swapped_in: 2,
            swapped_out: 3,
            refaulted: 4,
            oom_kills: 1,
            some: Duration::from_micros(12345),
            full: Duration::from_micros(999),
        };
        assert_eq!(files.paging(), Ok(paging));
        write("meminfo", "MemTotal: 100 kB\nMemAvailable: 1 kB\n");
        assert_eq!(files.memory().unwrap().available, 1024);
        assert_eq!(files.memory().unwrap().swap_free, 0);
        write("pressure/memory", "");
        assert_eq!(files.paging().unwrap().some, Duration::ZERO);
    }

    #[test]
    fn both_parsers_agree_on_the_running_kernel() {
        let proc = Proc::open("/proc").unwrap();
        let mut files = GaugeFiles::open(&proc).unwrap();
        let memory = files.memory().unwrap();
        let other = proc.meminfo().unwrap();
        assert_eq!(Some(memory.total), other.total_bytes);
        assert_eq!(Some(memory.swap_total), other.swap_total_bytes);
        assert!(memory.available > 0 && memory.available < memory.total);
        assert!(memory.low > 0 && memory.pinned < memory.total);
        let before = proc.vmstat().unwrap();
        let paging = files.paging().unwrap();
        assert!(paging.refaulted >= before.get("workingset_refault_file").unwrap());
        assert!(paging.oom_kills >= before.get("oom_kill").unwrap());
    }

    proptest! {
        #[test]
        fn pinned_bytes_are_bounded_by_the_caches(caches: u64, low: u64, all: u64, unused: u64) {
            prop_assert!(pinned(caches, low, all, unused) <= caches - low.min(caches / 2));
            prop_assert_eq!(pinned(caches, low, all, all), 0);
        }

        #[test]
        fn never_panics(text in prop::collection::vec(any::<u8>(), 0..200)) {
            stalls(&text);
        }
    }
}
