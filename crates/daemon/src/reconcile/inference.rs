// SPDX-License-Identifier: GPL-2.0-or-later
//! Guesses the foreground app by the wake graph where no source reports it. A guess has the lowest
//! rank. Once a source reports anything, even that nothing has the focus, guessing stops and input
//! is monitored for response windows only.

use std::time::Duration;

use limelight_core::model::topmost::{Claim, Rank};
use limelight_core::model::ProcessId;
use limelight_proto::{SourceStatus, State, WAKE_GRAPH};
use limelight_sys::evdev::Stroke;

use crate::config::EvdevSource;
use crate::event_loop::Daemon;
use crate::system::now;

impl Daemon {
    /// Whether the foreground app has to be guessed.
    pub(crate) fn guesses_front(&self) -> bool {
        let allowed = self.config.wake_graph && self.config.evdev != EvdevSource::Off;
        allowed && self.topmost.hears_guesses()
    }

    /// Passes key and button events on to the wake graph.
    pub(crate) fn pressed(&mut self, strokes: &[Stroke], at: Duration) {
        let handed_on = strokes.iter().filter(|stroke| stroke.handed_on);
        let times: Vec<Duration> = handed_on.map(|stroke| stroke.at).collect();
        let ledger = &mut self.actuators.ledger;
        self.wake_graph.pressed(&times, &self.system, ledger, at);
    }

    /// Evaluates the wakeups after input, if that is due, and claims a changed guess.
    pub(crate) fn guess_if_due(&mut self, at: Duration) {
        let ledger = &mut self.actuators.ledger;
        let helpers = &self.config.settings.boost.helpers;
        let looked = self.wake_graph.pass_time(&self.system, ledger, helpers, at);
        let front = self.wake_graph.front();
        let said = self.topmost.guessed().and_then(|app| app.process);
        if looked && front != said {
            self.guess(front);
        }
    }

    fn guess(&mut self, front: Option<ProcessId>) {
        let no_app = || Claim {
            app: None,
            source: WAKE_GRAPH.to_owned(),
            uid: 0,
        };
        let claim = front.and_then(|id| self.claim_of(id, WAKE_GRAPH, false));
        let shift = self
            .topmost
            .claim_guessed(claim.unwrap_or_else(no_app), now());
        self.after(shift);
    }

    /// Whether the topmost app is a guess.
    pub(crate) fn is_guess(&self) -> bool {
        let front = self.topmost.front();
        front.is_some_and(|front| front.rank == Rank::Guessed)
    }

    /// The state of the wake graph, for `status`.
    pub(crate) fn wake_graph_status(&self) -> SourceStatus {
        let [(_, works, input), _] = self.windows.input_details();
        let (state, detail) = if !self.config.wake_graph {
            let off = "switched off by the configuration ([sources] wake_graph)";
            (State::Off, off.to_owned())
        } else if self.config.evdev == EvdevSource::Off {
            let off = "input devices are left alone by the configuration ([sources] evdev)";
            (State::Off, off.to_owned())
        } else if let Some(why) = self.wake_graph.failure() {
            (State::Unavailable, why.to_owned())
        } else if !self.wake_graph.listens() {
            let idle = "not needed: a source reports the foreground app";
            (State::Idle, idle.to_owned())
        } else if !works {
            (State::Unavailable, format!("no input is heard: {input}"))
        } else {
            let state = match self.is_guess() {
                true => State::Active,
                false => State::Idle,
            };
            (state, self.wake_graph.detail())
        };
        SourceStatus {
            name: WAKE_GRAPH.to_owned(),
            state,
            detail,
        }
    }

    /// The note of `explain` on an app that is only guessed to be in the foreground.
    pub(crate) fn guess_note(&self) -> Option<String> {
        self.is_guess().then(|| {
            format!(
                "that this app is in front is {}; it is said for certain by limelight-agent in the session, by a \
                 compositor, or by limelight focus PID",
                self.wake_graph.detail()
            )
        })
    }
}
