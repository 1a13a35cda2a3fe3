// SPDX-License-Identifier: GPL-2.0-or-later
//! What the agent reports about itself.

use limelight_proto::{
    PassedOver, Request, SourceStatus, AGENT_TEXT_MAX, FACILITIES_MAX, PASSED_OVER_MAX,
};

/// How this agent tracks the focus, for the daemon's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The source in use.
    pub source: Option<&'static str>,
    /// How the source works here, or why none works.
    pub detail: String,
    /// Sources that do not work here.
    pub passed_over: Vec<PassedOver>,
}

impl Report {
    /// The request with this report. `facilities`: what else this agent can do.
    pub fn request(&self, facilities: &[SourceStatus]) -> Request {
        let passed_over = self.passed_over.iter().take(PASSED_OVER_MAX);
        Request::Agent {
            source: self.source.map(str::to_owned),
            detail: words(&self.detail),
            passed_over: passed_over
                .map(|one| PassedOver {
                    name: words(&one.name),
                    why: words(&one.why),
                })
                .collect(),
            facilities: facilities
                .iter()
                .take(FACILITIES_MAX)
                .map(|one| SourceStatus {
                    detail: words(&one.detail),
                    ..one.clone()
                })
                .collect(),
        }
    }
}

/// Text that the daemon accepts: printable and bounded.
fn words(text: &str) -> String {
    let clean = text.chars().filter(|c| !c.is_control());
    let mut left = AGENT_TEXT_MAX;
    let fitting = clean.take_while(|c| {
        let fits = c.len_utf8() <= left;
        left -= c.len_utf8().min(left);
        fits
    });
    fitting.collect()
}
