// SPDX-License-Identifier: GPL-2.0-or-later
//! Starting programs that are expected in the foreground. A program is expected if there is a
//! record of an earlier start, because only apps that became topmost soon after their start are
//! recorded.

use std::time::Duration;

use limelight_core::model::never::Exceptions;
use limelight_core::model::snapshot::Measured;
use limelight_core::model::{App, AppKey, Home, ProcessId};
use limelight_core::policy::Event;
use tracing::debug;

use crate::reconcile::scope::Scope;
use crate::reconcile::Reconciler;
use crate::system::authorization;
use crate::system::identify;
use crate::system::{now, System};

/// A starting program, its user, and the time until which it counts as starting.
#[derive(Debug, Clone, Copy)]
pub struct Launch {
    id: ProcessId,
    uid: u32,
    until: Duration,
}

impl Reconciler {
    /// Takes the pids of programs that are being executed and have a record of an earlier start.
    /// The last one whose user has permission counts: a user who may not claim the foreground gets
    /// no boost for a starting app either.
    pub(super) fn launched(&mut self, pids: &[i32]) {
        let settings = &self.config.settings;
        if !settings.boost.enabled || !settings.boost.starting {
            return;
        }
        let until = now() + settings.readahead.record;
        let found = pids.iter().rev().find_map(|&pid| {
            let (id, process) = self.system.process(pid).ok()?;
            let uid = process.owner_uid().ok()?;
            let speaker = self.access.speaker_of(&process, uid);
            match authorization::may_start_apps(&self.system, &self.access, speaker) {
                Ok(()) => Some(Launch { id, uid, until }),
                Err(refusal) => {
                    debug!(
                        "pid {pid} starts an app, which is not boosted: {}",
                        refusal.message
                    );
                    None
                }
            }
        });
        if let Some(starting) = &found {
            debug!("pid {} is expected in the foreground", starting.id.pid);
            self.model.starting = found;
            self.reconcile(Scope::All(Event::Starting));
            let at = now();
            let latest = at + self.config.settings.protect.interval;
            self.ticks.next = self.ticks.next.clamp(at, latest);
        }
    }

    /// Measures the starting program, unless its time is over or it is topmost by now.
    pub(super) fn measure_starting(&mut self, topmost: Option<&Measured>) -> Option<Measured> {
        let starting = self.model.starting?;
        let in_front = topmost.is_some_and(|topmost| topmost.members.contains(&starting.id));
        let measured = match starting.until > now() && !in_front {
            true => measure(&self.system, &starting),
            false => None,
        };
        let measured = measured.map(|one| Measured {
            exceptions: self
                .scan
                .source
                .exceptions_of(&self.system, &one.app, &one.members),
            ..one
        });
        if measured.is_none() {
            self.model.starting = None;
        }
        measured
            .filter(|starting| topmost.is_none_or(|topmost| topmost.app.key != starting.app.key))
    }
}

fn measure(system: &System, starting: &Launch) -> Option<Measured> {
    let id = starting.id;
    system.same_process(id)?;
    let app = authorization::confine(
        system,
        starting.uid,
        identify::app_of_pid(system, id.pid).ok()?,
    );
    let is_own = |member: &ProcessId| member.starttime >= id.starttime;
    let (app, members) = match identify::members(system, &app) {
        Ok(members) if members.iter().all(is_own) => (app, members),
        // A program that has just started is still in its launcher's cgroup, so the app is its
        // process tree. That is also assumed if the processes of the cgroup cannot be read.
        _ => {
            let app = tree_of(id, app);
            let members = identify::members(system, &app);
            (app, members.unwrap_or_else(|_| vec![id]))
        }
    };
    members.contains(&id).then_some(Measured {
        app,
        members,
        footprint: None,
        terminal: None,
        exceptions: Exceptions::default(),
    })
}

/// The same app, reduced to the tree of this process.
fn tree_of(id: ProcessId, app: App) -> App {
    App {
        key: AppKey::Tree(id),
        process: Some(id),
        home: app.home.map(|home| Home { own: false, ..home }),
        ..app
    }
}
