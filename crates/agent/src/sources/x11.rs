// SPDX-License-Identifier: GPL-2.0-or-later
//! X11: the window manager's active window, or the input focus if no window manager runs.
//!
//! A window manager that maintains `_NET_ACTIVE_WINDOW` (EWMH) reports the focus in one property of
//! the root window. Without such a window manager, the source watches the top-level windows for
//! focus changes and queries the server for the focus. It chooses between these two modes again
//! whenever a window manager starts or ends.
//!
//! The server returns a window's process (XRes 1.2), which it knows from the kernel. Without XRes,
//! the source uses `_NET_WM_PID`, which any program can set to any value. That property counts only
//! together with a `WM_CLIENT_MACHINE` that names this machine. The daemon checks the owner of the
//! process in any case.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use x11rb::connection::{Connection, RequestConnection};
use x11rb::errors::{ConnectionError, ReplyError};
use x11rb::protocol::res::{self, ClientIdMask, ClientIdSpec, ConnectionExt as _};
use x11rb::protocol::xproto::{
    AtomEnum, ChangeWindowAttributesAux, ConnectionExt as _, EventMask, InputFocus, Window,
};
use x11rb::protocol::Event;
use x11rb::rust_connection::RustConnection;

use super::environment::Environment;
use super::pick::NotHere;
use super::responses::Responses;
use super::{FocusBy, Gone, PidBy, Seen, Source, Told};

x11rb::atom_manager! {
    /// Atoms of properties that are read.
    Atoms: AtomsCookie {
        _NET_ACTIVE_WINDOW,
        _NET_SUPPORTED,
        _NET_SUPPORTING_WM_CHECK,
        _NET_WM_NAME,
        _NET_WM_PID,
        UTF8_STRING,
    }
}

/// Maximum number of windows, from the focused one upwards, that are searched for `_NET_WM_PID`.
const DEPTH_MAX: usize = 32;

/// Focus source that watches an X server.
pub struct X11 {
    display: String,
    /// Whether the display belongs to a Wayland compositor: then it shows only some of the windows.
    is_xwayland: bool,
    conn: RustConnection,
    root: Window,
    atoms: Atoms,
    /// Whether the server can return a client's process (XRes 1.2).
    has_client_ids: bool,
    mode: Mode,
    last: Option<Seen>,
    /// Input and frames, if they are wanted and the server reports them.
    responses: Option<Responses>,
}

/// How the focus is tracked.
enum Mode {
    /// By an EWMH window manager, which runs as long as its window `check` exists.
    WindowManager {
        check: Window,
        /// The active window. Its destruction is watched, because openbox keeps naming the last
        /// window that was closed.
        active: Option<Window>,
    },
    /// By the input focus, without a window manager: these top-level windows are watched.
    InputFocus { watched: HashSet<Window> },
}

/// Connects to the display, and watches input and frames too if they are wanted.
pub fn connect(environment: &Environment) -> Result<Box<dyn Source>, NotHere> {
    let display = environment.display.as_deref();
    let display = display.ok_or_else(|| NotHere::because("$DISPLAY is not set"))?;
    let mut x11 = X11::connect(display, environment.responses)
        .map_err(|gone| NotHere::because(gone.to_string()))?;
    x11.is_xwayland = environment.wayland.is_some();
    Ok(Box::new(x11))
}

impl X11 {
    fn connect(display: &str, responses: bool) -> Result<Self, Gone> {
        let gone = |cause: String| Gone::new(what(display), cause);
        let (conn, screen) =
            RustConnection::connect(Some(display)).map_err(|error| gone(error.to_string()))?;
        let root = conn.setup().roots.get(screen).map(|screen| screen.root);
        let root = root.ok_or_else(|| gone(format!("it has no screen {screen}")))?;
        let begin = || -> Result<_, ReplyError> {
            let atoms = Atoms::new(&conn)?.reply()?;
            Ok((atoms, has_client_ids(&conn)?))
        };
        let (atoms, has_client_ids) = begin().map_err(|error| gone(error.to_string()))?;
        if !has_client_ids {
            tracing::warn!(
                "the X server has no XRes 1.2: processes are taken from _NET_WM_PID, which \
                 programs set themselves"
            );
        }
        let mode = Mode::InputFocus {
            watched: HashSet::new(),
        };
        let responses = match responses.then(|| Responses::connect(display)) {
            Some(Ok(responses)) => Some(responses),
            Some(Err(why)) => {
                tracing::warn!("this X server does not report input and frames: {why}");
                None
            }
            None => None,
        };
        let display = display.to_owned();
        let mut x11 = X11 {
            display,
            is_xwayland: false,
            conn,
            root,
            atoms,
            has_client_ids,
            mode,
            last: None,
            responses,
        };
        x11.choose_mode(true).map_err(|error| x11.gone(error))?;
        Ok(x11)
    }

