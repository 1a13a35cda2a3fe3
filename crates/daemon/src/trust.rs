// SPDX-License-Identifier: GPL-2.0-or-later
//! Who may claim what.
//!
//! Root may claim anything. Other users may claim processes of their own, and only from the active
//! session where logind tells which one that is. Elsewhere the user must be in the group of
//! `[access]`, or own a process that has the screen or an input device open. A process's name and
//! its windows play no part: only its owner does, as the kernel tells it.

use limelight_core::control::ErrorCode;
use limelight_core::model::App;
use limelight_sys::pidfd::Pidfd;

use crate::access::{Access, Speaker};
use crate::doors::Doors;
use crate::identify::{no_process, Refusal};
use crate::sources::sessions::active_users;

/// Whether this user may make claims at all now.
pub fn may_speak(doors: &Doors, access: &Access, speaker: Speaker) -> Result<(), Refusal> {
    let uid = speaker.uid;
    if uid == 0 {
        return Ok(());
    }
    if let Some(active) = active_users(doors) {
        return match active.contains(&uid) {
            true => Ok(()),
            false => Err(no_session(uid)),
        };
    }
    if speaker.member || access.has_devices(doors, uid) {
        return Ok(());
    }
    let message = format!(
        "uid {uid} may not say which app is in the foreground: logind knows of no session at a seat, and no \
         process of this user has the screen or an input device open"
    );
    let cure = match access.group() {
        Some(group) => {
            format!("add the user to the group {group} and log in again, or ask as root")
        }
        None => "name a group in [access] group, or ask as root".to_owned(),
    };
    Err(Refusal::new(ErrorCode::NotAllowed, message, cure))
}

fn no_session(uid: u32) -> Refusal {
    Refusal::new(
        ErrorCode::NotAllowed,
        format!("uid {uid} has no active session at a seat"),
        "claim from the session that is on the screen, or as root",
    )
}

/// Whether a program of this user can be what a person at the screen waits for. Root's can only
/// with a session of root's: what the system runs under that name is not.
pub fn may_be_waited_for(doors: &Doors, uid: u32) -> bool {
    active_users(doors).is_none_or(|active| active.contains(&uid))
}

/// Whether the system may name a program of this user as the one in the foreground.
pub fn may_be_claimed(doors: &Doors, uid: u32) -> Result<(), Refusal> {
    match uid == 0 || may_be_waited_for(doors, uid) {
        true => Ok(()),
        false => Err(no_session(uid)),
    }
}

/// Whether a program that this user starts counts as one that a person waits for.
pub fn may_start_apps(doors: &Doors, access: &Access, speaker: Speaker) -> Result<(), Refusal> {
    if !may_be_waited_for(doors, speaker.uid) {
        return Err(no_session(speaker.uid));
    }
    may_speak(doors, access, speaker)
}

/// Whether a process belongs to this user. Pinned, asked, and asked again, so that neither exec of
/// a set-user-id program nor a reused number slips in between.
pub fn owns_process(doors: &Doors, uid: u32, pid: i32) -> Result<(), Refusal> {
    if uid == 0 {
        return Ok(());
    }
    let pidfd = Pidfd::open(pid).map_err(|error| no_process(pid, error))?;
    for _ in 0..2 {
        let (_, process) = doors.process(pid).map_err(|error| no_process(pid, error))?;
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

/// Whether every process of this list belongs to the user.
pub fn owns_all(doors: &Doors, uid: u32, pids: &[i32]) -> Result<(), Refusal> {
    for &pid in pids {
        match owns_process(doors, uid, pid) {
            Err(refusal) if refusal.code == ErrorCode::NotFound => {}
            result => result?,
        }
    }
    Ok(())
}

/// Takes the app's cgroup from a claim of a user who does not own everything in it, so that its
/// knobs are not turned in his name; the app is then the claimed process's tree.
pub fn confine(doors: &Doors, uid: u32, app: App) -> App {
    let Some(home) = app.own_home().cloned() else {
        return app;
    };
    if uid == 0 {
        return app;
    }
    // Below the user's own slice nobody else can be but by the user's doing (sudo, for one).
    let in_own_slice = home
        .path
        .split('/')
        .any(|name| name == format!("user-{uid}.slice"));
    let procs = crate::identify::open_home(doors, &app).and_then(|home| home.procs_below().ok());
    if in_own_slice || procs.is_some_and(|procs| owns_all(doors, uid, &procs).is_ok()) {
        return app;
    }
    let key = app
        .process
        .map_or(app.key, limelight_core::model::AppKey::Tree);
    App {
        key,
        home: Some(limelight_core::model::Home { own: false, ..home }),
        ..app
    }
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;
