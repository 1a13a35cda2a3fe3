// SPDX-License-Identifier: GPL-2.0-or-later
//! The simulated user of `gallery-real`: presses keys through XTEST and watches the viewer's window
//! through DAMAGE.
//!
//! **Response** is the time from the key event to the last damage of the window before it stays
//! unchanged for [`QUIET`]. If a viewer first clears its window and then draws, only the drawing is
//! the answer.

use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use x11rb::connection::Connection;
use x11rb::protocol::damage::{ConnectionExt as _, ReportLevel};
use x11rb::protocol::xproto::{
    AtomEnum, ClientMessageEvent, ConnectionExt as _, CreateWindowAux, EventMask, Keycode,
    PropMode, Window, WindowClass, KEY_PRESS_EVENT, KEY_RELEASE_EVENT,
};
use x11rb::protocol::xtest::ConnectionExt as _;
use x11rb::protocol::Event;
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

use crate::guest_setup::wait;

/// Time for which a window must stay unchanged until its answer counts as complete.
pub const QUIET: Duration = Duration::from_millis(150);
/// Timeout for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Timeout for the start of the server, the window manager and the viewer.
const START_LIMIT: Duration = Duration::from_secs(45);

/// Property of the root window that names the active one.
const ACTIVE: &[u8] = b"_NET_ACTIVE_WINDOW";
/// Source indication of an activation request in EWMH: the user, through a pager or task bar.
const PAGER: u32 = 2;

/// Times of a window's answer, since the key event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The first damage.
    pub first: Duration,
    /// The last damage before the window stayed unchanged.
    pub last: Duration,
    /// As `last`, by the server's timestamps: in whole milliseconds, and without the round trip.
    pub stamped: Duration,
}

/// Waits for the display. Returns a connection to it, and the number of its screen.
pub(crate) fn connect(display: &str) -> Result<(RustConnection, usize)> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        match x11rb::connect(Some(display)) {
            Ok(found) => return Ok(found),
            Err(error) if Instant::now() > deadline => {
                return Err(error)
                    .with_context(|| format!("no X server on {display} after {START_LIMIT:?}"));
            }
            Err(_) => sleep(Duration::from_millis(100)),
        }
    }
}

/// Shows a window, which exists as long as the returned connection.
pub(crate) fn show_window(display: &str) -> Result<(RustConnection, Window)> {
    let (connection, screen) = connect(display)?;
    let root = connection.setup().roots[screen].root;
    let window = connection.generate_id()?;
    let (size, like_parent) = (64, x11rb::COPY_FROM_PARENT);
    let attributes = CreateWindowAux::new();
    connection
        .create_window(
            x11rb::COPY_DEPTH_FROM_PARENT,
            window,
            root,
            0,
            0,
            size,
            size,
            0,
            WindowClass::INPUT_OUTPUT,
            like_parent,
            &attributes,
        )?
        .check()?;
    connection.map_window(window)?.check()?;
    Ok((connection, window))
}

/// A connection to the display, and the window that the user watches.
pub struct User {
    connection: RustConnection,
    root: Window,
    window: Window,
    /// A window of this client: its property changes return the server's time.
    clock: Window,
}

impl User {
    /// Waits for the display and connects to it.
    pub fn connect(display: &str) -> Result<Self> {
        let (connection, screen) = connect(display)?;
        let root = connection.setup().roots[screen].root;
        connection.damage_query_version(1, 1)?.reply()?;
        connection.xtest_get_version(2, 2)?.reply()?;
        let clock = connection.generate_id()?;
        connection
            .create_window(
                0,
                clock,
                root,
                0,
                0,
                1,
                1,
                0,
                WindowClass::INPUT_ONLY,
                x11rb::COPY_FROM_PARENT,
                &CreateWindowAux::new().event_mask(EventMask::PROPERTY_CHANGE),
            )?
            .check()?;
        Ok(User {
            connection,
            root,
            window: 0,
            clock,
        })
    }

