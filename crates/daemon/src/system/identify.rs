// SPDX-License-Identifier: GPL-2.0-or-later
//! Identifies the app of a process or a cgroup, and the processes and memory of an app.

use limelight_core::model::footprint::{Kept, Usage};
use limelight_core::model::{unit, App, AppKey, Home, ProcessId};
use limelight_proto::ErrorCode;
use limelight_sys::cgroup::{Cgroup, CgroupPath, Limit, MemoryKnob};
use limelight_sys::meminfo::page_bytes;
use limelight_sys::pidfd::Pidfd;

use crate::restore::undo::find_place;
use crate::restore::Place;
use crate::system::own_scope::root_of_scope;
use crate::system::System;

/// Why a request is refused: for example, a process that is not an app, or not the caller's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, for programs.
    pub code: ErrorCode,
    /// What is wrong.
    pub message: String,
    /// What the user can do about it.
    pub cure: String,
}

impl Refusal {
    /// Makes a refusal from its texts.
    pub fn new(code: ErrorCode, message: impl Into<String>, cure: impl Into<String>) -> Refusal {
        Refusal {
            code,
            message: message.into(),
            cure: cure.into(),
        }
    }
}

/// Refusal for a process that does not exist, or that ended during the check.
pub fn no_process(pid: i32, why: impl std::fmt::Display) -> Refusal {
    Refusal::new(
        ErrorCode::NotFound,
        format!("there is no process {pid}: {why}"),
        "name a running process",
    )
}

/// The app of a process. All facts hold for one and the same process: it is pinned first and must
/// still be alive at the end.
pub fn app_of_pid(system: &System, pid: i32) -> Result<App, Refusal> {
    let pidfd = Pidfd::open(pid).map_err(|error| no_process(pid, error))?;
    let gone = |error: limelight_sys::Error| no_process(pid, error);
    let (id, process) = system.process(pid).map_err(gone)?;
    let stat = process.stat().map_err(gone)?;
    let kernel_thread = pid == 2 || stat.ppid == 2;
    if pid == 1 || kernel_thread {
        return Err(Refusal::new(
            ErrorCode::NotAnApp,
            format!(
                "{} (pid {pid}) is {}",
                stat.comm,
                if kernel_thread {
                    "a kernel thread"
                } else {
                    "init"
                }
            ),
            "name a process of an app",
        ));
    }
    let path = process.cgroup().map_err(gone)?;
    let home = path.and_then(|path| home_of(system, id, &path));
    let key = match &home {
        Some(home) if home.own && !home.adopted => AppKey::Cgroup { inode: home.inode },
        _ => AppKey::Tree(id),
    };
    if !pidfd.is_alive() {
        return Err(no_process(pid, "it ended just now"));
    }
    Ok(App {
        key,
        name: stat.comm,
        process: Some(id),
        home,
    })
}

/// The app in a cgroup that the user named.
pub fn app_of_cgroup(system: &System, text: &str) -> Result<App, Refusal> {
    let not_found = |why: String| {
        Refusal::new(
            ErrorCode::NotFound,
            format!("there is no cgroup {text:?}: {why}"),
            format!(
                "give a path below {}",
                system.cgroups.mount_point().display()
            ),
        )
    };
    let path = system
        .cgroups
        .path_of(text)
        .ok_or_else(|| not_found("not a path".to_owned()))?;
    if path.is_root() || is_never_an_app(path.name()) {
        return Err(Refusal::new(
            ErrorCode::NotAnApp,
            format!("{path} holds more than one app"),
            "name the cgroup of one app",
        ));
    }
    let cgroup = system
        .cgroups
        .open(&path)
        .map_err(|error| not_found(error.to_string()))?;
    let inode = cgroup.id().0;
    let home = Home {
        path: path.as_str().to_owned(),
        inode,
        own: true,
        adopted: false,
    };
    let (key, home) = match root_of_scope(path.as_str()) {
        Some(root) => (
            AppKey::Tree(root),
            Home {
                adopted: true,
                ..home
            },
        ),
        None => (AppKey::Cgroup { inode }, home),
    };
    Ok(App {
        key,
        name: path.name().to_owned(),
        process: None,
        home: Some(home),
    })
}

