// SPDX-License-Identifier: GPL-2.0-or-later
//! From what happened to what is done.
//!
//! The plan is a reconciliation: it compares what should be in force with what the actuators
//! report to be in force, and lists the difference. An action that failed is therefore planned
//! again at the next event, and an event that is delivered twice does nothing the second time.

use super::protect;
use crate::model::app::ProcessId;
use crate::model::snapshot::Snapshot;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Another app, or none, is in front.
    Topmost,
    /// Memory pressure changed how far protection may go.
    Pressure,
    /// Time passed: processes came and went, the app grew.
    Tick,
    /// The configuration was read again.
    Settings,
    /// The daemon stops.
    Stop,
}

/// One thing to do, by mechanism. The actuator of that name carries it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Tell the kernel which processes are the topmost app's; an empty set: none are. All of the
    /// kernel's mechanisms share this set.
    Mark {
        /// The processes, ascending.
        members: Vec<ProcessId>,
    },
    /// A step of `protect`.
    Protect(protect::Step),
}

/// Everything to do now, in order. What is taken away comes before what is given, so that two
/// apps are never favoured at once.
pub fn plan(event: &Event, snapshot: &Snapshot) -> Vec<Action> {
    let mut actions: Vec<Action> = protect::withdraw(event, snapshot)
        .into_iter()
        .map(Action::Protect)
        .collect();
    actions.extend(mark(event, snapshot));
    actions.extend(
        protect::grant(event, snapshot)
            .into_iter()
            .map(Action::Protect),
    );
    actions
}

fn mark(event: &Event, snapshot: &Snapshot) -> Option<Action> {
    if !snapshot.device {
        return None;
    }
    let wanted = match (&snapshot.topmost, event) {
        (Some(topmost), Event::Topmost | Event::Pressure | Event::Tick | Event::Settings) => {
            topmost.members.as_slice()
        }
        _ => &[],
    };
    (wanted != snapshot.in_force.marked).then(|| Action::Mark {
        members: wanted.to_vec(),
    })
}
