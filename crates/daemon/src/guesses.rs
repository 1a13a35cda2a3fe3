// SPDX-License-Identifier: GPL-2.0-or-later
//! Who is in front where nobody tells: a guess, of the lowest rank, by the wake graph. As soon as anybody
//! tells, if only that nothing has the focus, nothing is guessed and input is listened to for windows alone.

use std::time::Duration;

use limelight_core::control::{SourceStatus, State, WAKE_GRAPH};
use limelight_core::model::topmost::{Claim, Rank};
use limelight_core::model::ProcessId;
use limelight_sys::evdev::Stroke;

use crate::config::EvdevSource;
use crate::daemon::Daemon;
use crate::doors::now;

impl Daemon {
    /// Whether it has to be guessed who is in front.
    pub(crate) fn guesses_front(&self) -> bool {
        let allowed = self.config.wake_graph && self.config.evdev != EvdevSource::Off;
        allowed && self.topmost.hears_guesses()
    }

    /// Something was pressed or released.
    pub(crate) fn pressed(&mut self, strokes: &[Stroke], at: Duration) {
        let handed_on = strokes.iter().filter(|stroke| stroke.handed_on);
        let times: Vec<Duration> = handed_on.map(|stroke| stroke.at).collect();
        let ledger = &mut self.actuators.ledger;
        self.wake_graph.pressed(&times, &self.doors, ledger, at);
    }

    /// Looks whom input woke, if that is due.
    pub(crate) fn guess_if_due(&mut self, at: Duration) {
        let ledger = &mut self.actuators.ledger;
        let helpers = &self.config.settings.boost.helpers;
        let looked = self.wake_graph.pass_time(&self.doors, ledger, helpers, at);
        let front = self.wake_graph.front();
        let said = self.topmost.guessed().and_then(|app| app.process);
        if looked && front != said {
            self.guess(front);
        }
    }

    fn guess(&mut self, front: Option<ProcessId>) {
        let nobody = || Claim {
            app: None,
            source: WAKE_GRAPH.to_owned(),
            uid: 0,
        };
        let claim = front.and_then(|id| self.claim_of(id, WAKE_GRAPH, false));
        let shift = self
            .topmost
            .claim_guessed(claim.unwrap_or_else(nobody), now());
        self.after(shift);
    }

    /// Whether the app in front is a guess.
    pub(crate) fn is_guess(&self) -> bool {
        let front = self.topmost.front();
        front.is_some_and(|front| front.rank == Rank::Guessed)
    }

    /// For `status`.
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
            let idle = "not needed: somebody tells who is in front";
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

    /// What `explain` says of an app that is only guessed to be in front.
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
