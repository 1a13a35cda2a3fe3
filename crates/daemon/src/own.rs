// SPDX-License-Identifier: GPL-2.0-or-later
//! What limelightd does to its own process and threads.

use limelight_sys::sched::Cpu;
use tracing::{debug, warn};

use crate::doors::Doors;

/// The daemon's own `oom_score_adj`.
pub(crate) const OWN_SCORE: i16 = -900;

/// Nice value and slice of the daemon's own threads: what they do takes milliseconds, and somebody
/// waits for it. Beside an app with a slice of its own, a longer one would make them wait for the
/// next tick.
const OWN_NICE: i32 = -20;
const OWN_SLICE_NS: u64 = 100_000;

/// Without the daemon nobody would put anything back, so the OOM killer takes it late, and nobody whom it
/// makes quick keeps it from making the next one quick. Dies with it, so it is not recorded.
pub(crate) fn shield(doors: &Doors) {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let shielded = doors
        .process(own)
        .and_then(|(_, process)| process.set_oom_score_adj(OWN_SCORE));
    if let Err(error) = shielded {
        debug!("limelightd's own oom_score_adj stays: {error}");
    }
    come_first();
    wait_for_no_write();
}

/// Has the calling thread run as soon as there is something to do.
pub(crate) fn come_first() {
    let first = Cpu::of(0).and_then(|own| own.set(0, OWN_NICE, OWN_SLICE_NS));
    if let Err(error) = first {
        warn!("{error}: beside a busy machine limelightd may be late");
    }
}

/// Has the kernel never keep the calling thread waiting until others' pages are written, when it
/// needs memory for what the thread asks for: the thread is there to end such a shortage. See
/// PR_SET_IO_FLUSHER in `prctl(2)`; takes CAP_SYS_RESOURCE.
pub(crate) fn wait_for_no_write() {
    if let Err(errno) = rustix::process::configure_io_flusher_behavior(true) {
        debug!("while memory is short limelightd may have to wait for writes: {errno}");
    }
}

/// Has the calling thread run as everybody does.
pub(crate) fn stand_back() {
    // It can give up what it was given.
    let _ = Cpu::of(0).and_then(|own| own.set(0, 0, 0));
}

/// As many descriptors as there may be: an app may have thousands of processes, and the device takes a descriptor of each.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(errno) = setrlimit(Resource::Nofile, raised) {
        debug!("the limit of open files stays: {errno}");
    }
}
