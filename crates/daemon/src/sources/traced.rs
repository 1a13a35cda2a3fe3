// SPDX-License-Identifier: GPL-2.0-or-later
//! A tracepoint in a trace instance of our own, which stands in the restore record while it exists.

use std::path::PathBuf;

use limelight_sys::tracefs::{Instance, Tracefs};

use crate::doors::Doors;
use crate::restore::{Entry, Ledger};

/// What a new instance takes for each processor before its size can be set
/// (`kernel/trace/trace.c`, `TRACE_BUF_SIZE_DEFAULT`).
const RING: u64 = 1408 << 10;

/// A tracepoint.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// Its system.
    pub system: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// What a kernel lacks that does not have it, for people; may be empty.
    pub lack: &'static str,
}

/// The instance, while the tracepoint is on.
#[derive(Debug)]
pub struct Traced {
    /// Where its lines are read.
    pub instance: Instance,
    path: PathBuf,
}

impl Traced {
    /// Makes an instance of this name, has it prepared, and switches the tracepoint on in it. Why
    /// not, else.
    pub fn start(
        doors: &Doors,
        ledger: &mut Ledger,
        name: &str,
        event: Event,
        prepare: impl FnOnce(&Instance) -> limelight_sys::Result<()>,
    ) -> Result<Traced, String> {
        let text = |error: limelight_sys::Error| error.to_string();
        let point = doors.tracefs()?;
        let tracefs = Tracefs::at(&point).map_err(text)?;
        let Event {
            system,
            name: point_name,
            lack,
        } = event;
        if !tracefs.has_event(system, point_name) {
            return Err(format!(
                "this kernel has no tracepoint {system}:{point_name}{lack}"
            ));
        }
        let available = doors.proc.meminfo().map_err(text)?.available_bytes;
        has_room(available, processors())?;
        let path = point.join("instances").join(name);
        ledger
            .intend([Entry::TraceInstance { path: path.clone() }])
            .map_err(|error| error.to_string())?;
        let started = tracefs.create_instance(name).and_then(|instance| {
            prepare(&instance)?;
            instance.enable_event(system, point_name)?;
            Ok(instance)
        });
        match started {
            Ok(instance) => Ok(Traced { instance, path }),
            Err(error) => {
                ledger.forget(&Entry::TraceInstance { path });
                Err(error.to_string())
            }
        }
    }

    /// Removes the instance.
    pub fn stop(self, ledger: &mut Ledger) {
        let Traced { instance, path } = self;
        drop(instance);
        if !path.exists() {
            ledger.forget(&Entry::TraceInstance { path });
        }
    }
}

/// Online processors, as far as this process may use them.
fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// Whether the rings fit twice into what is available. The kernel does not refuse quietly: it puts a
/// warning with a backtrace into its log (`trace_rb_cpu_prepare()`).
fn has_room(available: Option<u64>, processors: u64) -> Result<(), String> {
    let need = 2 * RING * processors;
    match available {
        Some(available) if available < need => Err(format!(
            "only {} KiB of memory are available, and a trace takes {} KiB at first; it is tried \
             again when it is wanted next",
            available >> 10,
            need >> 10
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_begun_only_where_its_rings_fit() {
        assert_eq!(has_room(None, 64), Ok(()));
        assert_eq!(has_room(Some(4 * RING), 2), Ok(()));
        let refused = has_room(Some(4 * RING - 1), 2).unwrap_err();
        assert!(refused.contains("5631 KiB"), "{refused}");
        assert!(has_room(Some(0), 1).is_err());
    }
}
