// SPDX-License-Identifier: GPL-2.0-or-later
//! The state that all mechanisms share: the restore record, the reported changes, the device and
//! the gate.

use std::fmt::Display;
use std::time::Duration;

use limelight_core::model::apps::Known;
use limelight_core::model::{App, AppKey, InForce, ProcessId};
use limelight_proto::{Change, Outcome};
use limelight_sys::device::{self, Device, DeviceError, Info, Setting, TOPMOST_MAX};
use limelight_sys::pidfd::Pidfd;
use tracing::warn;

use crate::mechanisms::changes::{Changes, Kind, Reach};
use crate::mechanisms::device::{DeviceDoor, Lease, UNDONE_BY};
use crate::mechanisms::restore_retry::Attempts;
use crate::reconcile::gate::Gate;
use crate::restore::undo::{lineage, undo, Undone};
use crate::restore::{Entry, Ledger, NotRecorded};
use crate::system::System;

/// A mechanism that serves the topmost app.
pub trait Mechanism {
    /// One action, as planned by the policy of the same name.
    type Step;

    /// Carries out a step: records a change that would outlive the daemon, makes the change and
    /// reports its outcome. A dry run only reports the change: see [`Writer`].
    fn apply(&mut self, step: &Self::Step, shared: &mut Shared, context: Context<'_>) -> Effect;
}

/// What happens to a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// The change is made and reported. A change that would outlive the daemon is recorded first.
    Live,
    /// A dry run: the change is only reported, as planned.
    DryRun,
}

/// The context in which an action is carried out.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Access to `/proc`, `/sys` and cgroups.
    pub system: &'a System,
    /// Time since boot.
    pub now: Duration,
    /// The topmost app.
    pub front: Option<&'a App>,
    /// The apps that the last scan found.
    pub apps: &'a [Known],
}

/// What undoes a change that lasts only as long as the app is topmost.
const UNDONE_BY_FOCUS: &str =
    "focus on another app, limelight focus --none, or stopping limelightd";

/// What undoes a change that stays in force after the app is no longer topmost.
pub(super) const UNDONE_BY_STOP: &str = "stopping limelightd";

impl Context<'_> {
    /// Describes a change that lasts as long as the app is topmost.
    pub(super) fn change(
        &self,
        knob: String,
        (from, to): (impl ToString, impl ToString),
        rule: impl Into<String>,
        outcome: Outcome,
    ) -> Change {
        Change {
            knob,
            from: from.to_string(),
            to: to.to_string(),
            rule: rule.into(),
            at_ms: self.now.as_millis() as u64,
            outcome,
            undone_by: UNDONE_BY_FOCUS.to_owned(),
        }
    }

    /// Describes a planned change of a device setting. `to` is the new value; `None` switches the
    /// setting off.
    pub(crate) fn device_change(&self, setting: &str, to: Option<String>, rule: &str) -> Change {
        let knob = format!("{} {setting}", self.system.roots.device.display());
        let to = to.unwrap_or_else(|| "off".to_owned());
        Change {
            undone_by: UNDONE_BY.to_owned(),
            ..self.change(knob, ("off", to), rule, Outcome::Planned)
        }
    }
}

/// What the caller must do after an action.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Plan again for this app, which was moved into another cgroup.
    Moved(App),
    /// Plan again: a controller that the app's cgroup lacked was enabled.
    Again,
}

/// The outcome of a failed attempt.
pub(super) fn failed(error: impl Display) -> Outcome {
    Outcome::Failed {
        why: error.to_string(),
    }
}

/// The state that all mechanisms share.
#[derive(Debug)]
pub struct Shared {
    /// Whether changes are made, or only reported.
    writer: Writer,
    /// The restore record on disk: all changes that would outlive the daemon.
    pub ledger: Ledger,
    /// The changes as reported to the user.
    pub changes: Changes,
    /// The values in force, in the form that the policy reads.
    pub in_force: InForce,
    /// `/dev/limelight`.
    pub device: DeviceDoor,
    /// Lease on the kernel's set of topmost processes.
    pub lease: Lease,
    /// Refuses actions that would harm a protected process.
    pub gate: Gate,
    /// Schedule of the overdue restores.
    pub attempts: Attempts,
}

