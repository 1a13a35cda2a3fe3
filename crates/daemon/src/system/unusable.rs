// SPDX-License-Identifier: GPL-2.0-or-later
//! Why an interface of the kernel cannot be used.

use std::io;

use rustix::io::Errno;

use crate::restore::NotRecorded;

/// Why an interface of the kernel cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] limelight_sys::Error),
    /// A call without a path failed.
    #[error(transparent)]
    Errno(#[from] Errno),
    /// The change could not be recorded, so it was not made.
    #[error(transparent)]
    NotRecorded(#[from] NotRecorded),
    /// No eventfd could be created.
    #[error("cannot create an eventfd: {0}")]
    NoEventfd(Errno),
    /// No thread could be started.
    #[error("cannot start a thread: {0}")]
    NoThread(io::Error),
    /// tracefs is not mounted.
    #[error("tracefs is not mounted")]
    NoTracefs,
    /// The kernel lacks the tracepoint.
    #[error("this kernel has no tracepoint {system}:{name}{lack}")]
    NoTracepoint {
        /// The tracepoint's subsystem.
        system: &'static str,
        /// Its name in the subsystem.
        name: &'static str,
        /// Text that the message appends: why the tracepoint may be missing; may be empty.
        lack: &'static str,
    },
    /// Too little memory is available for the buffers of a trace.
    #[error(
        "only {} KiB of memory are available, and a trace takes {} KiB at first",
        available >> 10,
        need >> 10
    )]
    NoRoom {
        /// Available bytes.
        available: u64,
        /// Bytes that the buffers take at first.
        need: u64,
    },
}
