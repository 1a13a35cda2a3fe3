// SPDX-License-Identifier: GPL-2.0-or-later
//! `/proc/meminfo` and `/proc/swaps`: the amounts of memory and the swap areas.

use crate::persistent_file::keyed_lines;

/// The machine's memory, in bytes. `None`: not reported by this kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// Memory that the kernel manages (`MemTotal`).
    pub total_bytes: Option<u64>,
    /// Unused memory.
    pub free_bytes: Option<u64>,
    /// The kernel's estimate of the memory that is available without swapping.
    pub available_bytes: Option<u64>,
    /// Page cache, excluding the swap cache.
    pub cached_bytes: Option<u64>,
    /// Size of all swap areas.
    pub swap_total_bytes: Option<u64>,
    /// Unused space in all swap areas.
    pub swap_free_bytes: Option<u64>,
    /// Modified file pages that wait for writeback.
    pub dirty_bytes: Option<u64>,
    /// Tmpfs and shared anonymous memory: the part of the page cache that the kernel can reclaim
    /// only by swapping.
    pub shmem_bytes: Option<u64>,
    /// Pages that have a copy in swap: written out or read in, and not changed since.
    pub swap_cache_bytes: Option<u64>,
    /// Pages that are being written.
    pub writeback_bytes: Option<u64>,
    /// Memory that reclaim can reach: free, on an LRU list, or reclaimable slab. All other memory
    /// is locked or in use by the kernel and its drivers.
    pub reachable_bytes: Option<u64>,
    /// Anonymous memory and tmpfs on the LRU lists; locked memory is not on them.
    pub anonymous_bytes: Option<u64>,
}

impl MemInfo {
    /// Parses `/proc/meminfo`.
    pub fn parse(text: &str) -> Self {
        let mut info = MemInfo::default();
        let (mut anonymous, mut files, mut slab) = ([None; 2], [None; 2], None);
        for (name, value) in keyed_lines(text.as_bytes()) {
            let field = match name {
                b"MemTotal" => &mut info.total_bytes,
                b"MemFree" => &mut info.free_bytes,
                b"MemAvailable" => &mut info.available_bytes,
                b"Cached" => &mut info.cached_bytes,
                b"SwapTotal" => &mut info.swap_total_bytes,
                b"SwapFree" => &mut info.swap_free_bytes,
                b"Dirty" => &mut info.dirty_bytes,
                b"Shmem" => &mut info.shmem_bytes,
                b"SwapCached" => &mut info.swap_cache_bytes,
                b"Writeback" => &mut info.writeback_bytes,
                b"Active(anon)" => &mut anonymous[0],
                b"Inactive(anon)" => &mut anonymous[1],
                b"Active(file)" => &mut files[0],
                b"Inactive(file)" => &mut files[1],
                b"SReclaimable" => &mut slab,
                _ => continue,
            };
            if let Some(bytes) = value.number().and_then(|kib| kib.checked_mul(1024)) {
                *field = Some(bytes);
            }
        }
        let reachable = [info.free_bytes, slab].into_iter().chain(anonymous);
        info.reachable_bytes = sum(reachable.chain(files));
        info.anonymous_bytes = sum(anonymous);
        info
    }
}

/// The sum; `None` if a part is unknown.
fn sum(parts: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    let mut parts = parts.into_iter();
    parts.try_fold(0u64, |sum, part| Some(sum.saturating_add(part?)))
}

/// Page size in bytes.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// One swap area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapArea {
    /// Device or file.
    pub path: String,
    /// `partition` or `file`.
    pub kind: String,
    /// Size, in bytes.
    pub size_bytes: u64,
    /// Used space, in bytes.
    pub used_bytes: u64,
    /// Priority. The kernel fills areas of higher priority first.
    pub priority: i32,
}

impl SwapArea {
    /// True if the area is a zram device, that is, compressed memory (`/dev/zramN`).
    pub fn is_zram(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.strip_prefix("zram")
            .is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
    }
}

/// Parses `/proc/swaps`. Malformed lines are left out.
pub fn parse_swaps(text: &str) -> Vec<SwapArea> {
    let area = |line: &str| {
        // The kernel escapes blanks in the path.
        let mut words = line.split_ascii_whitespace();
        let (path, kind) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut kib = || words.next()?.parse::<u64>().ok()?.checked_mul(1024);
        let (size_bytes, used_bytes) = (kib()?, kib()?);
        let priority = words.next()?.parse().ok()?;
        Some(SwapArea {
            path,
            kind,
            size_bytes,
            used_bytes,
            priority,
        })
    };
    text.lines().filter_map(area).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn meminfo_is_in_bytes_and_absent_values_are_none() {
        let info = MemInfo::parse("MemTotal:  100 kB\nMemAvailable:   40 kB\nSwapTotal: 0 kB\n");
        assert_eq!(info.total_bytes, Some(102_400));
        assert_eq!(info.available_bytes, Some(40_960));
        assert_eq!(info.swap_total_bytes, Some(0));
        assert_eq!(info.swap_free_bytes, None);
        assert_eq!(info.reachable_bytes, None);
    }

    #[test]
    fn reachable_and_anonymous_memory_are_sums_of_fields() {
        let text = "MemTotal: 500 kB\nMemFree: 1 kB\nActive(anon): 2 kB\nInactive(anon): 4 kB\n\
                    Active(file): 8 kB\nInactive(file): 16 kB\nUnevictable: 100 kB\n\
                    SReclaimable: 32 kB\nSUnreclaim: 64 kB\n";
        let info = MemInfo::parse(text);
        assert_eq!(info.reachable_bytes, Some(63 << 10));
        assert_eq!(info.anonymous_bytes, Some(6 << 10));
    }

    #[test]
    fn swap_areas_are_parsed_and_zram_is_recognised() {
        let swaps = parse_swaps(
            "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
             /dev/zram0                              partition\t131068\t\t256\t\t100\n\
             /swap\\040file                           file\t\t2097148\t\t0\t\t-2\n",
        );
        assert_eq!(swaps.len(), 2);
        assert!(swaps[0].is_zram());
        assert_eq!(swaps[0].used_bytes, 256 * 1024);
        assert!(!swaps[1].is_zram());
        assert_eq!(swaps[1].priority, -2);
    }

    proptest! {
        #[test]
        fn never_panics(text in any::<String>()) {
            MemInfo::parse(&text);
            parse_swaps(&text);
        }
    }
}
