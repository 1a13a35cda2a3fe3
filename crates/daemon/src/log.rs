// SPDX-License-Identifier: GPL-2.0-or-later
//! Logs to standard error, which is the journal if systemd started the daemon. Names chosen by
//! processes are escaped here, for all messages.

use std::fmt;

use limelight_core::text::escaped;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{error, warn, Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::ConfigError;

/// The environment variable with the level.
const LEVEL: &str = "LIMELIGHT_LOG";

/// Parses `wanted`: a level, or `target=level`. Returns the filter, and an error message if
/// `wanted` is invalid.
fn filter(wanted: &str) -> (Targets, Option<String>) {
    match wanted.parse() {
        Ok(targets) => (targets, None),
        Err(error) => (
            Targets::new().with_default(LevelFilter::INFO),
            Some(format!(
                "{LEVEL}={wanted:?} is ignored: {error}; use a level (debug) or target=level \
                 (limelight_daemon::restore::undo=debug)"
            )),
        ),
    }
}

/// Starts logging to standard error. `LIMELIGHT_LOG` sets the level (`debug`, or
/// `limelight_daemon::restore::undo=debug`).
pub fn start() {
    let wanted = std::env::var(LEVEL).unwrap_or_else(|_| "info".to_owned());
    let (filter, wrong) = filter(&wanted);
    let journal = std::env::var("JOURNAL_STREAM").is_ok_and(|stream| is_journal(&stream));
    let terminal = !journal && std::io::IsTerminal::is_terminal(&std::io::stderr());
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(terminal)
        .event_format(Lines { journal });
    tracing_subscriber::registry()
        .with(filter)
        .with(layer)
        .init();
    if let Some(wrong) = wrong {
        warn!("{wrong}");
    }
}

/// Whether standard error is this journal stream, which systemd names by device and inode. Programs
/// that a service starts inherit `JOURNAL_STREAM`, although their standard error may be another
/// file.
fn is_journal(stream: &str) -> bool {
    rustix::fs::fstat(std::io::stderr())
        .is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Logs warnings about the configuration.
pub fn warn_all(warnings: &[ConfigError]) {
    warnings.iter().for_each(|warning| warn!("{warning}"));
}

/// Logs each line of a text separately.
pub fn error_lines(text: &str) {
    text.lines().for_each(|line| error!("{line}"));
}

/// Formats each event as one line, whatever bytes the names in it contain.
struct Lines {
    /// Whether each line begins with the level as in sd-daemon(3), and not with its name.
    journal: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (number, name, colour) = match *event.metadata().level() {
            Level::ERROR => (3, "ERROR", 31),
            Level::WARN => (4, " WARN", 33),
            Level::INFO => (6, " INFO", 32),
            Level::DEBUG => (7, "DEBUG", 34),
            Level::TRACE => (7, "TRACE", 35),
        };
        match (self.journal, writer.has_ansi_escapes()) {
            (true, _) => write!(writer, "<{number}>")?,
            (false, true) => write!(writer, "\x1b[{colour}m{name}\x1b[0m ")?,
            (false, false) => write!(writer, "{name} ")?,
        }
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        writeln!(writer, "{}", escaped(&fields.0))
    }
}

/// An event's message and its other fields.
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        use fmt::Write;
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};
    use tracing::info;

    /// A writer that keeps what is written to it.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn process_name_cannot_forge_a_log_line() {
        let name = "a\n<3>limelightd: killed sshd\u{1b}[2J";
        for (journal, begin) in [
            (true, "<6>topmost: a\\n<3>"),
            (false, " INFO topmost: a\\n<3>"),
        ] {
            let kept = Kept::default();
            let writer = kept.clone();
            let layer = tracing_subscriber::fmt::layer()
                .with_writer(move || writer.clone())
                .with_ansi(false)
                .event_format(Lines { journal });
            let subscriber = tracing_subscriber::registry().with(layer);
            tracing::subscriber::with_default(subscriber, || info!("topmost: {name}"));
            let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
            assert!(text.starts_with(begin), "{text:?}");
            assert_eq!(text.lines().count(), 1, "{text:?}");
            assert!(text.ends_with("\\u{1b}[2J\n"), "{text:?}");
        }
    }

    #[test]
    fn filter_accepts_levels_and_targets_and_rejects_nonsense() {
        let (all, wrong) = filter("debug");
        assert!(all.would_enable("limelight_daemon", &Level::DEBUG) && wrong.is_none());

        let (one, wrong) = filter("info,limelight_daemon::restore::undo=trace");
        assert!(one.would_enable("limelight_daemon::restore::undo", &Level::TRACE));
        assert!(
            !one.would_enable("limelight_daemon::mechanisms::boost", &Level::DEBUG)
                && wrong.is_none()
        );

        let (ordinary, wrong) = filter("limelight_daemon=loud");
        assert!(ordinary.would_enable("limelight_daemon", &Level::INFO));
        assert!(wrong.is_some_and(|wrong| wrong.contains("LIMELIGHT_LOG")));
    }
}
