// SPDX-License-Identifier: GPL-2.0-or-later
//! `/dev/limelight`: our kernel recognises the topmost app's pages by itself.

use std::path::Path;

use limelight_core::control::{Change, DeviceStatus, Outcome};
use limelight_core::model::{AppKey, ProcessId};
use limelight_sys::device::{
    Device, DeviceError, Info, Mechanism, Setting, ABI_VERSION, TOPMOST_MAX,
};
use limelight_sys::pidfd::Pidfd;
use tracing::{info, warn};

use super::changes::Reach;
use super::{outcome, Actuators, Context};
use crate::config::UseDevice;
use crate::exit::Failure;

pub(super) const UNDONE_BY: &str = "the kernel, when limelightd ends in any way";

/// The device, or why it is not used.
#[derive(Debug)]
pub enum DeviceDoor {
    /// Open.
    Open(Device),
    /// Not used, and why.
    Unused(String),
}

impl DeviceDoor {
    /// Opens the device as the configuration asks.
    pub fn open(path: &Path, wanted: UseDevice) -> Result<DeviceDoor, Failure> {
        let require = wanted == UseDevice::Require;
        if wanted == UseDevice::Off {
            let why = "switched off by the configuration ([kernel] device = \"off\")";
            return Ok(DeviceDoor::Unused(why.to_owned()));
        }
        let device = match Device::open(path) {
            Ok(device) => device,
            Err(error) if !require => {
                match error {
                    DeviceError::Absent { .. } => info!("{error}; stock knobs are used alone"),
                    _ => warn!("{error}; stock knobs are used alone"),
                }
                return Ok(DeviceDoor::Unused(error.to_string()));
            }
            Err(error @ DeviceError::Forbidden { .. }) => {
                return Err(Failure::Permission {
                    what: error.to_string(),
                    cure: "run limelightd as root or give it CAP_SYS_NICE",
                })
            }
            Err(error) => {
                return Err(Failure::Powerless(format!(
                    "{error} ([kernel] device = \"require\")"
                )))
            }
        };
        let fault = match device.info() {
            Ok(info) if info.abi_version != ABI_VERSION => Some(format!(
                "{} speaks ABI version {}, this limelightd {ABI_VERSION}: install the pair that belongs together",
                path.display(),
                info.abi_version
            )),
            Ok(info) if !info.has(Mechanism::Protect) => {
                Some(format!("{} offers no protect", path.display()))
            }
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        match fault {
            None => Ok(DeviceDoor::Open(device)),
            Some(why) if require => Err(Failure::Powerless(format!(
                "{why} ([kernel] device = \"require\")"
            ))),
            Some(why) => {
                warn!("{why}; stock knobs are used alone");
                Ok(DeviceDoor::Unused(why))
            }
        }
    }

    /// The device, when it is open.
    pub fn device(&self) -> Option<&Device> {
        match self {
            DeviceDoor::Open(device) => Some(device),
            DeviceDoor::Unused(_) => None,
        }
    }

    /// What the kernel offers through it now, and how many processes it knows.
    pub fn info(&self) -> Option<Info> {
        self.device().and_then(|device| device.info().ok())
    }

    /// For `status`.
    pub fn status(&self) -> DeviceStatus {
        let device = match self {
            DeviceDoor::Open(device) => device,
            DeviceDoor::Unused(why) => return DeviceStatus::Unused { why: why.clone() },
        };
        let names = |has: &dyn Fn(Mechanism) -> bool| {
            let all = Mechanism::ALL.into_iter().filter(|&each| has(each));
            all.map(|each| each.name().to_owned()).collect()
        };
        match device.info() {
            Ok(info) => DeviceStatus::Open {
                abi_version: info.abi_version,
                built_in: names(&|each| info.has(each)),
                enabled: names(&|each| info.is_enabled(each)),
                generation: info.generation,
                members: info.members,
            },
            Err(error) => DeviceStatus::Unused {
                why: error.to_string(),
            },
        }
    }
}

impl Actuators {
    pub(super) fn mark(&mut self, app: Option<&(AppKey, Vec<ProcessId>)>, context: Context<'_>) {
        let Some(device) = self.device.device() else {
            return;
        };
        let members = app.map_or(&[][..], |(_, members)| members);
        let outcome = outcome(set_topmost(device, members, context));
        if self.note_switch(app.is_some(), mark_change(members, context, outcome)) {
            self.in_force.marked = app.cloned();
        }
    }

