// SPDX-License-Identifier: GPL-2.0-or-later
//! Pauses: undoes all changes, and makes none for a while. The sources are still read, so that the
//! right app is favoured when the pause ends.

use std::time::Duration;

use limelight_core::policy::Event;
use limelight_proto::{MemoryAction, Pause};
use tracing::warn;

use crate::mechanisms::changes::Kind;
use crate::reconcile::history::Note;
use crate::reconcile::scope::Scope;
use crate::reconcile::Reconciler;
use crate::restore::Entry;
use crate::sources::pressure;
use crate::system::now;

/// A pause in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pausing {
    since: Duration,
    /// `None`: until it is ended by request.
    ends: Option<Duration>,
}

impl Pausing {
    /// The pause in terms of the control protocol.
    pub fn report(self, at: Duration) -> Pause {
        let ms = |time: Duration| time.as_millis() as u64;
        Pause {
            for_ms: ms(at.saturating_sub(self.since)),
            left_ms: self.ends.map(|ends| ms(ends.saturating_sub(at))),
        }
    }
}

impl Reconciler {
    /// The pause in force.
    pub fn pause_report(&self) -> Option<Pause> {
        self.pause.map(|pause| pause.report(now()))
    }

    /// When the pause ends by itself.
    pub(super) fn pause_ends(&self) -> Option<Duration> {
        self.pause?.ends
    }

    /// Undoes all changes, and makes none until the pause ends; without a `length`, it lasts until
    /// [`Reconciler::resume`]. Returns how many changes could not be undone yet; the daemon tries
    /// again to undo these.
    pub fn pause(&mut self, uid: u32, length: Option<Duration>) -> usize {
        let at = now();
        self.pause = Some(Pausing {
            since: self.pause.map_or(at, |pause| pause.since),
            ends: length.map(|length| at + length),
        });
        self.hold_threads();
        self.reconcile(Scope::Window(at));
        self.reconcile(Scope::All(Event::Stop));
        let left = self.undo_rest();
        let end = match length {
            Some(length) => format!("for {} s", length.as_millis().div_ceil(1000)),
            None => "until limelight resume".to_owned(),
        };
        self.note_pause(
            MemoryAction::Pause,
            format!("uid {uid} asked for it, {end}"),
        );
        left
    }

    /// Ends the pause, and puts everything in force again. Returns whether there was a pause.
    pub fn resume(&mut self, uid: u32) -> bool {
        self.end_pause(format!("uid {uid} asked for it"))
    }

    /// Ends the pause if its time is over.
    pub fn pass_pause(&mut self, at: Duration) {
        if self.pause_ends().is_some_and(|ends| ends <= at) {
            self.end_pause("the time of the pause is over".to_owned());
        }
    }

    fn end_pause(&mut self, reason: String) -> bool {
        if self.pause.take().is_none() {
            return false;
        }
        self.hold_threads();
        self.note_pause(MemoryAction::Resume, reason);
        self.ticks.next = now() + self.config.settings.protect.interval;
        self.reconcile(Scope::All(Event::Settings));
        self.reconcile(Scope::Window(now()));
        true
    }

    /// Stops the work of the threads during a pause, and lets it continue afterwards.
    pub(super) fn hold_threads(&mut self) {
        let paused = self.pause.is_some();
        let swap = &self.mechanisms.swap;
        if let Some(guard) = &swap.guard {
            guard.set_paused(paused);
        }
        if let Some(swapper) = &swap.swapper {
            swapper.set_paused(paused);
        }
        self.mechanisms.readahead.set_paused(paused);
    }

    /// Undoes what no plan undoes, such as controllers that were enabled for children. A source's
    /// trace is not a change of this kind.
    fn undo_rest(&mut self) -> usize {
        let is_change = |entry: &Entry| !matches!(entry, Entry::TraceInstance { .. });
        let shared = &mut self.mechanisms.shared;
        shared.undo(&self.system, is_change);
        // A lineage entry is about values that no known process has.
        let entries = shared.recorded().iter();
        let left = entries.filter(|entry| is_change(entry) && entry.lineage().is_none());
        let left = left.count();
        if left > 0 {
            warn!("{left} changes could not be undone for the pause; limelightd tries again");
        }
        shared
            .changes
            .drop_where(|_, kind| kind == Kind::Controllers);
        left
    }

    fn note_pause(&mut self, action: MemoryAction, reason: String) {
        let memory = pressure::memory_then(&self.system);
        self.history.note(Note {
            at: now(),
            action,
            app: None,
            uid: None,
            class: None,
            bytes: 0,
            took: None,
            reason,
            memory,
        });
    }
}
