// SPDX-License-Identifier: GPL-2.0-or-later
//! Where messages go: the journal when systemd started us, else standard error.

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::EnvFilter;

/// Starts logging. `LIMELIGHT_LOG` sets the level (`debug`, or `limelight_daemon::undo=debug`).
pub fn start() {
    let filter =
        EnvFilter::try_from_env("LIMELIGHT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let registry = tracing_subscriber::registry().with(filter);
    // Set by systemd when standard error is the journal.
    let journal = std::env::var_os("JOURNAL_STREAM").and_then(|_| tracing_journald::layer().ok());
    match journal {
        Some(journal) => registry.with(journal.with_field_prefix(None)).init(),
        None => {
            let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let plain = tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                .with_ansi(terminal)
                .with_target(false)
                .without_time();
            registry.with(plain).init();
        }
    }
}
