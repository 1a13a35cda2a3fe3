// SPDX-License-Identifier: GPL-2.0-or-later
//! Desktop notifications about memory shortages: kills must be reported to the user, who can ask
//! for the reason, and ask the daemon to keep the app.

mod bus;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use limelight_proto::{
    AppReport, Class, HistoryEntry, MemoryAction, Notice, Request, Response, SourceStatus,
};

use self::bus::{Bus, Text};

/// Minimum time between two warnings about a shortage or a growing app.
const WARN_EVERY: Duration = Duration::from_secs(30);

/// Maximum number of notifications whose buttons work; those of older ones do nothing.
const SUBJECTS_MAX: usize = 32;

/// Maximum number of apps to be kept once they run again.
const KEPT_MAX: usize = 16;

/// What a notification is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    /// An app that was closed.
    Closed(Box<HistoryEntry>),
    /// An app that is closed next, and its process.
    Next(String, i32),
}

/// Why the daemon was asked something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// To explain this kill.
    Explain(Box<HistoryEntry>),
    /// To find the running app with this name, which is to be kept.
    Find(String),
    /// To find out whether the app that came to the foreground is to be kept.
    Recognise,
    /// To keep the app with this name.
    Keep(String),
}

/// A request for the daemon, and its purpose.
pub type Question = (Request, Purpose);

/// Shows notifications.
#[derive(Debug)]
pub struct Notifier {
    bus: Bus,
    warned: Option<Instant>,
    subjects: BTreeMap<u64, Subject>,
    /// Names of the apps to keep once they run again.
    keep: BTreeSet<String>,
}

impl Notifier {
    /// Connects to the session's bus. Fails only if no thread can be started.
    pub fn start() -> std::io::Result<Notifier> {
        Notifier::on_bus(None)
    }

    fn on_bus(address: Option<String>) -> std::io::Result<Notifier> {
        let bus = Bus::start(address)?;
        bus.probe();
        Ok(Notifier {
            bus,
            warned: None,
            subjects: BTreeMap::new(),
            keep: BTreeSet::new(),
        })
    }

    /// Searches for the notification server again, because the session has changed.
    pub fn look_again(&self) {
        self.bus.probe();
    }

    /// Whether notifications are shown, and by which server.
    pub fn status(&self) -> SourceStatus {
        self.bus.status()
    }

    /// Descriptor that becomes readable when [`Notifier::turn`] has work.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bus.fd()
    }

    /// Shows a notification if the notice is of interest to the user.
    pub fn tell(&mut self, notice: &Notice, now: Instant) {
        if matches!(notice, Notice::Memory { .. } | Notice::Growing { .. }) {
            let lately = |then: Instant| now.saturating_duration_since(then) < WARN_EVERY;
            if self.warned.is_some_and(lately) {
                return;
            }
        }
        let Some(text) = text::of_notice(notice) else {
            return;
        };
        if !matches!(notice, Notice::Done(_)) {
            self.warned = Some(now);
        }
        let subject = match notice {
            Notice::Done(entry) if entry.action == MemoryAction::Kill => {
                Some(Subject::Closed(Box::new(entry.clone())))
            }
            Notice::Memory {
                next: Some(next), ..
            } => next.pid.map(|pid| Subject::Next(next.name.clone(), pid)),
            _ => None,
        };
        let number = self.show(text);
        if let Some((number, subject)) = number.zip(subject) {
            while self.subjects.len() >= SUBJECTS_MAX {
                self.subjects.pop_first();
            }
            self.subjects.insert(number, subject);
        }
    }

    fn show(&mut self, text: Text) -> Option<u64> {
        let number = self.bus.show(text);
        if number.is_none() && self.bus.dropped.is_power_of_two() {
            let dropped = self.bus.dropped;
            tracing::warn!("the notification server hangs; {dropped} notifications were dropped");
        }
        number
    }

    /// Handles the buttons that the user pressed. Returns what the daemon is to be asked.
    pub fn turn(&mut self) -> Vec<Question> {
        let mut questions = Vec::new();
        for pressed in self.bus.pressed() {
            let Some(subject) = self.subjects.get(&pressed.number) else {
                continue;
            };
            questions.extend(match (pressed.action.as_str(), subject.clone()) {
                (text::WHY, Subject::Closed(entry)) => Some((
                    Request::Decision {
                        action: Some(MemoryAction::Kill),
                    },
                    Purpose::Explain(entry),
                )),
                (text::KEEP, Subject::Closed(entry)) => entry
                    .app
                    .map(|app| (Request::Apps { pid: None }, Purpose::Find(app.name))),
                (text::KEEP, Subject::Next(name, pid)) => Some(keep(name, pid)),
                _ => None,
            });
        }
        questions
    }

    /// Returns what the daemon is to be asked when a process comes to the foreground.
    pub fn focused(&self, pid: i32) -> Option<Question> {
        (!self.keep.is_empty()).then_some((Request::Apps { pid: Some(pid) }, Purpose::Recognise))
    }

    /// Takes an answer of the daemon. Returns the next question, if there is one.
    pub fn answer(&mut self, purpose: Purpose, answer: &Response) -> Option<Question> {
        match (purpose, answer) {
            (Purpose::Explain(entry), Response::Decision { decision, .. }) => {
                self.show(text::why(&entry, decision.as_deref()));
            }
            // The history's entry explains the kill, too.
            (Purpose::Explain(entry), _) => drop(self.show(text::why(&entry, None))),
            (Purpose::Find(name), Response::Apps { apps, .. }) => {
                if let Some(pid) = own(apps).find(|app| app.app.name == name).and_then(pid) {
                    return Some(keep(name, pid));
                }
                self.show(text::kept_later(&name));
                if self.keep.len() < KEPT_MAX {
                    self.keep.insert(name);
                }
            }
            (Purpose::Recognise, Response::Apps { apps, .. }) => {
                let app = own(apps).find(|app| self.keep.contains(&app.app.name))?;
                let name = self.keep.take(&app.app.name)?;
                return pid(app).map(|pid| keep(name, pid));
            }
            (Purpose::Recognise, _) => {}
            (Purpose::Keep(name) | Purpose::Find(name), answer) => {
                self.show(text::kept(&name, answer));
            }
        }
        None
    }
}

/// Asks the daemon to keep an app.
fn keep(name: String, pid: i32) -> Question {
    let class = Some(Class::Keep);
    (
        Request::Class {
            pid,
            class,
            save: false,
        },
        Purpose::Keep(name),
    )
}

/// The apps of this user.
fn own(apps: &[AppReport]) -> impl Iterator<Item = &AppReport> {
    let uid = rustix::process::getuid().as_raw();
    apps.iter().filter(move |app| app.uid == uid)
}

fn pid(app: &AppReport) -> Option<i32> {
    app.app.pid
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
