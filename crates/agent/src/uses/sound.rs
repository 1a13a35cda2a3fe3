// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds processes that play or record sound, by querying PulseAudio, or PipeWire in its place.
//!
//! Runs pactl as a child process, because pactl works with either server, and the agent need not
//! link to their libraries. One child reports changes and causes no wakeups in between. After a
//! change, two other children list the streams. pactl starts no server, because it is told to
//! connect only to `$PULSE_SERVER` or to an existing socket.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::fs::OFlags;
use serde_json::Value;

use crate::sources::arrivals::Arrivals;

/// The program that is run.
const PROGRAM: &str = "pactl";

/// Directory of the server's socket in the session's runtime directory.
const DIRECTORY: &str = "pulse";

/// Minimum time between two lists, since a game may create many streams.
const LIST_EVERY: Duration = Duration::from_secs(1);

/// Time between attempts if the server has a socket but does not answer.
const RETRY: Duration = Duration::from_secs(30);

/// Maximum size of a child's output, in bytes.
const LIST_MAX_BYTES: usize = 4 << 20;

/// A child and its output so far.
struct Running {
    child: Child,
    output: ChildStdout,
    received: Vec<u8>,
}

impl Running {
    fn start(server: &str, arguments: &[&str]) -> std::io::Result<Running> {
        let mut child = Command::new(PROGRAM)
            .args(arguments)
            // Set explicitly, so that pactl does not start a server.
            .env("PULSE_SERVER", server)
            // Untranslated messages, because they are parsed.
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = child.stdout.take();
        let output = output.ok_or_else(|| std::io::Error::other("no pipe"))?;
        let flags = rustix::fs::fcntl_getfl(&output)?;
        rustix::fs::fcntl_setfl(&output, flags | OFlags::NONBLOCK)?;
        Ok(Running {
            child,
            output,
            received: Vec::new(),
        })
    }

