// SPDX-License-Identifier: GPL-2.0-or-later
//! Publishes the actions of `swap` in the history, to clients and in the log.

use limelight_core::model::apps::Known;
use limelight_core::model::shortage::Level;
use limelight_core::model::{AppKey, Snapshot};
use limelight_proto::{MemoryAction, MemoryThen, Notice};
use tracing::warn;

use crate::mechanisms::swap::kill_targets::KillTargets;
use crate::mechanisms::swap::MemoryNotice;
use crate::reconcile::history::{History, Note};
use crate::reconcile::outbox::Message;

/// Publishes notices about the apps of this snapshot.
pub(super) fn publish(
    notices: Vec<MemoryNotice>,
    snapshot: &Snapshot,
    targets: &KillTargets,
    history: &mut History,
    messages: &mut Vec<Message>,
) {
    let memory = MemoryThen::from(&snapshot.shortage.gauge());
    let named = |key: AppKey| snapshot.apps.iter().find(|known| known.key() == key);
    let service = |key: AppKey| {
        let mut all = snapshot.services.iter();
        all.find(|service| service.app.key == key)
    };
    for notice in notices {
        match notice {
            MemoryNotice::Did {
                at,
                action,
                app,
                bytes,
                took,
                reason,
                gauge,
            } => {
                let known = named(app).or_else(|| targets.get(app));
                history.note(Note {
                    at,
                    action,
                    app: known
                        .map(|known| &known.found.app)
                        .or_else(|| service(app).map(|service| &service.app)),
                    uid: known.map(|known| known.found.uid),
                    class: known.map(|known| known.found.class.class),
                    bytes,
                    took,
                    reason,
                    memory: gauge.map_or(memory, |(_, gauge)| MemoryThen::from(&gauge)),
                });
            }
            MemoryNotice::Level { level, next } => {
                let next = next.and_then(named);
                messages.push(shortage(level, next, memory));
                if level > Level::Plenty {
                    history.note(asked(level, next, snapshot, memory));
                }
            }
            MemoryNotice::Grows { app, grown } => {
                let Some(known) = named(app) else {
                    continue;
                };
                let app = &known.found.app;
                messages.push(Message {
                    owner: Some(known.found.uid),
                    notice: Notice::Growing {
                        app: app.into(),
                        grown,
                    },
                    others: None,
                });
                let name = &app.name;
                warn!(
                    "{name} is in the foreground and grew by {} MiB recently while memory is \
                     short: save your work in it, or close it",
                    grown >> 20
                );
            }
        }
    }
}

/// The message to clients about the level of the shortage and the app that is killed next.
fn shortage(level: Level, next: Option<&Known>, memory: MemoryThen) -> Message {
    let notice = |next: Option<&Known>| Notice::Memory {
        level,
        memory,
        next: next.map(|next| (&next.found.app).into()),
    };
    Message {
        owner: next.map(|next| next.found.uid),
        notice: notice(next),
        others: Some(notice(None)),
    }
}

/// The history note of a request to all apps to free memory.
fn asked<'a>(
    level: Level,
    next: Option<&Known>,
    snapshot: &Snapshot,
    memory: MemoryThen,
) -> Note<'a> {
    let gauge = snapshot.shortage.gauge();
    let wanted = snapshot.shortage.thresholds().swap;
    Note {
        at: gauge.at,
        action: MemoryAction::Ask,
        app: None,
        // The reason names the next app, so the owner of that app is recorded.
        uid: next.map(|next| next.found.uid),
        class: None,
        bytes: wanted.saturating_sub(gauge.available),
        took: None,
        reason: match next {
            Some(next) => format!(
                "memory is short ({}); if it stays short, {} is closed next",
                level.name(),
                next.found.app.name
            ),
            None => format!("memory is short ({})", level.name()),
        },
        memory,
    }
}
