// SPDX-License-Identifier: GPL-2.0-or-later
//! Publishes the actions of `swap` in the history, to clients and in the log.

use limelight_core::model::apps::Known;
use limelight_core::model::shortage::Level;
use limelight_core::model::{AppKey, Snapshot};
use limelight_proto::{AppStatus, MemoryAction, MemoryThen, Notice};
use tracing::warn;

use crate::mechanisms::swap::kill_targets::KillTargets;
use crate::mechanisms::swap::MemoryNotice;
use crate::reconcile::history::{History, Note};
use crate::reconcile::outbox::Message;
use crate::reconcile::Reconciler;

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

impl Reconciler {
    /// Notifies the users who may know: the owner of the new foreground app, and the owner of the
    /// old one, who learns only that the app is no longer in the foreground. `owner`: the owner of
    /// the foreground app; `None`: unknown, and only root may know.
    pub(super) fn tell_foreground(&mut self, owner: Option<u32>) {
        let front = self.model.front();
        let now = front.map(|app| (app.key, owner.unwrap_or(0)));
        let app = front.map(AppStatus::from);
        let before = std::mem::replace(&mut self.told_front, now);
        if before.map(|(key, _)| key) == now.map(|(key, _)| key) {
            return;
        }
        let message = |owner, app| Message {
            owner: Some(owner),
            notice: Notice::Foreground { app },
            others: None,
        };
        let after = now.map(|(_, owner)| owner);
        let left = before.map(|(_, owner)| owner);
        let left = left.filter(|left| Some(*left) != after);
        let left = left.map(|left| message(left, None));
        let came = after.map(|after| message(after, app));
        self.outbox.messages.extend(left.into_iter().chain(came));
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
