// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds background apps of this session that are in use: apps that are visible, and apps that play
//! or record sound. When memory runs short, the daemon reclaims other apps first.

mod covered;
mod pulse;
mod sound;
mod visible;

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use limelight_proto::{SourceStatus, State, Use, SOUND};

use self::sound::{Places, Sound};
use self::visible::Visible;

/// Watches the session for apps that are in use.
#[derive(Default)]
pub struct Uses {
    visible: Option<Visible>,
    sound: Option<Sound>,
}

impl Uses {
    /// Watches a display's windows and the session's sound server. If the windows cannot be
    /// watched, logs why and watches only the sound server.
    pub fn watch(display: Option<&str>) -> Uses {
        let visible = display.map(Visible::connect);
        if let Some(Err(why)) = &visible {
            tracing::warn!("visible windows cannot be detected: {why}");
        }
        Uses {
            visible: visible.and_then(Result::ok),
            sound: Some(Sound::new(Places::of_process())),
        }
    }

    /// Handles all events. Never waits for events.
    pub fn turn(&mut self, now: Duration) {
        if let Some(Err(error)) = self.visible.as_mut().map(|visible| visible.turn(now)) {
            tracing::debug!("visible windows can no longer be detected: {error}");
            self.visible = None;
        }
        if let Some(sound) = &mut self.sound {
            sound.turn(now);
        }
    }

    /// Processes that are in use now, and their uses.
    pub fn processes(&self) -> BTreeSet<(i32, Use)> {
        let visible = self.visible.iter().flat_map(Visible::pids);
        let sounding = self.sound.iter().flat_map(Sound::pids);
        let visible = visible.map(|pid| (*pid, Use::Visible));
        visible
            .chain(sounding.map(|pid| (*pid, Use::Audio)))
            .collect()
    }

    /// How sound is read, or why it is not.
    pub fn sound(&self) -> SourceStatus {
        let off = || SourceStatus {
            name: SOUND.to_owned(),
            state: State::Off,
            detail: "--focus-only".to_owned(),
        };
        self.sound.as_ref().map_or_else(off, Sound::status)
    }

    /// Descriptors that become readable when something may have changed.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let visible = self.visible.as_ref().map(Visible::fd);
        let sound = self.sound.as_ref().map(Sound::fds).unwrap_or_default();
        visible.into_iter().chain(sound).collect()
    }

    /// When [`Uses::turn`] has work even if the descriptors have no event, on `CLOCK_MONOTONIC`.
    pub fn deadline(&self) -> Option<Duration> {
        let visible = self.visible.as_ref().and_then(Visible::deadline);
        let sound = self.sound.as_ref().and_then(Sound::deadline);
        visible.into_iter().chain(sound).min()
    }
}
