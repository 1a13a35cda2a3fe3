// SPDX-License-Identifier: GPL-2.0-or-later
//! Failures of `limelightd`, and their exit codes for scripts.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::ConfigErrors;

/// Exit codes, as `--help` and the manual page print them.
pub const TABLE: &str = "\
Exit codes:
   0  stopped by SIGTERM or SIGINT, everything put back; or --check-config, --restore succeeded
   2  wrong usage
  10  the configuration is invalid; every error is listed with file and line
  11  another limelightd is running
  12  no cgroup v2 hierarchy is mounted
  13  no permission
  14  [kernel] device = \"on\" is set, but /dev/limelight cannot be used
  15  the runtime directory cannot be used
  16  something could not be put back (--restore), or the event loop failed";

/// Why the daemon did not start, or failed later. A message names the cure if there is one.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Mistakes in the configuration files.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    /// Another daemon holds the lock.
    #[error(
        "another limelightd is running{}: stop it first (systemctl stop limelightd), or start this \
         one with another --runtime-dir",
        pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    Running {
        /// The other daemon's process id, from the lock file.
        pid: Option<i32>,
    },
    /// No cgroup v2 hierarchy is mounted.
    #[error("no cgroup v2 hierarchy is mounted ({why}): boot with systemd.unified_cgroup_hierarchy=1, or mount -t cgroup2 none /sys/fs/cgroup")]
    NoCgroup2 {
        /// What was checked, and why that failed.
        why: String,
    },
    /// A permission is missing.
    #[error("no permission: {what}: {cure}")]
    Permission {
        /// The operation that was refused.
        what: String,
        /// The remedy.
        cure: &'static str,
    },
    /// The kernel lacks a feature that the configuration requires.
    #[error("this kernel lacks what the configuration requires: {0}")]
    Powerless(String),
    /// The runtime directory cannot be used.
    #[error("the runtime directory {} cannot be used: {why}: make it writable for this user, or choose another with --runtime-dir", path.display())]
    Runtime {
        /// The directory.
        path: PathBuf,
        /// Why the directory cannot be used.
        why: String,
    },
    /// Any other failure, when the daemon starts or later.
    #[error("{0}")]
    Broken(String),
}

impl Failure {
    /// The exit code, as listed in [`TABLE`].
    pub fn code(&self) -> u8 {
        match self {
            Failure::Config(_) => 10,
            Failure::Running { .. } => 11,
            Failure::NoCgroup2 { .. } => 12,
            Failure::Permission { .. } => 13,
            Failure::Powerless(_) => 14,
            Failure::Runtime { .. } => 15,
            Failure::Broken(_) => 16,
        }
    }
}

impl From<&Failure> for ExitCode {
    fn from(failure: &Failure) -> ExitCode {
        ExitCode::from(failure.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_in_the_table() {
        let failures = [
            Failure::Config(ConfigErrors(Vec::new())),
            Failure::Running { pid: Some(7) },
            Failure::NoCgroup2 { why: String::new() },
            Failure::Permission {
                what: String::new(),
                cure: "",
            },
            Failure::Powerless(String::new()),
            Failure::Runtime {
                path: PathBuf::new(),
                why: String::new(),
            },
            Failure::Broken(String::new()),
        ];
        for failure in failures {
            assert!(
                TABLE.contains(&format!("\n  {}  ", failure.code())),
                "{failure:?} is missing"
            );
        }
    }

    #[test]
    fn manual_page_lists_every_code_of_the_table() {
        let page = include_str!("../../../packaging/limelightd.8");
        let codes = TABLE.lines().skip(1).filter_map(|line| {
            let (code, _) = line.trim_start().split_once("  ")?;
            Some(code)
        });
        for code in codes {
            assert!(
                page.contains(&format!("\n.B {code}\n")),
                "{code} is missing"
            );
        }
    }

    #[test]
    fn error_names_the_other_daemon() {
        let text = Failure::Running { pid: Some(4242) }.to_string();
        assert!(text.contains("(pid 4242)"), "{text}");
    }
}
