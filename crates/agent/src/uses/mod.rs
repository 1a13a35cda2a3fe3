// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds background apps of this session that are in use: apps that are visible, apps that play or
//! record sound, and apps that share or record the screen. When memory runs short, the daemon
//! reclaims other apps first.

mod covered;
mod pipewire;
mod pod;
mod pulse;
mod sound;
mod video;
mod visible;
mod watch;

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use limelight_proto::{SourceStatus, State, Use, SOUND, VIDEO};

use self::sound::{Sound, SoundPlaces};
use self::video::{Video, VideoPlaces};
use self::visible::Visible;

/// Watches the session for apps that are in use.
#[derive(Default)]
pub struct Uses {
    visible: Option<Visible>,
    sound: Option<Sound>,
    video: Option<Video>,
}

impl Uses {
    /// Watches a display's windows, the session's sound server and its PipeWire. If the windows
    /// cannot be watched, logs why and watches only the servers.
    pub fn watch(display: Option<&str>) -> Uses {
        let visible = display.map(Visible::connect);
        if let Some(Err(why)) = &visible {
            tracing::warn!("visible windows cannot be detected: {why}");
        }
        Uses {
            visible: visible.and_then(Result::ok),
            sound: Some(Sound::new(SoundPlaces::of_process())),
            video: Some(Video::new(VideoPlaces::of_process())),
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
        if let Some(video) = &mut self.video {
            video.turn(now);
        }
    }

    /// Processes that are in use now, and their uses.
    pub fn processes(&self) -> BTreeSet<(i32, Use)> {
        let visible = self.visible.iter().flat_map(Visible::pids);
        let sounding = self.sound.iter().flat_map(Sound::pids);
        let filming = self.video.iter().flat_map(Video::pids);
        let visible = visible.map(|pid| (*pid, Use::Visible));
        visible
            .chain(sounding.map(|pid| (*pid, Use::Audio)))
            .chain(filming.map(|pid| (*pid, Use::Video)))
            .collect()
    }

    /// How sound and video are read, or why they are not.
    pub fn statuses(&self) -> [SourceStatus; 2] {
        let off = |name: &str| SourceStatus {
            name: name.to_owned(),
            state: State::Off,
            detail: "--focus-only".to_owned(),
        };
        let sound = self.sound.as_ref().map(Sound::status);
        let video = self.video.as_ref().map(Video::status);
        [
            sound.unwrap_or_else(|| off(SOUND)),
            video.unwrap_or_else(|| off(VIDEO)),
        ]
    }

    /// Descriptors that become readable when something may have changed.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let visible = self.visible.as_ref().map(Visible::fd);
        let sound = self.sound.as_ref().map(Sound::fds).unwrap_or_default();
        let video = self.video.as_ref().map(Video::fds).unwrap_or_default();
        visible.into_iter().chain(sound).chain(video).collect()
    }

    /// When [`Uses::turn`] has work even if the descriptors have no event, on `CLOCK_MONOTONIC`.
    pub fn deadline(&self) -> Option<Duration> {
        let visible = self.visible.as_ref().and_then(Visible::deadline);
        let sound = self.sound.as_ref().and_then(Sound::deadline);
        let video = self.video.as_ref().and_then(Video::deadline);
        [visible, sound, video].into_iter().flatten().min()
    }
}
