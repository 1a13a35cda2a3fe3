// SPDX-License-Identifier: GPL-2.0-or-later
//! Maps an event to actions.
//!
//! The plan is a reconciliation: it compares the desired state with the state that the mechanisms
//! report, and lists the difference. So a failed action is planned again at the next event, and an
//! event that is delivered twice does nothing the second time.

use super::{boost, premap, prezero, protect, readahead, swap, window};
use crate::model::app::{AppKey, ProcessId};
use crate::model::snapshot::{Measured, Snapshot};

/// Trigger of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The topmost app changed, perhaps to none.
    Topmost,
    /// A program starts that came to the foreground soon after an earlier start.
    Starting,
    /// Memory pressure changed how far protection may go, or how much the other apps must give.
    Pressure,
    /// Time passed: processes came and went, the app grew.
    Tick,
    /// The configuration was reloaded.
    Settings,
    /// The daemon stops.
    Stop,
}

/// One action of a mechanism, carried out by the mechanism of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Pass the topmost app's processes to the kernel. All of the kernel's mechanisms share this
    /// set.
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
    /// Pass a response window to the kernel. Never planned here: see [`window::step`].
    Window(window::Step),
}

/// All actions, in order. Withdrawals come before grants, so that two apps are never favoured at
/// once.
pub fn plan(event: &Event, snapshot: &Snapshot) -> Vec<Action> {
    // A frozen app must run before any other step helps it.
    let steps = swap::withdraw(event, snapshot);
    let mut actions: Vec<Action> = steps.into_iter().map(Action::Swap).collect();
    let steps = swap::receive(event, snapshot);
    actions.extend(steps.into_iter().map(Action::Swap));
    // Threads of the app are waiting for a processor now, so boost comes next.
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

/// The processes to pass to the kernel.
///
/// Children of members become members by themselves, and each new set makes the kernel forget how
/// hard the old one was to protect. So the set is replaced only when the topmost app changes, or
/// when a process joined from elsewhere: one that was not passed to the kernel, while the kernel
/// counts fewer processes than there are.
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
