// SPDX-License-Identifier: GPL-2.0-or-later
//! Answer to `explain`.

use limelight_core::model::never::Never;
use limelight_core::model::{App, ProcessId};
use limelight_core::policy::swap::order;
use limelight_core::policy::{boost, premap, prezero, protect, readahead};
use limelight_proto::{AppStatus, DeviceStatus, Explain, Role};

use crate::control::report::{swap, window, View};
use crate::system::identify::{self, no_process, Refusal};

/// Answer to `explain` for this user.
pub(crate) fn explain(view: View<'_>, pid: i32) -> Result<Explain, Refusal> {
    let viewer = view.viewer;
    let daemon = viewer.reconciler;
    viewer.may_ask_of(pid)?;
    let gone = |error: limelight_sys::Error| no_process(pid, error);
    let (id, process) = daemon.system.process(pid).map_err(gone)?;
    let name = process.comm().map_err(gone)?;
    let belongs = |app: &App| {
        let model = &daemon.model;
        model
            .members_of(&daemon.system, app)
            .binary_search(&id)
            .is_ok()
    };
    let front = daemon
        .model
        .topmost
        .front()
        .filter(|front| belongs(&front.app));
    let previous = daemon.model.topmost.previous().filter(|app| belongs(app));
    // An app stops being the previous app when another user switches apps, so showing this role
    // could reveal the switch.
    let previous = previous.filter(|_| viewer.sees_front());
    let (role, app) = match (front, previous) {
        (Some(front), _) => (Role::Topmost, Some(front.app.clone())),
        (None, Some(app)) => (Role::Previous, Some(app.clone())),
        (None, None) => (
            Role::Background,
            identify::app_of_pid(&daemon.system, pid).ok(),
        ),
    };
    // A process of one user may belong to another user's app (sudo).
    if app.as_ref().is_some_and(|app| !viewer.sees_app(app)) {
        return Err(viewer.not_shown(pid));
    }
    let changes = app.as_ref().map_or_else(Vec::new, |app| {
        daemon
            .mechanisms
            .shared
            .changes
            .reaching(app.key, id, role == Role::Topmost)
    });
    Ok(Explain {
        pid,
        name,
        role,
        app: app.as_ref().map(AppStatus::from),
        source: front.map(|front| front.source.clone()),
        notes: notes(&view, role, id, app.as_ref()),
        changes,
    })
}

fn notes(view: &View<'_>, role: Role, id: ProcessId, app: Option<&App>) -> Vec<String> {
    let viewer = view.viewer;
    let daemon = viewer.reconciler;
    let part = boost::part_note(&daemon.model.last, id);
    let mut notes = match role {
        // A tab in a cgroup of its own.
        Role::Background if part.is_some() => Vec::new(),
        Role::Topmost => topmost_notes(view, id),
        Role::Previous => {
            vec![
                "this app was in the foreground before; limelightd does not favour it now"
                    .to_owned(),
            ]
        }
        Role::Background => vec![match daemon.model.topmost.front() {
            Some(front) if viewer.sees_app(&front.app) => {
                format!(
                    "limelightd does not favour this process: {} is in the foreground",
                    front.app.name
                )
            }
            None if viewer.speaker.sees_all() => {
                "limelightd does not favour this process: no app is in the foreground".to_owned()
            }
            // Another user's app may be topmost.
            _ => "limelightd does not favour this process: it is not in the foreground".to_owned(),
        }],
    };
    notes.extend(part);
    notes.extend(app.and_then(|app| swap::refusal_note(viewer, app.key)));
    if let Some(known) = app.and_then(|app| daemon.model.apps.get(app.key)) {
        // Of the foreground app, boost and protect say that themselves.
        let others = known.found.exceptions.iter();
        let others = others.filter(|one| one.never != Never::Close && role != Role::Topmost);
        notes.extend(others.map(|one| {
            let participle = one.never.participle();
            format!("{}: this app is never {participle}: {}", one.never, one.why)
        }));
        notes.extend(order::close_note(known, &daemon.model.last));
        notes.extend(order::avoid_note(known, &daemon.model.last));
    }
    if daemon.pause_report().is_some() {
        notes.push(
            "limelightd is paused: all changes are undone, until the pause is over or limelight \
             resume"
                .to_owned(),
        );
    }
    if daemon.dry_run {
        notes.push("this is a dry run: nothing was changed".to_owned());
    }
    if let (Role::Topmost, DeviceStatus::Unused { why }) =
        (role, daemon.mechanisms.shared.device.status())
    {
        notes.push(format!("/dev/limelight is not used: {why}"));
    }
    let known = daemon.system.same_process(id).is_some();
    if !known {
        notes.push("the process has ended".to_owned());
    }
    notes
}

fn topmost_notes(view: &View<'_>, id: ProcessId) -> Vec<String> {
    let daemon = view.viewer.reconciler;
    let guess = daemon.model.is_guess().then(|| {
        format!(
            "the foreground app is {}; for a certain report, run limelight-agent in the session, \
             use a compositor that reports it, or run limelight focus PID",
            view.sources.wake_graph.detail()
        )
    });
    let mut notes: Vec<String> = guess.into_iter().collect();
    notes.extend(protect::notes(&daemon.model.last));
    notes.extend(boost::notes(&daemon.model.last));
    notes.extend(premap::notes(&daemon.model.last));
    notes.extend(readahead::notes(&daemon.model.last));
    notes.extend(prezero::notes(&daemon.model.last));
    notes.extend(daemon.mechanisms.readahead.note(&daemon.system, id));
    notes.extend(window::note(view));
    notes
}
