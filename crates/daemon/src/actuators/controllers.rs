// SPDX-License-Identifier: GPL-2.0-or-later
//! `cgroup.subtree_control`: controllers that are handed down from the root to an app's cgroup.
//!
//! `memory`, for a limit, wherever it is missing. What weights need only in a tree of ours
//! ([`limelight_core::policy::boost`]): elsewhere a service manager decides on it.

use limelight_core::control::{Change, Outcome};
use limelight_sys::cgroup::{Cgroup, CgroupPath};
use limelight_sys::controllers::Lack;

use super::cgroup_memory::place;
use super::changes::Reach;
use super::{Actuators, Context, Effect};
use crate::doors::Doors;
use crate::restore::{Entry, Ledger};

/// What limits need.
pub const MEMORY: &str = "memory";

/// The cgroups from the root to the leaf's parent that do not hand the controller down.
fn without_controller(
    doors: &Doors,
    path: &CgroupPath,
    controller: &str,
) -> limelight_sys::Result<Vec<Cgroup>> {
    let mut missing = Vec::new();
    let mut ancestors = vec![CgroupPath::root()];
    ancestors.extend(path.chain());
    ancestors.pop();
    for path in ancestors {
        let cgroup = doors.cgroups.open(&path)?;
        if !cgroup
            .subtree_control()?
            .iter()
            .any(|name| name == controller)
        {
            missing.push(cgroup);
        }
    }
    Ok(missing)
}

/// Whether cgroup v2 has the controller at all; else why not.
fn check_there(doors: &Doors, controller: &str) -> Result<(), String> {
    let root = doors.cgroups.open(&CgroupPath::root());
    let all = root.and_then(|root| root.controllers());
    if all
        .map_err(|error| error.to_string())?
        .iter()
        .any(|name| name == controller)
    {
        return Ok(());
    }
    let lack = doors.proc.lack_of(controller).unwrap_or(Lack::Hidden);
    Err(format!(
        "the {controller} controller is not among those of cgroup v2: {lack}"
    ))
}

/// Everything that was handed down from this cgroup.
fn handed_down(ledger: &Ledger, inode: u64) -> Vec<&str> {
    let entries = ledger.entries().iter();
    entries
        .filter_map(|entry| match entry {
            Entry::Controller { cgroup, controller } if cgroup.inode == inode => {
                Some(controller.as_str())
            }
            _ => None,
        })
        .collect()
}

fn change(context: Context<'_>, cgroup: &Cgroup, controllers: &[&str]) -> Change {
    let rule = |controller: &&str| {
        match *controller {
        MEMORY => "protect: the app's cgroup needs the memory controller; what was charged before stays with the ancestor".to_owned(),
        other => format!("boost: the weight of the app's cgroup needs the {other} controller"),
    }
    };
    let rules: Vec<String> = controllers.iter().map(rule).collect();
    Change {
        knob: context
            .doors
            .cgroup_file(cgroup.path().as_str(), "cgroup.subtree_control"),
        from: format!("without {}", controllers.join(" ")),
        to: format!("+{}", controllers.join(" +")),
        rule: rules.join("; "),
        at_ms: context.now.as_millis() as u64,
        outcome: Outcome::Applied,
        undone_by: "limelightd stopping".to_owned(),
    }
}

impl Actuators {
    /// Hands a controller down to this cgroup. `Ok`: whether it had not been there; `Err`: why it
    /// cannot be.
    pub(super) fn hand_down(
        &mut self,
        path: &CgroupPath,
        controller: &str,
        context: Context<'_>,
    ) -> Result<bool, String> {
        let missing = without_controller(context.doors, path, controller)
            .map_err(|error| error.to_string())?;
        let fresh = !missing.is_empty();
        for cgroup in missing {
            let entry = Entry::Controller {
                cgroup: place(&cgroup),
                controller: controller.to_owned(),
            };
            self.ledger
                .intend([entry.clone()])
                .map_err(|error| error.to_string())?;
            if let Err(error) = cgroup.set_subtree_controller(controller, true) {
                self.ledger.forget(&entry);
                return Err(format!(
                    "the {controller} controller cannot be handed to the children of {}: {error}",
                    cgroup.path()
                ));
            }
            let all = handed_down(&self.ledger, cgroup.id().0);
            let change = change(context, &cgroup, &all);
            // One file, for all that was written to it.
            self.changes.drop_knob(&change.knob);
            self.changes.note(Reach::Machine, change);
        }
        Ok(fresh)
    }

    /// Hands down what the weights of the app in front need.
    pub(super) fn hand_weights_down(
        &mut self,
        controllers: &[&str],
        context: Context<'_>,
    ) -> Effect {
        let home = context.front.and_then(|app| app.own_home());
        let Some(path) = home.and_then(|home| CgroupPath::parse(&home.path)) else {
            return Effect::None;
        };
        let mut effect = Effect::Weighable;
        for controller in controllers {
            let done = check_there(context.doors, controller)
                .and_then(|()| self.hand_down(&path, controller, context));
            if let Err(why) = done {
                tracing::warn!("{path} gets no {controller}.weight: {why}");
                effect = Effect::NotWeighable;
            }
        }
        effect
    }
}
