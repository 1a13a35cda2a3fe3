// SPDX-License-Identifier: GPL-2.0-or-later
//! Follows limelightd's notices in a thread of its own, and connects again after a restart of
//! limelightd.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use limelight_proto::{AppStatus, MemoryAction, Notice, Pause, Request, Response};

use crate::caller::Caller;
use crate::daemon::{Client, Failure};

/// Shortest and longest pause between two attempts to connect.
const SOON: Duration = Duration::from_millis(250);
const SELDOM: Duration = Duration::from_secs(30);

/// What limelightd reports.
#[derive(Debug)]
pub enum Heard {
    /// The state after each connection, and after a change of the pause.
    State {
        /// The foreground app, if there is one that the caller may see.
        front: Option<AppStatus>,
        /// The pause in force.
        paused: Option<Pause>,
    },
    /// A notice.
    Notice(Notice),
}

/// The thread. Dropping it ends the thread soon.
#[derive(Debug)]
pub struct Follower {
    shared: Arc<Shared>,
    thread: Thread,
    _handle: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    socket: Option<UnixStream>,
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.stopped = true;
        if let Some(socket) = state.socket.take() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(state);
        self.thread.unpark();
    }
}

/// Starts a thread that passes on what limelightd reports to `caller` (`None`: to root).
/// `foreground`: also changes of the foreground app.
pub fn start(
    socket: PathBuf,
    caller: Option<Caller>,
    foreground: bool,
    mut hear: impl FnMut(Heard) + Send + 'static,
) -> std::io::Result<Follower> {
    let shared = Arc::new(Shared::default());
    let of_thread = Arc::clone(&shared);
    let body = move || {
        let mut wait = SOON;
        while !of_thread.state().stopped {
            let connected = Client::connect(&socket, caller.as_ref());
            let ended = connected.and_then(|client| {
                follow(client, foreground, &of_thread, &mut |heard| {
                    wait = SOON;
                    hear(heard);
                })
            });
            if let Err(failure) = ended {
                tracing::debug!("limelightd: {failure:?}");
            }
            if of_thread.state().stopped {
                return;
            }
            std::thread::park_timeout(wait);
            wait = (wait * 2).min(SELDOM);
        }
    };
    let builder = std::thread::Builder::new().name("notices".to_owned());
    let handle = builder.spawn(body)?;
    Ok(Follower {
        shared,
        thread: handle.thread().clone(),
        _handle: handle,
    })
}

/// Passes on what limelightd reports over one connection, until it ends.
fn follow(
    mut client: Client,
    foreground: bool,
    shared: &Shared,
    hear: &mut dyn FnMut(Heard),
) -> Result<(), Failure> {
    {
        let mut state = shared.state();
        if state.stopped {
            return Ok(());
        }
        state.socket = Some(client.socket()?);
    }
    client.ask(&Request::Listen { foreground })?;
    // Asked for after the subscription, so that no change is missed.
    client.send(&Request::Status)?;
    client.wait_without_end()?;
    loop {
        match client.next()? {
            Response::Notice(notice) => {
                let action = match &notice {
                    Notice::Done(entry) => Some(entry.action),
                    _ => None,
                };
                hear(Heard::Notice(notice));
                // The notice does not say how long the pause lasts.
                if matches!(action, Some(MemoryAction::Pause | MemoryAction::Resume)) {
                    client.send(&Request::Status)?;
                }
            }
            Response::Status(status) => hear(Heard::State {
                front: status.topmost.map(|front| front.app),
                paused: status.paused,
            }),
            other => tracing::debug!("limelightd: {other:?}"),
        }
    }
}
