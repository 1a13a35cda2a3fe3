// SPDX-License-Identifier: GPL-2.0-or-later
//! The running daemon: its mechanisms and sources.

use std::path::Path;
use std::time::Duration;

use limelight_core::control::{
    MechanismStatus, Request, Response, SourceStatus, State, Status, PROTOCOL,
};

use super::Findings;
use crate::client::Client;
use crate::exit::Failure;

/// What it says of itself.
pub fn ask(socket: &Path, patience: Duration) -> Result<Box<Status>, Failure> {
    match Client::connect(socket, patience)?.ask(&Request::Status)? {
        Response::Status(status) => Ok(status),
        other => Err(Failure::unexpected(&other)),
    }
}

/// What it has and has not.
pub fn examine(status: &Status, findings: &mut Findings) {
    let detail = format!("limelightd {}, pid {}", status.version, status.pid);
    match (status.protocol == PROTOCOL, status.dry_run) {
        (false, _) => findings.inert(
            "daemon",
            format!(
                "{detail}, speaks protocol {}, we {PROTOCOL}",
                status.protocol
            ),
            "restart it after the upgrade: systemctl restart limelightd",
        ),
        (true, true) => findings.inert(
            "daemon",
            format!("{detail}, only plans: it was started with --dry-run"),
            "start it without",
        ),
        (true, false) => findings.acts("daemon", detail),
    }
    for MechanismStatus {
        name,
        state,
        detail,
    } in &status.mechanisms
    {
        let check = format!("mechanism {name}");
        report(
            &check,
            *state,
            detail,
            "see the lines above for what this machine lacks",
            findings,
        );
    }
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
    let sources = status.sources.iter().map(|source| ("source", source));
    let of_windows = window
        .sources
        .iter()
        .map(|source| ("window source", source));
    for (kind, source) in sources.chain(of_windows) {
        let SourceStatus {
            name,
            state,
            detail,
        } = source;
        let check = format!("{kind} {name}");
        report(
            &check,
            *state,
            detail,
            "harmless as long as another source speaks",
            findings,
        );
    }
}

fn report(check: &str, state: State, detail: &str, cure: &str, findings: &mut Findings) {
    match state {
        State::Active | State::Idle => findings.acts(check, detail),
        State::Off => findings.note(check, format!("switched off: {detail}")),
        State::Unavailable => findings.inert(check, detail, cure),
    }
}
