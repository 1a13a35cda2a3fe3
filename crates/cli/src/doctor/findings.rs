// SPDX-License-Identifier: GPL-2.0-or-later
//! What was looked at, and what it is good for.

use serde::Serialize;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it belongs to: a mechanism, `windows`, `topmost`, `machine`, `daemon`, or `others` for
    /// who else tunes or kills.
    pub part: &'static str,
    /// What was looked at.
    pub check: String,
    /// What it is good for.
    pub state: Verdict,
    /// How it is here, or why it is inert.
    pub detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}

/// What a thing is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It works.
    Acts,
    /// It would work if limelightd ran.
    Ready,
    /// Switched off by the configuration.
    Off,
    /// Neither good nor bad, but worth knowing.
    Note,
    /// It is there and has no effect.
    Inert,
    /// It is not there.
    Missing,
}

impl Verdict {
    /// Whether the machine could do better.
    pub fn is_trouble(self) -> bool {
        matches!(self, Verdict::Inert | Verdict::Missing)
    }

    /// As a person reads it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Acts => "acts",
            Verdict::Ready => "ready",
            Verdict::Off => "off",
            Verdict::Note => "note",
            Verdict::Inert => "inert",
            Verdict::Missing => "missing",
        }
    }
}

/// All of them, in the order in which they were made.
#[derive(Debug, Default)]
pub struct Findings {
    /// They.
    pub list: Vec<Finding>,
    part: &'static str,
}

impl Findings {
    /// What comes from now on belongs to this.
    pub fn part(&mut self, part: &'static str) -> &mut Self {
        self.part = part;
        self
    }

    /// A finding of this state.
    pub fn add(&mut self, check: &str, state: Verdict, detail: impl ToString, cure: Option<&str>) {
        self.list.push(Finding {
            part: self.part,
            check: check.to_owned(),
            state,
            detail: detail.to_string(),
            cure: cure.map(str::to_owned),
        });
    }

    /// It works.
    pub fn acts(&mut self, check: &str, detail: impl ToString) {
        self.add(check, Verdict::Acts, detail, None);
    }

    /// Worth knowing, and nothing to be done.
    pub fn note(&mut self, check: &str, detail: impl ToString) {
        self.add(check, Verdict::Note, detail, None);
    }

    /// It is there and has no effect; `cure` says what to do.
    pub fn inert(&mut self, check: &str, detail: impl ToString, cure: &str) {
        self.add(check, Verdict::Inert, detail, Some(cure));
    }

    /// It is not there; `cure` says what to do.
    pub fn missing(&mut self, check: &str, detail: impl ToString, cure: &str) {
        self.add(check, Verdict::Missing, detail, Some(cure));
    }
}
