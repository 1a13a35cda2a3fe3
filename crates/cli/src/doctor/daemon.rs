// SPDX-License-Identifier: GPL-2.0-or-later
//! The running daemon: its mechanisms and sources.

use std::path::Path;
use std::time::Duration;

use limelight_proto::{
    Change, Outcome, Request, Response, SourceStatus, State, Status, PROTOCOL, WAKE_GRAPH,
};
use limelight_sys::proc::Proc;
use rustix::thread::CapabilitySet;

use super::findings::Verdict;
use super::Findings;
use crate::client::Client;
use crate::exit::Failure;
use crate::format;

/// What ends a pause.
pub const RESUME: &str = "end the pause: sudo limelight resume";

/// Requests the daemon's status.
pub fn ask(socket: &Path, patience: Duration) -> Result<Box<Status>, Failure> {
    match Client::connect(socket, patience)?.ask(&Request::Status)? {
        Response::Status(status) => Ok(status),
        other => Err(Failure::unexpected(&other)),
    }
}

/// Checks the daemon's version, capabilities, changes and sources.
pub fn examine(status: &Status, proc: &Proc, findings: &mut Findings) {
    let detail = format!("limelightd {}, pid {}", status.version, status.pid);
    match (status.protocol == PROTOCOL, status.dry_run) {
        (false, _) => findings.inert(
            "daemon",
            format!(
                "{detail}, uses protocol {}, but this limelight uses {PROTOCOL}",
                status.protocol
            ),
            "restart it after the upgrade: systemctl restart limelightd",
        ),
        (true, true) => findings.inert(
            "daemon",
            format!("{detail}, changes nothing: it was started with --dry-run"),
            "start it without --dry-run",
        ),
        (true, false) => match &status.paused {
            Some(pause) => findings.inert(
                "daemon",
                format!("{detail}, changes nothing: {}", format::pause(pause)),
                RESUME,
            ),
            None => findings.acts("daemon", detail),
        },
    }
    capabilities(status, proc, findings);
    changes(status, findings);
    findings.part("windows");
    let window = &status.window;
    report(
        "response windows",
        window.state,
        &window.detail,
        "switch them on: [window] enabled",
        findings,
    );
    let kernel = &window.kernel;
    if kernel.state == State::Unavailable {
        findings.note("kernel windows", &kernel.detail);
    } else {
        findings.acts("kernel windows", &kernel.detail);
    }
    let kinds: [(&'static str, &str, &[SourceStatus]); 2] = [
        ("foreground", "source", &status.sources),
        ("windows", "window source", &window.sources),
    ];
    for (part, kind, sources) in kinds {
        findings.part(part);
        if part == "foreground" {
            guess(status, findings);
            agents(status, findings);
        }
        for SourceStatus {
            name,
            state,
            detail,
        } in sources
        {
            let check = format!("{kind} {name}");
            match state {
                State::Active | State::Idle => findings.acts(&check, detail),
                State::Off => findings.note(&check, format!("switched off: {detail}")),
                // If no source works at all, the mechanism's line reports it.
                State::Unavailable => findings.note(&check, format!("unavailable: {detail}")),
            }
        }
    }
}

/// Reports whether the foreground app is only guessed.
fn guess(status: &Status, findings: &mut Findings) {
    let guessed = status.topmost.as_ref();
    let Some(topmost) = guessed.filter(|topmost| topmost.source == WAKE_GRAPH) else {
        return;
    };
    findings.add(
        "foreground app",
        Verdict::Note,
        format!(
            "{} is inferred from the client that the display server wakes; no source reports the \
             foreground app",
            format::app(&topmost.app)
        ),
        Some(
            "for a certain report, start limelight-agent in the session (systemctl --user start \
             limelight-agent), or see docs/integrator/compositors.md",
        ),
    );
}

/// Reports the session agents: the source that each one uses, and why it uses no other.
fn agents(status: &Status, findings: &mut Findings) {
    let any_source = status.agents.iter().any(|agent| agent.source.is_some());
    for agent in &status.agents {
        let check = format!("agent {}", agent.pid);
        let passed: Vec<String> = agent
            .passed_over
            .iter()
            .map(|other| format!("; skipped {}: {}", other.name, other.why))
            .collect();
        let passed = passed.concat();
        match &agent.source {
            Some(source) => findings.acts(
                &check,
                format!("of uid {}, {source}: {}{passed}", agent.uid, agent.detail),
            ),
            // The agent of a login without a display, for example over ssh.
            None if any_source => {
                findings.note(&check, format!("of uid {}, {}", agent.uid, agent.detail))
            }
            None => findings.inert(
                &check,
                format!(
                    "of uid {}, no source of the focus: {}{passed}",
                    agent.uid, agent.detail
                ),
                "name the app by hand: limelight focus PID; or add a source: \
                 docs/integrator/agent.md",
            ),
        }
    }
}

/// Capabilities of limelightd, and what it cannot do without each.
const NEEDED: [(CapabilitySet, &str, &str); 7] = [
    (
        CapabilitySet::SYS_RESOURCE,
        "CAP_SYS_RESOURCE",
        "memory pressure is detected late (PSI windows of 2 s), and no oom_score_adj is lowered",
    ),
    (
        CapabilitySet::SYS_NICE,
        "CAP_SYS_NICE",
        "no nice values, and no /dev/limelight",
    ),
    (
        CapabilitySet::SYS_PTRACE,
        "CAP_SYS_PTRACE",
        "most properties of other users' apps are unknown",
    ),
    (
        CapabilitySet::DAC_OVERRIDE,
        "CAP_DAC_OVERRIDE",
        "cgroups of users' own systemd instances cannot be changed",
    ),
    (
        CapabilitySet::KILL,
        "CAP_KILL",
        "other users' apps cannot be killed one process at a time",
    ),
    (
        CapabilitySet::IPC_LOCK,
        "CAP_IPC_LOCK",
        "its own memory may be swapped, and shared libraries are not locked",
    ),
    (
        CapabilitySet::SYS_ADMIN,
        "CAP_SYS_ADMIN",
        "starts of apps are not recorded, and shared libraries are not detected",
    ),
];

/// Checks that limelightd has the capabilities that its unit grants.
fn capabilities(status: &Status, proc: &Proc, findings: &mut Findings) {
    const CHECK: &str = "capabilities";
    let text = proc.dir().read_text(format!("{}/status", status.pid));
    let text = text.unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(effective) = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()) else {
        return findings.note(
            CHECK,
            format!("pid {} is not visible from here", status.pid),
        );
    };
    let effective = CapabilitySet::from_bits_retain(effective);
    let lacks: Vec<String> = NEEDED
        .iter()
        .filter(|(set, _, _)| !effective.contains(*set))
        .map(|(_, name, lost)| format!("no {name}: {lost}"))
        .collect();
    match lacks.is_empty() {
        true => findings.acts(
            CHECK,
            "limelightd has all that it needs; with CAP_SYS_RESOURCE it detects memory pressure in \
             windows of less than 2 s",
        ),
        false => findings.inert(
            CHECK,
            lacks.join("; "),
            "start it as root, or with the packaged limelightd.service",
        ),
    }
}

