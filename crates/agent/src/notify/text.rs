// SPDX-License-Identifier: GPL-2.0-or-later
//! The texts of the notifications.

use limelight_core::text::escaped;
use limelight_proto::{Decision, HistoryEntry, Level, MemoryAction, Notice, Response};

use super::bus::Text;

/// Action that explains why an app was closed.
pub const WHY: &str = "why";

/// Action that asks the daemon not to close an app.
pub const KEEP: &str = "keep";

/// Maximum length of a text from outside, in characters.
const PLAIN_MAX: usize = 200;

/// Maximum number of apps in an explanation that were not closed.
const OTHERS_MAX: usize = 3;

/// The notification for a notice; `None` if it is not shown.
pub fn of_notice(notice: &Notice) -> Option<Text> {
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
            actions: next.pid.map_or(Vec::new(), |_| vec![(KEEP, "Keep it")]),
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
            actions: Vec::new(),
        }),
        Notice::Done(entry) => done(entry),
        Notice::Foreground { .. } => None,
    }
}

fn done(entry: &HistoryEntry) -> Option<Text> {
    let name = entry.app.as_ref().map(|app| plain(&app.name));
    match entry.action {
        MemoryAction::Kill => Some(Text {
            title: format!("{} was closed", name.as_deref().unwrap_or("An app")),
            body: format!(
                "Memory was short; this freed {} MiB. For the reason, run: limelight explain \
                 --last=kill",
                entry.bytes >> 20
            ),
            urgent: false,
            actions: match name {
                Some(_) => vec![(WHY, "Why?"), (KEEP, "Keep next time")],
                None => vec![(WHY, "Why?")],
            },
        }),
        MemoryAction::ForeignKill => Some(Text {
            title: "Memory ran out".to_owned(),
            body: plain(&entry.reason),
            urgent: true,
            actions: Vec::new(),
        }),
        _ => None,
    }
}

/// Explains a kill: by the decision, if the daemon still knows the one that led to it, else by the
/// history's entry alone.
pub fn why(entry: &HistoryEntry, decision: Option<&Decision>) -> Text {
    let name = entry.app.as_ref().map(|app| app.name.as_str());
    let chosen = decision.and_then(|decision| {
        let chosen = decision.weighed.iter().find(|one| one.chosen)?;
        let same = |app| (&chosen.app.name, chosen.app.pid) == app;
        let is_it = entry
            .app
            .as_ref()
            .is_some_and(|app| same((&app.name, app.pid)));
        is_it.then_some((decision, chosen))
    });
    let mut lines = vec![plain(&entry.reason)];
    if let Some((decision, chosen)) = chosen {
        lines = vec![
            format!("Its class is {}: {}.", chosen.class, plain(&chosen.reason)),
            format!(
                "{} MiB of memory were available; apps may be closed below {} MiB.",
                decision.memory.available >> 20,
                decision.kill_threshold >> 20
            ),
        ];
        let others = decision.weighed.iter().filter(|one| !one.chosen);
        lines.extend(others.take(OTHERS_MAX).map(|other| {
            let (name, reason) = (plain(&other.app.name), plain(&other.reason));
            format!("Not closed: {name} ({}), {reason}.", other.class)
        }));
    }
    Text {
        title: format!("Why {} was closed", plain(name.unwrap_or("an app"))),
        body: lines.join("\n"),
        ..Text::default()
    }
}

/// Shown while an app that is to be kept does not run.
pub fn kept_later(name: &str) -> Text {
    Text {
        title: format!("{} does not run yet", plain(name)),
        body: "Limelight is asked to keep it once it is in the foreground again. By default, only \
               root may protect an app from being closed: for good, by adding it to [class] in \
               /etc/limelight/limelight.toml."
            .to_owned(),
        ..Text::default()
    }
}

/// Shows the daemon's answer to the request to keep an app.
pub fn kept(name: &str, answer: &Response) -> Text {
    let name = plain(name);
    let (title, body) = match answer {
        Response::Ok { message } => (format!("{name} is kept until it ends"), plain(message)),
        Response::Error { message, cure, .. } => (
            format!("{name} may still be closed"),
            format!("{}. To change that: {}.", plain(message), plain(cure)),
        ),
        _ => (
            format!("{name} may still be closed"),
            "The daemon's answer does not match the request.".to_owned(),
        ),
    };
    Text {
        title,
        body,
        ..Text::default()
    }
}

/// Text from outside, in one line and bounded.
fn plain(text: &str) -> String {
    escaped(text).chars().take(PLAIN_MAX).collect()
}
