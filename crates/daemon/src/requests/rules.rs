// SPDX-License-Identifier: GPL-2.0-or-later
//! For each request: what its answer shows of other users, and what it costs. The match has no
//! wildcard, so a new request does not compile without an answer to both questions.

use limelight_core::control::Request;

/// What an answer shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shows {
    /// What became of the caller's own request.
    Outcome,
    /// The machine; of apps those that the caller may see (`visibility`).
    Filtered,
}

/// What a request costs the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cost {
    /// So many tokens beside those of its line. It is never refused for it: session agents send
    /// these, and what they say must not be lost.
    Work(u32),
    /// A lookup through `/proc` or all apps, which is refused when the caller asks for too many.
    Lookup(u32),
}

pub(super) fn rules(request: &Request) -> (Shows, Cost) {
    use Cost::{Lookup, Work};
    use Shows::{Filtered, Outcome};
    match request {
        // A change of focus plans everything anew.
        Request::Focus { hold: true, .. } => (Outcome, Work(25)),
        Request::Focus { hold: false, .. } => (Outcome, Lookup(2)),
        Request::Window { .. } => (Outcome, Work(0)),
        Request::InUse { .. } => (Outcome, Work(1)),
        Request::Agent { .. } => (Outcome, Work(4)),
        Request::Listen => (Outcome, Work(0)),
        Request::Class { .. } => (Outcome, Lookup(2)),
        Request::Status => (Filtered, Lookup(1)),
        Request::Explain { .. } => (Filtered, Lookup(2)),
        Request::Apps { .. } => (Filtered, Lookup(2)),
        Request::Latency { .. } => (Filtered, Lookup(1)),
        Request::Decision { .. } => (Filtered, Lookup(1)),
        Request::History { .. } => (Filtered, Lookup(1)),
    }
}

/// Whether an answer is of the kind that its request promises.
pub(super) fn keeps_promise(shows: Shows, response: &limelight_core::control::Response) -> bool {
    use limelight_core::control::Response;
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
