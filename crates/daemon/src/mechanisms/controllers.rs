// SPDX-License-Identifier: GPL-2.0-or-later
//! `cgroup.subtree_control`: enables controllers from the root down to an app's cgroup.
//!
//! `memory`, which limits and reservations need, is enabled wherever it is missing. The controllers
//! for weights are enabled only in a cgroup tree that Limelight owns
//! ([`limelight_core::policy::boost`]). In other trees, the service manager decides which of these
//! are enabled.

use limelight_proto::{Change, Outcome};
use limelight_sys::cgroup::{Cgroup, CgroupPath};
use limelight_sys::controllers::Lack;

use crate::mechanisms::changes::{Kind, Reach};
use crate::mechanisms::shared::{Context, Shared, UNDONE_BY_STOP};
use crate::restore::{Entry, Ledger, NotRecorded, Place};
use crate::system::{System, MEMORY};

/// Those ancestors of `path`, from the root down, that do not enable the controller.
fn without_controller(
    system: &System,
    path: &CgroupPath,
    controller: &str,
) -> limelight_sys::Result<Vec<Cgroup>> {
    let mut missing = Vec::new();
    let mut ancestors = vec![CgroupPath::root()];
    ancestors.extend(path.chain());
    ancestors.pop();
    for path in ancestors {
        let cgroup = system.cgroups.open(&path)?;
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

/// Why a controller could not be enabled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotEnabled {
    /// The app's cgroup has an invalid path.
    #[error("{0} is not a cgroup path")]
    NoPath(String),
    /// A cgroup could not be read.
    #[error(transparent)]
    Unreadable(#[from] limelight_sys::Error),
    /// The change could not be recorded, so it was not made.
    #[error(transparent)]
    NotRecorded(#[from] NotRecorded),
    /// cgroup v2 does not offer the controller.
    #[error("cgroup v2 does not have the {controller} controller: {lack}")]
    Lacking { controller: String, lack: Lack },
    /// The kernel refused to enable the controller.
    #[error("cannot enable the {controller} controller for the children of {cgroup}: {error}")]
    Refused {
        controller: String,
        cgroup: CgroupPath,
        error: limelight_sys::Error,
    },
}

/// Checks that cgroup v2 offers the controller.
fn check_there(system: &System, controller: &str) -> Result<(), NotEnabled> {
    let all = system.cgroups.open(&CgroupPath::root())?.controllers()?;
    if all.iter().any(|name| name == controller) {
        return Ok(());
    }
    Err(NotEnabled::Lacking {
        controller: controller.to_owned(),
        lack: system.proc.lack_of(controller).unwrap_or(Lack::Hidden),
    })
}

/// All controllers that Limelight has enabled for the children of this cgroup.
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
        MEMORY => "protect: the app's cgroup needs the memory controller; pages charged before stay charged to the ancestor".to_owned(),
        other => format!("boost: the weight of the app's cgroup needs the {other} controller"),
    }
    };
    let rules: Vec<String> = controllers.iter().map(rule).collect();
    let path = cgroup.path().as_str();
    let knob = context.system.cgroup_file(path, "cgroup.subtree_control");
    let from = format!("without {}", controllers.join(" "));
    let to = format!("+{}", controllers.join(" +"));
    Change {
        undone_by: UNDONE_BY_STOP.to_owned(),
        ..context.change(knob, (from, to), rules.join("; "), Outcome::Applied)
    }
}

/// Enables a controller in every ancestor of this cgroup. Returns whether any ancestor lacked the
/// controller. A dry run enables nothing and returns `false`.
pub(crate) fn hand_down(
    shared: &mut Shared,
    path: &str,
    controller: &str,
    context: Context<'_>,
) -> Result<bool, NotEnabled> {
    let path = CgroupPath::parse(path).ok_or_else(|| NotEnabled::NoPath(path.to_owned()))?;
    if shared.is_dry_run() {
        return Ok(false);
    }
    let missing = without_controller(context.system, &path, controller)?;
    let fresh = !missing.is_empty();
    for cgroup in missing {
        let entry = Entry::Controller {
            cgroup: Place::from(&cgroup),
            controller: controller.to_owned(),
        };
        shared.ledger.intend([entry.clone()])?;
        if let Err(error) = cgroup.set_subtree_controller(controller, true) {
            shared.ledger.forget(&entry);
            return Err(NotEnabled::Refused {
                controller: controller.to_owned(),
                cgroup: cgroup.path().clone(),
                error,
            });
        }
        let all = handed_down(&shared.ledger, cgroup.id().0);
        let change = change(context, &cgroup, &all);
        // Report one change per file, with all controllers that Limelight has enabled in it.
        shared.changes.drop_knob(&change.knob);
        shared
            .changes
            .note(Reach::Machine, Kind::Controllers, change);
    }
    Ok(fresh)
}

/// Enables the controllers that the topmost app's weights need. Returns whether all of these are
/// enabled now. `None`: the app has no cgroup of its own, or this is a dry run, which enables
/// nothing.
pub(crate) fn hand_weights_down(
    shared: &mut Shared,
    controllers: &[&str],
    context: Context<'_>,
) -> Option<bool> {
    let home = context.front.and_then(|app| app.own_home());
    let home = home.filter(|_| !shared.is_dry_run())?;
    let path = CgroupPath::parse(&home.path)?;
    let mut complete = true;
    for controller in controllers {
        let done = check_there(context.system, controller)
            .and_then(|()| hand_down(shared, &home.path, controller, context));
        if let Err(why) = done {
            tracing::warn!("{path} gets no {controller}.weight: {why}");
            complete = false;
        }
    }
    Some(complete)
}
