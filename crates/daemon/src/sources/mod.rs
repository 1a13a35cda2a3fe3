// SPDX-License-Identifier: GPL-2.0-or-later
//! Sources of events. A source turns events into [`Input`]s and has no other effect: it calls
//! neither the model nor the policy nor another source.

pub mod apps;
pub mod display_servers;
pub mod evdev;
pub mod input;
pub mod new_units;
pub mod oom;
pub mod oom_score_adj;
pub mod pressure;
pub mod services;
pub mod sessions;
pub mod storage;
pub mod terminal;
pub mod top_app;
pub mod topmost_exit;
pub mod traced;
pub mod wake_graph;

use std::time::Duration;

use limelight_sys::clock;
use tracing::debug;

use crate::event_loop::reactor::Reactor;
use crate::restore::Ledger;
use crate::system::System;

use evdev::Evdev;
pub use input::Input;
use oom_score_adj::{OomScoreAdj, Zeroed};
use pressure::PressureSource;
use sessions::Sessions;
use top_app::TopApp;
use topmost_exit::TopmostExit;
use wake_graph::WakeGraphSource;

/// The sources that the event loop waits for.
#[derive(Debug)]
pub struct Sources {
    /// Memory pressure.
    pub pressure: PressureSource,
    /// Processes whose `oom_score_adj` becomes 0.
    pub oom_score_adj: OomScoreAdj,
    /// Android's cpuset of the foreground app.
    pub top_app: TopApp,
    /// The client that the display server wakes after a key press.
    pub wake_graph: WakeGraphSource,
    /// Input devices and the display's frames, while the wake graph or response windows need them.
    pub evdev: Evdev,
    /// logind's sessions.
    pub sessions: Sessions,
    /// Exit notification for the topmost app.
    pub topmost_exit: Option<TopmostExit>,
}

/// Time by which the daemon's clock is ahead of the clock of input and frames. The latter stops
/// while the machine is suspended.
fn offset(at: Duration) -> Duration {
    at.saturating_sub(clock::monotonic())
}

impl Sources {
    /// Processes whose `oom_score_adj` became 0 according to the trace, oldest first.
    pub fn traced_scores(
        &mut self,
        system: &System,
        ledger: &mut Ledger,
        at: Duration,
    ) -> Vec<Input> {
        let fronts = self.oom_score_adj.take_traced(system, ledger, at);
        self.by_score(fronts)
    }

    /// Processes whose `oom_score_adj` became 0 according to a scan, if one is due. `heard`:
    /// whether the results would count.
    pub fn scanned_scores(
        &mut self,
        system: &System,
        ledger: &Ledger,
        heard: bool,
        at: Duration,
    ) -> Vec<Input> {
        let lowered = ledger.lowered_scores();
        let source = &mut self.oom_score_adj;
        let fronts = source.take_scanned(system, &lowered, heard, at);
        self.by_score(fronts)
    }

    fn by_score(&self, fronts: Vec<Zeroed>) -> Vec<Input> {
        let counts = |&Zeroed { id, .. }: &Zeroed| {
            let speaks = self.top_app.speaks();
            if speaks {
                let detail = self.top_app.detail();
                debug!(
                    "oom_score_adj of pid {} became 0; ignored in favour of {detail}",
                    id.pid
                );
            }
            !speaks
        };
        let fronts = fronts.into_iter().filter(counts);
        let inputs = fronts.map(|Zeroed { id, by_owner }| Input::Inferred {
            id,
            source: "oom_score_adj",
            by_owner,
        });
        inputs.collect()
    }

    /// A change of the foreground app according to Android's cpuset; `None`: there is none.
    pub fn top_app(&mut self, system: &System) -> Option<Input> {
        let source = "top-app";
        Some(match self.top_app.look(system)? {
            // Only root can move a process into the cpuset.
            Some(id) => Input::Inferred {
                id,
                source,
                by_owner: false,
            },
            None => Input::InferredNone { source },
        })
    }

    /// Input on the daemon's own devices.
    pub fn strokes(&mut self, system: &System, ledger: &mut Ledger, at: Duration) -> Input {
        let strokes = self.evdev.take_input();
        let handed_on = strokes.iter().filter(|stroke| stroke.handed_on);
        let handed_on: Vec<Duration> = handed_on.map(|stroke| stroke.at).collect();
        self.wake_graph.pressed(&handed_on, system, ledger, at);
        let asks = strokes.iter().filter(|stroke| stroke.asks);
        Input::Strokes(asks.map(|stroke| stroke.at + offset(at)).collect())
    }

    /// Frames that the display has shown since the window opened.
    pub fn frames(&mut self, opened: Option<Duration>, at: Duration) -> Input {
        let offset = offset(at);
        let since = opened.map(|since| since.saturating_sub(offset));
        let frames = self.evdev.take_frames(since).into_iter();
        Input::Frames(frames.map(|shown| shown + offset).collect())
    }

    /// The guess from the wakeups after input, if they are evaluated now.
    pub fn guess(
        &mut self,
        system: &System,
        ledger: &mut Ledger,
        helpers: &[String],
        at: Duration,
    ) -> Option<Input> {
        let graph = &mut self.wake_graph;
        let looked = graph.pass_time(system, ledger, helpers, at);
        looked.then(|| Input::Guessed(graph.front()))
    }

    /// Opens and closes the sources of input and frames. `guesses`: the foreground app is guessed;
    /// `windows`: response windows need input and frames; `open`: a response window is open.
    pub fn tend(
        &mut self,
        (guesses, windows, open): (bool, bool, bool),
        system: &System,
        ledger: &mut Ledger,
        reactor: &Reactor,
    ) {
        self.wake_graph.want(guesses, system, ledger);
        let input = windows || self.wake_graph.listens();
        self.evdev.tend(input, windows, system, ledger, reactor);
        self.evdev.await_frames(open, reactor);
    }

    /// Stops traces and other work that the kernel would continue without the daemon.
    pub fn stop(&mut self, ledger: &mut Ledger) {
        self.oom_score_adj.stop(ledger);
        self.evdev.stop(ledger);
        self.wake_graph.stop(ledger);
    }
}