impl Shared {
    /// Starts with nothing in force.
    pub fn new(ledger: Ledger, device: DeviceDoor, writer: Writer) -> Shared {
        Shared {
            writer,
            ledger,
            changes: Changes::default(),
            in_force: InForce::default(),
            device,
            lease: Lease::default(),
            gate: Gate::default(),
            attempts: Attempts::default(),
        }
    }

    /// Whether changes are only reported.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.writer == Writer::DryRun
    }

    /// The outcome of a successful change: applied; in a dry run, planned.
    pub(crate) fn done(&self) -> Outcome {
        match self.writer {
            Writer::Live => Outcome::Applied,
            Writer::DryRun => Outcome::Planned,
        }
    }

    /// The recorded changes. Empty in a dry run, because the restore record then holds only the
    /// changes of an earlier daemon that died.
    pub(crate) fn recorded(&self) -> &[Entry] {
        match self.writer {
            Writer::Live => self.ledger.entries(),
            Writer::DryRun => &[],
        }
    }

    /// Records changes that are about to be made. A dry run makes none, so it records none.
    pub(crate) fn intend(
        &mut self,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<(), NotRecorded> {
        match self.writer {
            Writer::Live => self.ledger.intend(entries),
            Writer::DryRun => Ok(()),
        }
    }

    /// Records a change, then makes it with `set`. A dry run does neither.
    pub(crate) fn write<E: Display>(
        &mut self,
        entry: &Entry,
        set: impl FnOnce() -> Result<(), E>,
    ) -> Outcome {
        if self.is_dry_run() {
            return Outcome::Planned;
        }
        if let Err(error) = self.ledger.intend([entry.clone()]) {
            return failed(error);
        }
        match set() {
            Ok(()) => Outcome::Applied,
            Err(error) => {
                self.ledger.forget(entry);
                failed(error)
            }
        }
    }

    /// Restores the changes that `which` accepts ([`undo()`]). A dry run restores nothing, not even
    /// changes that a dead daemon left.
    pub(crate) fn undo(
        &mut self,
        system: &System,
        which: impl Fn(&Entry) -> bool,
    ) -> Vec<(Entry, Undone)> {
        match self.writer {
            Writer::Live => undo(&mut self.ledger, system, which),
            Writer::DryRun => Vec::new(),
        }
    }

    /// In a dry run, clears `in_force`, so that the next plan has the same steps. Keeps the
    /// refusals, so that the refused apps are skipped for a while.
    pub(super) fn settle(&mut self) {
        if self.is_dry_run() {
            let refused = std::mem::take(&mut self.in_force).swapping.refused;
            self.in_force.swapping.refused = refused;
        }
    }

    /// Returns the entries to record: those of `given` that are not recorded yet, then `entries`.
    /// `given` are the lineage entries of `entries`: they identify values that children inherit
    /// later. Also cancels the pending restores of `given`.
    pub(crate) fn with_lineages(&mut self, entries: Vec<Entry>, given: Vec<Entry>) -> Vec<Entry> {
        // These values are in force again: cancel their pending restores.
        given.iter().for_each(|entry| self.ledger.keep(entry));
        // Lineage entries come first. Without them, a child that is forked right after the change
        // could not be recognised as having inherited the changed value.
        let mut all = lineage::unrecorded(self.recorded(), given);
        all.extend(entries);
        all
    }

    /// Queries the kernel with [`DeviceDoor::info`], which renews the lease of the topmost set. If
    /// the lease had expired, clears `in_force.marked`, so that the next plan sets the topmost set
    /// again.
    pub fn device_info(&mut self, now: Duration) -> Option<Info> {
        let info = self.device.info()?;
        let late = self.lease.renewed(&info, now);
        if let Some(late) = late.filter(|_| self.in_force.marked.is_some()) {
            warn!(
                "limelightd made no call to the device for {} s, so the kernel has dropped the set \
                 of foreground processes; setting it again",
                late.as_secs()
            );
            self.in_force.marked = None;
        }
        Some(info)
    }

    /// Changes a setting of the device. A setting that is switched off is dropped from the reported
    /// changes. Returns whether the change was made.
    pub(crate) fn switch<E: Display>(
        &mut self,
        on: bool,
        planned: Change,
        set: impl FnOnce(&Device) -> Result<(), E>,
    ) -> bool {
        if self.is_dry_run() {
            self.changes.note(Reach::Machine, Kind::Device, planned);
            return false;
        }
        let Some(device) = self.device.device() else {
            return false;
        };
        let outcome = match set(device) {
            Ok(()) => Outcome::Applied,
            Err(error) => failed(error),
        };
        let worked = outcome == Outcome::Applied;
        match worked && !on {
            true => self.changes.drop_knob(&planned.knob),
            false => self
                .changes
                .note(Reach::Machine, Kind::Device, Change { outcome, ..planned }),
        }
        worked
    }

    /// Switches a mechanism of the device on, or off if `setting` is `None`. `setting` holds the
    /// values and their description for the user. Returns whether the change was made.
    pub(crate) fn set_up(
        &mut self,
        mechanism: device::Mechanism,
        setting: Option<(Setting<'_>, String)>,
        rule: &str,
        context: Context<'_>,
    ) -> bool {
        let (setting, to) = setting.unzip();
        let planned = context.device_change(mechanism.name(), to, rule);
        self.switch(setting.is_some(), planned, |device| match setting {
            Some(setting) => device.switch_on(setting),
            None => device.switch_off(mechanism),
        })
    }

    /// Passes the topmost app's processes to the kernel; `None` clears the kernel's set.
    pub(crate) fn mark(&mut self, app: Option<&(AppKey, Vec<ProcessId>)>, context: Context<'_>) {
        let members = app.map_or(&[][..], |(_, members)| members);
        let planned = mark_change(members, context);
        let set = |device: &Device| set_topmost(device, members, context);
        if self.switch(app.is_some(), planned, set) {
            self.in_force.marked = app.cloned();
        }
    }
}

fn set_topmost(
    device: &Device,
    members: &[ProcessId],
    context: Context<'_>,
) -> Result<(), DeviceError> {
    let pidfds: Vec<Pidfd> = oldest_first(members)
        .into_iter()
        .filter_map(|member| {
            let pidfd = Pidfd::open(member.pid).ok()?;
            // Check after opening: the PID may have been reused before the open.
            context.system.same_process(member).map(|_| pidfd)
        })
        .take(TOPMOST_MAX)
        .collect();
    device.set_topmost(&pidfds)
}

/// Puts parents before their children, so that a set cut at `TOPMOST_MAX` loses children rather
/// than their parents. Sorted by start time, not by PID, because PIDs wrap. The kernel itself adds
/// children that are created later.
fn oldest_first(members: &[ProcessId]) -> Vec<ProcessId> {
    let mut members = members.to_vec();
    members.sort_unstable_by_key(|member| (member.starttime, member.pid));
    members
}

fn mark_change(members: &[ProcessId], context: Context<'_>) -> Change {
    let name = context.front.map_or("no app", |app| app.name.as_str());
    let to = match members.len() {
        1 => format!("1 process of {name}"),
        count => format!("{count} processes of {name}"),
    };
    let rule = "the kernel tracks the foreground app's processes and their children";
    Change {
        from: "no processes".to_owned(),
        ..context.device_change("topmost", Some(to), rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_precede_children_with_lower_pids() {
        let id = |pid, starttime| ProcessId { pid, starttime };
        let (main, child, grandchild) = (id(32_000, 70), id(400, 90), id(401, 90));
        let members = [child, grandchild, main];
        assert_eq!(oldest_first(&members), [main, child, grandchild]);
    }
}
