// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight doctor`: which knobs and interfaces Limelight can use on this machine, which are
//! inert and why, and which are missing and how to get them. Only reads; works without the daemon.

mod boost;
mod cgroups;
mod daemon;
mod device;
mod facilities;
mod files;
pub mod findings;
mod kernel;
mod mechanisms;
mod memory;
mod paper;
mod premap;
mod prezero;
mod swap;
mod tuners;
mod windows;

use std::path::{Path, PathBuf};
use std::time::Duration;

use limelight_daemon::config::{self, Origin};
use limelight_proto::MechanismId;
use limelight_sys::device::DEVICE_PATH;
use limelight_sys::proc::Proc;

use crate::exit;
use crate::library;

use self::findings::{Finding, Findings};
pub use self::paper::print;

/// The machine to examine: paths, timeout and process.
#[derive(Debug)]
pub struct Machine {
    proc: PathBuf,
    sys: PathBuf,
    device: PathBuf,
    input: PathBuf,
    /// Root directory, which contains `etc`.
    root: PathBuf,
    socket: PathBuf,
    patience: Duration,
    pid: Option<i32>,
    /// Path of the premap library, or all places that were searched.
    library: Result<PathBuf, Vec<PathBuf>>,
    /// Names of the mechanisms that the configuration switches off.
    off: Vec<&'static str>,
}

impl Machine {
    /// The running machine. With a `pid`, its cgroups are examined instead of the foreground app's.
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
            off: switched_off(),
        }
    }
}

/// The mechanisms that the daemon's configuration switches off; none if it is invalid.
fn switched_off() -> Vec<&'static str> {
    let Ok(config) = config::load(&Origin::Default) else {
        return Vec::new();
    };
    let settings = &config.settings;
    let is_on = |id: MechanismId| match id {
        MechanismId::Protect => settings.protect.enabled,
        MechanismId::Boost => settings.boost.enabled,
        MechanismId::Readahead => settings.readahead.enabled,
        MechanismId::Premap => settings.premap.enabled,
        MechanismId::Prezero => settings.prezero.enabled,
        MechanismId::Swap => settings.swap.enabled,
    };
    let all = MechanismId::ALL.map(|id| (id.name(), is_on(id)));
    let all = all
        .into_iter()
        .chain([("windows", settings.window.enabled)]);
    all.filter(|(_, on)| !on).map(|(name, _)| name).collect()
}

/// Results of all checks.
#[derive(Debug)]
pub struct Report {
    /// Linux and its release.
    kernel: String,
    /// The daemon's version, or a note that no daemon answers.
    daemon: String,
    daemon_runs: bool,
    /// One finding for each mechanism: whether it acts, and by which means.
    mechanisms: Vec<Finding>,
    /// Results of the individual checks.
    checks: Vec<Finding>,
}

impl Report {
    /// The program's exit code. `strict`: fail even if a single knob is inert while other knobs of
    /// the mechanism act.
    pub fn exit_code(&self, strict: bool) -> u8 {
        let mechanisms = self.mechanisms.iter();
        let checks = self.checks.iter().filter(|_| strict);
        let trouble = mechanisms.chain(checks).any(|one| one.state.is_trouble());
        match (self.daemon_runs, trouble) {
            (false, _) => exit::NO_DAEMON,
            (true, true) => exit::TROUBLE,
            (true, false) => 0,
        }
    }
}

/// Runs all checks.
pub fn examine(machine: &Machine) -> Report {
    let mut findings = Findings::default();
    let answer = daemon::ask(&machine.socket, machine.patience);
    let status = answer.as_deref().ok();
    let proc = Proc::open(&machine.proc.to_string_lossy());
    let mut low_protects = false;
    match &proc {
        Ok(proc) => {
            kernel::examine(proc, findings.part("machine"));
            let app = cgroups::app_cgroup(machine, proc, status);
            cgroups::examine(proc, app.clone(), findings.part("protect"));
            low_protects = memory::reclaim(&machine.sys, &mut findings);
            memory::shared_pages(proc, &mut findings);
            memory::pressure(proc, &mut findings);
            boost::examine(proc, machine, &app, status, findings.part("boost"));
            swap::areas(proc, &machine.sys, findings.part("swap"));
            swap::steps(proc, &app, &mut findings);
            swap::apps(machine, &mut findings);
            files::examine(proc, findings.part("readahead"));
            windows::examine(proc, &machine.input, findings.part("windows"));
            swap::killers(proc, &machine.root, status, findings.part("others"));
            tuners::examine(proc, &mut findings);
        }
        Err(error) => {
            findings
                .part("machine")
                .missing("procfs", error, "mount it: mount -t proc proc /proc")
        }
    }
    let built_in = device::examine(&machine.device, status, findings.part("machine"));
    premap::examine(
        &machine.sys,
        &machine.library,
        &built_in,
        findings.part("premap"),
    );
    prezero::examine(
        &machine.proc,
        &machine.sys,
        &built_in,
        findings.part("prezero"),
    );
    findings.part("daemon");
    let described = match (&answer, &proc) {
        (Ok(status), Ok(proc)) => {
            daemon::examine(status, proc, &mut findings);
            facilities::examine(status, findings.part("swap"));
            format!("limelightd {} runs", status.version)
        }
        (Ok(status), Err(_)) => format!("limelightd {} runs", status.version),
        (Err(failure), _) => {
            let (detail, cure) = failure.parts();
            let cure = cure.as_deref().unwrap_or("see limelightd's log");
            findings.missing("daemon", detail, cure);
            "limelightd does not answer".to_owned()
        }
    };
    let found = mechanisms::Found {
        checks: &findings.list,
        built_in: &built_in,
        low_protects,
        off: &machine.off,
    };
    let mechanisms = mechanisms::judge(&found, status);
    let release = proc.ok().and_then(|proc| proc.kernel_release().ok());
    Report {
        kernel: format!("Linux {}", release.as_deref().unwrap_or("?")),
        daemon: described,
        daemon_runs: answer.is_ok(),
        mechanisms,
        checks: findings.list,
    }
}

#[cfg(test)]
mod tests;
