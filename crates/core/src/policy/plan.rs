// SPDX-License-Identifier: GPL-2.0-or-later
//! Maps an event and a snapshot to actions.
//!
//! The plan is a reconciliation: it compares the desired state with the state that the mechanisms
//! report, and lists the difference. A failed action is thus planned again at the next event, and
//! an event that is delivered twice has no effect the second time.

use super::{boost, premap, prezero, protect, readahead, swap, window};
use crate::model::app::{AppKey, ProcessId};
use crate::model::never::Never;
use crate::model::snapshot::{Measured, Snapshot};

/// Trigger of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The topmost app changed, perhaps to none.
    Topmost,
    /// A program is starting, and it came to the foreground soon after an earlier start of which
    /// there is a record.
    Starting,
    /// Memory pressure changed: protection may have to be lowered or raised, or apps squeezed.
    Pressure,
    /// Time passed: processes may have started or ended, and apps may have grown.
    Tick,
    /// The configuration was reloaded.
    Settings,
    /// The daemon stops.
    Stop,
}

/// One action of a mechanism, carried out by the mechanism of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Pass the topmost app's processes to the kernel. All mechanisms in the kernel use this set.
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

/// All actions, in order. Each mechanism's withdrawals come before its grants, so that it never
/// favours two apps at once.
/// Locks on shared pages are an exception: one app's replace the other's
/// ([`protect::Step::Lock`]).
pub fn plan(event: &Event, snapshot: &Snapshot) -> Vec<Action> {
    // A frozen app is thawed first, because other steps help only an app that runs.
    let steps = swap::withdraw(event, snapshot);
    let mut actions: Vec<Action> = steps.into_iter().map(Action::Swap).collect();
    let steps = swap::receive(event, snapshot);
    actions.extend(steps.into_iter().map(Action::Swap));
    // Boost comes next, because threads of the app are waiting for a processor now.
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
/// The kernel adds children of members by itself, and a new set makes it forget how hard the old
/// set was to protect. So the set is replaced only when the topmost app changes, or when the app
/// got a process that is not such a child. There is such a process if a process was not passed to
/// the kernel and the kernel counts fewer processes than the app has.
///
/// An app that is never protected is not passed to the kernel. Switching the kernel's `protect` off
/// instead would also drop the records of which app uses which page, for all users' apps.
fn mark(event: &Event, snapshot: &Snapshot) -> Option<Action> {
    if !snapshot.device {
        return None;
    }
    let marks =
        |topmost: &&Measured| *event != Event::Stop && topmost.never(Never::Protect).is_none();
    let wanted = snapshot.topmost.as_ref().filter(marks);
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
