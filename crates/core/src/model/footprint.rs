// SPDX-License-Identifier: GPL-2.0-or-later
//! An app's memory, from its cgroup's counters.

/// One reading of a cgroup's memory counters. Sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// All memory charged to the cgroup (`memory.current`).
    pub current: u64,
    /// Swapped memory, not part of `current` (`memory.swap.current`).
    pub swapped: u64,
    /// Page cache, shared memory included (`memory.stat: file`).
    pub file: u64,
    /// Page cache that processes map (`memory.stat: file_mapped`).
    pub file_mapped: u64,
    /// Shared memory and tmpfs (`memory.stat: shmem`).
    pub shmem: u64,
    /// Bytes read again after their eviction, since the cgroup was created (`memory.stat:
    /// workingset_refault_file + workingset_refault_anon`, times the page size).
    pub refaulted: u64,
}

impl Usage {
    /// Page cache that no process maps: data from read(), which the app may never read again.
    pub fn cached_reads(&self) -> u64 {
        self.file.saturating_sub(self.file_mapped.max(self.shmem))
    }

    /// What a reservation of `reserved` bytes keeps from reclaim. Reclaim takes page cache first,
    /// so the reservation covers all other memory first.
    pub fn kept_by(&self, reserved: u64) -> Kept {
        Kept {
            cache: self.cache().min(reserved.saturating_sub(self.rest())),
            rest: self.rest().min(reserved),
        }
    }

    fn cache(&self) -> u64 {
        self.file.saturating_sub(self.shmem)
    }

    fn rest(&self) -> u64 {
        self.current.saturating_sub(self.cache())
    }

    /// All memory except cached reads: heap, stacks, mappings, shared memory and kernel memory.
    /// Includes swapped memory, which returns when the app touches it.
    pub fn held(&self) -> u64 {
        self.current
            .saturating_sub(self.cached_reads())
            .saturating_add(self.swapped)
    }
}

/// An app's memory that a reservation keeps from reclaim, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// Page cache without shared memory.
    pub cache: u64,
    /// All other memory: anonymous and shared memory, and the kernel's memory for the app.
    pub rest: u64,
}

/// Memory of an app: its last reading, and changes since earlier ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// The last reading.
    pub usage: Usage,
    /// Bytes by which [`Usage::held`] grew between the last two readings.
    pub growth: u64,
    /// Bytes refaulted since the app became topmost: pages that it needs and that had been evicted.
    pub refaulted: u64,
    /// [`Usage::refaulted`] when the app became topmost.
    refaulted_before: u64,
}

impl Footprint {
    /// Starts to track an app.
    pub fn new(usage: Usage) -> Footprint {
        Footprint {
            usage,
            growth: 0,
            refaulted: 0,
            refaulted_before: usage.refaulted,
        }
    }

    /// The same footprint if all but `bytes` of the memory belongs to jobs, which are not protected.
    pub fn limited_to(&self, bytes: u64) -> Footprint {
        Footprint::new(Usage {
            current: self.usage.held().min(bytes),
            ..Usage::default()
        })
    }

    /// Adds the next reading.
    pub fn observe(&mut self, usage: Usage) {
        self.growth = usage.held().saturating_sub(self.usage.held());
        self.refaulted = usage.refaulted.saturating_sub(self.refaulted_before);
        self.usage = usage;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn mapped_and_shared_memory_is_held_and_plain_reads_are_not() {
        let usage = Usage {
            current: 100 * MIB,
            swapped: 5 * MIB,
            file: 60 * MIB,
            file_mapped: 40 * MIB,
            shmem: 8 * MIB,
            refaulted: 0,
        };
        assert_eq!(usage.cached_reads(), 20 * MIB);
        assert_eq!(usage.held(), 85 * MIB);
    }

    #[test]
    fn reservation_keeps_the_page_cache_that_it_has_room_for() {
        let usage = Usage {
            current: 46 * MIB,
            file: 32 * MIB,
            shmem: 2 * MIB,
            ..Usage::default()
        };
        for (reserved, cache) in [(0, 0), (16, 0), (24, 8), (46, 30), (90, 30)] {
            let kept = usage.kept_by(reserved * MIB);
            assert_eq!(kept.cache, cache * MIB, "{reserved}");
            let all = kept.cache + kept.rest;
            assert_eq!(all, usage.current.min(reserved * MIB), "{reserved}");
        }
    }

    #[test]
    fn growth_and_refaults_are_differences_and_never_underflow() {
        let at = |current, refaulted| Usage {
            current,
            refaulted,
            ..Usage::default()
        };
        let mut footprint = Footprint::new(at(10 * MIB, 7 * MIB));
        assert_eq!((footprint.growth, footprint.refaulted), (0, 0));
        footprint.observe(at(14 * MIB, 9 * MIB));
        assert_eq!((footprint.growth, footprint.refaulted), (4 * MIB, 2 * MIB));
        footprint.observe(at(MIB, 0));
        assert_eq!((footprint.growth, footprint.refaulted), (0, 0));
    }

    #[test]
    fn limited_footprint_holds_no_memory_of_jobs() {
        let usage = Usage {
            current: 100 * MIB,
            swapped: 5 * MIB,
            file: 60 * MIB,
            ..Usage::default()
        };
        let footprint = Footprint::new(usage);
        let limited = footprint.limited_to(30 * MIB).usage;
        assert_eq!((limited.held(), limited.cached_reads()), (30 * MIB, 0));
        assert_eq!(footprint.limited_to(900 * MIB).usage.held(), 45 * MIB);
    }
}
