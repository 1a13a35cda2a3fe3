// SPDX-License-Identifier: GPL-2.0-or-later
//! Page faults as the processor raises them. `ru_minflt` and `pgfault` also count pages that the
//! kernel maps on its own account, which is what `premap` does; the perf software event does not.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

use anyhow::{Context, Result};

/// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_PAGE_FAULTS` of `linux/perf_event.h`.
const SOFTWARE: u32 = 1;
const PAGE_FAULTS: u64 = 2;
/// `perf_event_attr.inherit`: threads and children that are created later count too.
const INHERIT: u64 = 1 << 1;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 1 << 3;

/// The first version of `struct perf_event_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

/// Counts the faults of a process and of all that it starts.
pub struct Faults(File);

impl Faults {
    /// Counts from now on. Threads that the process has already are not counted.
    pub fn of(pid: i32) -> Result<Self> {
        let attributes = Attributes {
            kind: SOFTWARE,
            size: std::mem::size_of::<Attributes>() as u32,
            config: PAGE_FAULTS,
            flags: INHERIT,
            ..Attributes::default()
        };
        // SAFETY: the kernel reads `size` bytes of a struct of that size, which outlives the call.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &attributes as *const Attributes,
                pid,
                -1,
                -1,
                CLOEXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error())
                .with_context(|| format!("cannot count the page faults of pid {pid}"));
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        Ok(Faults(unsafe { File::from_raw_fd(fd as i32) }))
    }

    /// So many so far; after its end, in all.
    pub fn count(&mut self) -> Result<u64> {
        let mut count = [0; 8];
        self.0
            .read_exact(&mut count)
            .context("cannot read the count of page faults")?;
        Ok(u64::from_ne_bytes(count))
    }
}
