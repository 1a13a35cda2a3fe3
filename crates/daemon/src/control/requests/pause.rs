// SPDX-License-Identifier: GPL-2.0-or-later
//! Requests to pause and to resume.

use std::time::Duration;

use limelight_proto::{ErrorCode, Response, PAUSE_MAX_MS};

use crate::reconcile::Reconciler;
use crate::system::access::Speaker;
use crate::system::authorization::may_pause;
use crate::system::identify::Refusal;

/// Undoes all changes, and makes none for this long; `None`: until the next `resume`.
pub(super) fn pause(
    reconciler: &mut Reconciler,
    speaker: Speaker,
    for_ms: Option<u64>,
) -> Result<Response, Refusal> {
    may_pause(&reconciler.access, speaker)?;
    if for_ms.is_some_and(|ms| !(1..=PAUSE_MAX_MS).contains(&ms)) {
        return Err(Refusal::new(
            ErrorCode::BadRequest,
            format!("a pause takes 1 to {PAUSE_MAX_MS} ms"),
            "leave the time out to pause until limelight resume",
        ));
    }
    let left = reconciler.pause(speaker.uid, for_ms.map(Duration::from_millis));
    let end = match for_ms {
        Some(ms) => format!("for {} s", ms.div_ceil(1000)),
        None => "until limelight resume".to_owned(),
    };
    let undone = match left {
        0 => "all changes are undone".to_owned(),
        left => format!("{left} changes could not be undone yet; limelightd tries again"),
    };
    Ok(Response::Ok {
        message: format!("paused {end}: {undone}"),
    })
}

/// Ends a pause.
pub(super) fn resume(reconciler: &mut Reconciler, speaker: Speaker) -> Result<Response, Refusal> {
    may_pause(&reconciler.access, speaker)?;
    let message = match reconciler.resume(speaker.uid) {
        true => "resumed",
        false => "not paused",
    };
    Ok(Response::Ok {
        message: message.to_owned(),
    })
}
