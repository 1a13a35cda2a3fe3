// SPDX-License-Identifier: GPL-2.0-or-later
//! Authorization by polkit, for calls that the daemon refuses to the caller.
//!
//! polkit can only allow more: what the caller may do with `limelight`, the caller may do here
//! without polkit, and on a machine without polkit.

use std::collections::HashMap;

use zbus::zvariant::Value;
use zbus::Connection;

use crate::caller::Caller;

const AUTHORITY: &str = "org.freedesktop.PolicyKit1";
const PATH: &str = "/org/freedesktop/PolicyKit1/Authority";
const INTERFACE: &str = "org.freedesktop.PolicyKit1.Authority";

/// Flag of `CheckAuthorization`: polkit may ask the user for a password.
const ALLOW_USER_INTERACTION: u32 = 1;

/// An action that polkit may allow, as in `org.limelight.Limelight1.policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Pause and resume.
    Pause,
    /// Set the class of any app.
    SetClass,
}

impl Action {
    fn id(self) -> &'static str {
        match self {
            Action::Pause => "org.limelight.Limelight1.pause",
            Action::SetClass => "org.limelight.Limelight1.set-class",
        }
    }
}

/// Whether polkit allows the caller this action. Without polkit, it is not allowed.
pub async fn allows(bus: &Connection, caller: &Caller, action: Action, may_ask: bool) -> bool {
    let name = Value::from(caller.name.as_str());
    let subject = ("system-bus-name", HashMap::from([("name", name)]));
    let details: HashMap<&str, &str> = HashMap::new();
    let flags = if may_ask { ALLOW_USER_INTERACTION } else { 0 };
    let arguments = (subject, action.id(), details, flags, "");
    let answer = bus
        .call_method(
            Some(AUTHORITY),
            PATH,
            Some(INTERFACE),
            "CheckAuthorization",
            &arguments,
        )
        .await;
    let answer = answer.and_then(|answer| {
        let body = answer.body();
        body.deserialize::<(bool, bool, HashMap<String, String>)>()
    });
    match answer {
        Ok((allowed, _, _)) => allowed,
        Err(error) => {
            tracing::debug!("polkit does not answer: {error}");
            false
        }
    }
}
