// SPDX-License-Identifier: GPL-2.0-or-later
//! Sets the CPU and I/O weights of the app's cgroup, its ancestors and its helpers' cgroups. A
//! weight determines a cgroup's share relative to its siblings.

use limelight_core::model::boost::{Weight, WeightFile};
use limelight_core::model::AppKey;
use limelight_proto::{Change, Outcome};
use limelight_sys::cgroup::{Cgroup, CgroupPath, WeightKnob};

use crate::mechanisms::changes::{Kind, Reach};
use crate::mechanisms::shared::{failed, Context, Shared};
use crate::restore::undo::Undone;
use crate::restore::{Entry, Place};

fn knob(file: WeightFile) -> WeightKnob {
    match file {
        WeightFile::Cpu => WeightKnob::Cpu,
        WeightFile::Io => WeightKnob::Io,
        WeightFile::Bfq => WeightKnob::Bfq,
    }
}

fn change(context: Context<'_>, weight: &Weight, from: u32, outcome: Outcome) -> Change {
    let file = weight.file.name();
    let knob = context.system.cgroup_file(&weight.cgroup, file);
    let rule = format!(
        "boost: {file} of the app's cgroup, its ancestors and its helpers, so that the app is \
         served first; and of an app that is being closed, so that it can exit"
    );
    context.change(knob, (from, weight.weight.max(from)), rule, outcome)
}

fn open(weight: &Weight, context: Context<'_>) -> Result<Cgroup, String> {
    let path = CgroupPath::parse(&weight.cgroup)
        .ok_or_else(|| format!("{} is not a cgroup path", weight.cgroup))?;
    let cgroup = context.system.cgroups.open(&path);
    let cgroup = cgroup.map_err(|error| error.to_string())?;
    match weight.inode {
        Some(inode) if inode != cgroup.id().0 => {
            Err(format!("{} is now another cgroup", weight.cgroup))
        }
        _ => Ok(cgroup),
    }
}

pub(super) fn weigh(shared: &mut Shared, app: AppKey, weights: &[Weight], context: Context<'_>) {
    let listed = |entry: &Entry| match entry {
        Entry::Weight { cgroup, knob, .. } => weights
            .iter()
            .any(|weight| weight.cgroup == cgroup.path && weight.file.name() == knob),
        _ => false,
    };
    // Restore weights that are no longer listed, such as those of a helper that has exited.
    put_weights_back(shared, context, |entry| !listed(entry));
    for weight in weights {
        let (from, outcome) = write_weight(shared, weight, context);
        let change = change(context, weight, from, outcome);
        shared.changes.note(Reach::App(app), Kind::Weight, change);
    }
    shared.in_force.weighed = Some((app, weights.to_vec()));
}

/// Writes one weight. Returns the weight before Limelight (0 if it cannot be read), and the
/// outcome.
fn write_weight(shared: &mut Shared, weight: &Weight, context: Context<'_>) -> (u32, Outcome) {
    let file = knob(weight.file);
    let cgroup = match open(weight, context) {
        Ok(cgroup) => cgroup,
        Err(why) => return (0, failed(why)),
    };
    let found = match cgroup.weight(file) {
        Ok(found) => found,
        Err(error) => return (0, failed(error)),
    };
    let inert = |from, why: String| (from, Outcome::Inert { why });
    let place = Place::from(&cgroup);
    let recorded = shared.recorded().iter().find_map(|entry| match entry {
        Entry::Weight {
            cgroup,
            knob,
            original,
            ours,
        } if cgroup.inode == place.inode && knob == file.file() => Some((*original, *ours)),
        _ => None,
    });
    if let Some((original, ours)) = recorded {
        if found != ours && found != original {
            return inert(
                original,
                format!("another program set it to {found}; it is left alone"),
            );
        }
    }
    let original = recorded.map_or(found, |(original, _)| original);
    let entry = Entry::Weight {
        cgroup: place,
        knob: file.file().to_owned(),
        original,
        ours: weight.weight.max(original),
    };
    shared.ledger.keep(&entry);
    if found == 0 {
        return inert(
            0,
            "the cgroup runs only when no other cgroup runs (cpu.idle)".to_owned(),
        );
    }
    let wanted = weight.weight.max(original);
    if found == wanted {
        return (original, shared.done());
    }
    // One Limelight weight replaces another: restore the original first. If the daemon died after
    // the new entry was recorded and before the new weight was written, the old weight would still
    // be in force. It would then count as another program's.
    if recorded.is_some_and(|(original, ours)| ours != wanted && found == ours && found != original)
    {
        if let Err(error) = cgroup.set_weight(file, original) {
            return (original, failed(error));
        }
    }
    let outcome = shared.write(&entry, || cgroup.set_weight(file, wanted));
    (original, outcome)
}

fn put_weights_back(shared: &mut Shared, context: Context<'_>, which: impl Fn(&Entry) -> bool) {
    let results = shared.undo(context.system, |entry| {
        matches!(entry, Entry::Weight { .. }) && which(entry)
    });
    for (entry, undone) in results {
        let Entry::Weight { cgroup, knob, .. } = &entry else {
            continue;
        };
        match undone {
            Undone::Failed { why } => {
                tracing::error!("{}/{knob} cannot be put back: {why}", cgroup.path);
            }
            Undone::Theirs { found } => {
                tracing::info!(
                    "{}/{knob} stays at {found}: another program set it",
                    cgroup.path
                );
            }
            Undone::Restored | Undone::Gone => {}
        }
        let name = context.system.cgroup_file(&cgroup.path, knob);
        shared.changes.drop_knob(&name);
    }
}

pub(super) fn unweigh(shared: &mut Shared, app: AppKey, context: Context<'_>) {
    put_weights_back(shared, context, |_| true);
    shared.in_force.weighed = None;
    shared
        .changes
        .drop_where(|reach, kind| (reach, kind) == (Reach::App(app), Kind::Weight));
}
