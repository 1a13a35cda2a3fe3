// SPDX-License-Identifier: GPL-2.0-or-later
//! Exceptions that users make for their own apps.

use std::path::Path;

use limelight_proto::{ErrorCode, Response, USER_FILE_MAX};

use crate::config::never::of_user;
use crate::control::socket::{ControlSource, RequestLine};
use crate::reconcile::Reconciler;
use crate::system::identify::Refusal;

/// Longest path of a user's file, in bytes.
const PATH_MAX: usize = 1024;

/// Puts the rules of a user's file in force, as `never` requests, and returns the answer.
pub(super) fn set(
    control: &mut ControlSource,
    reconciler: &mut Reconciler,
    line: &RequestLine,
    file: &str,
    text: &str,
) -> Result<Response, Refusal> {
    let printable = !file.is_empty() && !file.chars().any(char::is_control);
    if !printable || file.len() > PATH_MAX || text.len() > USER_FILE_MAX {
        return Err(Refusal::new(
            ErrorCode::BadRequest,
            format!(
                "a user's configuration has a printable path of at most {PATH_MAX} bytes and at \
                 most {USER_FILE_MAX} bytes of text"
            ),
            "shorten it",
        ));
    }
    let uid = line.peer.uid;
    let rules = of_user(Path::new(file), text).map_err(|errors| {
        let errors: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        Refusal::new(
            ErrorCode::BadRequest,
            errors.join("; "),
            "correct the file; limelight config check names all mistakes. The rules before stay \
             in force",
        )
    })?;
    let (rules, _) = rules;
    let message = match rules.is_empty() {
        true => format!("{file} has no rules for the apps of uid {uid}"),
        false => format!("the rules of {file} apply to the apps of uid {uid}"),
    };
    if !rules.is_empty() {
        control.set_holding(line.client);
    }
    reconciler.set_user_rules(line.client, uid, rules);
    Ok(Response::Ok { message })
}