    /// Waits until a window manager is running. A window that is mapped before the window manager
    /// starts would be managed, but not activated.
    pub fn wait_for_window_manager(&self) -> Result<()> {
        self.wait_for_window(b"_NET_SUPPORTING_WM_CHECK")
            .context("no window manager")?;
        Ok(())
    }

    /// Waits for a managed window, activates it as a task bar would, and watches it.
    pub fn watch_first_window(&mut self) -> Result<()> {
        self.window = self
            .wait_for_window_of(b"_NET_CLIENT_LIST", &|| self.wake_window_manager())
            .context("no managed window")?;
        // openbox does not focus a window whose program took long to show it.
        self.activate(self.window)?;
        let active = self.wait_for_window(ACTIVE).context("no active window")?;
        if active != self.window {
            bail!(
                "window {active:#x} became active, not the viewer's {:#x}",
                self.window
            );
        }
        let damage = self.connection.generate_id()?;
        self.connection
            .damage_create(damage, self.window, ReportLevel::RAW_RECTANGLES)?
            .check()?;
        Ok(())
    }

    /// Activates the watched window.
    pub fn activate_watched(&self) -> Result<()> {
        self.activate(self.window)
    }

    /// Activates a window as a task bar would.
    pub fn activate(&self, window: Window) -> Result<()> {
        self.ask_window_manager(ACTIVE, window, [PAGER, 0, 0, 0, 0])
    }

    /// Activates a window as a task bar would, and waits until it is active.
    pub fn activate_and_wait(&self, window: Window) -> Result<()> {
        self.activate(window)?;
        let active = || Ok(self.windows(ACTIVE)?.first() == Some(&window));
        match wait(active)? {
            true => Ok(()),
            false => bail!("window {window:#x} does not become active"),
        }
    }

    /// Waits for a managed window that is not in `known`.
    pub fn another_window(&self, known: &[Window]) -> Result<Window> {
        let mut found = None;
        wait(|| {
            self.wake_window_manager()?;
            let windows = self.windows(b"_NET_CLIENT_LIST")?;
            found = windows.into_iter().find(|window| !known.contains(window));
            Ok(found.is_some())
        })?;
        found.with_context(|| format!("no managed window other than {known:x?} appears"))
    }

    /// Windows listed in a property of the root window.
    fn windows(&self, name: &[u8]) -> Result<Vec<Window>> {
        let property = self.connection.intern_atom(false, name)?.reply()?.atom;
        let value = self
            .connection
            .get_property(false, self.root, property, AtomEnum::WINDOW, 0, 64)?
            .reply()?;
        Ok(value.value32().into_iter().flatten().collect())
    }

    /// Sends the window manager an EWMH request.
    fn ask_window_manager(&self, name: &[u8], window: Window, data: [u32; 5]) -> Result<()> {
        let kind = self.connection.intern_atom(false, name)?.reply()?.atom;
        self.connection.send_event(
            false,
            self.root,
            EventMask::SUBSTRUCTURE_REDIRECT | EventMask::SUBSTRUCTURE_NOTIFY,
            ClientMessageEvent::new(32, window, kind, data),
        )?;
        self.connection.flush()?;
        Ok(())
    }

    /// Sends the window manager an event that changes nothing. openbox sometimes sleeps although it
    /// has read the request to map its first window; the next event makes it handle the request.
    fn wake_window_manager(&self) -> Result<()> {
        self.ask_window_manager(b"_NET_CURRENT_DESKTOP", self.root, [0; 5])
    }

    /// Waits until a property of the root window contains a window, and returns the window. Fails
    /// after [`START_LIMIT`].
    fn wait_for_window(&self, name: &[u8]) -> Result<Window> {
        self.wait_for_window_of(name, &|| Ok(()))
    }

