// SPDX-License-Identifier: GPL-2.0-or-later
//! Priorities and limits of the daemon's own process and threads.

use limelight_sys::sched::Cpu;
use tracing::{debug, warn};

use crate::system::System;

/// The daemon's own `oom_score_adj`.
pub(crate) const OWN_SCORE: i16 = -900;

/// Nice value and slice of the daemon's own threads. Their work takes milliseconds, and apps or
/// clients wait for it. With a longer slice, these threads would wait for the scheduler's next tick
/// before they could preempt an app with a slice of its own.
const OWN_NICE: i32 = -20;
const OWN_SLICE_NS: u64 = 100_000;

/// Protects the daemon from the OOM killer, because the daemon is needed most when memory is short.
/// Raises its priority, so that no boosted app delays it. The settings end with the process, so
/// they are not in the restore record.
pub(crate) fn shield(system: &System) {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let shielded = system
        .process(own)
        .and_then(|(_, process)| process.set_oom_score_adj(OWN_SCORE));
    if let Err(error) = shielded {
        debug!("cannot lower limelightd's own oom_score_adj: {error}");
    }
    come_first();
    wait_for_no_write();
}

/// Raises the priority of the calling thread so that it runs as soon as it has work.
pub(crate) fn come_first() {
    let first = Cpu::of(0).and_then(|own| own.set(0, OWN_NICE, OWN_SLICE_NS));
    if let Err(error) = first {
        warn!(
            "cannot raise limelightd's own priority: {error}; reactions may be late under CPU load"
        );
    }
}

/// Keeps the calling thread from waiting for writeback of other processes' pages when it needs
/// memory, because the thread's job is to end memory shortages. See PR_SET_IO_FLUSHER in
/// `prctl(2)`; requires CAP_SYS_RESOURCE.
pub(crate) fn wait_for_no_write() {
    if let Err(errno) = rustix::process::configure_io_flusher_behavior(true) {
        debug!(
            "PR_SET_IO_FLUSHER failed: {errno}; while memory is short, limelightd may have to wait \
             for writes"
        );
    }
}

/// Resets the calling thread to default priority.
pub(crate) fn stand_back() {
    // Lowering the priority again always succeeds.
    let _ = Cpu::of(0).and_then(|own| own.set(0, 0, 0));
}

/// Raises the soft limit of open files to the hard limit: an app may have thousands of processes,
/// and the device needs a descriptor for each.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(errno) = setrlimit(Resource::Nofile, raised) {
        debug!("cannot raise the limit of open files: {errno}");
    }
}
