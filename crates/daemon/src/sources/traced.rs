// SPDX-License-Identifier: GPL-2.0-or-later
//! A tracepoint in a trace instance of our own, which stands in the restore record while it exists.

use std::path::PathBuf;

use limelight_sys::tracefs::{Instance, Tracefs};

use crate::doors::Doors;
use crate::restore::{Entry, Ledger};

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
