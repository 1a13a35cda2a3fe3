// SPDX-License-Identifier: GPL-2.0-or-later
//! Compositors with wlr-foreign-toplevel-management (labwc, Wayfire, river, phoc, older versions of
//! COSMIC, ...): they report the active window and its app id, but not its process.
//!
//! When a window opens and several processes match its app id, the source chooses the process that
//! was started last, and keeps this choice until the process ends. The newest window most likely
//! belongs to the newest app.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, BorrowedFd};

use limelight_core::model::ProcessId;
use wayland_client::backend::{ObjectId, WaylandError};
use wayland_client::globals::{registry_queue_init, GlobalListContents};
use wayland_client::protocol::wl_registry::WlRegistry;
use wayland_client::{event_created_child, Connection, Dispatch, EventQueue, Proxy, QueueHandle};
use wayland_protocols_wlr::foreign_toplevel::v1::client::{
    zwlr_foreign_toplevel_handle_v1::{self as handle, ZwlrForeignToplevelHandleV1 as Handle},
    zwlr_foreign_toplevel_manager_v1::{self as manager, ZwlrForeignToplevelManagerV1 as Manager},
};

use super::app_id::Apps;
use super::environment::Environment;
use super::pick::NotHere;
use super::wayland::Compositor;
use super::{FocusBy, Gone, PidBy, Seen, Source};

/// Focus source for compositors with this protocol.
pub struct Wlr {
    connection: Connection,
    queue: EventQueue<Windows>,
    windows: Windows,
    detail: String,
}

/// State of the windows.
struct Windows {
    apps: Apps,
    open: HashMap<ObjectId, Window>,
    /// Number of activations so far. It identifies the window activated last, because each seat may
    /// have an active window.
    activations: u64,
    /// Whether the compositor has announced that it sends no more events.
    finished: bool,
}

#[derive(Debug, Default)]
struct Window {
    app_id: String,
    /// Number of its activation; `None` if it is not active.
    active: Option<u64>,
    /// Whether the window fills the screen and is not minimized.
    full_screen: bool,
    /// The state received since the last `done`; `None` if none was received.
    pending: Option<Pending>,
    process: Option<ProcessId>,
}

/// State of a window that is not complete yet.
#[derive(Debug)]
struct Pending {
    active: bool,
    full_screen: bool,
}

/// Connects to the compositor, if it offers the protocol.
pub fn connect(environment: &Environment) -> Result<Box<dyn Source>, NotHere> {
    let socket = environment.wayland.as_deref();
    let socket = socket.ok_or_else(|| NotHere::because("there is no Wayland compositor"))?;
    let compositor = Compositor::connect(socket)?;
    let interface = Manager::interface().name;
    if !compositor.offers(&[interface]) {
        return Err(NotHere::because(format!(
            "{} does not offer {interface}",
            compositor.peer
        )));
    }
    let failed = |why: &dyn std::fmt::Display| Gone::new(socket.to_string_lossy(), why);
    let connection = compositor.connection;
    let (globals, mut queue) =
        registry_queue_init::<Windows>(&connection).map_err(|error| failed(&error))?;
    globals
        .bind::<Manager, _, _>(&queue.handle(), 1..=3, ())
        .map_err(|error| failed(&error))?;
    let mut windows = Windows {
        apps: Apps::open()?,
        open: HashMap::new(),
        activations: 0,
        finished: false,
    };
    // Receives all existing windows.
    queue
        .roundtrip(&mut windows)
        .map_err(|error| failed(&error))?;
    let detail = format!(
        "{} reports the active window over {interface}; the app id is matched to a process",
        compositor.peer
    );
    Ok(Box::new(Wlr {
        connection,
        queue,
        windows,
        detail,
    }))
}

impl Wlr {
    /// Reads and handles all available events.
    fn take(&mut self) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        loop {
            let taken = self
                .queue
                .dispatch_pending(&mut self.windows)
                .map_err(|error| text(&error))?;
            self.queue.flush().map_err(|error| text(&error))?;
            let Some(reading) = self.queue.prepare_read() else {
                continue;
            };
            match reading.read() {
                Ok(count) if count > 0 => {}
                Ok(_) if taken > 0 => {}
                Ok(_) => return Ok(()),
                Err(WaylandError::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Ok(())
                }
                Err(error) => return Err(text(&error)),
            }
        }
    }
}