/// Whether a cgroup of this name holds a whole session or machine, whatever processes are in it.
fn is_never_an_app(name: &str) -> bool {
    name == "init.scope"
        || (name.starts_with("session-") && name.ends_with(".scope"))
        || (name.starts_with("user@") && name.ends_with(".service"))
        || [
            "user.slice",
            "system.slice",
            "machine.slice",
            "limelight.slice",
        ]
        .contains(&name)
        || (name.starts_with("user-") && name.ends_with(".slice"))
}

/// The cgroup of a process, and whether the cgroup belongs to its app alone.
pub fn home_of(system: &System, id: ProcessId, path: &str) -> Option<Home> {
    let path = CgroupPath::parse(path)?;
    // The app may have divided its unit into child cgroups, so the innermost app unit on the path
    // counts.
    let unit = path
        .chain()
        .into_iter()
        .rev()
        .find(|path| unit::is_app(path.name()));
    let adopted_root = root_of_scope(path.as_str());
    let (path, own) = match (unit, adopted_root) {
        (_, Some(root)) => (path, root == id),
        (Some(unit), None) => (unit, true),
        (None, None) => {
            let own = !path.is_root()
                && !is_never_an_app(path.name())
                && holds_only_tree(system, &path, id.pid);
            (path, own)
        }
    };
    let cgroup = system.cgroups.open(&path).ok()?;
    Some(Home {
        path: path.as_str().to_owned(),
        inode: cgroup.id().0,
        own,
        adopted: own && adopted_root.is_some(),
    })
}

/// Maximum number of ancestors to follow. Pids are read at different moments, so a reused pid could
/// form a loop.
const ANCESTORS_MAX: usize = 64;

/// Maximum number of cgroups that are read below the cgroup of an app that a user names.
pub const GROUPS_MAX: usize = 256;

/// Whether a cgroup holds nothing but this process and its descendants. Reads the ancestors of the
/// cgroup's processes, because the process tree of the whole machine takes much longer to read.
fn holds_only_tree(system: &System, path: &CgroupPath, pid: i32) -> bool {
    let cgroup = system.cgroups.open(path);
    let Ok(procs) = cgroup.and_then(|cgroup| cgroup.procs_below_within(GROUPS_MAX)) else {
        return false;
    };
    !procs.is_empty() && procs.iter().all(|other| descends(system, *other, pid))
}

/// Whether a process is this one or a descendant of it.
fn descends(system: &System, mut other: i32, pid: i32) -> bool {
    for _ in 0..ANCESTORS_MAX {
        if other == pid {
            return true;
        }
        match system.proc.stat(other) {
            Ok(Some(stat)) if stat.ppid > 0 => other = stat.ppid,
            _ => return false,
        }
    }
    false
}

/// Opens the app's cgroup, if it has one of its own that still exists.
pub fn open_home(system: &System, app: &App) -> Option<Cgroup> {
    find_home(system, app).ok().flatten()
}

/// Like [`open_home`], but fails if it cannot be determined whether the cgroup exists.
pub fn find_home(system: &System, app: &App) -> limelight_sys::Result<Option<Cgroup>> {
    let Some(home) = app.own_home() else {
        return Ok(None);
    };
    let place = Place {
        path: home.path.clone(),
        inode: home.inode,
    };
    find_place(system, &place)
}

/// Processes that belong to the app now, ascending. Fails if no descriptor or memory is left to read
/// them. The app may then have any number of processes.
pub fn members(system: &System, app: &App) -> limelight_sys::Result<Vec<ProcessId>> {
    if let Some(cgroup) = unless_exhausted(find_home(system, app))? {
        return system.identify_all(&unless_exhausted(cgroup.procs_below())?);
    }
    let AppKey::Tree(root) = app.key else {
        return Ok(Vec::new());
    };
    if unless_exhausted(system.living(root))?.is_none() {
        return Ok(Vec::new());
    }
    let mut pids = unless_exhausted(system.proc.tree())?.descendants(root.pid);
    pids.push(root.pid);
    system.identify_all(&pids)
}

/// The result, or the default value after an error other than exhaustion, such as when the app has
/// ended.
fn unless_exhausted<T: Default>(result: limelight_sys::Result<T>) -> limelight_sys::Result<T> {
    match result {
        Err(error) if !error.is_exhausted() => Ok(T::default()),
        other => other,
    }
}

