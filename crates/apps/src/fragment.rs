// SPDX-License-Identifier: GPL-2.0-or-later
//! A machine whose free memory is in single pages: a process takes nearly everything, gives every
//! second page back, and locks the rest where it is.

use std::fs;
use std::io::{self, BufRead};
use std::ptr;

use anyhow::{Context, Result};
use limelight_sys::meminfo::MemInfo;
use serde::{Deserialize, Serialize};

use crate::memory::PAGE;
use crate::process::{Conversation, Start};

/// What stays free besides, in bytes: the kernel needs some.
const LEFT: u64 = 8 << 20;
/// `MLOCK_ONFAULT`.
const ONFAULT: libc::c_uint = 1;

/// The fragmenter as its process gets it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Spec {
    /// Memory to give back page by page, in MiB; the rest is kept.
    pub free_mib: u32,
}

/// The process: fragments, says so, and holds on until its input ends.
pub fn fragmenter(spec: &Spec) -> Result<()> {
    // SAFETY: a plain system call without pointers.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let free = MemInfo::parse(&text)
        .free_bytes
        .context("/proc/meminfo has no MemFree")?;
    let pages = (free.saturating_sub(LEFT) / PAGE as u64) as usize;
    // SAFETY: a new private mapping at an address of the kernel's choice aliases nothing.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            pages * PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error()).context("cannot map the machine's memory");
    }
    for page in 0..pages {
        // SAFETY: the page lies inside the mapping.
        unsafe { ptr::write_volatile(start.cast::<u8>().add(page * PAGE), 1) };
    }
    for page in (0..pages).step_by(2).take(spec.free_mib as usize * 256) {
        // SAFETY: as above; nobody reads the page again.
        unsafe {
            libc::madvise(
                start.cast::<u8>().add(page * PAGE).cast(),
                PAGE,
                libc::MADV_DONTNEED,
            )
        };
    }
    // Pages that are not there stay so; those that are cannot be moved out of the way.
    // SAFETY: the range is our own mapping.
    if unsafe { libc::syscall(libc::SYS_mlock2, start, pages * PAGE, ONFAULT) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot lock memory");
    }
    println!("true");
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(())
}

/// A machine in that state for as long as the answer lives.
pub fn fragment(free_mib: u32) -> Result<Conversation> {
    let mut talk = Start::PLAIN.conversation("fragmenter", &Spec { free_mib })?;
    let _ready: bool = talk.hear()?;
    // Whoever is the OOM killer's choice, it is not this.
    let score = format!("/proc/{}/oom_score_adj", talk.process.pid());
    fs::write(&score, "-1000").with_context(|| format!("cannot write {score}"))?;
    fs::write("/proc/sys/vm/compact_unevictable_allowed", "0")
        .context("cannot keep compaction from moving locked pages")?;
    Ok(talk)
}
