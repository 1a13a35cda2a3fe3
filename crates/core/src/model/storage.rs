// SPDX-License-Identifier: GPL-2.0-or-later
//! Swap devices, and how much may be swapped to each of them (SWAP). The limits depend on the
//! medium: the time to read swapped memory back, the daily writes to flash, and the memory that
//! compressed pages take.

use std::time::Duration;

/// Memory is swapped to a disk only up to the amount that the disk can read back in this time.
const READ_BACK_WITHIN: Duration = Duration::from_secs(20);
/// Read rates in bytes per second that are used until a rate is measured: random 32 KiB reads (a
/// page and its neighbours) from an eMMC, and from a rotating disk.
const FLASH_RATE: u64 = 20 << 20;
const ROTATIONAL_RATE: u64 = 3 << 20;
/// Rate in bytes per second at which a slow processor decompresses pages, until one is measured.
const ZRAM_RATE: u64 = 200 << 20;
/// Compression ratio in tenths that is used until one is measured.
const RATIO_TENTHS: u64 = 25;
/// Maximum memory that compressed pages may take, in percent of the machine's memory.
const COMPRESSED_PERCENT: u64 = 30;
/// Minimum number of stored bytes for a meaningful compression ratio.
const RATIO_SAMPLE_MIN: u64 = 4 << 20;

/// Medium of a swap area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Medium {
    /// Compressed memory.
    Zram,
    /// A disk without moving parts: writing wears it out.
    Flash,
    /// A rotating disk.
    Rotational,
}

impl Medium {
    /// Name for display.
    pub fn name(self) -> &'static str {
        match self {
            Medium::Zram => "zram",
            Medium::Flash => "flash",
            Medium::Rotational => "a rotating disk",
        }
    }

    /// Read rate in bytes per second that is used until one is measured.
    fn assumed_rate(self) -> u64 {
        match self {
            Medium::Zram => ZRAM_RATE,
            Medium::Flash => FLASH_RATE,
            Medium::Rotational => ROTATIONAL_RATE,
        }
    }
}

/// One swap area. Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Its medium.
    pub medium: Medium,
    /// Its size; for zram, the size before compression.
    pub size: u64,
    /// Bytes in use.
    pub used: u64,
}

/// Contents of zram, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compressed {
    /// Size before compression.
    pub stored: u64,
    /// Memory in use after compression.
    pub taken: u64,
}

/// All swap of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Storage {
    /// The areas in use.
    pub areas: Vec<Area>,
    /// Contents of all zram devices together.
    pub compressed: Compressed,
    /// Whether pages of zram can be written back to a disk.
    pub backed: bool,
    /// Whether pages are compressed on their way to the areas (zswap).
    pub zswap: bool,
    /// Last measured read rate in bytes per second, if any.
    pub read_rate: Option<u64>,
    /// Bytes written to flash within the last day.
    pub written: u64,
}

impl Storage {
    /// Whether there is any swap.
    pub fn is_there(&self) -> bool {
        self.areas.iter().any(|area| area.size > 0)
    }

    /// Whether no page reaches a disk: all swap is zram without a backing device.
    pub fn is_memory(&self) -> bool {
        let is_zram = |area: &Area| area.medium == Medium::Zram;
        !self.backed && self.areas.iter().all(is_zram)
    }

    /// Compression ratio in tenths.
    fn ratio_tenths(&self) -> u64 {
        let Compressed { stored, taken } = self.compressed;
        match stored >= RATIO_SAMPLE_MIN && taken > 0 {
            true => (stored.saturating_mul(10) / taken).max(10),
            false => RATIO_TENTHS,
        }
    }

    /// Maximum number of bytes that all swap areas together should contain. `total`: the machine's
    /// memory in bytes; `budget`: bytes that may be written to flash per day (0: no limit).
    pub fn bearable(&self, total: u64, budget: u64) -> u64 {
        let bearable = self.areas.iter().map(|area| {
            let rate = self.read_rate.unwrap_or(area.medium.assumed_rate());
            let back = rate.saturating_mul(READ_BACK_WITHIN.as_secs());
            let most = match area.medium {
                Medium::Zram => total / 100 * COMPRESSED_PERCENT / 10 * self.ratio_tenths(),
                Medium::Flash => {
                    let left = match budget {
                        0 => u64::MAX,
                        _ => budget.saturating_sub(self.written),
                    };
                    back.min(left.saturating_add(area.used))
                }
                Medium::Rotational => back,
            };
            most.min(area.size)
        });
        bearable.sum()
    }

    /// Time to read this many bytes back from swap, at the last measured rate, else at the rate of
    /// the slowest medium.
    pub fn read_time(&self, bytes: u64) -> Duration {
        let rates = self.areas.iter().map(|area| area.medium.assumed_rate());
        let rate = self.read_rate.or(rates.min()).unwrap_or(FLASH_RATE).max(1);
        Duration::from_micros(bytes.saturating_mul(1_000_000) / rate)
    }

