// SPDX-License-Identifier: GPL-2.0-or-later
//! Who may claim what.
//!
//! Root may claim anything. Everybody else may claim processes that are theirs, and only from the
//! active session where logind tells which one that is; elsewhere only while no other user's claim
//! is in force. What a process is called or which window it has plays no part: only the kernel's
//! word on its owner does.

use limelight_core::control::ErrorCode;
use limelight_core::model::App;
use limelight_sys::pidfd::Pidfd;

use crate::doors::Doors;
use crate::identify::{no_process, Refusal};
use crate::sources::sessions::active_users;

/// Whether this user may make claims at all now.
pub fn may_speak(doors: &Doors, uid: u32, other_users_claim: bool) -> Result<(), Refusal> {
    if uid == 0 {
        return Ok(());
    }
    match active_users(doors) {
        Some(active) if active.contains(&uid) => Ok(()),
        Some(_) => Err(Refusal::new(
            ErrorCode::NotAllowed,
            format!("uid {uid} has no active session"),
            "claim from the session that is on the screen, or as root",
        )),
        None if other_users_claim => Err(Refusal::new(
            ErrorCode::NotAllowed,
            "another user's claim is in force, and no logind tells whose session is active",
            "claim as root, or wait until the other user's claim ends",
        )),
        None => Ok(()),
    }
}

/// Whether a program of this user that is being started can be what a person waits for. Root may say
/// of any app that it is in front, but what the system itself runs under root's name is not.
pub fn may_start_apps(doors: &Doors, uid: u32, other_users_claim: bool) -> Result<(), Refusal> {
    match active_users(doors) {
        Some(active) if uid == 0 && !active.contains(&0) => Err(Refusal::new(
            ErrorCode::NotAllowed,
            "root has no active session",
            "start apps from the session that is on the screen",
        )),
        _ => may_speak(doors, uid, other_users_claim),
    }
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
