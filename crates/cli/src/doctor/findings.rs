// SPDX-License-Identifier: GPL-2.0-or-later
//! Findings: results of the checks.

use serde::Serialize;

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// Its part: a mechanism, `windows`, `foreground`, `machine`, `daemon`, or `others` for other
    /// software that tunes or kills.
    pub part: &'static str,
    /// Name of the check.
    pub check: String,
    /// The verdict.
    pub state: Verdict,
    /// Details, or why it is inert.
    pub detail: String,
    /// How to solve the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}

/// Verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It works.
    Acts,
    /// It would work if limelightd ran.
    Ready,
    /// Switched off by the configuration.
    Off,
    /// For information only.
    Note,
    /// It exists but has no effect.
    Inert,
    /// It does not exist.
    Missing,
}

impl Verdict {
    /// Whether the machine could do better: inert or missing.
    pub fn is_trouble(self) -> bool {
        matches!(self, Verdict::Inert | Verdict::Missing)
    }

    /// The verdict as a word, for display.
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

/// All findings, in the order of the checks.
#[derive(Debug, Default)]
pub struct Findings {
    /// The findings so far.
    pub list: Vec<Finding>,
    part: &'static str,
}

impl Findings {
    /// Sets the part of the following findings.
    pub fn part(&mut self, part: &'static str) -> &mut Self {
        self.part = part;
        self
    }

    /// Adds a finding with this verdict.
    pub fn add(&mut self, check: &str, state: Verdict, detail: impl ToString, cure: Option<&str>) {
        self.list.push(Finding {
            part: self.part,
            check: check.to_owned(),
            state,
            detail: detail.to_string(),
            cure: cure.map(str::to_owned),
        });
    }

    /// Adds a finding that something works.
    pub fn acts(&mut self, check: &str, detail: impl ToString) {
        self.add(check, Verdict::Acts, detail, None);
    }

    /// Adds a finding for information.
    pub fn note(&mut self, check: &str, detail: impl ToString) {
        self.add(check, Verdict::Note, detail, None);
    }

    /// Adds a finding that something exists but has no effect. `cure`: how to solve it.
    pub fn inert(&mut self, check: &str, detail: impl ToString, cure: &str) {
        self.add(check, Verdict::Inert, detail, Some(cure));
    }

    /// Adds a finding that something does not exist. `cure`: how to solve it.
    pub fn missing(&mut self, check: &str, detail: impl ToString, cure: &str) {
        self.add(check, Verdict::Missing, detail, Some(cure));
    }
}