    fn gone(&self, error: ConnectionError) -> Gone {
        Gone::new(what(&self.display), error)
    }

    /// Detects whether a window manager runs, and watches the windows that then report the focus.
    fn choose_mode(&mut self, first: bool) -> Result<(), ConnectionError> {
        // The watch is added before the query, so that no change between them is missed.
        self.select(self.root, EventMask::PROPERTY_CHANGE)?;
        match self.window_manager()? {
            Some((check, name)) => {
                match &self.mode {
                    Mode::WindowManager { check: known, .. } if *known == check => return Ok(()),
                    Mode::WindowManager { .. } => {}
                    Mode::InputFocus { watched } => {
                        // The window manager's own window is watched too, and must stay watched.
                        for &window in watched.iter().filter(|&&window| window != check) {
                            self.select(window, EventMask::NO_EVENT)?;
                        }
                    }
                }
                self.mode = Mode::WindowManager {
                    check,
                    active: None,
                };
                tracing::info!("the window manager {name:?} reports the focus");
            }
            None => {
                if first || matches!(self.mode, Mode::WindowManager { .. }) {
                    tracing::info!(
                        "no EWMH window manager runs on {}: the focus is taken from the server",
                        self.display
                    );
                }
                self.watch_windows()?;
            }
        }
        Ok(())
    }

    /// Watches the root window for new windows, and every top-level window for focus changes.
    fn watch_windows(&mut self) -> Result<(), ConnectionError> {
        let root_events =
            EventMask::PROPERTY_CHANGE | EventMask::SUBSTRUCTURE_NOTIFY | EventMask::FOCUS_CHANGE;
        self.select(self.root, root_events)?;
        let tree = answer(self.conn.query_tree(self.root)?.reply())?;
        let watched: HashSet<Window> = tree
            .map(|tree| tree.children.into_iter().collect())
            .unwrap_or_default();
        for &window in &watched {
            self.watch_window(window)?;
        }
        self.mode = Mode::InputFocus { watched };
        Ok(())
    }

    fn watch_window(&self, window: Window) -> Result<bool, ConnectionError> {
        // If an inner window gets the focus, its top-level window receives an event too. If the
        // focus follows the pointer, crossing events show the change.
        let crossing = EventMask::ENTER_WINDOW | EventMask::LEAVE_WINDOW;
        self.select(window, EventMask::FOCUS_CHANGE | crossing)
    }

    /// Selects events; `false` if the window is gone, which is not a failure.
    fn select(&self, window: Window, events: EventMask) -> Result<bool, ConnectionError> {
        let change = ChangeWindowAttributesAux::new().event_mask(events);
        let selected = self.conn.change_window_attributes(window, &change)?.check();
        Ok(answer(selected)?.is_some())
    }

    /// The check window of the running EWMH window manager, and the window manager's name. The root
    /// window's property survives a crash of the window manager, so the check window must exist and
    /// have the property too.
    fn window_manager(&self) -> Result<Option<(Window, String)>, ConnectionError> {
        let atoms = &self.atoms;
        let Some(check) = self.window_property(self.root, atoms._NET_SUPPORTING_WM_CHECK)? else {
            return Ok(None);
        };
        // The server destroys this window when the window manager ends.
        self.select(
            check,
            EventMask::STRUCTURE_NOTIFY | EventMask::PROPERTY_CHANGE,
        )?;
        let own = self.window_property(check, atoms._NET_SUPPORTING_WM_CHECK)?;
        let supported = self.property(self.root, atoms._NET_SUPPORTED, AtomEnum::ATOM.into())?;
        let keeps_active = supported.is_some_and(|supported| {
            supported
                .value32()
                .is_some_and(|mut all| all.any(|a| a == atoms._NET_ACTIVE_WINDOW))
        });
        if own != Some(check) || !keeps_active {
            return Ok(None);
        }
        let name = self.property(check, atoms._NET_WM_NAME, atoms.UTF8_STRING)?;
        let name = name.map(|name| String::from_utf8_lossy(&name.value).into_owned());
        Ok(Some((check, name.unwrap_or_default())))
    }

    fn property(
        &self,
        window: Window,
        name: u32,
        kind: u32,
    ) -> Result<Option<x11rb::protocol::xproto::GetPropertyReply>, ConnectionError> {
        /// Maximum length to read, in units of 4 bytes. No property that is read here is longer.
        const LENGTH: u32 = 4096;
        let reply = self
            .conn
            .get_property(false, window, name, kind, 0, LENGTH)?
            .reply();
        Ok(answer(reply)?.filter(|reply| reply.type_ == kind))
    }

