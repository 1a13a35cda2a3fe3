// SPDX-License-Identifier: GPL-2.0-or-later
//! For each request: what its answer shows of other users, and its cost. The match has no wildcard,
//! so a new request without both does not compile.

use limelight_proto::Request;

/// What an answer reveals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    /// Only the outcome of the caller's own request.
    Outcome,
    /// The machine's state, and the apps that the caller may see (`visibility`).
    Filtered,
}

/// What a request costs the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cost {
    /// This many tokens, in addition to the tokens for its line. The request is never refused for
    /// lack of tokens: session agents send such requests, and their reports must not be lost.
    Work(u32),
    /// This many tokens, for a lookup through `/proc` or all apps. The request is refused if the
    /// caller has fewer.
    Lookup(u32),
}

pub(crate) fn rules(request: &Request) -> (Shows, Cost) {
    use Cost::{Lookup, Work};
    use Shows::{Filtered, Outcome};
    match request {
        // A focus change causes a full plan.
        Request::Focus { hold: true, .. } => (Outcome, Work(25)),
        Request::Focus { hold: false, .. } => (Outcome, Lookup(2)),
        Request::Window { .. } => (Outcome, Work(0)),
        Request::InUse { .. } => (Outcome, Work(1)),
        // Compares patterns with the names of all of the user's apps, and causes a full plan.
        Request::Never { .. } => (Outcome, Work(25)),
        Request::Agent { .. } => (Outcome, Work(4)),
        Request::Listen { .. } | Request::Become { .. } => (Outcome, Work(0)),
        Request::Class { .. } => (Outcome, Lookup(2)),
        // Each changes all settings, like a focus change.
        Request::Pause { .. } | Request::Resume => (Outcome, Lookup(25)),
        Request::Status => (Filtered, Lookup(1)),
        Request::Explain { .. } => (Filtered, Lookup(2)),
        Request::Apps { .. } => (Filtered, Lookup(2)),
        Request::Latency { .. } => (Filtered, Lookup(1)),
        Request::Decision { .. } => (Filtered, Lookup(1)),
        Request::History { .. } => (Filtered, Lookup(1)),
    }
}

/// Whether an answer is of the kind declared for its request.
pub(crate) fn keeps_promise(shows: Shows, response: &limelight_proto::Response) -> bool {
    use limelight_proto::Response;
    match response {
        Response::Ok { .. } | Response::Error { .. } | Response::Agent { .. } => true,
        Response::Status(_)
        | Response::Explain(_)
        | Response::Latency(_)
        | Response::Apps { .. }
        | Response::Decision { .. }
        | Response::History { .. } => shows == Shows::Filtered,
        Response::Notice(_) => false,
    }
}
