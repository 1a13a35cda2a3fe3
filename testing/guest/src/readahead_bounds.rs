// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks the limits of the kernel's read-ahead for the topmost app: free memory, and the share of
//! pages that are read but never used.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use limelight_sys::device::DEVICE_PATH;

use crate::counters::keyed;
use crate::daemon::limelight;
use crate::guest_setup::{ballast, drop_caches, memory_kib, wait};
use crate::memory::PAGE;
use crate::readahead_rules::read;
use crate::record::Reporter;
use crate::scenario::{Access, Pattern};
use crate::store::Extent;

/// Sysctl: distance between the watermarks, in ten-thousandths of memory.
const SCALE: &str = "/proc/sys/vm/watermark_scale_factor";
/// Value of [`SCALE`] that puts the high watermark at a fifth of memory.
const FAR: &str = "1000";
/// Free memory as a percentage of the high watermark. It is too much to wake `kswapd`, and so
/// little that it stays below the watermark even if other processes free memory.
const FREE_PERCENT: u64 = 65;
/// Sysctl: boost of the watermarks after an allocation has mixed migrate types. The check switches
/// the boost off because it would wake `kswapd`.
const BOOST: &str = "/proc/sys/vm/watermark_boost_factor";
const NEIGHBOURS: &str = "/sys/kernel/mm/limelight/readahead/neighbours_factor";

/// Runs both checks with a file that no other process uses; a no-op on a kernel without Limelight.
pub fn check(file: &Extent, clusters: u32, reporter: &Reporter) -> Result<()> {
    if !Path::new(DEVICE_PATH).exists() {
        return Ok(());
    }
    low_memory(file, reporter)?;
    waste(file, clusters, reporter)
}

fn low_memory(file: &Extent, reporter: &Reporter) -> Result<()> {
    let stream = Pattern::Sequential { bytes: 4096 };
    let larger = || -> Result<u64> {
        let before = vmstat("limelight_readahead_boosted")?;
        read(file, stream, true)?;
        Ok(vmstat("limelight_readahead_boosted")? - before)
    };
    let plenty = larger()?;
    drop_caches()?;
    let usual = [set(BOOST, "0")?, set(SCALE, FAR)?];
    let high = high_watermark()?;
    let filled = ballast(((high / 100 * FREE_PERCENT) >> 20) as u32)?;
    let before_kib = memory_kib("MemFree")?;
    let short = larger()?;
    let left_kib = memory_kib("MemFree")?;
    drop(filled);
    for (path, value) in [BOOST, SCALE].into_iter().zip(&usual) {
        set(path, value.trim())?;
    }
    reporter.check(
        "below the high watermark, the foreground app gets no larger read-ahead",
        plenty > 0 && short == 0,
        format!(
            "{short} larger requests with {before_kib} KiB free at first, {left_kib} KiB at the \
             end and a watermark of {} KiB; {plenty} with plenty of free memory",
            high >> 10
        ),
    )
}

/// Writes `value` to a file and returns its previous contents.
fn set(path: &str, value: &str) -> Result<String> {
    let before = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    fs::write(path, value).with_context(|| format!("cannot write {value} to {path}"))?;
    Ok(before)
}

fn waste(file: &Extent, clusters: u32, reporter: &Reporter) -> Result<()> {
    let factor = || -> Result<u32> {
        let text = fs::read_to_string(NEIGHBOURS);
        let text = text.with_context(|| format!("cannot read {NEIGHBOURS}"))?;
        Ok(text.trim().parse()?)
    };
    let (wasted, full) = (vmstat("limelight_readahead_wasted")?, factor()?);
    let access = Access::Read;
    read(file, Pattern::Clusters { access, clusters }, true)?;
    limelight(&["focus", "--none"])?;
    // Evicts the page cache, with the pages that were read ahead and never used. memory.reclaim
    // fails if it evicts less than requested, which is expected.
    let all = (memory_kib("Cached")? << 10).to_string();
    let lowered = wait(|| {
        let _ = fs::write("/sys/fs/cgroup/memory.reclaim", &all);
        Ok(factor()? < full)
    })?;
    let wasted = vmstat("limelight_readahead_wasted")? - wasted;
    reporter.check(
        "unused read-ahead is counted and lowers the factor",
        lowered && wasted > 0,
        format!(
            "{wasted} unused pages, factor {full} before, {} after",
            factor()?
        ),
    )
}

fn vmstat(name: &str) -> Result<u64> {
    keyed(Path::new("/proc/vmstat"), name)
}

/// Sum of the zones' high watermarks, in bytes.
fn high_watermark() -> Result<u64> {
    let text = fs::read_to_string("/proc/zoneinfo").context("cannot read /proc/zoneinfo")?;
    Ok(sum_of_high(&text) * PAGE as u64)
}

fn sum_of_high(zoneinfo: &str) -> u64 {
    let highs = zoneinfo.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        // "high: 6" belongs to a per-CPU page list.
        (words.next()? == "high").then(|| words.next()?.parse::<u64>().ok())?
    });
    highs.sum()
}

#[cfg(test)]
mod tests {
    use super::sum_of_high;

    #[test]
    fn high_mark_of_a_per_cpu_list_is_no_watermark() {
        let text = "Node 0, zone      DMA\n  pages free     3840\n        high     66\n\
                    pagesets\n    cpu: 0\n              high:  6\n\
                    Node 0, zone    DMA32\n        high     1200\n";
        assert_eq!(sum_of_high(text), 1266);
    }
}