    /// Bytes that may be swapped out now; arguments as for [`Storage::bearable`].
    pub fn room(&self, total: u64, budget: u64) -> u64 {
        let used: u64 = self.areas.iter().map(|area| area.used).sum();
        self.bearable(total, budget).saturating_sub(used)
    }

    /// Free swap in bytes for memory that no app waits for. `budget`: bytes that may be written to
    /// flash per day (0: no limit). Unlike [`Storage::room`], it ignores the time to read the
    /// memory back.
    pub fn spare(&self, budget: u64) -> u64 {
        let spare = self.areas.iter().map(|area| {
            let free = area.size.saturating_sub(area.used);
            match (area.medium, budget) {
                (Medium::Flash, 1..) => free.min(budget.saturating_sub(self.written)),
                _ => free,
            }
        });
        spare.sum()
    }

    /// Bytes that may be written back from zram to a disk; 0 if zram has no backing device.
    /// `budget`: bytes that may be written to flash per day (0: no limit).
    pub fn back_room(&self, budget: u64) -> u64 {
        match (self.backed, budget) {
            (false, _) => 0,
            (true, 0) => u64::MAX,
            (true, _) => budget.saturating_sub(self.written),
        }
    }

    /// The media in use, for display.
    pub fn describe(&self) -> String {
        if !self.is_there() {
            return "no swap".to_owned();
        }
        let mut names: Vec<&str> = self.areas.iter().map(|area| area.medium.name()).collect();
        names.dedup();
        match self.zswap {
            true => format!("{} behind zswap", names.join(" and ")),
            false => names.join(" and "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn storage(medium: Medium, size: u64, used: u64) -> Storage {
        Storage {
            areas: vec![Area { medium, size, used }],
            ..Storage::default()
        }
    }

    #[test]
    fn spare_swap_is_free_swap_within_the_write_budget() {
        let mut disk = storage(Medium::Rotational, 300 * MIB, 100 * MIB);
        assert_eq!(disk.spare(0), 200 * MIB);
        assert_eq!(disk.spare(MIB), 200 * MIB, "the budget is only for flash");
        disk = storage(Medium::Flash, 300 * MIB, 100 * MIB);
        disk.written = 40 * MIB;
        assert_eq!(disk.spare(0), 200 * MIB);
        assert_eq!(disk.spare(50 * MIB), 10 * MIB);
    }

    #[test]
    fn pages_of_zram_are_written_back_within_the_write_budget() {
        let mut zram = storage(Medium::Zram, 300 * MIB, 0);
        assert_eq!(zram.back_room(0), 0, "there is no backing device");
        zram.backed = true;
        zram.written = 40 * MIB;
        assert_eq!(zram.back_room(0), u64::MAX);
        assert_eq!(zram.back_room(50 * MIB), 10 * MIB);
        assert_eq!(zram.back_room(MIB), 0);
    }

    #[test]
    fn without_swap_there_is_no_room() {
        assert_eq!(Storage::default().room(1024 * MIB, 0), 0);
        assert_eq!(Storage::default().describe(), "no swap");
    }

    #[test]
    fn zram_is_bounded_by_the_memory_it_takes() {
        let mut zram = storage(Medium::Zram, 4096 * MIB, 0);
        // 30 % of memory at 2.5 to 1.
        assert_eq!(zram.bearable(1000 * MIB, 0) / MIB, 750);
        zram.compressed = Compressed {
            stored: 100 * MIB,
            taken: 100 * MIB,
        };
        assert_eq!(
            zram.bearable(1000 * MIB, 0) / MIB,
            300,
            "incompressible data"
        );
        assert_eq!(storage(Medium::Zram, MIB, 0).bearable(1000 * MIB, 0), MIB);
    }

    #[test]
    fn flash_is_bounded_by_its_budget_and_by_its_speed() {
        let mut flash = storage(Medium::Flash, 4096 * MIB, 50 * MIB);
        assert_eq!(flash.bearable(1, 0), 20 * FLASH_RATE);
        flash.written = 900 * MIB;
        assert_eq!(flash.bearable(1, 1000 * MIB), 150 * MIB);
        assert_eq!(flash.room(1, 1000 * MIB), 100 * MIB);
        flash.written = 2000 * MIB;
        assert_eq!(flash.room(1, 1000 * MIB), 0);
        flash.read_rate = Some(MIB);
        assert_eq!(flash.bearable(1, 0), 20 * MIB);
    }

    #[test]
    fn description_lists_the_media() {
        let mut both = storage(Medium::Zram, MIB, 0);
        both.areas.extend(storage(Medium::Rotational, MIB, 0).areas);
        assert_eq!(both.describe(), "zram and a rotating disk");
        both.zswap = true;
        assert_eq!(both.describe(), "zram and a rotating disk behind zswap");
    }
}
