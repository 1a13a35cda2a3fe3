// SPDX-License-Identifier: GPL-2.0-or-later
//! Requests about response windows.

use std::time::Duration;

use limelight_core::model::window::{Closing, Opening};
use limelight_core::model::App;
use limelight_proto::{ErrorCode, Response, WindowEvent, WINDOW_AGE_MAX_US};
use limelight_sys::clock;
use tracing::debug;

use crate::control::report::took;
use crate::control::requests::check_source;
use crate::control::socket::{ControlSource, RequestLine};
use crate::reconcile::{Model, Reconciler};
use crate::system::access::Speaker;
use crate::system::identify::{self, Refusal};
use crate::system::{authorization, now};

/// A client's report of input or of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Report<'a> {
    pub event: WindowEvent,
    /// Time of the event, in microseconds of `CLOCK_MONOTONIC`; `None`: now.
    pub at_us: Option<u64>,
    /// A process of the app; `None`: the topmost app.
    pub pid: Option<i32>,
    /// The client's name for itself.
    pub source: &'a str,
}

/// Answers a request about a response window.
pub(super) fn report(
    control: &mut ControlSource,
    reconciler: &mut Reconciler,
    line: &RequestLine,
    report: &Report<'_>,
) -> Result<Response, Refusal> {
    let Report {
        event,
        at_us,
        pid,
        source,
    } = *report;
    check_source(source)?;
    let at = now();
    let happened = happened(at_us, at)?;
    let speaker = control.speaker(&reconciler.access, line.client, line.peer);
    let Some(front) = reconciler.model.front().cloned() else {
        authorization::may_speak(&reconciler.system, &reconciler.access, speaker)?;
        if event == WindowEvent::Open {
            reconciler.mechanisms.window.model.input_elsewhere();
        }
        return Err(Refusal::new(
            ErrorCode::NotFound,
            "no app is in the foreground, so no response window can be open",
            "claim the foreground first (limelight focus PID, or a session agent)",
        ));
    };
    may_tell(control, reconciler, speaker, &front, at)?;
    let window = &mut reconciler.mechanisms.window;
    window.reported_over(line.client);
    window.told_by(source, at);
    let other = match pid {
        Some(pid) if !is_of_front(&reconciler.model, &front, pid) => {
            Some(identify::app_of_pid(&reconciler.system, pid)?).filter(|app| app.key != front.key)
        }
        _ => None,
    };
    let model = &mut window.model;
    let message = match (event, other) {
        (WindowEvent::Open, None) => opening(model.input(&front, happened, at), at),
        (WindowEvent::Open, Some(app)) => {
            model.input_elsewhere();
            let name = match authorization::owns_process(
                &reconciler.system,
                speaker.uid,
                pid.unwrap_or(0),
            ) {
                Ok(()) => app.name,
                Err(_) => "that app".to_owned(),
            };
            format!("not opened: {name} is not in the foreground")
        }
        (WindowEvent::Close, None) => closing(model.frame(Some(front.key), happened)),
        (WindowEvent::Close, Some(app)) => closing(model.frame(Some(app.key), happened)),
    };
    reconciler.pass_on_window(at);
    debug!("window of {}: {message} (by {source})", front.name);
    Ok(Response::Ok { message })
}

/// Checks that this user may report on the topmost app, and caches the permission for later
/// reports.
fn may_tell(
    control: &mut ControlSource,
    reconciler: &mut Reconciler,
    speaker: Speaker,
    front: &App,
    at: Duration,
) -> Result<(), Refusal> {
    let uid = speaker.uid;
    if uid == 0 || reconciler.mechanisms.window.has_pass(uid, front.key, at) {
        return Ok(());
    }
    authorization::may_speak(&reconciler.system, &reconciler.access, speaker)?;
    match (
        &front.process,
        identify::open_home(&reconciler.system, front),
    ) {
        (Some(process), _) => {
            let owns = authorization::owns_process(&reconciler.system, uid, process.pid);
            owns.map_err(|refusal| not_own(refusal, uid))?;
        }
        (None, home) => {
            let procs = home.and_then(|home| home.procs_below().ok());
            let procs = procs.filter(|procs| !procs.is_empty()).ok_or_else(|| {
                Refusal::new(
                    ErrorCode::NotFound,
                    "the foreground app no longer has a process",
                    "name the current foreground app",
                )
            })?;
            let owns = authorization::owns_all(&reconciler.system, uid, &procs);
            owns.map_err(|refusal| not_own(refusal, uid))?;
        }
    }
    control.limiter().was_at_screen(uid, at);
    reconciler.mechanisms.window.grant_pass(uid, front.key, at);
    Ok(())
}

/// Whether a process is known to belong to the topmost app, by the last measurement.
fn is_of_front(model: &Model, front: &App, pid: i32) -> bool {
    let claimed = front.process.is_some_and(|process| process.pid == pid);
    let measured = model.last.topmost.as_ref();
    claimed
        || measured.is_some_and(|measured| {
            measured.app.key == front.key && measured.members.iter().any(|id| id.pid == pid)
        })
}

/// A refusal that does not name the topmost app, which is another user's.
fn not_own(refusal: Refusal, uid: u32) -> Refusal {
    match refusal.code {
        ErrorCode::NotAllowed => Refusal::new(
            refusal.code,
            format!("the foreground app does not belong to uid {uid}"),
            "report input only for your own app while it is in the foreground, or report as root",
        ),
        _ => refusal,
    }
}

/// The time of an event, on the daemon's clock.
fn happened(at_us: Option<u64>, now: Duration) -> Result<Duration, Refusal> {
    let Some(at_us) = at_us else {
        return Ok(now);
    };
    // A time ahead of the clock counts as now.
    let ago = clock::monotonic().saturating_sub(Duration::from_micros(at_us));
    if ago > Duration::from_micros(WINDOW_AGE_MAX_US) {
        return Err(Refusal::new(
            ErrorCode::BadRequest,
            format!("at_us {at_us} is {} ms ago", ago.as_millis()),
            "report each event at once, with its time in microseconds of CLOCK_MONOTONIC",
        ));
    }
    Ok(now.saturating_sub(ago))
}

fn opening(opening: Opening, now: Duration) -> String {
    match opening {
        Opening::Opened { ends } => format!(
            "open for at most {} ms",
            ends.saturating_sub(now).as_millis()
        ),
        Opening::Joined => "joined to the window that is already open".to_owned(),
        Opening::Answered(time) => format!("answered already, after {}", took(time)),
        Opening::Off => {
            "not opened: switched off by the configuration ([window] enabled)".to_owned()
        }
    }
}

fn closing(closing: Closing) -> String {
    match closing {
        Closing::Answered(time) => format!("answered after {}", took(time)),
        Closing::Late(time) => format!("answered late, after {}", took(time)),
        Closing::Moved => "closed: the focus had moved".to_owned(),
        Closing::Unasked => "no window was open".to_owned(),
        Closing::Elsewhere => "the open window belongs to another app and stays open".to_owned(),
    }
}
