// SPDX-License-Identifier: GPL-2.0-or-later
//! Debian's packaged rivals, the OOM daemons and preload, with the configuration from their
//! packages.

use std::fs::File;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::plan::Arm;
use crate::process::{run, Process, Start};
use crate::record::Reporter;
use crate::systemd::{systemctl, RIVALS};

/// Path of earlyoom in a guest without systemd.
pub const EARLYOOM: &str = "/bin/earlyoom";
const EARLYOOM_LOG: &str = "/run/earlyoom.log";
/// The arguments of Debian's unit: the defaults, and one report an hour.
const EARLYOOM_ARGUMENTS: [&str; 2] = ["-r", "3600"];

/// Starts earlyoom as Debian's unit does, in a guest without systemd, if this arm has it.
pub fn earlyoom(arm: Arm) -> Result<Option<Process>> {
    if arm != Arm::Earlyoom {
        return Ok(None);
    }
    let log =
        File::create(EARLYOOM_LOG).with_context(|| format!("cannot create {EARLYOOM_LOG}"))?;
    let mut command = Command::new(EARLYOOM);
    command
        .args(EARLYOOM_ARGUMENTS)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Start::PLAIN.program(command, "earlyoom").map(Some)
}

/// Checks that earlyoom still runs, and ends it.
pub fn end_earlyoom(mut earlyoom: Process, reporter: &Reporter) -> Result<()> {
    let log = std::fs::read_to_string(EARLYOOM_LOG).unwrap_or_default();
    reporter.check("earlyoom runs until the end", earlyoom.alive(), log.trim())
}

/// A running rival.
pub struct Rival {
    unit: &'static str,
}

impl Rival {
    /// Starts the rival of this arm of the experiment, if the arm has one.
    pub fn of(arm: Arm) -> Result<Option<Self>> {
        let unit = match arm {
            Arm::Earlyoom => "earlyoom.service",
            Arm::Nohang => "nohang.service",
            Arm::SystemdOomd => "systemd-oomd.service",
            Arm::Preload => "preload.service",
            _ => return Ok(None),
        };
        systemctl(&["unmask", unit])?;
        systemctl(&["start", unit])?;
        Ok(Some(Rival { unit }))
    }

    /// Checks that of all rivals only the arm's own runs, then checks and stops that one.
    pub fn end(rival: Option<Self>, reporter: &Reporter) -> Result<()> {
        let mut running = Vec::new();
        for unit in RIVALS {
            let (code, _) = run("/bin/systemctl", &["is-active", "--quiet", unit])?;
            running.extend((code == 0).then_some(unit));
        }
        let own: Vec<&str> = rival.iter().map(|rival| rival.unit).collect();
        reporter.check(
            "no rival runs that is not part of this arm",
            running == own,
            format!("{running:?} run"),
        )?;
        rival.map_or(Ok(()), |rival| rival.stop(reporter))
    }

    /// Checks that the rival has run without interruption since [`Rival::of`], and stops it.
    fn stop(self, reporter: &Reporter) -> Result<()> {
        let (_, text) = run(
            "/bin/systemctl",
            &["show", "--property=ActiveState,NRestarts", self.unit],
        )?;
        reporter.check(
            format!(
                "{} ran without a restart while the apps were launched",
                self.unit
            ),
            text.contains("ActiveState=active") && text.contains("NRestarts=0"),
            text.trim(),
        )?;
        let (_, log) = run(
            "/bin/journalctl",
            &["--no-pager", "--lines=12", "--unit", self.unit],
        )?;
        reporter.progress(log)?;
        systemctl(&["stop", self.unit])
    }
}
