// SPDX-License-Identifier: GPL-2.0-or-later
//! The kernel's clocks.

use std::time::Duration;

use rustix::time::{clock_gettime, ClockId};

/// Time since boot, suspended time included.
pub fn boottime() -> Duration {
    read(ClockId::Boottime)
}

/// Time on the clock of input events and frames.
pub fn monotonic() -> Duration {
    read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or_default(),
        u32::try_from(now.tv_nsec).unwrap_or_default(),
    )
}
