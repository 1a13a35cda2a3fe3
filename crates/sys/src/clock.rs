// SPDX-License-Identifier: GPL-2.0-or-later
//! The kernel's clocks.

use std::time::Duration;

use rustix::time::{clock_gettime, ClockId};

/// Time since boot, including time in suspend.
pub fn boottime() -> Duration {
    read(ClockId::Boottime)
}

/// Time on `CLOCK_MONOTONIC`, the clock of the time stamps of input events and frames.
pub fn monotonic() -> Duration {
    read(ClockId::Monotonic)
}

/// CPU time that the calling thread has used.
pub fn thread_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// Converts clock ticks, the unit of time in procfs, to a duration.
pub fn ticks(count: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let rest = count % per_second * 1_000_000_000 / per_second;
    Duration::from_secs(count / per_second) + Duration::from_nanos(rest)
}

fn read(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or_default(),
        u32::try_from(now.tv_nsec).unwrap_or_default(),
    )
}