/// Whether the app still exists. If that cannot be determined, for example without a free
/// descriptor, the app counts as alive.
pub fn is_alive(system: &System, app: &App) -> bool {
    let lives = match app.key {
        AppKey::Tree(root) => system.living(root).and_then(|process| match process {
            Some(process) => Ok(!matches!(process.stat()?.state, 'Z' | 'X')),
            None => Ok(false),
        }),
        AppKey::Cgroup { .. } => find_home(system, app).and_then(|cgroup| match cgroup {
            Some(cgroup) => Ok(!cgroup.procs_below()?.is_empty()),
            None => Ok(false),
        }),
    };
    lives.unwrap_or_else(|error| error.is_exhausted())
}

/// The cgroup of a program that serves other apps. `own` means that it contains only the program or
/// the program's service.
pub fn home_of_helper(system: &System, id: ProcessId) -> Option<Home> {
    let path = system.same_process(id)?.cgroup().ok().flatten()?;
    let home = home_of(system, id, &path)?;
    // `user@UID.service` is a user's service manager, not the service of a helper.
    let unit = home.path.rsplit('/').next().unwrap_or_default();
    let service = unit.ends_with(".service") && !unit.starts_with("user@");
    Some(Home {
        own: home.own || service,
        ..home
    })
}

/// Memory counters of the app's own cgroup; `None` without one or without the controller.
pub fn usage(system: &System, app: &App) -> Option<Usage> {
    charged_to(&open_home(system, app)?)
}

/// Page faults of the app's own cgroup that waited for the disk; `None` without a cgroup of its own.
pub fn major_faults(system: &System, app: &App) -> Option<u64> {
    let stat = open_home(system, app)?.memory_stat().ok()?;
    stat.get("pgmajfault")
}

/// Memory counters of a cgroup; `None` without the memory controller.
pub fn charged_to(cgroup: &Cgroup) -> Option<Usage> {
    let stat = cgroup.memory_stat().ok()?;
    let get = |name| stat.get(name).unwrap_or(0);
    let refaults = get("workingset_refault_file").saturating_add(get("workingset_refault_anon"));
    Some(Usage {
        current: cgroup.memory_current().ok()?,
        // Absent where the kernel has no swap.
        swapped: cgroup.swap_current().unwrap_or(0),
        file: get("file"),
        file_mapped: get("file_mapped"),
        shmem: get("shmem"),
        refaulted: refaults.saturating_mul(page_bytes()),
    })
}

/// The smallest memory limit of the ancestors of the app's own cgroup, in bytes; `None` if none has
/// a limit. The limit of the app's cgroup itself does not count, because reclaim for that limit
/// ignores the reservation.
pub fn ceiling(system: &System, app: &App) -> Option<u64> {
    let path = CgroupPath::parse(&app.own_home()?.path)?;
    let ancestors = path.parent()?.chain();
    let limits = ancestors.iter().flat_map(|path| {
        let cgroup = system.cgroups.open(path).ok();
        let limit = move |knob| match cgroup.as_ref()?.limit(knob) {
            Ok(Limit::Bytes(bytes)) => Some(bytes),
            _ => None,
        };
        [limit(MemoryKnob::Max), limit(MemoryKnob::High)]
    });
    limits.flatten().min()
}

/// What the reservation of the app's cgroup keeps from reclaim.
pub fn kept_memory(system: &System, app: &App, usage: &Usage) -> Kept {
    let Some(cgroup) = open_home(system, app) else {
        return Kept::default();
    };
    let bytes = |knob| match cgroup.limit(knob) {
        Ok(Limit::Bytes(bytes)) => bytes,
        Ok(Limit::Max) => u64::MAX,
        Err(_) => 0,
    };
    let reserved = bytes(MemoryKnob::Min).max(bytes(MemoryKnob::Low));
    usage.kept_by(reserved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_and_slices_are_never_an_app() {
        for name in [
            "init.scope",
            "session-2.scope",
            "user@1000.service",
            "user-1000.slice",
        ] {
            assert!(is_never_an_app(name), "{name}");
        }
        for name in [
            "app-firefox-77.scope",
            "viewer",
            "session.scope",
            "user@1000",
        ] {
            assert!(!is_never_an_app(name), "{name}");
        }
    }
}
