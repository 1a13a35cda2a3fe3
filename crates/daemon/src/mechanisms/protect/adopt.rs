// SPDX-License-Identifier: GPL-2.0-or-later
//! Moves an app that has no cgroup of its own into a new one:
//! `/limelight.slice/app-PID-STARTTIME.scope`.
//!
//! Only memory that is charged after the move can be reserved. Therefore the app stays in the new
//! cgroup when it is no longer topmost. It is moved back when the daemon stops.

use std::rc::Rc;

use limelight_core::model::{App, AppKey, Home, ProcessId};
use limelight_proto::{Change, Outcome};
use limelight_sys::cgroup::{Cgroup, CgroupPath};
use limelight_sys::process::Process;

use crate::mechanisms::changes::{Kind, Reach};
use crate::mechanisms::controllers::hand_down;
use crate::mechanisms::shared::{Context, Shared, UNDONE_BY_STOP};
use crate::restore::undo::Undone;
use crate::restore::{Entry, Move, Place};
use crate::system::identify::app_of_pid;
use crate::system::own_scope::{scope_path, SLICE};
use crate::system::{System, MEMORY};

/// Maximum number of passes over a process tree, which may fork while it is being moved.
const PASSES: usize = 8;

fn change(context: Context<'_>, root: ProcessId, from: &str, to: &str, outcome: Outcome) -> Change {
    let rule = "protect: memory can be reserved only for an app with a cgroup of its own ([protect] adopt); pages charged before the move stay charged to the old cgroup";
    let knob = format!(
        "{}/{}/cgroup",
        context.system.roots.proc.display(),
        root.pid
    );
    Change {
        undone_by: UNDONE_BY_STOP.to_owned(),
        ..context.change(knob, (from, to), rule, outcome)
    }
}

/// Moves the app into a cgroup of its own. Returns the app with that cgroup, or `None` if it was
/// not moved.
pub(super) fn adopt(shared: &mut Shared, key: AppKey, context: Context<'_>) -> Option<App> {
    let (Some(app), AppKey::Tree(root)) = (context.front, key) else {
        return None;
    };
    let from = app
        .home
        .as_ref()
        .map_or("/", |home| home.path.as_str())
        .to_owned();
    let path = scope_path(root);
    let moved = match shared.is_dry_run() {
        true => Ok(None),
        false => move_tree(shared, root, &from, &path, context).map(Some),
    };
    let (home, outcome) = match moved {
        Ok(scope) => {
            let home = scope.map(|scope| Home {
                path: path.clone(),
                inode: scope.id().0,
                own: true,
                adopted: true,
            });
            (home, shared.done())
        }
        Err(why) => (None, Outcome::Failed { why }),
    };
    shared.changes.note(
        Reach::App(key),
        Kind::Home,
        change(context, root, &from, &path, outcome),
    );
    let home = home?;
    if !shared.in_force.adopted.contains(&key) {
        shared.in_force.adopted.push(key);
    }
    Some(App {
        home: Some(home),
        ..app.clone()
    })
}

fn move_tree(
    shared: &mut Shared,
    root: ProcessId,
    from: &str,
    path: &str,
    context: Context<'_>,
) -> Result<Cgroup, String> {
    let text = |error: limelight_sys::Error| error.to_string();
    let system = context.system;
    let parse = |path: &str| CgroupPath::parse(path).ok_or(format!("{path} is not a cgroup path"));
    let from = system.cgroups.open(&parse(from)?).map_err(text)?;

    let slice = make_cgroup(
        shared,
        SLICE,
        Entry::Slice {
            path: SLICE.to_owned(),
        },
        context,
    )?;
    let entry = |moved: Vec<Move>| Entry::Scope {
        path: path.to_owned(),
        from: Place::from(&from),
        moved,
    };
    let scope = make_cgroup(shared, path, entry(Vec::new()), context)?;
    drop(slice);
    if let Err(error) = hand_down(shared, path, MEMORY, context) {
        dissolve(shared, system, path);
        return Err(error.to_string());
    }

    let mut moved: Vec<Move> = Vec::new();
    for _ in 0..PASSES {
        let batch = batch(system, root, (&from, &scope), &mut moved).map_err(text)?;
        if batch.is_empty() {
            break;
        }
        let intended = shared.ledger.intend([entry(moved.clone())]);
        intended.map_err(|error| error.to_string())?;
        for (pid, process) in batch {
            match scope.attach(pid) {
                // The PID was reused between the check and the move.
                Ok(()) if !process.exists() => {
                    if scope.procs().is_ok_and(|procs| procs.contains(&pid)) {
                        from.attach(pid).map_err(text)?;
                    }
                }
                Ok(()) => {}
                Err(error) if error.is_gone() => {}
                Err(error) if pid == root.pid => {
                    dissolve(shared, system, path);
                    return Err(error.to_string());
                }
                Err(error) => tracing::warn!("pid {pid} stays in {}: {error}", from.path()),
            }
        }
    }
    Ok(scope)
}

