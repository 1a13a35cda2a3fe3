// SPDX-License-Identifier: GPL-2.0-or-later
//! The changes in force. `status`, `explain` and the log report them to the user.

use std::collections::BTreeMap;

use limelight_core::model::{AppKey, ProcessId};
use limelight_proto::{Change, Outcome};
use tracing::{debug, info, warn};

/// The scope of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All processes of an app.
    App(AppKey),
    /// One process.
    Process(ProcessId),
    /// The whole machine. The change is reported with the topmost app.
    Machine,
}

/// What a change sets. Changes of one kind are undone together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A setting of `/dev/limelight`.
    Device,
    /// The controllers that a cgroup enables for its children.
    Controllers,
    /// The cgroup in which an app runs.
    Home,
    /// A reservation of memory.
    Reservation,
    /// A process's `oom_score_adj`.
    Score,
    /// Locks on shared pages.
    Locks,
    /// A cgroup's weight.
    Weight,
    /// Nice value, slice and I/O priority of a process's threads.
    Threads,
    /// The nice value of a session (autogroup).
    Autogroup,
    /// A cgroup's swap limit (`memory.swap.max`).
    SwapMax,
    /// A cgroup's `memory.high`.
    High,
    /// A cgroup's freezer.
    Freeze,
    /// Reclaim of a cgroup's memory.
    Reclaim,
}

/// Changes in force, by knob.
#[derive(Debug, Default)]
pub struct Changes(BTreeMap<String, (Reach, Kind, Change)>);

impl Changes {
    /// Stores and logs a change, which replaces the stored change of the same knob. If both changes
    /// are applied, the new one keeps the old `from`, which is the value before Limelight. In a dry
    /// run every plan repeats its changes: an equal one keeps its time. A repeated outcome is logged
    /// at debug level only.
    pub fn note(&mut self, reach: Reach, kind: Kind, mut change: Change) {
        let known = self.0.get(&change.knob).map(|(.., known)| known);
        if let Some(known) = known {
            match (&known.outcome, &change.outcome) {
                (Outcome::Applied, Outcome::Applied) => change.from.clone_from(&known.from),
                (Outcome::Planned, Outcome::Planned) if known.to == change.to => {
                    change.at_ms = known.at_ms;
                }
                _ => {}
            }
        }
        let told_before = known.is_some_and(|known| known.outcome == change.outcome);
        let Change {
            knob,
            from,
            to,
            rule,
            outcome,
            ..
        } = &change;
        match outcome {
            _ if told_before => debug!("{knob}: {from} -> {to} ({rule})"),
            Outcome::Applied => info!("{knob}: {from} -> {to} ({rule})"),
            Outcome::Planned => info!("would change {knob}: {from} -> {to} ({rule})"),
            Outcome::Inert { why } => warn!("{knob}: {to} has no effect: {why} ({rule})"),
            Outcome::Failed { why } => warn!("{knob}: {to} refused: {why} ({rule})"),
        }
        self.0.insert(change.knob.clone(), (reach, kind, change));
    }

    /// Drops a change that was undone.
    pub fn drop_knob(&mut self, knob: &str) {
        self.0.remove(knob);
    }

    /// Drops every change whose scope and kind `which` accepts.
    pub fn drop_where(&mut self, which: impl Fn(Reach, Kind) -> bool) {
        self.0.retain(|_, (reach, kind, _)| !which(*reach, *kind));
    }

    /// Whether a change of this knob is applied.
    pub fn is_applied(&self, knob: &str) -> bool {
        let known = self.0.get(knob);
        known.is_some_and(|(.., change)| change.outcome == Outcome::Applied)
    }

    /// The changes whose scope `sees` accepts, ordered by knob.
    pub fn all_where(&self, sees: impl Fn(Reach) -> bool) -> Vec<Change> {
        let values = self.0.values().filter(|(reach, ..)| sees(*reach));
        values.map(|(.., change)| change.clone()).collect()
    }

    /// The changes that affect this process of this app. `topmost`: whether the app is topmost; if
    /// so, machine-wide changes are included.
    pub fn reaching(&self, app: AppKey, process: ProcessId, topmost: bool) -> Vec<Change> {
        let reaches = |reach: Reach| match reach {
            Reach::App(key) => key == app,
            Reach::Process(id) => id == process,
            Reach::Machine => topmost,
        };
        let values = self.0.values();
        values
            .filter(|(reach, ..)| reaches(*reach))
            .map(|(.., change)| change.clone())
            .collect()
    }
}