    /// Reads the available output. `false` if the child has ended or writes too much.
    fn read(&mut self) -> bool {
        let mut buffer = [0u8; 16 * 1024];
        loop {
            match self.output.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if self.received.len() > LIST_MAX_BYTES {
                return false;
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Watches the session's sound server.
pub struct Sound {
    subscriber: Option<Running>,
    lists: Vec<Running>,
    /// Processes found in the current lists so far.
    found: BTreeSet<i32>,
    pids: BTreeSet<i32>,
    listed_at: Option<Duration>,
    changed: bool,
    retry_at: Option<Duration>,
    /// Set while the server has no socket.
    arrivals: Option<Arrivals>,
}

impl Sound {
    /// Starts without a server; the first [`Sound::turn`] searches for one.
    pub fn new() -> Sound {
        Sound {
            subscriber: None,
            lists: Vec::new(),
            found: BTreeSet::new(),
            pids: BTreeSet::new(),
            listed_at: None,
            changed: false,
            retry_at: Some(Duration::ZERO),
            arrivals: None,
        }
    }

    /// Processes with streams that play or record.
    pub fn pids(&self) -> &BTreeSet<i32> {
        &self.pids
    }

    /// Descriptors that become readable when there may be work.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let all = self.subscriber.iter().chain(&self.lists);
        let arrivals = self.arrivals.as_ref().and_then(Arrivals::fd);
        all.map(|running| running.output.as_fd())
            .chain(arrivals)
            .collect()
    }

    /// When [`Sound::turn`] has work even if the descriptors have no event.
    pub fn deadline(&self) -> Option<Duration> {
        let list = (self.changed && self.lists.is_empty())
            .then(|| self.listed_at.map_or(Duration::ZERO, |at| at + LIST_EVERY));
        let arrival = self.arrivals.as_ref().and_then(Arrivals::deadline);
        [list, self.retry_at, arrival].into_iter().flatten().min()
    }

    /// Handles the children's output, and starts those that are due.
    pub fn turn(&mut self, now: Duration) {
        let came = self.arrivals.as_mut().is_some_and(|one| one.is_due(now));
        if came || self.retry_at.is_some_and(|at| at <= now) {
            self.subscribe(now);
        }
        if let Some(subscriber) = &mut self.subscriber {
            let lives = subscriber.read();
            self.changed |= concerns_streams(&mut subscriber.received);
            if !lives {
                tracing::debug!("the sound server went away");
                *self = Sound {
                    retry_at: Some(now + RETRY),
                    ..Sound::new()
                };
            }
        }
        self.take_lists();
        let due = self.listed_at.is_none_or(|at| at + LIST_EVERY <= now);
        if self.changed && due && self.lists.is_empty() && self.subscriber.is_some() {
            self.list(now);
        }
    }

    fn subscribe(&mut self, now: Duration) {
        let Some(server) = server() else {
            self.retry_at = None;
            self.arrivals.get_or_insert_with(|| {
                let places = runtime().map(|runtime| [runtime.clone(), runtime.join(DIRECTORY)]);
                Arrivals::watch(places.into_iter().flatten().collect(), now)
            });
            return;
        };
        self.arrivals = None;
        self.retry_at = Some(now + RETRY);
        match Running::start(&server, &["subscribe"]) {
            Ok(subscriber) => {
                self.subscriber = Some(subscriber);
                self.changed = true;
                self.retry_at = None;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                tracing::info!("{PROGRAM} is not installed: apps that play sound are not detected");
                self.retry_at = None;
            }
            Err(error) => tracing::warn!("cannot run {PROGRAM}: {error}"),
        }
    }

    fn list(&mut self, now: Duration) {
        let Some(server) = server() else {
            return;
        };
        self.changed = false;
        self.listed_at = Some(now);
        self.found.clear();
        for what in ["sink-inputs", "source-outputs"] {
            match Running::start(&server, &["-f", "json", "list", what]) {
                Ok(list) => self.lists.push(list),
                Err(error) => tracing::warn!("cannot run {PROGRAM}: {error}"),
            }
        }
    }

    /// Takes the lists once all of them are complete.
    fn take_lists(&mut self) {
        if self.lists.is_empty() {
            return;
        }
        let mut open = Vec::new();
        for mut list in std::mem::take(&mut self.lists) {
            match list.read() {
                true => open.push(list),
                false => self.found.extend(streams(&list.received)),
            }
        }
        self.lists = open;
        if self.lists.is_empty() {
            self.pids = std::mem::take(&mut self.found);
        }
    }
}

/// The server's address: `$PULSE_SERVER`, else its socket if that exists.
fn server() -> Option<String> {
    if let Some(named) = std::env::var("PULSE_SERVER").ok().filter(|s| !s.is_empty()) {
        return Some(named);
    }
    let socket = runtime()?.join(DIRECTORY).join("native");
    socket
        .exists()
        .then(|| format!("unix:{}", socket.display()))
}

/// The session's runtime directory.
fn runtime() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
}

/// Takes complete lines from the subscriber's output. Returns whether one of them concerns a
/// stream.
fn concerns_streams(received: &mut Vec<u8>) -> bool {
    let Some(end) = received.iter().rposition(|&byte| byte == b'\n') else {
        return false;
    };
    let lines: Vec<u8> = received.drain(..=end).collect();
    let lines = String::from_utf8_lossy(&lines);
    let mut lines = lines.lines();
    lines.any(|line| line.contains(" on sink-input ") || line.contains(" on source-output "))
}

/// Processes with streams that are not paused, from a list in JSON.
fn streams(list: &[u8]) -> BTreeSet<i32> {
    let Ok(Value::Array(streams)) = serde_json::from_slice(list) else {
        return BTreeSet::new();
    };
    let streams = streams.iter().filter(|stream| stream["corked"] == false);
    streams
        .filter_map(|stream| {
            let pid = stream["properties"]["application.process.id"].as_str()?;
            pid.parse().ok().filter(|pid| *pid > 0)
        })
        .collect()
}

#[cfg(test)]
#[path = "sound_tests.rs"]
mod tests;