    /// As [`User::wait_for_window`], and calls `nudge` in each round.
    fn wait_for_window_of(&self, name: &[u8], nudge: &dyn Fn() -> Result<()>) -> Result<Window> {
        let property = self.connection.intern_atom(false, name)?.reply()?.atom;
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let value = self
                .connection
                .get_property(false, self.root, property, AtomEnum::WINDOW, 0, 1)?
                .reply()?;
            let window = value.value32().and_then(|mut windows| windows.next());
            if let Some(window) = window.filter(|&window| window != 0) {
                return Ok(window);
            }
            if Instant::now() > deadline {
                bail!(
                    "{} names no window after {START_LIMIT:?}",
                    String::from_utf8_lossy(name)
                );
            }
            nudge()?;
            sleep(Duration::from_millis(250));
        }
    }

    /// Presses and releases a key, and waits for the window's answer: its response time, or none
    /// when the window stays unchanged for `ANSWER_LIMIT`.
    pub fn press(&self, keysym: u32) -> Result<Option<Duration>> {
        Ok(self.answer(keysym)?.map(|answer| answer.last))
    }

    /// As [`User::press`], and returns all times of the answer.
    pub fn answer(&self, keysym: u32) -> Result<Option<Answer>> {
        let key = keycode(&self.connection, keysym)?;
        while self.connection.poll_for_event()?.is_some() {}
        let start = Instant::now();
        // This request precedes the key in the same batch, so its event has the time of the key.
        self.connection.change_property8(
            PropMode::APPEND,
            self.clock,
            AtomEnum::WM_NAME,
            AtomEnum::STRING,
            &[],
        )?;
        strike(&self.connection, self.root, key)?;
        let mut struck = None;
        let mut answer: Option<Answer> = None;
        loop {
            let limit = match answer {
                None => ANSWER_LIMIT.saturating_sub(start.elapsed()),
                Some(_) => QUIET,
            };
            match self.next_event(limit)? {
                Some(Event::PropertyNotify(event)) if event.window == self.clock => {
                    struck = Some(event.time);
                }
                Some(Event::DamageNotify(event)) if event.drawable == self.window => {
                    let last = start.elapsed();
                    let first = answer.map_or(last, |answer| answer.first);
                    let struck = struck.context("the server has not sent its time")?;
                    let ms = event.timestamp.wrapping_sub(struck);
                    answer = Some(Answer {
                        first,
                        last,
                        stamped: Duration::from_millis(ms.into()),
                    });
                }
                Some(_) => {}
                None => return Ok(answer),
            }
        }
    }

    /// Presses and releases a key without waiting.
    pub fn tap(&self, keysym: u32) -> Result<()> {
        let key = keycode(&self.connection, keysym)?;
        strike(&self.connection, self.root, key)
    }

    /// Waits until the window has stayed unchanged for [`QUIET`].
    pub fn wait_until_quiet(&self) -> Result<()> {
        while self.next_event(QUIET)?.is_some() {}
        Ok(())
    }

    /// The next event, or none after `limit`.
    fn next_event(&self, limit: Duration) -> Result<Option<Event>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(event) = self.connection.poll_for_event()? {
                return Ok(Some(event));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            wait_readable(&self.connection, left)?;
        }
    }
}

/// Presses and releases a key.
pub(crate) fn strike(connection: &RustConnection, root: Window, key: Keycode) -> Result<()> {
    for kind in [KEY_PRESS_EVENT, KEY_RELEASE_EVENT] {
        connection.xtest_fake_input(kind, key, 0, root, 0, 0, 0)?;
    }
    Ok(connection.flush()?)
}

/// Waits until the server sends something, or `limit` has passed.
pub(crate) fn wait_readable(connection: &RustConnection, limit: Duration) -> Result<()> {
    let time = Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    let stream = connection.stream();
    let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
    match poll(&mut fds, Some(&time)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for the X server"),
    }
}

/// The keycode of a keysym.
pub(crate) fn keycode(connection: &RustConnection, keysym: u32) -> Result<Keycode> {
    let setup = connection.setup();
    let (first, last) = (setup.min_keycode, setup.max_keycode);
    let mapping = connection
        .get_keyboard_mapping(first, last - first + 1)?
        .reply()?;
    let per_key = usize::from(mapping.keysyms_per_keycode);
    mapping
        .keysyms
        .chunks(per_key)
        .position(|symbols| symbols.contains(&keysym))
        .map(|index| first + index as u8)
        .with_context(|| format!("the keyboard has no key for keysym {keysym:#x}"))
}
