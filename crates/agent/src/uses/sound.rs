// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds processes that play or record sound, by querying PulseAudio, or PipeWire in its place.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use limelight_proto::{State, SOUND};

use super::pulse::{PulseError, Server};
use super::video::SOCKET;
use super::watch::{Connection, Missing, Places, Watch};

/// Directory of the server's socket in the session's runtime directory.
const DIRECTORY: &str = "pulse";

/// Minimum time between two lists, since a game may create many streams.
const LIST_EVERY: Duration = Duration::from_secs(1);

/// Where the server's socket may be, from the environment.
#[derive(Debug, Default)]
pub struct SoundPlaces {
    /// `$PULSE_SERVER`.
    pub server: Option<String>,
    /// The session's runtime directory.
    pub runtime: Option<PathBuf>,
}

impl SoundPlaces {
    /// Reads the environment of this process.
    pub fn of_process() -> SoundPlaces {
        let server = std::env::var("PULSE_SERVER").ok();
        SoundPlaces {
            server: server.filter(|server| !server.is_empty()),
            runtime: std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
        }
    }
}

impl Places for SoundPlaces {
    fn directories(&self) -> Vec<PathBuf> {
        let runtime = self.runtime.iter();
        runtime
            .flat_map(|runtime| [runtime.clone(), runtime.join(DIRECTORY)])
            .collect()
    }

    fn socket(&self) -> Result<PathBuf, Missing> {
        if let Some(server) = &self.server {
            // A list of addresses, each of which may begin with the id of its machine in braces.
            let addresses = server.split_whitespace();
            let local = addresses.map(|one| one.rsplit('}').next().unwrap_or(one));
            let mut paths = local.map(|one| one.strip_prefix("unix:").unwrap_or(one));
            let path = paths.find(|path| path.starts_with('/'));
            return path.map(PathBuf::from).ok_or_else(|| Missing {
                state: State::Unavailable,
                why: format!("$PULSE_SERVER, {server}, is not a socket on this machine"),
            });
        }
        let runtime = self.runtime.as_ref().ok_or_else(|| Missing {
            state: State::Unavailable,
            why: "$XDG_RUNTIME_DIR is not set".to_owned(),
        })?;
        let socket = runtime.join(DIRECTORY).join("native");
        if socket.exists() {
            return Ok(socket);
        }
        let pipewire = runtime.join(SOCKET);
        Err(match pipewire.exists() {
            true => Missing {
                state: State::Unavailable,
                why: "PipeWire runs without pipewire-pulse".to_owned(),
            },
            false => Missing {
                state: State::Idle,
                why: format!("no sound server runs ({})", socket.display()),
            },
        })
    }
}

/// A connection to the sound server. After a change, its streams are listed.
pub struct Streams {
    server: Server,
    listed_at: Option<Duration>,
}

/// Watches the session's sound server.
pub type Sound = Watch<Streams>;

impl Connection for Streams {
    type Places = SoundPlaces;
    type Error = PulseError;

    const NAME: &'static str = SOUND;
    const SERVER: &'static str = "the sound server";
    const UNKNOWN: &'static str = "apps that play or record sound";

    fn connect(socket: &Path, now: Duration) -> Result<Streams, PulseError> {
        let cookie = pulseaudio::cookie_path_from_env();
        let cookie = cookie.and_then(|path| std::fs::read(path).ok());
        Ok(Streams {
            server: Server::connect(socket, cookie.unwrap_or_default(), now)?,
            listed_at: None,
        })
    }

    fn turn(&mut self, now: Duration) -> Result<Option<BTreeSet<i32>>, PulseError> {
        let server = &mut self.server;
        server.turn(now)?;
        let due = self.listed_at.is_none_or(|at| at + LIST_EVERY <= now);
        if server.changed && due && server.is_idle() {
            self.listed_at = Some(now);
            server.list(now)?;
        }
        Ok(server.pids.take())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.server.fd()
    }

    fn deadline(&self) -> Option<Duration> {
        let wanting = self.server.changed && self.server.is_idle();
        let list = wanting.then(|| self.listed_at.map_or(Duration::ZERO, |at| at + LIST_EVERY));
        [list, self.server.deadline()].into_iter().flatten().min()
    }
}

#[cfg(test)]
#[path = "sound_tests.rs"]
mod tests;