impl Source for Wlr {
    fn name(&self) -> &'static str {
        "wlr-foreign-toplevel"
    }

    fn detail(&self) -> String {
        self.detail.clone()
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.connection.as_fd()]
    }

    fn observe(&mut self) -> Result<Seen, Gone> {
        self.take()
            .map_err(|why| Gone::new("the Wayland compositor", why))?;
        if self.windows.finished {
            let why = "it no longer reports windows";
            return Err(Gone::new("the Wayland compositor", why));
        }
        Ok(self.windows.seen())
    }

    /// Full-screen windows only: of other windows, it is unknown whether they are covered.
    fn visible(&mut self) -> Result<BTreeSet<i32>, Gone> {
        let windows = self.windows.open.values();
        let full = windows.filter(|window| window.full_screen);
        Ok(full
            .filter_map(|window| Some(window.process?.pid))
            .collect())
    }
}

impl Windows {
    fn seen(&mut self) -> Seen {
        let nothing = Seen::nothing(FocusBy::Compositor);
        let active = self.open.values_mut().filter(|w| w.active.is_some());
        let Some(window) = active.max_by_key(|window| window.active) else {
            return nothing;
        };
        let lives = window.process.is_some_and(|known| self.apps.lives(known));
        if !lives {
            window.process = self.apps.find(&window.app_id);
        }
        Seen {
            pid: window.process.map(|process| process.pid),
            window: Some(window.app_id.clone()),
            pid_by: window.process.map(|_| PidBy::AppId),
            ..nothing
        }
    }

    /// Applies the state of a window once it is complete.
    fn done(&mut self, id: &ObjectId) {
        let Some(window) = self.open.get_mut(id) else {
            return;
        };
        if window.process.is_none() {
            window.process = self.apps.find(&window.app_id);
        }
        let Some(state) = window.pending.take() else {
            return;
        };
        window.full_screen = state.full_screen;
        if !state.active {
            window.active = None;
        } else if window.active.is_none() {
            self.activations += 1;
            window.active = Some(self.activations);
        }
    }
}

impl Dispatch<WlRegistry, GlobalListContents> for Windows {
    fn event(
        _: &mut Windows,
        _: &WlRegistry,
        _: <WlRegistry as Proxy>::Event,
        _: &GlobalListContents,
        _: &Connection,
        _: &QueueHandle<Windows>,
    ) {
    }
}

impl Dispatch<Manager, ()> for Windows {
    fn event(
        windows: &mut Windows,
        _: &Manager,
        event: manager::Event,
        _: &(),
        _: &Connection,
        _: &QueueHandle<Windows>,
    ) {
        match event {
            manager::Event::Toplevel { toplevel } => {
                windows.open.insert(toplevel.id(), Window::default());
            }
            manager::Event::Finished => windows.finished = true,
            _ => {}
        }
    }

    event_created_child!(Windows, Manager, [
        manager::EVT_TOPLEVEL_OPCODE => (Handle, ()),
    ]);
}

impl Dispatch<Handle, ()> for Windows {
    fn event(
        windows: &mut Windows,
        of: &Handle,
        event: handle::Event,
        _: &(),
        _: &Connection,
        _: &QueueHandle<Windows>,
    ) {
        let id = of.id();
        if let handle::Event::Done = event {
            return windows.done(&id);
        }
        if let handle::Event::Closed = event {
            windows.open.remove(&id);
            return of.destroy();
        }
        let Some(window) = windows.open.get_mut(&id) else {
            return;
        };
        match event {
            handle::Event::AppId { app_id } => {
                window.app_id = app_id;
                window.process = None;
            }
            handle::Event::State { state } => {
                let is = |wanted: handle::State| {
                    let wanted = (wanted as u32).to_ne_bytes();
                    state.chunks_exact(4).any(|state| state == wanted)
                };
                window.pending = Some(Pending {
                    active: is(handle::State::Activated),
                    full_screen: is(handle::State::Fullscreen) && !is(handle::State::Minimized),
                });
            }
            _ => {}
        }
    }
}