    fn window_property(&self, on: Window, name: u32) -> Result<Option<Window>, ConnectionError> {
        let reply = self.property(on, name, AtomEnum::WINDOW.into())?;
        let window = reply.and_then(|reply| reply.value32().and_then(|mut all| all.next()));
        Ok(window.filter(|&window| window != x11rb::NONE))
    }

    /// Handles one event; `true` if the focus may have changed.
    fn take(&mut self, event: Event) -> Result<bool, ConnectionError> {
        let atoms = &self.atoms;
        match (event, &mut self.mode) {
            (Event::PropertyNotify(event), _) if event.atom == atoms._NET_SUPPORTING_WM_CHECK => {
                self.choose_mode(false)?;
                Ok(true)
            }
            // A starting window manager first names its window, and then its capabilities.
            (Event::PropertyNotify(event), Mode::InputFocus { .. })
                if event.atom == atoms._NET_SUPPORTED =>
            {
                self.choose_mode(false)?;
                Ok(true)
            }
            (Event::PropertyNotify(event), _) => {
                Ok(event.window == self.root && event.atom == atoms._NET_ACTIVE_WINDOW)
            }
            (Event::DestroyNotify(event), Mode::WindowManager { check, active }) => {
                if event.window == *check {
                    self.choose_mode(false)?;
                    return Ok(true);
                }
                Ok(*active == Some(event.window))
            }
            (Event::CreateNotify(event), Mode::InputFocus { watched }) => {
                watched.insert(event.window);
                self.watch_window(event.window)?;
                Ok(true)
            }
            (Event::DestroyNotify(event), Mode::InputFocus { watched }) => {
                watched.remove(&event.window);
                Ok(true)
            }
            (
                Event::FocusIn(_)
                | Event::FocusOut(_)
                | Event::EnterNotify(_)
                | Event::LeaveNotify(_)
                | Event::MapNotify(_)
                | Event::UnmapNotify(_),
                Mode::InputFocus { .. },
            ) => Ok(true),
            _ => Ok(false),
        }
    }

    /// The window that has the focus now.
    fn focused(&mut self) -> Result<(Option<Window>, FocusBy), ConnectionError> {
        match self.mode {
            Mode::WindowManager {
                check,
                active: before,
            } => {
                let named = self.window_property(self.root, self.atoms._NET_ACTIVE_WINDOW)?;
                let active = match named {
                    Some(window) if self.select(window, EventMask::STRUCTURE_NOTIFY)? => named,
                    _ => None,
                };
                if let Some(before) = before.filter(|&before| Some(before) != active) {
                    self.select(before, EventMask::NO_EVENT)?;
                }
                self.mode = Mode::WindowManager { check, active };
                Ok((active, FocusBy::WindowManager))
            }
            Mode::InputFocus { .. } => {
                let focus = answer(self.conn.get_input_focus()?.reply())?;
                let window = match focus.map_or(x11rb::NONE, |reply| reply.focus) {
                    x11rb::NONE => None,
                    focus if focus == u32::from(InputFocus::POINTER_ROOT) || focus == self.root => {
                        let pointer = answer(self.conn.query_pointer(self.root)?.reply())?;
                        pointer
                            .map(|reply| reply.child)
                            .filter(|&child| child != x11rb::NONE)
                    }
                    focus => Some(focus),
                };
                Ok((window, FocusBy::InputFocus))
            }
        }
    }

    fn pid_of(&self, window: Window) -> Result<Option<(i32, PidBy)>, ConnectionError> {
        if self.has_client_ids {
            // Without an answer, the client runs on another machine or is gone.
            let pid = client_pid(&self.conn, window)?;
            return Ok(pid.map(|pid| (pid, PidBy::Server)));
        }
        let mut window = window;
        for _ in 0..DEPTH_MAX {
            let pid = self.property(window, self.atoms._NET_WM_PID, AtomEnum::CARDINAL.into())?;
            let pid = pid
                .and_then(|pid| pid.value32()?.next())
                .and_then(valid_pid);
            if let Some(pid) = pid {
                return Ok(self.is_local(window)?.then_some((pid, PidBy::Window)));
            }
            match answer(self.conn.query_tree(window)?.reply())? {
                Some(tree) if tree.parent != self.root && tree.parent != x11rb::NONE => {
                    window = tree.parent
                }
                _ => break,
            }
        }
        Ok(None)
    }

    fn is_local(&self, window: Window) -> Result<bool, ConnectionError> {
        let kind = AtomEnum::STRING.into();
        let machine = self.property(window, AtomEnum::WM_CLIENT_MACHINE.into(), kind)?;
        let own = rustix::system::uname();
        Ok(machine.is_some_and(|machine| machine.value == own.nodename().to_bytes()))
    }