/// Returns the processes of the tree that are still in the old cgroup, and adds them to `moved`. A
/// descendant that is already in another cgroup is left there.
fn batch(
    system: &System,
    root: ProcessId,
    (from, scope): (&Cgroup, &Cgroup),
    moved: &mut Vec<Move>,
) -> limelight_sys::Result<Vec<(i32, Rc<Process>)>> {
    let inside = scope.procs()?;
    let tree = system.proc.tree()?;
    let mut pids = tree.descendants(root.pid);
    pids.insert(0, root.pid);
    pids.retain(|pid| inside.binary_search(pid).is_err());
    pids.retain(|pid| !moved.iter().any(|known| known.pid == *pid));
    let mut batch = Vec::new();
    for pid in pids {
        let Ok((id, process)) = system.process(pid) else {
            continue;
        };
        let at = process.cgroup().ok().flatten();
        if at.as_deref() == Some(from.path().as_str()) {
            moved.push(Move {
                pid,
                starttime: id.starttime,
                from: Place::from(from),
            });
            batch.push((pid, process));
        }
    }
    Ok(batch)
}

/// Dissolves a cgroup that Limelight created: moves its processes back to their old cgroups, and
/// removes it.
fn dissolve(shared: &mut Shared, system: &System, scope: &str) -> Vec<(Entry, Undone)> {
    shared.undo(
        system,
        |entry| matches!(entry, Entry::Scope { path, .. } if path == scope),
    )
}

/// Creates a cgroup, or opens the existing one.
fn make_cgroup(
    shared: &mut Shared,
    path: &str,
    entry: Entry,
    context: Context<'_>,
) -> Result<Cgroup, String> {
    let text = |error: limelight_sys::Error| error.to_string();
    let path = CgroupPath::parse(path).ok_or(format!("{path} is not a cgroup path"))?;
    let parent = path.parent().ok_or("the root cgroup cannot be created")?;
    let parent = context.system.cgroups.open(&parent).map_err(text)?;
    shared
        .ledger
        .intend([entry.clone()])
        .map_err(|error| error.to_string())?;
    match parent.create_child(path.name()) {
        Ok(cgroup) => Ok(cgroup),
        Err(limelight_sys::Error::Busy { .. }) => parent.open_child(path.name()).map_err(text),
        Err(error) => {
            shared.ledger.forget(&entry);
            Err(error.to_string())
        }
    }
}

/// Moves an adopted app back to its old cgroup, and removes the new one.
pub(super) fn release(shared: &mut Shared, key: AppKey, context: Context<'_>) {
    if let AppKey::Tree(root) = key {
        let scope = scope_path(root);
        for (_, undone) in dissolve(shared, context.system, &scope) {
            if let Undone::Failed { why } = undone {
                tracing::error!("cannot remove {scope}: {why}");
            }
        }
    }
    shared.in_force.adopted.retain(|known| *known != key);
    shared
        .changes
        .drop_where(|reach, kind| (reach, kind) == (Reach::App(key), Kind::Home));
}

/// The app in the cgroup to which it was moved back; `None` if it has ended.
pub(super) fn back_home(key: AppKey, context: Context<'_>) -> Option<App> {
    let AppKey::Tree(root) = key else { return None };
    let app = app_of_pid(context.system, root.pid).ok()?;
    if app.process != Some(root) {
        return None;
    }
    // Even if no other process is left there, the cgroup is not the app's own.
    let home = app.home.map(|home| Home { own: false, ..home });
    Some(App { key, home, ..app })
}

/// Removes the cgroups of adopted apps that have ended, except a cgroup with a reservation.
pub fn remove_empty_scopes(shared: &mut Shared, context: Context<'_>) {
    for key in shared.in_force.adopted.clone() {
        let AppKey::Tree(root) = key else { continue };
        let path = scope_path(root);
        let populated = CgroupPath::parse(&path)
            .and_then(|path| context.system.cgroups.open(&path).ok())
            .is_some_and(|scope| scope.procs_below().map_or(true, |procs| !procs.is_empty()));
        let reserved = shared
            .in_force
            .reserved
            .is_some_and(|reserved| reserved.app == key);
        if !populated && !reserved {
            release(shared, key, context);
        }
    }
}
