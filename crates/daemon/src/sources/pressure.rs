// SPDX-License-Identifier: GPL-2.0-or-later
//! Memory pressure: a PSI trigger wakes the daemon where possible, and each tick reads the pressure
//! anyway.

use std::time::Duration;

use limelight_core::model::footprint::Kept;
use limelight_core::model::pressure::{Memory, Reading};
use limelight_core::model::Lru;
use limelight_proto::{MemoryThen, Stall, Stalls};
use limelight_sys::cgroup::CgroupPath;
use limelight_sys::keyed::Keyed;
use limelight_sys::lru_gen::Reclaim;
use limelight_sys::meminfo::{page_bytes, MemInfo};
use limelight_sys::psi::{Pressure, StallKind, Trigger};
use tracing::info;

use crate::system::System;

const FILE: &str = "pressure/memory";

/// The trigger fires when all non-idle tasks were stalled at the same time for 100 ms within one
/// second.
const STALL: Duration = Duration::from_millis(100);
const WINDOW: Duration = Duration::from_secs(1);

/// Reciprocal of the smallest share of memory that a swap cache must have to be examined.
const SWAP_CACHE_PART: u64 = 64;
/// Maximum number of cgroups below the root that are read.
const GROUPS_MAX: usize = 64;

/// The pressure source.
#[derive(Debug)]
pub struct PressureSource {
    /// `None`: polled only.
    trigger: Option<Trigger>,
    detail: String,
}

impl PressureSource {
    /// Arms a trigger where the kernel allows one.
    pub fn new(system: &System) -> PressureSource {
        match Trigger::arm(system.proc.dir(), FILE, StallKind::Full, STALL, WINDOW) {
            Ok(trigger) => {
                let detail = format!(
                    "PSI trigger (full stall of {} ms within {} ms); also read at every tick",
                    trigger.stall().as_millis(),
                    trigger.window().as_millis()
                );
                PressureSource {
                    trigger: Some(trigger),
                    detail,
                }
            }
            Err(error) => {
                info!("cannot arm a PSI trigger: {error}; pressure is polled");
                PressureSource {
                    trigger: None,
                    detail: format!("polled every tick: {error}"),
                }
            }
        }
    }

    /// The trigger to wait for, with `EPOLLPRI`.
    pub fn trigger(&self) -> Option<&Trigger> {
        self.trigger.as_ref()
    }

    /// Returns the trigger for removal after an error; polling continues.
    pub fn drop_trigger(&mut self) -> Option<Trigger> {
        self.detail = "polled every tick: the PSI trigger failed".to_owned();
        self.trigger.take()
    }

