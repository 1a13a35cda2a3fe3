// SPDX-License-Identifier: GPL-2.0-or-later
//! A tracepoint in a trace instance of our own, which is in the restore record while it exists.

use std::path::PathBuf;

use limelight_sys::tracefs::{Instance, Tracefs};

use crate::restore::{Entry, Ledger};
use crate::system::unusable::Unusable;
use crate::system::System;

/// Bytes that a new instance allocates for each processor before its size can be set
/// (`kernel/trace/trace.c`, `TRACE_BUF_SIZE_DEFAULT`).
const RING: u64 = 1408 << 10;

/// A tracepoint.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// Its subsystem.
    pub system: &'static str,
    /// Its name in the subsystem.
    pub name: &'static str,
    /// Text that messages append: why the tracepoint may be missing; may be empty.
    pub lack: &'static str,
}

/// The instance in which the tracepoint is on.
#[derive(Debug)]
pub struct Traced {
    /// The instance whose lines are read.
    pub instance: Instance,
    path: PathBuf,
}

impl Traced {
    /// Creates an instance with this name, calls `prepare` on it, and enables the tracepoint in it.
    /// The error says why that failed.
    pub fn start(
        system: &System,
        ledger: &mut Ledger,
        name: &str,
        event: Event,
        prepare: impl FnOnce(&Instance) -> limelight_sys::Result<()>,
    ) -> Result<Traced, Unusable> {
        let point = system.tracefs()?;
        let tracefs = Tracefs::at(&point)?;
        let subsystem = event.system;
        if !tracefs.has_event(subsystem, event.name) {
            return Err(Unusable::NoTracepoint {
                system: subsystem,
                name: event.name,
                lack: event.lack,
            });
        }
        let available = system.proc.meminfo()?.available_bytes;
        has_room(available, processors())?;
        let path = point.join("instances").join(name);
        ledger.intend([Entry::TraceInstance { path: path.clone() }])?;
        let started = tracefs.create_instance(name).and_then(|instance| {
            prepare(&instance)?;
            instance.enable_event(subsystem, event.name)?;
            Ok(instance)
        });
        match started {
            Ok(instance) => Ok(Traced { instance, path }),
            Err(error) => {
                ledger.forget(&Entry::TraceInstance { path });
                Err(error.into())
            }
        }
    }

    /// Removes the instance and, once it is gone, its entry in the restore record.
    pub fn stop(self, ledger: &mut Ledger) {
        let Traced { instance, path } = self;
        drop(instance);
        if !path.exists() {
            ledger.forget(&Entry::TraceInstance { path });
        }
    }
}

/// Number of online processors that this process may use.
fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// Checks that twice the size of the rings is available. With less memory, the kernel logs a
/// warning with a backtrace (`trace_rb_cpu_prepare()`).
fn has_room(available: Option<u64>, processors: u64) -> Result<(), Unusable> {
    let need = 2 * RING * processors;
    match available {
        Some(available) if available < need => Err(Unusable::NoRoom { available, need }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_starts_only_if_memory_for_its_buffers_is_available() {
        assert!(has_room(None, 64).is_ok());
        assert!(has_room(Some(4 * RING), 2).is_ok());
        let refused = has_room(Some(4 * RING - 1), 2).unwrap_err().to_string();
        assert!(refused.contains("5631 KiB"), "{refused}");
        assert!(has_room(Some(0), 1).is_err());
    }
}
