// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight doctor`: what of this machine Limelight can use, what is inert and why, what is
//! missing and what to do about it. Reads only; works without the daemon.

mod boost;
mod cgroups;
mod daemon;
mod device;
mod files;
mod findings;
mod kernel;
mod memory;
mod premap;
mod prezero;
mod swap;
mod windows;

use std::path::{Path, PathBuf};
use std::time::Duration;

use limelight_sys::device::DEVICE_PATH;
use limelight_sys::proc::Proc;

use crate::exit::Failure;
use crate::format::{self, printable, Table};
use crate::library;

pub use self::findings::Finding;
use self::findings::Findings;

/// Where to look.
#[derive(Debug)]
pub struct Machine {
    proc: PathBuf,
    sys: PathBuf,
    device: PathBuf,
    input: PathBuf,
    /// Where `/etc` is.
    root: PathBuf,
    socket: PathBuf,
    patience: Duration,
    pid: Option<i32>,
    /// The premap library, or all places where it is not.
    library: Result<PathBuf, Vec<PathBuf>>,
}

impl Machine {
    /// The running one. With a `pid`, its cgroups are examined instead of the topmost app's.
    pub fn running(socket: &Path, patience: Duration, pid: Option<i32>) -> Self {
        Machine {
            proc: "/proc".into(),
            sys: "/sys".into(),
            device: DEVICE_PATH.into(),
            input: "/dev/input".into(),
            root: "/".into(),
            socket: socket.to_owned(),
            patience,
            pid,
            library: library::find(),
        }
    }
}

/// Looks at everything.
pub fn examine(machine: &Machine) -> Vec<Finding> {
    let mut findings = Findings::default();
    let answer = daemon::ask(&machine.socket, machine.patience);
    match Proc::open(&machine.proc.to_string_lossy()) {
        Ok(proc) => {
            kernel::examine(&proc, &mut findings);
            let app = cgroups::app_cgroup(machine, &proc, answer.as_deref().ok());
            cgroups::examine(&proc, app.clone(), &mut findings);
            let status = answer.as_deref().ok();
            boost::examine(&proc, &machine.sys, &app, status, &mut findings);
            memory::reclaim(&machine.sys, &mut findings);
            memory::shared_pages(&proc, &mut findings);
            memory::pressure(&proc, &mut findings);
            swap::areas(&proc, &machine.sys, &mut findings);
            swap::steps(&proc, &app, &mut findings);
            swap::apps(machine, &mut findings);
            swap::killers(&proc, &machine.root, status, &mut findings);
            files::examine(&proc, &mut findings);
            windows::examine(&proc, &machine.input, &mut findings);
        }
        Err(error) => findings.missing("procfs", error, "mount it: mount -t proc proc /proc"),
    }
    let built_in = device::examine(&machine.device, answer.as_deref().ok(), &mut findings);
    premap::examine(&machine.sys, &machine.library, &built_in, &mut findings);
    prezero::examine(&machine.proc, &machine.sys, &built_in, &mut findings);
    match answer {
        Ok(status) => daemon::examine(&status, &mut findings),
        Err(failure) => {
            let (detail, cure) = match failure.to_string().split_once("\n  ") {
                Some((detail, cure)) => (detail.to_owned(), cure.to_owned()),
                None => (failure.to_string(), "see its log".to_owned()),
            };
            findings.missing("daemon", detail, &cure);
        }
    }
    findings.0
}

/// Prints what was found.
pub fn print(findings: &[Finding], json: bool, out: &mut Vec<u8>) -> Result<(), Failure> {
    if json {
        return format::json(&findings, out);
    }
    let width = findings
        .iter()
        .map(|finding| finding.check.chars().count())
        .max()
        .unwrap_or(0);
    let mut table = Table::default();
    for Finding {
        check,
        state,
        detail,
        cure,
    } in findings
    {
        let cure = cure
            .as_ref()
            .map(|cure| format!("\n-> {cure}"))
            .unwrap_or_default();
        table.line(
            &format!("{:7}  {:width$}", state.word(), printable(check)),
            printable(&format!("{detail}{cure}")),
        );
    }
    table.print(out)
}

#[cfg(test)]
mod tests;