    fn update(&mut self) -> Result<Seen, ConnectionError> {
        // Events may arrive while answers are awaited, so repeat until there are none.
        let mut changed = self.last.is_none();
        loop {
            while let Some(event) = self.conn.poll_for_event()? {
                changed |= self.take(event)?;
            }
            if !std::mem::take(&mut changed) {
                if let Some(seen) = &self.last {
                    return Ok(seen.clone());
                }
            }
            let (window, focus_by) = self.focused()?;
            let pid = window
                .map(|window| self.pid_of(window))
                .transpose()?
                .flatten();
            if let Some(responses) = &mut self.responses {
                responses.follow(window.zip(pid.map(|(pid, _)| pid)))?;
            }
            self.last = Some(Seen {
                pid: pid.map(|(pid, _)| pid),
                cgroup: None,
                window: window.map(|window| format!("{window:#x}")),
                focus_by,
                pid_by: pid.map(|(_, by)| by),
            });
        }
    }
}

impl Source for X11 {
    fn name(&self) -> &'static str {
        "x11"
    }

    fn detail(&self) -> String {
        let whose = match (self.is_xwayland, &self.mode) {
            (true, _) => "of Xwayland: native Wayland programs are not visible",
            (false, Mode::WindowManager { .. }) => "by the window manager's _NET_ACTIVE_WINDOW",
            (false, Mode::InputFocus { .. }) => {
                "by the input focus, since no window manager reports it"
            }
        };
        let windows = match self.responses {
            Some(_) => ", with input and frames",
            None => "",
        };
        format!("display {}, {whose}{windows}", self.display)
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.conn.stream().as_fd()]
    }

    fn observe(&mut self) -> Result<Seen, Gone> {
        self.update().map_err(|error| self.gone(error))
    }

    fn responses_fd(&self) -> Option<BorrowedFd<'_>> {
        self.responses.as_ref().map(Responses::fd)
    }

    fn responses(&mut self) -> Result<Vec<Told>, Gone> {
        let told = self.responses.as_mut().map(Responses::turn);
        told.unwrap_or(Ok(Vec::new()))
            .map_err(|error| self.gone(error))
    }

    fn responses_deadline(&self) -> Option<Duration> {
        self.responses.as_ref().and_then(Responses::deadline)
    }
}

/// Converts an error of the server to `None`. Usually the window was destroyed meanwhile, and an
/// event will report that.
fn answer<T>(reply: Result<T, ReplyError>) -> Result<Option<T>, ConnectionError> {
    match reply {
        Ok(value) => Ok(Some(value)),
        Err(ReplyError::X11Error(_)) => Ok(None),
        Err(ReplyError::ConnectionError(error)) => Err(error),
    }
}

fn what(display: &str) -> String {
    format!("the X server on display {display:?}")
}

/// A window's process according to the server; `None` if it is gone or runs on another machine.
pub(super) fn client_pid(
    conn: &RustConnection,
    window: Window,
) -> Result<Option<i32>, ConnectionError> {
    let spec = ClientIdSpec {
        client: window,
        mask: ClientIdMask::LOCAL_CLIENT_PID,
    };
    let reply = answer(conn.res_query_client_ids(&[spec])?.reply())?;
    let ids = reply.map(|reply| reply.ids).unwrap_or_default();
    let pid = ids.iter().find_map(|id| id.value.first().copied());
    Ok(pid.and_then(valid_pid))
}

/// Whether the server can return a client's process (XRes 1.2).
pub(super) fn has_client_ids(conn: &RustConnection) -> Result<bool, ReplyError> {
    if conn
        .extension_information(res::X11_EXTENSION_NAME)?
        .is_none()
    {
        return Ok(false);
    }
    let version = conn.res_query_version(1, 2)?.reply()?;
    Ok((version.server_major, version.server_minor) >= (1, 2))
}

/// Converts a number to a process id, if it is valid.
fn valid_pid(number: u32) -> Option<i32> {
    i32::try_from(number).ok().filter(|&pid| pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positive_numbers_are_processes() {
        assert_eq!(valid_pid(0), None);
        assert_eq!(valid_pid(u32::MAX), None);
        assert_eq!(valid_pid(4242), Some(4242));
    }

    #[test]
    fn error_names_the_missing_display() {
        let gone = X11::connect(":4000", true).err().unwrap();
        assert!(gone.to_string().contains(":4000"), "{gone}");
        let nonsense = X11::connect("nonsense", false).err().unwrap();
        assert!(nonsense.to_string().contains("nonsense"), "{nonsense}");
    }
}
