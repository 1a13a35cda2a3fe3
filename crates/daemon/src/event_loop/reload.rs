// SPDX-License-Identifier: GPL-2.0-or-later
//! Reload of the configuration.

use tracing::{error, warn};

use crate::config::{self, Config, Origin};
use crate::log;

/// The parts of the daemon that a new configuration restarts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Restarts {
    /// The source `oom_score_adj`.
    pub oom_score_adj: bool,
    /// The source `top-app`.
    pub top_app: bool,
    /// The mechanism `readahead`.
    pub readahead: bool,
}

/// Reads the configuration again; `None`: it is invalid, and the current one stays in force.
pub(super) fn read(origin: &Origin, current: &Config) -> Option<(Config, Restarts)> {
    let fresh = match config::load_with_warnings(origin) {
        Ok((fresh, warnings)) => {
            log::warn_all(&warnings);
            fresh
        }
        Err(errors) => {
            error!("the new configuration is invalid; the current one stays in force:");
            log::error_lines(&errors.to_string());
            return None;
        }
    };
    if fresh.device != current.device {
        warn!("[kernel] device takes effect when limelightd is restarted");
    }
    let restarts = Restarts {
        oom_score_adj: (fresh.oom_score_adj, fresh.scan_interval)
            != (current.oom_score_adj, current.scan_interval),
        top_app: fresh.top_app != current.top_app,
        readahead: fresh.settings.readahead != current.settings.readahead
            || fresh.cold_start_directory != current.cold_start_directory,
    };
    let device = current.device;
    Some((Config { device, ..fresh }, restarts))
}
