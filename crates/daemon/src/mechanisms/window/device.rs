// SPDX-License-Identifier: GPL-2.0-or-later
//! Reports response windows to the kernel through `/dev/limelight`.

use limelight_core::policy::window::Step;
use limelight_proto::{Change, KernelWindows, State};
use limelight_sys::device::{Device, DeviceError};
use tracing::warn;

use crate::mechanisms::changes::{Kind, Reach};
use crate::mechanisms::device::DeviceDoor;
use crate::mechanisms::shared::{failed, Context, Shared};

/// Whether the kernel wants reports of windows, and how many were made.
#[derive(Debug, Default)]
pub struct Told {
    /// Whether the kernel wants the reports.
    wanted: bool,
    /// Numbers of windows reported as opened, of windows reported as closed, and of failed reports.
    opened: u64,
    closed: u64,
    failed: u64,
}

impl Told {
    /// Asks the device whether the kernel wants the reports.
    pub(super) fn new(device: &DeviceDoor) -> Told {
        let wanted = device.device().is_some_and(|device| {
            let answer = device.has_windows();
            answer.unwrap_or_else(|error| {
                warn!("{error}: response windows are not reported to the kernel");
                false
            })
        });
        Told {
            wanted,
            ..Told::default()
        }
    }

    pub(super) fn tell(&mut self, step: Step, shared: &mut Shared, context: Context<'_>) {
        let Some(device) = shared.device.device().filter(|_| self.wanted) else {
            return;
        };
        let result = tell(device, step, context);
        // Note the step even after a failure, so that the next try comes with the next window and
        // not at once.
        shared.in_force.device_window = match step {
            Step::Open { ends } => Some(ends),
            Step::Close => None,
        };
        match (&result, step) {
            (Ok(()), Step::Open { .. }) => self.opened += 1,
            (Ok(()), Step::Close) => self.closed += 1,
            (Err(_), _) => self.failed += 1,
        }
        // Success is not noted, because a key press must not add a line to the list of changes. A
        // failure must be visible.
        let Err(error) = result else {
            return;
        };
        if self.failed == 1 {
            warn!("{error}: a response window was not reported to the kernel");
        }
        let to = match step {
            Step::Open { .. } => "open",
            Step::Close => "closed",
        };
        let rule = "window: the kernel knows when a response window is open";
        let change = Change {
            from: "closed".to_owned(),
            outcome: failed(error),
            ..context.device_change("window", Some(to.to_owned()), rule)
        };
        shared.changes.note(Reach::Machine, Kind::Device, change);
    }

    /// The state and the number of the reports to the kernel, for `status`.
    pub fn status(&self, device: &DeviceDoor, open: bool) -> KernelWindows {
        let Told {
            wanted,
            opened,
            closed,
            failed,
        } = *self;
        let (state, detail) = match (device.device(), wanted) {
            (None, _) => {
                let why = "/dev/limelight is not used: only limelightd knows the windows";
                (State::Unavailable, why)
            }
            (Some(_), false) => {
                let why = "this kernel's /dev/limelight does not support windows: only limelightd \
                           knows them";
                (State::Unavailable, why)
            }
            (Some(_), true) if open => (State::Active, "reported through /dev/limelight"),
            (Some(_), true) => (State::Idle, "reported through /dev/limelight"),
        };
        KernelWindows {
            state,
            detail: detail.to_owned(),
            opened,
            closed,
            failed,
        }
    }
}

fn tell(device: &Device, step: Step, context: Context<'_>) -> Result<(), DeviceError> {
    match step {
        Step::Open { ends } => device.open_window(ends.saturating_sub(context.now)),
        Step::Close => device.close_window(),
    }
}
