// SPDX-License-Identifier: GPL-2.0-or-later
//! From what happened to what is done.
//!
//! The plan is a reconciliation: it compares what should be in force with what the actuators
//! report to be in force, and lists the difference. An action that failed is therefore planned
//! again at the next event, and an event that is delivered twice does nothing the second time.

use super::{boost, premap, prezero, protect, readahead, swap, window};
use crate::model::app::{AppKey, ProcessId};
use crate::model::snapshot::{Measured, Snapshot};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Another app, or none, is in front.
    Topmost,
    /// A program is being started that was in front soon after an earlier start.
    Starting,
    /// Memory pressure changed how far protection may go, or what the other apps have to give.
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
    /// Tell the kernel which processes are the topmost app's. All of the kernel's mechanisms share
    /// this set.
    Mark {
        /// The app and its processes, ascending; `None`: no app is topmost.
        app: Option<(AppKey, Vec<ProcessId>)>,
    },
    /// A step of `protect`.
    Protect(protect::Step),
    /// A step of `boost`.
    Boost(boost::Step),
    /// A step of `premap`.
    Premap(premap::Step),
    /// A step of `readahead`.
    Readahead(readahead::Step),
    /// A step of `prezero`.
    Prezero(prezero::Step),
    /// A step of `swap`.
    Swap(swap::Step),
    /// Tell the kernel of a response window. Never planned here: see [`window::step`].
    Window(window::Step),
}

/// Everything to do now, in order. What is taken away comes before what is given, so that two
/// apps are never favoured at once.
pub fn plan(event: &Event, snapshot: &Snapshot) -> Vec<Action> {
    // An app that was stopped must run before anything else helps it.
    let steps = swap::withdraw(event, snapshot);
    let mut actions: Vec<Action> = steps.into_iter().map(Action::Swap).collect();
    let steps = swap::receive(event, snapshot);
    actions.extend(steps.into_iter().map(Action::Swap));
    // Whoever waits for a processor waits now: boost comes next.
    let steps = boost::withdraw(event, snapshot);
    actions.extend(steps.into_iter().map(Action::Boost));
    let steps = boost::grant(event, snapshot);
    actions.extend(steps.into_iter().map(Action::Boost));
    let steps = protect::withdraw(event, snapshot);
    actions.extend(steps.into_iter().map(Action::Protect));
    let steps = premap::withdraw(event, snapshot);
    actions.extend(steps.into_iter().map(Action::Premap));
    let steps = readahead::withdraw(event, snapshot);
    actions.extend(steps.into_iter().map(Action::Readahead));
    let steps = prezero::withdraw(event, snapshot);
    actions.extend(steps.into_iter().map(Action::Prezero));
    actions.extend(mark(event, snapshot));
    actions.extend(
        protect::grant(event, snapshot)
            .into_iter()
            .map(Action::Protect),
    );
    let steps = premap::grant(event, snapshot);
    actions.extend(steps.into_iter().map(Action::Premap));
    let steps = readahead::grant(event, snapshot);
    actions.extend(steps.into_iter().map(Action::Readahead));
    let steps = prezero::grant(event, snapshot);
    actions.extend(steps.into_iter().map(Action::Prezero));
    let steps = swap::grant(event, snapshot);
    actions.extend(steps.into_iter().map(Action::Swap));
    actions
}

/// Which processes the kernel should know.
///
/// Children of members are members without being told, and each new set makes the kernel forget
/// how hard the old one was to protect. So the set is replaced when another app is in front, and
/// otherwise only for a process that joined from elsewhere: one that was not given to the kernel,
/// while the kernel counts fewer processes than there are.
fn mark(event: &Event, snapshot: &Snapshot) -> Option<Action> {
    if !snapshot.device {
        return None;
    }
    let wanted = snapshot.topmost.as_ref().filter(|_| *event != Event::Stop);
    match (wanted, &snapshot.in_force.marked) {
        (None, None) => None,
        (None, Some(_)) => Some(Action::Mark { app: None }),
        (Some(topmost), Some((app, marked))) if *app == topmost.app.key => {
            let known = |id: &ProcessId| marked.binary_search(id).is_ok();
            let counted = snapshot.device_members as usize >= topmost.members.len();
            let joined = !counted && !topmost.members.iter().all(known);
            joined.then(|| give(topmost))
        }
        (Some(topmost), _) => Some(give(topmost)),
    }
}

fn give(topmost: &Measured) -> Action {
    Action::Mark {
        app: Some((topmost.app.key, topmost.members.clone())),
    }
}