    /// Notes a change of what belongs to the device: what is off again is none any more. Whether it
    /// worked.
    pub(super) fn note_switch(&mut self, on: bool, change: Change) -> bool {
        let worked = !matches!(change.outcome, Outcome::Failed { .. });
        match worked && !on {
            true => self.changes.drop_knob(&change.knob),
            false => self.changes.note(Reach::Machine, change),
        }
        worked
    }

    pub(super) fn plan_mark(
        &mut self,
        app: Option<&(AppKey, Vec<ProcessId>)>,
        context: Context<'_>,
    ) {
        let members = app.map_or(&[][..], |(_, members)| members);
        let change = mark_change(members, context, Outcome::Planned);
        self.changes.note(Reach::Machine, change);
    }

    pub(super) fn switch_protect(&mut self, budget: Option<u8>, context: Context<'_>) {
        let Some(device) = self.device.device() else {
            return;
        };
        let outcome = outcome(match budget {
            Some(percent) => device.switch_on(Setting::Protect {
                budget_percent: u32::from(percent),
            }),
            None => device.switch_off(Mechanism::Protect),
        });
        if self.note_switch(budget.is_some(), switch_change(budget, context, outcome)) {
            self.in_force.device_protect = budget;
        }
    }

    pub(super) fn plan_switch(&mut self, budget: Option<u8>, context: Context<'_>) {
        let change = switch_change(budget, context, Outcome::Planned);
        self.changes.note(Reach::Machine, change);
    }
}

fn set_topmost(
    device: &Device,
    members: &[ProcessId],
    context: Context<'_>,
) -> Result<(), DeviceError> {
    // Parents come first: should the set be cut, later members are children of earlier ones and
    // children that they make from now on are members anyway.
    let pidfds: Vec<Pidfd> = members
        .iter()
        .filter_map(|&member| {
            let pidfd = Pidfd::open(member.pid).ok()?;
            // Opened first and checked then: a number that was given away since names a stranger.
            context.doors.same_process(member).map(|_| pidfd)
        })
        .take(TOPMOST_MAX)
        .collect();
    device.set_topmost(&pidfds)
}

fn topmost_knob(context: Context<'_>) -> String {
    format!("{} topmost", context.doors.roots.device.display())
}

fn protect_knob(context: Context<'_>) -> String {
    format!("{} protect", context.doors.roots.device.display())
}

fn mark_change(members: &[ProcessId], context: Context<'_>, outcome: Outcome) -> Change {
    let name = context.front.map_or("no app", |app| app.name.as_str());
    Change {
        knob: topmost_knob(context),
        from: "no processes".to_owned(),
        to: match members.len() {
            1 => format!("1 process of {name}"),
            count => format!("{count} processes of {name}"),
        },
        rule: "the kernel knows the topmost app's processes; their children are members".to_owned(),
        at_ms: context.now.as_millis() as u64,
        outcome,
        undone_by: UNDONE_BY.to_owned(),
    }
}

fn switch_change(budget: Option<u8>, context: Context<'_>, outcome: Outcome) -> Change {
    Change {
        knob: protect_knob(context),
        from: "off".to_owned(),
        to: budget.map_or("off".to_owned(), |percent| {
            format!("on, budget {percent} % of memory")
        }),
        rule: "protect: reclaim takes the topmost app's pages last".to_owned(),
        at_ms: context.now.as_millis() as u64,
        outcome,
        undone_by: UNDONE_BY.to_owned(),
    }
}