    /// How pressure is measured.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

/// The counters of `/proc/vmstat` now; empty if they cannot be read. The kernel takes longer to
/// produce them than anything else here, so they are read once and passed on.
pub fn counters(system: &System) -> Keyed {
    system.proc.vmstat().unwrap_or_default()
}

/// `/proc/meminfo` now; without values if it cannot be read.
pub fn meminfo(system: &System) -> MemInfo {
    system.proc.meminfo().unwrap_or_default()
}

/// The machine's memory, from `meminfo` and the counters.
pub fn memory(info: &MemInfo, counters: &Keyed) -> Memory {
    // Pages in zram count as reachable. Otherwise an app's share would shrink when other apps'
    // pages are compressed to make room for it.
    let compressed = counters
        .get("nr_zspages")
        .map_or(0, |pages| pages.saturating_mul(page_bytes()));
    Memory {
        total: info.total_bytes.unwrap_or(0),
        free: info.free_bytes.unwrap_or(0),
        available: info.available_bytes.or(info.free_bytes).unwrap_or(0),
        reachable: info
            .reachable_bytes
            .map_or(0, |bytes| bytes.saturating_add(compressed)),
        compressed,
        anonymous: info.anonymous_bytes,
        swap_total: info.swap_total_bytes.unwrap_or(0),
        swap_free: info.swap_free_bytes.unwrap_or(0),
    }
}

/// The machine's memory now, for callers that need no other counter.
pub fn memory_now(system: &System) -> Memory {
    memory(&meminfo(system), &counters(system))
}

/// Bytes in the swap cache that no process maps and that are not being written. Each cgroup directly
/// below the root is read, because the counters of the whole machine do not tell locked anonymous
/// pages, which are on no list, from pages in the swap cache.
pub fn unmapped_swap_cache(system: &System, info: &MemInfo) -> u64 {
    let cached = info.swap_cache_bytes.unwrap_or(0);
    if cached < info.total_bytes.unwrap_or(0) / SWAP_CACHE_PART {
        return 0;
    }
    let groups = CgroupPath::parse("/").and_then(|root| system.cgroups.open(&root).ok());
    let unmapped = groups.map_or(0, |root| {
        let (names, _) = root.child_names(GROUPS_MAX).unwrap_or_default();
        let groups = names.iter().filter_map(|name| root.open_child(name).ok());
        let stats = groups.filter_map(|group| group.memory_stat().ok());
        stats.map(|stat| unmapped_in(&stat)).sum()
    });
    let written = info.writeback_bytes.unwrap_or(0);
    unmapped.min(cached).saturating_sub(written)
}

/// The same of one cgroup, from its `memory.stat`: the anonymous lists hold the pages that processes
/// map, shared memory, and the swap cache.
pub fn unmapped_in(stat: &Keyed) -> u64 {
    let sum = |names: [&str; 2]| names.iter().filter_map(|name| stat.get(name)).sum::<u64>();
    sum(["active_anon", "inactive_anon"]).saturating_sub(sum(["anon", "shmem"]))
}

/// The machine's memory now, for the history.
pub fn memory_then(system: &System) -> MemoryThen {
    let info = meminfo(system);
    let stalls = Pressure::read(system.proc.dir(), FILE).ok();
    let full = stalls.as_ref().and_then(|stalls| stalls.full);
    MemoryThen {
        available: info.available_bytes.or(info.free_bytes).unwrap_or(0),
        free: info.free_bytes.unwrap_or(0),
        swap_total: info.swap_total_bytes.unwrap_or(0),
        swap_free: info.swap_free_bytes.unwrap_or(0),
        some_ms: stalls.map_or(0, |stalls| stalls.some.total_us / 1000),
        full_ms: full.map_or(0, |full| full.total_us / 1000),
    }
}

/// All inputs of the pressure model.
pub fn reading(
    system: &System,
    counters: &Keyed,
    at: Duration,
    memory: Memory,
    kept: Kept,
) -> Reading {
    let pressure = Pressure::read(system.proc.dir(), FILE).ok();
    let stalled = pressure.as_ref().and_then(|pressure| pressure.full);
    Reading {
        at,
        memory,
        kept,
        stalled: stalled.map(|stall| Duration::from_micros(stall.total_us)),
        waited: pressure.map(|pressure| Duration::from_micros(pressure.some.total_us)),
        oom_kills: oom_kills(counters),
    }
}

/// Processes that the kernel's OOM killer has killed since boot.
pub fn oom_kills(counters: &Keyed) -> u64 {
    counters.get("oom_kill").unwrap_or(0)
}

/// Shares of time stalled over the last 10 s, in percent, for `status`.
pub fn stalls(system: &System) -> Stalls {
    // The kernel writes two decimals. The conversion from `f32` adds more, which are rounded off.
    let percent = |avg10: f32| (f64::from(avg10) * 100.0).round() / 100.0;
    let read = |file| {
        let pressure = Pressure::read(system.proc.dir(), file).ok()?;
        Some(Stall {
            some: percent(pressure.some.avg10),
            full: pressure.full.map(|full| percent(full.avg10)),
        })
    };
    Stalls {
        cpu: read("pressure/cpu"),
        memory: read(FILE),
        io: read("pressure/io"),
    }
}

/// The LRU that is in use now.
pub fn lru(system: &System) -> Lru {
    match Reclaim::read(&system.sys) {
        Ok(reclaim) if reclaim.is_multi_gen() => Lru::MultiGen,
        _ => Lru::TwoList,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Roots;
    use std::fs;

    /// A machine with 64 MiB of memory and one cgroup with 20 MiB on its anonymous lists, of which
    /// processes map 4 MiB and 2 MiB are shared memory.
    fn unmapped(cached_mib: u64, written_mib: u64) -> u64 {
        let temp = tempfile::tempdir().unwrap();
        let write = |path: &str, text: String| {
            let path = temp.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let kib = |mib: u64| mib << 10;
        write(
            "proc/meminfo",
            format!(
                "MemTotal: {} kB\nSwapCached: {} kB\nWriteback: {} kB\n",
                kib(64),
                kib(cached_mib),
                kib(written_mib)
            ),
        );
        let stat = |anon: u64| {
            let lists = "active_anon 5242880\ninactive_anon 15728640";
            format!("{lists}\nanon {}\nshmem 2097152\n", anon << 20)
        };
        write("cgroup/user.slice/memory.stat", stat(4));
        write("cgroup/user.slice/cgroup.procs", String::new());
        // Its memory is locked, so it is on no list that is counted.
        write("cgroup/locked.service/memory.stat", stat(100));
        write("cgroup/locked.service/cgroup.procs", String::new());
        fs::create_dir_all(temp.path().join("sys")).unwrap();
        let system = System::open(Roots::below(temp.path())).unwrap();
        unmapped_swap_cache(&system, &meminfo(&system)) >> 20
    }

    #[test]
    fn swap_cache_that_no_process_maps_is_counted() {
        assert_eq!(unmapped(30, 0), 14, "the rest is mapped");
        assert_eq!(unmapped(10, 0), 10);
        assert_eq!(unmapped(10, 3), 7, "3 MiB are still being written");
        assert_eq!(unmapped(0, 0), 0);
    }
}