/// Reports changed knobs, and those without effect.
fn changes(status: &Status, findings: &mut Findings) {
    /// Maximum number of knobs listed by name; further ones are counted.
    const NAMED: usize = 3;
    let applied = |change: &&Change| matches!(change.outcome, Outcome::Applied | Outcome::Planned);
    let all = status.changes.len();
    let fruitless: Vec<String> = status
        .changes
        .iter()
        .filter(|change| !applied(change))
        .map(|change| match &change.outcome {
            Outcome::Inert { why } | Outcome::Failed { why } => format!("{}: {why}", change.knob),
            Outcome::Applied | Outcome::Planned => change.knob.clone(),
        })
        .collect();
    let turned = format!("{} changed", format::count(all as u64, "knob", "knobs"));
    if fruitless.is_empty() {
        return findings.acts("knobs", turned);
    }
    let more = match fruitless.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let named: Vec<&str> = fruitless.iter().take(NAMED).map(String::as_str).collect();
    findings.inert(
        "knobs",
        format!(
            "{turned}, {} of them without effect: {}{more}",
            fruitless.len(),
            named.join("; ")
        ),
        "limelight status shows each one with its rule",
    );
}
fn report(check: &str, state: State, detail: &str, cure: &str, findings: &mut Findings) {
    match state {
        State::Active | State::Idle => findings.acts(check, detail),
        State::Off => findings.note(check, format!("switched off: {detail}")),
        State::Unavailable => findings.inert(check, detail, cure),
    }
}
