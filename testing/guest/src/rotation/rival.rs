// SPDX-License-Identifier: GPL-2.0-or-later
//! Debian's packaged OOM daemons, with the configuration from their packages.

use anyhow::Result;

use crate::plan::Arm;
use crate::process::run;
use crate::record::Reporter;
use crate::systemd::systemctl;

/// A running OOM daemon.
pub struct Rival {
    unit: &'static str,
}

impl Rival {
    /// Starts the OOM daemon of this arm of the experiment, if the arm has one.
    pub fn of(arm: Arm) -> Result<Option<Self>> {
        let unit = match arm {
            Arm::Earlyoom => "earlyoom.service",
            Arm::Nohang => "nohang.service",
            Arm::SystemdOomd => "systemd-oomd.service",
            _ => return Ok(None),
        };
        systemctl(&["start", unit])?;
        Ok(Some(Rival { unit }))
    }

    /// Checks that the OOM daemon has run without interruption since [`Rival::of`], and stops it.
    pub fn stop(self, reporter: &Reporter) -> Result<()> {
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
