// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds processes that play or record sound, by querying PulseAudio, or PipeWire in its place.
//!
//! The server reports changes and causes no wakeups in between. After a change, its streams are
//! listed. The agent connects only to `$PULSE_SERVER` or to an existing socket, so it starts no
//! server unless systemd listens on that socket for one.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use limelight_proto::{SourceStatus, State, SOUND};

use super::pulse::{PulseError, Server};
use crate::sources::arrivals::Arrivals;

/// Directory of the server's socket in the session's runtime directory.
const DIRECTORY: &str = "pulse";

/// Socket of PipeWire in the session's runtime directory.
const PIPEWIRE: &str = "pipewire-0";

/// Minimum time between two lists, since a game may create many streams.
const LIST_EVERY: Duration = Duration::from_secs(1);

/// Time between attempts if the server has a socket but does not answer.
const RETRY: Duration = Duration::from_secs(30);

/// Where the server's socket may be, from the environment.
#[derive(Debug, Default)]
pub struct Places {
    /// `$PULSE_SERVER`.
    pub server: Option<String>,
    /// The session's runtime directory.
    pub runtime: Option<PathBuf>,
}

impl Places {
    /// Reads the environment of this process.
    pub fn of_process() -> Places {
        let server = std::env::var("PULSE_SERVER").ok();
        Places {
            server: server.filter(|server| !server.is_empty()),
            runtime: std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
        }
    }

    /// The server's socket, or why there is none.
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
        let pipewire = runtime.join(PIPEWIRE);
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

/// Why there is no server to connect to.
#[derive(Debug, PartialEq, Eq)]
struct Missing {
    state: State,
    why: String,
}

/// Watches the session's sound server.
pub struct Sound {
    places: Places,
    server: Option<Server>,
    pids: BTreeSet<i32>,
    listed_at: Option<Duration>,
    retry_at: Option<Duration>,
    /// Set while the server has no socket.
    arrivals: Option<Arrivals>,
    state: State,
    detail: String,
}

impl Sound {
    /// Starts without a server; the first [`Sound::turn`] searches for one.
    pub fn new(places: Places) -> Sound {
        Sound {
            places,
            server: None,
            pids: BTreeSet::new(),
            listed_at: None,
            retry_at: Some(Duration::ZERO),
            arrivals: None,
            state: State::Idle,
            detail: "not connected yet".to_owned(),
        }
    }

    /// Processes with streams that play or record.
    pub fn pids(&self) -> &BTreeSet<i32> {
        &self.pids
    }

    /// How sound is read, or why it cannot be read.
    pub fn status(&self) -> SourceStatus {
        SourceStatus {
            name: SOUND.to_owned(),
            state: self.state,
            detail: self.detail.clone(),
        }
    }

    /// Descriptors that become readable when there may be work.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let server = self.server.as_ref().map(Server::fd);
        let arrivals = self.arrivals.as_ref().and_then(Arrivals::fd);
        server.into_iter().chain(arrivals).collect()
    }

    /// When [`Sound::turn`] has work even if the descriptors have no event.
    pub fn deadline(&self) -> Option<Duration> {
        let wanting = self
            .server
            .as_ref()
            .filter(|one| one.changed && one.is_idle());
        let list = wanting.map(|_| self.listed_at.map_or(Duration::ZERO, |at| at + LIST_EVERY));
        let answer = self.server.as_ref().and_then(Server::deadline);
        let arrival = self.arrivals.as_ref().and_then(Arrivals::deadline);
        let all = [list, answer, self.retry_at, arrival];
        all.into_iter().flatten().min()
    }

    /// Handles the server's messages, and sends the requests that are due.
    pub fn turn(&mut self, now: Duration) {
        let came = self.arrivals.as_mut().is_some_and(|one| one.is_due(now));
        if came || self.retry_at.is_some_and(|at| at <= now) {
            self.connect(now);
        }
        let Some(server) = &mut self.server else {
            return;
        };
        match serve(server, &mut self.listed_at, now) {
            Ok(()) => {
                if let Some(pids) = server.pids.take() {
                    self.pids = pids;
                    self.set(State::Active, None);
                }
            }
            Err(error) => self.lose(&error, now),
        }
    }

    fn connect(&mut self, now: Duration) {
        self.retry_at = None;
        let socket = match self.places.socket() {
            Ok(socket) => socket,
            Err(Missing { state, why }) => {
                self.set(state, Some(why));
                if let Some(runtime) = &self.places.runtime {
                    let places = vec![runtime.clone(), runtime.join(DIRECTORY)];
                    self.arrivals
                        .get_or_insert_with(|| Arrivals::watch(places, now));
                }
                return;
            }
        };
        self.arrivals = None;
        let cookie = pulseaudio::cookie_path_from_env();
        let cookie = cookie.and_then(|path| std::fs::read(path).ok());
        match Server::connect(&socket, cookie.unwrap_or_default(), now) {
            Ok(server) => self.server = Some(server),
            Err(error) => self.lose(&error, now),
        }
    }

    fn lose(&mut self, error: &PulseError, now: Duration) {
        self.server = None;
        self.pids.clear();
        self.listed_at = None;
        self.retry_at = Some(now + RETRY);
        self.set(State::Unavailable, Some(error.to_string()));
    }

    /// Sets the status; logs a failure once.
    fn set(&mut self, state: State, why: Option<String>) {
        let detail = why.unwrap_or_else(|| {
            let socket = self.places.socket();
            let socket = socket.map(|socket| socket.display().to_string());
            format!("read from the sound server, {}", socket.unwrap_or_default())
        });
        if self.detail != detail && state == State::Unavailable {
            tracing::warn!("cannot detect apps that play or record sound: {detail}");
        }
        (self.state, self.detail) = (state, detail);
    }
}

/// Takes the server's messages, and requests the lists if they are due.
fn serve(
    server: &mut Server,
    listed_at: &mut Option<Duration>,
    now: Duration,
) -> Result<(), PulseError> {
    server.turn(now)?;
    let due = listed_at.is_none_or(|at| at + LIST_EVERY <= now);
    if server.changed && due && server.is_idle() {
        *listed_at = Some(now);
        server.list(now)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "sound_tests.rs"]
mod tests;
