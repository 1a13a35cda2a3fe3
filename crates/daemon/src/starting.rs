// SPDX-License-Identifier: GPL-2.0-or-later
//! A program that is being started and is expected to come to the front: there is a record of an
//! earlier start, and such records are made of nothing but apps that were in front soon after.

use std::time::Duration;

use limelight_core::model::snapshot::Measured;
use limelight_core::model::{App, AppKey, Home, ProcessId};
use limelight_core::policy::Event;
use tracing::debug;

use crate::daemon::Daemon;
use crate::doors::{now, Doors};
use crate::identify;
use crate::trust;

/// The program, and how long it may take.
#[derive(Debug, Clone, Copy)]
pub struct Starting {
    id: ProcessId,
    uid: u32,
    until: Duration,
}

impl Daemon {
    /// Programs that have a record are being executed: the last one counts. Who may not say which
    /// app is in front may not say it by starting one either.
    pub(crate) fn launched(&mut self, pids: &[i32]) {
        let settings = &self.config.settings;
        if !settings.boost.enabled || !settings.boost.starting {
            return;
        }
        let until = now() + settings.readahead.record;
        let found = pids.iter().rev().find_map(|&pid| {
            let (id, process) = self.doors.process(pid).ok()?;
            let uid = process.owner_uid().ok()?;
            let speaker = self.access.speaker_of(&process, uid);
            match trust::may_start_apps(&self.doors, &self.access, speaker) {
                Ok(()) => Some(Starting { id, uid, until }),
                Err(refusal) => {
                    debug!("pid {pid} starts an app: {}", refusal.message);
                    None
                }
            }
        });
        if let Some(starting) = &found {
            debug!("pid {} is expected in front", starting.id.pid);
            self.starting = found;
            self.refresh(Event::Starting);
            self.next_tick = self
                .next_tick
                .clamp(now(), now() + self.config.settings.protect.interval);
        }
    }

    /// The program that is being started, unless its time is over or it is in front by now.
    pub(crate) fn measure_starting(&mut self, topmost: Option<&Measured>) -> Option<Measured> {
        let starting = self.starting?;
        let in_front = topmost.is_some_and(|topmost| topmost.members.contains(&starting.id));
        let measured = match starting.until > now() && !in_front {
            true => measure(&self.doors, &starting),
            false => None,
        };
        if measured.is_none() {
            self.starting = None;
        }
        measured
            .filter(|starting| topmost.is_none_or(|topmost| topmost.app.key != starting.app.key))
    }
}

fn measure(doors: &Doors, starting: &Starting) -> Option<Measured> {
    let id = starting.id;
    doors.same_process(id)?;
    let app = trust::confine(
        doors,
        starting.uid,
        identify::app_of_pid(doors, id.pid).ok()?,
    );
    let members = identify::members(doors, &app);
    let (app, members) = match members
        .iter()
        .all(|member| member.starttime >= id.starttime)
    {
        true => (app, members),
        // A launcher's cgroup, in which it is for its first moments, is not the program's.
        false => {
            let app = tree_of(id, app);
            let members = identify::members(doors, &app);
            (app, members)
        }
    };
    members.contains(&id).then_some(Measured {
        app,
        members,
        footprint: None,
    })
}

/// The same app, as nothing but this process and its children.
fn tree_of(id: ProcessId, app: App) -> App {
    App {
        key: AppKey::Tree(id),
        process: Some(id),
        home: app.home.map(|home| Home { own: false, ..home }),
        ..app
    }
}
