// SPDX-License-Identifier: GPL-2.0-or-later
//! Which user may claim which app.
//!
//! Root may claim any process. Other users may claim only their own processes. If logind knows of
//! sessions at a seat, a user may claim only while one of that user's sessions is active. If logind
//! knows of none, the user must be in the group that `[access] group` names, or own a process that
//! has the screen or an input device open. A process's name and windows are ignored: only its owner
//! counts, as the kernel reports it.

use limelight_core::model::protected::contains;
use limelight_core::model::{App, AppKey, Home};
use limelight_proto::ErrorCode;
use limelight_sys::pidfd::Pidfd;

use crate::sources::sessions::active_users;
use crate::system::access::{Access, Speaker};
use crate::system::identify::{app_of_pid, no_process, open_home, Refusal, GROUPS_MAX};
use crate::system::System;

/// Whether this user may currently make claims, for any app.
pub fn may_speak(system: &System, access: &Access, speaker: Speaker) -> Result<(), Refusal> {
    let uid = speaker.uid;
    if uid == 0 {
        return Ok(());
    }
    if let Some(active) = active_users(system) {
        return match active.contains(&uid) {
            true => Ok(()),
            false => Err(no_session(uid)),
        };
    }
    if speaker.member || access.has_devices(system, uid) {
        return Ok(());
    }
    let message = format!(
        "uid {uid} may not claim the foreground: logind knows of no session at a seat, and no \
         process of this user has the screen or an input device open"
    );
    let cure = match access.group() {
        Some(group) => {
            format!(
                "add the user to the group {group} and have the user log in again, or claim as \
                 root"
            )
        }
        None => {
            "set [access] group to a group that this user belongs to, or claim as root".to_owned()
        }
    };
    Err(Refusal::new(ErrorCode::NotAllowed, message, cure))
}

/// Whether this user may pause the daemon: root, and members of the group that `[access] group`
/// names. A pause ends the protection of every user's apps.
pub fn may_pause(access: &Access, speaker: Speaker) -> Result<(), Refusal> {
    if speaker.sees_all() {
        return Ok(());
    }
    let cure = match access.group() {
        Some(group) => format!(
            "ask as root, or have root add you to the group {group} (in force from the next login \
             on)"
        ),
        None => "ask as root".to_owned(),
    };
    Err(Refusal::new(
        ErrorCode::NotAllowed,
        format!("uid {} may not pause limelightd", speaker.uid),
        cure,
    ))
}

fn no_session(uid: u32) -> Refusal {
    Refusal::new(
        ErrorCode::NotAllowed,
        format!("uid {uid} has no active session at a seat"),
        "switch to a session of this user, or claim as root",
    )
}

/// Whether a person at the screen can be waiting for a program of this user. If logind knows of
/// sessions at a seat, the user must have an active one; so must root, because system services run
/// as root too. If logind knows of none, a person can be waiting for any user's program.
pub fn may_be_waited_for(system: &System, uid: u32) -> bool {
    active_users(system).is_none_or(|active| active.contains(&uid))
}

/// Whether a claim by root or by the daemon itself may name a program of this user. Root's programs
/// may always be named.
pub fn may_be_claimed(system: &System, uid: u32) -> Result<(), Refusal> {
    match uid == 0 || may_be_waited_for(system, uid) {
        true => Ok(()),
        false => Err(no_session(uid)),
    }
}

/// Whether a program that this user starts may be boosted before it is claimed: a person can be
/// waiting for it, and the user may make claims.
pub fn may_start_apps(system: &System, access: &Access, speaker: Speaker) -> Result<(), Refusal> {
    if !may_be_waited_for(system, speaker.uid) {
        return Err(no_session(speaker.uid));
    }
    may_speak(system, access, speaker)
}

/// Whether a process belongs to this user. The owner is checked twice, in case the process executes
/// a set-user-id program during the first check. A pidfd shows that the pid was not reused.
pub fn owns_process(system: &System, uid: u32, pid: i32) -> Result<(), Refusal> {
    if uid == 0 {
        return Ok(());
    }
    let pidfd = Pidfd::open(pid).map_err(|error| no_process(pid, error))?;
    for _ in 0..2 {
        let (_, process) = system
            .process(pid)
            .map_err(|error| no_process(pid, error))?;
        let owner = process
            .owner_uid()
            .map_err(|error| no_process(pid, error))?;
        let status = process.status().map_err(|error| no_process(pid, error))?;
        if owner != uid || status.real_uid != uid || status.effective_uid != uid {
            return Err(Refusal::new(
                ErrorCode::NotAllowed,
                format!("pid {pid} does not belong to uid {uid}"),
                "claim a process of your own, or as root",
            ));
        }
    }
    if pidfd.is_alive() {
        Ok(())
    } else {
        Err(no_process(pid, "it ended just now"))
    }
}

/// Whether every process of this list belongs to the user. Processes that have ended are skipped.
pub fn owns_all(system: &System, uid: u32, pids: &[i32]) -> Result<(), Refusal> {
    for &pid in pids {
        match owns_process(system, uid, pid) {
            Err(refusal) if refusal.code == ErrorCode::NotFound => {}
            result => result?,
        }
    }
    Ok(())
}

/// Reduces a claimed app to the claimed process and its descendants if other users' processes share
/// the app's cgroup, unless the cgroup is below the user's own slice. The knobs of a shared cgroup
/// are not changed on behalf of that user.
pub fn confine(system: &System, uid: u32, app: App) -> App {
    let Some(home) = app.own_home().cloned() else {
        return app;
    };
    if uid == 0 {
        return app;
    }
    // Another user's process can be below this user's slice only if this user started it, for
    // example with sudo. So an app in the user's own slice is not reduced.
    let in_own_slice = home
        .path
        .split('/')
        .any(|name| name == format!("user-{uid}.slice"));
    let procs = open_home(system, &app);
    let procs = procs.and_then(|home| home.procs_below_within(GROUPS_MAX).ok());
    if in_own_slice || procs.is_some_and(|procs| owns_all(system, uid, &procs).is_ok()) {
        return app;
    }
    let key = app.process.map_or(app.key, AppKey::Tree);
    App {
        key,
        home: Some(Home { own: false, ..home }),
        ..app
    }
}

/// The claimed process's present app, if the process is alive and has left the app's cgroup; `None`
/// otherwise. A process usually stays in its app's cgroup, but a cgroup manager may move it.
pub fn moved(system: &System, app: &App) -> Option<App> {
    let home = app.home.as_ref()?;
    let id = app.process?;
    let path = system.same_process(id)?.cgroup().ok().flatten()?;
    let stays = match app.key {
        AppKey::Cgroup { .. } => contains(&home.path, &path),
        // The session agent may have moved the app to a cgroup of its own, even one below this.
        AppKey::Tree(_) => home.path == path,
    };
    if stays {
        return None;
    }
    let found = app_of_pid(system, id.pid).ok()?;
    let owner = system.same_process(id)?.owner_uid().ok()?;
    let found = confine(system, owner, found);
    (found.process == Some(id) && found.key != app.key).then_some(found)
}

#[cfg(test)]
#[path = "authorization_tests.rs"]
mod tests;
