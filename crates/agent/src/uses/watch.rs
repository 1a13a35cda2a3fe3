// SPDX-License-Identifier: GPL-2.0-or-later
//! Keeps a connection to a server of the session that knows which processes use a device.
//!
//! The server reports changes and causes no wakeups in between. The agent connects only to an
//! existing socket, so it starts no server unless systemd listens on that socket for one.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use limelight_proto::{SourceStatus, State};

use crate::sources::arrivals::Arrivals;

/// Time between attempts if the server has a socket but does not answer.
pub const RETRY: Duration = Duration::from_secs(30);

/// Why there is no server to connect to.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing {
    pub state: State,
    pub why: String,
}

/// Where a server's socket may be.
pub trait Places {
    /// The server's socket, or why there is none.
    fn socket(&self) -> Result<PathBuf, Missing>;

    /// The directories in which the socket appears; empty if they are unknown.
    fn directories(&self) -> Vec<PathBuf>;
}

/// A connection to a server. It never blocks.
pub trait Connection: Sized {
    /// Where the server's socket may be.
    type Places: Places;
    /// Why the connection failed.
    type Error: Display;

    /// Name in the agent's status.
    const NAME: &'static str;
    /// The server, for display.
    const SERVER: &'static str;
    /// The apps that remain unknown without the server, for display.
    const UNKNOWN: &'static str;

    /// Connects to the server. Its answers arrive later.
    fn connect(socket: &Path, now: Duration) -> Result<Self, Self::Error>;

    /// Handles the server's messages, and sends the requests that are due. Returns the processes
    /// that use the device, if they may have changed.
    fn turn(&mut self, now: Duration) -> Result<Option<BTreeSet<i32>>, Self::Error>;

    /// Descriptor that becomes readable when the server sends something.
    fn fd(&self) -> BorrowedFd<'_>;

    /// When [`Connection::turn`] has work even if the descriptor has no event.
    fn deadline(&self) -> Option<Duration>;
}

/// Watches one server, and reconnects to it.
pub struct Watch<C: Connection> {
    places: C::Places,
    connection: Option<C>,
    pids: BTreeSet<i32>,
    pub(super) retry_at: Option<Duration>,
    /// Set while the server has no socket.
    pub(super) arrivals: Option<Arrivals>,
    pub(super) state: State,
    pub(super) detail: String,
}

impl<C: Connection> Watch<C> {
    /// Starts without a connection; the first [`Watch::turn`] searches for the server.
    pub fn new(places: C::Places) -> Watch<C> {
        Watch {
            places,
            connection: None,
            pids: BTreeSet::new(),
            retry_at: Some(Duration::ZERO),
            arrivals: None,
            state: State::Idle,
            detail: "not connected yet".to_owned(),
        }
    }

    /// The processes that use the device.
    pub fn pids(&self) -> &BTreeSet<i32> {
        &self.pids
    }

    /// How the server is read, or why it cannot be read.
    pub fn status(&self) -> SourceStatus {
        SourceStatus {
            name: C::NAME.to_owned(),
            state: self.state,
            detail: self.detail.clone(),
        }
    }

    /// Descriptors that become readable when there may be work.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let connection = self.connection.as_ref().map(C::fd);
        let arrivals = self.arrivals.as_ref().and_then(Arrivals::fd);
        connection.into_iter().chain(arrivals).collect()
    }

    /// When [`Watch::turn`] has work even if the descriptors have no event.
    pub fn deadline(&self) -> Option<Duration> {
        let connection = self.connection.as_ref().and_then(C::deadline);
        let arrival = self.arrivals.as_ref().and_then(Arrivals::deadline);
        let all = [connection, self.retry_at, arrival];
        all.into_iter().flatten().min()
    }

    /// Handles the server's messages, and sends the requests that are due.
    pub fn turn(&mut self, now: Duration) {
        let came = self.arrivals.as_mut().is_some_and(|one| one.is_due(now));
        if came || self.retry_at.is_some_and(|at| at <= now) {
            self.connect(now);
        }
        let Some(connection) = &mut self.connection else {
            return;
        };
        match connection.turn(now) {
            Ok(Some(pids)) => {
                self.pids = pids;
                self.set(State::Active, None);
            }
            Ok(None) => {}
            Err(error) => self.lose(&error, now),
        }
    }

    fn connect(&mut self, now: Duration) {
        self.retry_at = None;
        let socket = match self.places.socket() {
            Ok(socket) => socket,
            Err(Missing { state, why }) => {
                self.set(state, Some(why));
                let directories = self.places.directories();
                if !directories.is_empty() {
                    self.arrivals
                        .get_or_insert_with(|| Arrivals::watch(directories, now));
                }
                return;
            }
        };
        self.arrivals = None;
        match C::connect(&socket, now) {
            Ok(connection) => self.connection = Some(connection),
            Err(error) => self.lose(&error, now),
        }
    }

    fn lose(&mut self, error: &C::Error, now: Duration) {
        self.connection = None;
        self.pids.clear();
        self.retry_at = Some(now + RETRY);
        self.set(State::Unavailable, Some(error.to_string()));
    }

    /// Sets the status; logs a failure once.
    fn set(&mut self, state: State, why: Option<String>) {
        let detail = why.unwrap_or_else(|| {
            let socket = self.places.socket();
            let socket = socket.map(|socket| socket.display().to_string());
            format!("read from {}, {}", C::SERVER, socket.unwrap_or_default())
        });
        if self.detail != detail && state == State::Unavailable {
            tracing::warn!("cannot detect {}: {detail}", C::UNKNOWN);
        }
        (self.state, self.detail) = (state, detail);
    }
}
