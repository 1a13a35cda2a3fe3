// SPDX-License-Identifier: GPL-2.0-or-later
//! Fragments free memory into single pages. A process takes nearly all memory, and frees pages that
//! are not adjacent in physical memory. It then takes the larger free blocks that are left, and
//! locks all memory that it keeps.

use std::fs::{self, File};
use std::io::{self, BufRead};
use std::os::unix::fs::FileExt;

use anyhow::{bail, Context, Result};
use limelight_sys::meminfo::MemInfo;
use serde::{Deserialize, Serialize};

use crate::memory::{Mapping, MIB, PAGE};
use crate::pages::PageSetting;
use crate::process::{Conversation, Start};
use crate::scenario::Pages;

/// Bytes left free in the first step, for the kernel's reserves, which grow during the
/// fragmentation, and for the per-CPU page lists.
const LEFT: u64 = 24 << 20;
/// The fragmenter stops when at most this many free bytes are in blocks of 16 KiB or more. If more
/// than twice as many are left at the end, it fails.
const LARGE_LEFT: usize = 2 * MIB;
/// Order of the smallest folio of anonymous memory that is not a single page.
const LARGE_ORDER: usize = 2;
/// Size of the largest folio that the fragmenter allocates, in bytes.
const CHUNK: usize = 64 << 10;
/// Address space for the larger blocks, in bytes.
const CHUNKS_BYTES: usize = 128 * MIB;
/// `MLOCK_ONFAULT`.
const ONFAULT: libc::c_uint = 1;

/// Parameters of the fragmenter's process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Spec {
    /// Memory to free page by page, in MiB; the process keeps the rest.
    pub free_mib: u32,
}

/// Locks an area on fault: absent pages stay absent, and present pages cannot be migrated.
fn lock(area: &Mapping) -> Result<()> {
    // SAFETY: the range is our own mapping.
    if unsafe {
        libc::syscall(
            libc::SYS_mlock2,
            area.address(),
            area.pages() * PAGE,
            ONFAULT,
        )
    } != 0
    {
        return Err(io::Error::last_os_error()).context("cannot lock memory");
    }
    Ok(())
}

/// Physical frame number of each page of the range.
fn frames(area: &Mapping) -> Result<Vec<u64>> {
    let map = File::open("/proc/self/pagemap").context("cannot open /proc/self/pagemap")?;
    let mut entries = vec![0; area.pages() * 8];
    map.read_exact_at(&mut entries, (area.address() as usize / PAGE * 8) as u64)
        .context("cannot read /proc/self/pagemap")?;
    let frame = |entry: &[u8]| {
        let word: [u8; 8] = entry.try_into().unwrap_or_default();
        u64::from_le_bytes(word) & ((1 << 55) - 1)
    };
    Ok(entries.chunks_exact(8).map(frame).collect())
}

/// Bytes of free memory in blocks large enough for a large folio.
fn free_in_large_blocks(buddyinfo: &str) -> usize {
    let line_bytes = |line: &str| -> usize {
        // "Node 0, zone DMA32 12 7 ...": the number of free blocks of each order.
        let counts = line.split_ascii_whitespace().skip(4);
        counts
            .enumerate()
            .skip(LARGE_ORDER)
            .filter_map(|(order, count)| Some(count.parse::<usize>().ok()? * (PAGE << order)))
            .sum()
    };
    buddyinfo.lines().map(line_bytes).sum()
}

fn large_left() -> Result<usize> {
    let text = fs::read_to_string("/proc/buddyinfo").context("cannot read /proc/buddyinfo")?;
    Ok(free_in_large_blocks(&text))
}

fn large_folios(wanted: bool) {
    let disable: libc::c_ulong = (!wanted).into();
    // SAFETY: a plain system call without pointers.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, disable, 0, 0, 0) };
}

/// The fragmenter's process: fragments memory, prints a line when it has finished, and keeps the
/// memory until the end of its input.
pub fn fragmenter(spec: &Spec) -> Result<()> {
    // The OOM killer must choose another process.
    fs::write("/proc/self/oom_score_adj", "-1000").context("cannot write oom_score_adj")?;
    fs::write("/proc/sys/vm/compact_unevictable_allowed", "0")
        .context("cannot keep compaction from moving locked pages")?;
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let free = MemInfo::parse(&text)
        .free_bytes
        .context("/proc/meminfo has no MemFree")?;
    let pages = (free.saturating_sub(LEFT) / PAGE as u64) as usize;

    large_folios(false);
    let mut area = Mapping::anonymous(pages * PAGE)?;
    (0..pages).for_each(|page| area.dirty_page(page, 1));
    // Only even frame numbers are freed, since two adjacent free frames could merge into one block.
    let frames = frames(&area)?;
    let even = (0..pages).filter(|page| frames.get(*page).is_some_and(|frame| frame % 2 == 0));
    let given: Vec<usize> = even.take(spec.free_mib as usize * (MIB / PAGE)).collect();
    for page in given {
        area.discard_page(page)?;
    }
    lock(&area)?;

    // Allocates the larger free blocks, including those freed meanwhile. Each folio is as large as
    // the free blocks allow, so single pages are allocated only when no larger block is free.
    large_folios(true);
    let mut setting = PageSetting::make(Pages::Mthp { kib: 64 })?;
    for kib in [32, 16] {
        setting.add(Pages::Mthp { kib })?;
    }
    let mut chunks = Mapping::anonymous(CHUNKS_BYTES)?;
    let mut at = chunks.address().align_offset(CHUNK);
    while large_left()? > LARGE_LEFT && at < CHUNKS_BYTES {
        chunks.dirty_page(at / PAGE, 1);
        at += CHUNK;
    }
    drop(setting);
    lock(&chunks)?;
    let left = large_left()?;
    if left > 2 * LARGE_LEFT {
        bail!("{left} bytes of free memory are still in large blocks");
    }
    println!("true");
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(())
}

/// Fragments memory for as long as the returned value lives.
pub fn fragment(free_mib: u32) -> Result<Conversation> {
    let mut talk = Start::PLAIN.conversation("fragmenter", &Spec { free_mib })?;
    let _ready: bool = talk.hear()?;
    Ok(talk)
}

#[cfg(test)]
mod tests {
    use super::free_in_large_blocks;

    #[test]
    fn blocks_of_four_pages_and_more_are_large() {
        let text = "Node 0, zone      DMA      9      8      2      0      1\n\
                    Node 0, zone    DMA32    700    300      0      1      0\n";
        assert_eq!(free_in_large_blocks(text), (2 * 4 + 16 + 8) * 4096);
    }
}
