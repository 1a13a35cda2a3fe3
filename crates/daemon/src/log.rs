// SPDX-License-Identifier: GPL-2.0-or-later
//! Where messages go: the journal when systemd started us, else standard error.

use tracing::level_filters::LevelFilter;
use tracing::warn;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The environment variable with the level.
const LEVEL: &str = "LIMELIGHT_LOG";

/// What is logged: the level or levels that `wanted` names, and what is wrong with it.
fn filter(wanted: &str) -> (Targets, Option<String>) {
    match wanted.parse() {
        Ok(targets) => (targets, None),
        Err(error) => (
            Targets::new().with_default(LevelFilter::INFO),
            Some(format!("{LEVEL}={wanted:?} is ignored: {error}; write a level (debug) or target=level (limelight_daemon::undo=debug)")),
        ),
    }
}

/// Starts logging. `LIMELIGHT_LOG` sets the level (`debug`, or `limelight_daemon::undo=debug`).
pub fn start() {
    let wanted = std::env::var(LEVEL).unwrap_or_else(|_| "info".to_owned());
    let (filter, wrong) = filter(&wanted);
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
    if let Some(wrong) = wrong {
        warn!("{wrong}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_level_a_target_and_nonsense() {
        let (all, wrong) = filter("debug");
        assert!(all.would_enable("limelight_daemon", &Level::DEBUG) && wrong.is_none());

        let (one, wrong) = filter("info,limelight_daemon::undo=trace");
        assert!(one.would_enable("limelight_daemon::undo", &Level::TRACE));
        assert!(!one.would_enable("limelight_daemon::boost", &Level::DEBUG) && wrong.is_none());

        let (ordinary, wrong) = filter("limelight_daemon=loud");
        assert!(ordinary.would_enable("limelight_daemon", &Level::INFO));
        assert!(wrong.is_some_and(|wrong| wrong.contains("LIMELIGHT_LOG")));
    }
}
