// SPDX-License-Identifier: GPL-2.0-or-later
//! Desktop notifications about memory shortages: kills must be reported to the user.
//!
//! The agent shows them by running `notify-send`, so that it needs no D-Bus for them.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use limelight_core::text::escaped;
use limelight_proto::Level;
use limelight_proto::{HistoryEntry, MemoryAction, Notice};

const PROGRAM: &str = "notify-send";

/// Minimum time between two warnings about a shortage or a growing app.
const WARN_EVERY: Duration = Duration::from_secs(30);

/// Maximum number of children at a time, so that they do not pile up if the notification daemon
/// hangs.
const CHILDREN_MAX: usize = 4;

/// Text of a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Text {
    title: String,
    body: String,
    urgent: bool,
}

/// Shows notifications.
#[derive(Debug, Default)]
pub struct Notifier {
    children: Vec<Child>,
    warned: Option<Instant>,
    missing: bool,
}

impl Notifier {
    /// Shows a notification if the notice is of interest to the user.
    pub fn tell(&mut self, notice: &Notice, now: Instant) {
        self.children
            .retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_)) | Err(_)));
        if matches!(notice, Notice::Memory { .. } | Notice::Growing { .. }) {
            let lately = |then: Instant| now.saturating_duration_since(then) < WARN_EVERY;
            if self.warned.is_some_and(lately) {
                return;
            }
        }
        let Some(text) = text(notice) else {
            return;
        };
        if !matches!(notice, Notice::Done(_)) {
            self.warned = Some(now);
        }
        self.show(&text);
    }

    fn show(&mut self, text: &Text) {
        if self.missing || self.children.len() >= CHILDREN_MAX {
            return;
        }
        let urgency = match text.urgent {
            true => "--urgency=critical",
            false => "--urgency=normal",
        };
        let shown = Command::new(PROGRAM)
            .args([
                "--app-name=Limelight",
                "--icon=dialog-warning",
                urgency,
                "--",
            ])
            .args([&text.title, &text.body])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match shown {
            Ok(child) => self.children.push(child),
            Err(error) => {
                // Warn only once.
                self.missing = true;
                tracing::info!("cannot run {PROGRAM}: {error}; no notifications are shown");
            }
        }
    }
}

/// The text for a notice; `None` if it is not shown.
fn text(notice: &Notice) -> Option<Text> {
    match notice {
        Notice::Memory {
            level,
            next: Some(next),
            ..
        } if *level >= Level::Kill => Some(Text {
            title: "Memory is short".to_owned(),
            body: format!(
                "{} will be closed next if memory stays short.",
                plain(&next.name)
            ),
            urgent: false,
        }),
        Notice::Memory { .. } => None,
        Notice::Growing { app, grown } => Some(Text {
            title: format!("{} uses more and more memory", plain(&app.name)),
            body: format!(
                "It grew by {} MiB lately. Save your work in it, or close it. Limelight never \
                 closes the foreground app. It reclaims memory from other apps; when they have \
                 none left, the kernel kills a program.",
                grown >> 20
            ),
            urgent: true,
        }),
        Notice::Done(entry) => done(entry),
    }
}

fn done(entry: &HistoryEntry) -> Option<Text> {
    let name = entry.app.as_ref().map(|app| plain(&app.name));
    match (entry.action, name) {
        (MemoryAction::Kill, name) => Some(Text {
            title: format!("{} was closed", name.unwrap_or("An app".to_owned())),
            body: format!(
                "Memory was short; this freed {} MiB. For the reason, run: limelight explain \
                 --last=kill",
                entry.bytes >> 20
            ),
            urgent: false,
        }),
        (MemoryAction::ForeignKill, _) => Some(Text {
            title: "Memory ran out".to_owned(),
            body: plain(&entry.reason),
            urgent: true,
        }),
        _ => None,
    }
}

/// Text from an app, with markup characters escaped.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for c in escaped(text).chars().take(200) {
        match c {
            '&' => plain.push_str("&amp;"),
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use limelight_proto::{AppStatus, MemoryThen};

    fn app(name: &str) -> AppStatus {
        AppStatus {
            name: name.to_owned(),
            pid: Some(7),
            cgroup: None,
            own_cgroup: true,
        }
    }

    fn entry(action: MemoryAction) -> Notice {
        Notice::Done(HistoryEntry {
            unix_ms: 0,
            at_ms: 0,
            boot: String::new(),
            action,
            app: Some(app("<b>news</b>\n")),
            uid: Some(1000),
            class: None,
            bytes: 34 << 20,
            took_us: None,
            times: 1,
            for_ms: 0,
            reason: "why".to_owned(),
            memory: MemoryThen::default(),
        })
    }

    fn memory(level: Level, next: Option<AppStatus>) -> Notice {
        Notice::Memory {
            level,
            memory: MemoryThen::default(),
            next,
        }
    }

    #[test]
    fn kills_are_shown_and_routine_actions_are_not() {
        let killed = text(&entry(MemoryAction::Kill)).unwrap();
        assert_eq!(killed.title, "&lt;b&gt;news&lt;/b&gt;\\n was closed");
        assert!(killed.body.contains("34 MiB"), "{}", killed.body);
        assert!(text(&entry(MemoryAction::ForeignKill)).unwrap().urgent);
        for action in [
            MemoryAction::Squeeze,
            MemoryAction::Freeze,
            MemoryAction::Thaw,
            MemoryAction::Return,
            MemoryAction::Ask,
        ] {
            assert_eq!(text(&entry(action)), None, "{action}");
        }
        assert_eq!(text(&memory(Level::Swap, Some(app("x")))), None);
        assert_eq!(text(&memory(Level::Kill, None)), None);
        let warned = text(&memory(Level::Kill, Some(app("x")))).unwrap();
        assert!(
            warned.body.starts_with("x will be closed next"),
            "{}",
            warned.body
        );
    }

    #[test]
    fn warnings_are_rate_limited() {
        // With `missing` set, no program is run.
        let mut notifier = Notifier {
            missing: true,
            ..Notifier::default()
        };
        let start = Instant::now();
        notifier.tell(&memory(Level::Kill, Some(app("x"))), start);
        assert_eq!(notifier.warned, Some(start));
        notifier.tell(&memory(Level::Kill, Some(app("x"))), start + WARN_EVERY / 2);
        assert_eq!(notifier.warned, Some(start));
        notifier.tell(&memory(Level::Kill, Some(app("x"))), start + WARN_EVERY);
        assert_eq!(notifier.warned, Some(start + WARN_EVERY));
    }
}
