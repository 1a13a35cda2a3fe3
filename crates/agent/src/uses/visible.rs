// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds processes with visible windows on X11.
//!
//! The windows and their stacking order come from the window manager's list, or from the server's
//! own list without a window manager. A window is visible if it is not hidden, is on the current
//! desktop, and has at least 5 % of its area uncovered by the windows above it. Transparency by a
//! compositor is unknown here, so transparent windows count as covering.
//!
//! This uses a separate connection, because it selects other events on the same windows than the
//! focus source. While windows are moved, it scans twice a second.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use x11rb::connection::{Connection, RequestConnection};
use x11rb::errors::{ConnectionError, ReplyError};
use x11rb::protocol::res::{self, ClientIdMask, ClientIdSpec, ConnectionExt as _};
use x11rb::protocol::xproto::{
    AtomEnum, ChangeWindowAttributesAux, ConnectionExt as _, EventMask, MapState, Window,
};
use x11rb::protocol::Event;
use x11rb::rust_connection::RustConnection;

use super::covered::{uncovered, Rect};
use crate::sources::pick::NotHere;

x11rb::atom_manager! {
    /// Atoms of properties that are read.
    Atoms: AtomsCookie {
        _NET_CLIENT_LIST_STACKING,
        _NET_CURRENT_DESKTOP,
        _NET_WM_DESKTOP,
        _NET_WM_STATE,
        _NET_WM_STATE_HIDDEN,
    }
}

/// Shortest time between two scans.
const SCAN_EVERY: Duration = Duration::from_millis(500);

/// Maximum number of windows that are checked, from the top.
const WINDOWS_MAX: usize = 256;

/// Percent of a window that must be uncovered for it to be visible.
const SEEN_PERCENT: u64 = 5;

/// Desktop number of windows that are on all desktops.
const ALL_DESKTOPS: u32 = u32::MAX;

/// Watches an X server's windows.
pub struct Visible {
    conn: RustConnection,
    root: Window,
    screen: Rect,
    atoms: Atoms,
    pids: BTreeSet<i32>,
    scanned_at: Option<Duration>,
    /// Whether something may have changed since the last scan.
    changed: bool,
}

impl Visible {
    /// Connects, and requests change events. The error names what the server lacks.
    pub fn connect(display: &str) -> Result<Visible, NotHere> {
        let (conn, screen) = RustConnection::connect(Some(display))?;
        let screen = conn.setup().roots.get(screen);
        let screen =
            screen.ok_or_else(|| NotHere::because("it does not have the requested screen"))?;
        let root = screen.root;
        let screen = Rect {
            left: 0,
            top: 0,
            right: i32::from(screen.width_in_pixels),
            bottom: i32::from(screen.height_in_pixels),
        };
        let begin = || -> Result<Option<Atoms>, ReplyError> {
            let found = conn.extension_information(res::X11_EXTENSION_NAME)?;
            let version = match found {
                Some(_) => conn.res_query_version(1, 2)?.reply()?,
                None => return Ok(None),
            };
            if (version.server_major, version.server_minor) < (1, 2) {
                return Ok(None);
            }
            let events = EventMask::SUBSTRUCTURE_NOTIFY
                | EventMask::PROPERTY_CHANGE
                | EventMask::STRUCTURE_NOTIFY;
            let change = ChangeWindowAttributesAux::new().event_mask(events);
            conn.change_window_attributes(root, &change)?.check()?;
            Ok(Some(Atoms::new(&conn)?.reply()?))
        };
        let without = "it has no XRes 1.2, which reports a window's process";
        let atoms = begin()?.ok_or_else(|| NotHere::because(without))?;
        Ok(Visible {
            conn,
            root,
            screen,
            atoms,
            pids: BTreeSet::new(),
            scanned_at: None,
            changed: true,
        })
    }

    /// Descriptor that becomes readable when something may have changed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.conn.stream().as_fd()
    }

    /// When the next scan is due, if something has changed.
    pub fn deadline(&self) -> Option<Duration> {
        self.changed
            .then(|| self.scanned_at.map_or(Duration::ZERO, |at| at + SCAN_EVERY))
    }

    /// Processes with visible windows as of the last scan.
    pub fn pids(&self) -> &BTreeSet<i32> {
        &self.pids
    }

    /// Takes events, and scans when that is due.
    pub fn turn(&mut self, now: Duration) -> Result<(), ConnectionError> {
        while let Some(event) = self.conn.poll_for_event()? {
            self.take(&event);
        }
        if self.deadline().is_some_and(|due| due <= now) {
            self.changed = false;
            self.scanned_at = Some(now);
            self.pids = self.scan()?;
            // Events that arrived while answers were awaited count for the next scan.
            while let Some(event) = self.conn.poll_for_event()? {
                self.take(&event);
            }
        }
        Ok(())
    }

    fn take(&mut self, event: &Event) {
        let atoms = &self.atoms;
        match event {
            Event::PropertyNotify(event) => {
                let wanted = [atoms._NET_CLIENT_LIST_STACKING, atoms._NET_CURRENT_DESKTOP];
                self.changed |= wanted.contains(&event.atom);
            }
            Event::ConfigureNotify(event) if event.window == self.root => {
                self.screen.right = i32::from(event.width);
                self.screen.bottom = i32::from(event.height);
                self.changed = true;
            }
            Event::ConfigureNotify(_)
            | Event::CirculateNotify(_)
            | Event::MapNotify(_)
            | Event::UnmapNotify(_)
            | Event::DestroyNotify(_)
            | Event::ReparentNotify(_) => self.changed = true,
            _ => {}
        }
    }

    fn scan(&self) -> Result<BTreeSet<i32>, ConnectionError> {
        let stack = self.stack()?;
        let places = self.places(&stack)?;
        let mut above: Vec<Rect> = Vec::new();
        let mut seen = Vec::new();
        for (window, place) in stack.iter().zip(places).rev() {
            let Some(place) = place else {
                continue;
            };
            let area = place.area();
            if area > 0 && uncovered(place, &above) * 100 >= area * SEEN_PERCENT {
                seen.push(*window);
            }
            above.push(place);
        }
        self.owners(&seen)
    }

    /// The programs' windows, from the bottom to the top.
    fn stack(&self) -> Result<Vec<Window>, ConnectionError> {
        let listed = self.words(self.root, self.atoms._NET_CLIENT_LIST_STACKING)?;
        let mut stack = match listed {
            Some(listed) => listed,
            None => answer(self.conn.query_tree(self.root)?.reply())?
                .map(|tree| tree.children)
                .unwrap_or_default(),
        };
        stack.drain(..stack.len().saturating_sub(WINDOWS_MAX));
        Ok(stack)
    }

    /// The area of each of these windows on the screen, if it is shown. All requests are sent
    /// before the first answer is awaited.
    fn places(&self, windows: &[Window]) -> Result<Vec<Option<Rect>>, ConnectionError> {
        let conn = &self.conn;
        let atoms = &self.atoms;
        let current = self.words(self.root, atoms._NET_CURRENT_DESKTOP)?;
        let current = current.and_then(|words| words.first().copied());
        let cardinal = AtomEnum::CARDINAL;
        let mut asked = Vec::with_capacity(windows.len());
        for &window in windows {
            asked.push((
                conn.get_window_attributes(window)?,
                conn.get_geometry(window)?,
                conn.translate_coordinates(window, self.root, 0, 0)?,
                conn.get_property(false, window, atoms._NET_WM_DESKTOP, cardinal, 0, 1)?,
                conn.get_property(false, window, atoms._NET_WM_STATE, AtomEnum::ATOM, 0, 64)?,
            ));
        }
        let mut places = Vec::with_capacity(windows.len());
        for (attributes, geometry, origin, desktop, state) in asked {
            // Take every answer, even if another one was an error.
            let attributes = answer(attributes.reply())?;
            let geometry = answer(geometry.reply())?;
            let origin = answer(origin.reply())?;
            let desktop = answer(desktop.reply())?;
            let state = answer(state.reply())?;
            let viewable = attributes.is_some_and(|got| got.map_state == MapState::VIEWABLE);
            let hidden = state.as_ref().is_some_and(|state| {
                let mut words = state.value32().into_iter().flatten();
                words.any(|word| word == atoms._NET_WM_STATE_HIDDEN)
            });
            let desktop = desktop.and_then(|desktop| desktop.value32()?.next());
            let elsewhere = desktop
                .zip(current)
                .is_some_and(|(on, shown)| on != shown && on != ALL_DESKTOPS);
            let place = geometry.zip(origin).map(|(geometry, origin)| {
                let (left, top) = (i32::from(origin.dst_x), i32::from(origin.dst_y));
                let rect = Rect {
                    left,
                    top,
                    right: left + i32::from(geometry.width),
                    bottom: top + i32::from(geometry.height),
                };
                rect.common(&self.screen)
            });
            places.push(place.filter(|_| viewable && !hidden && !elsewhere));
        }
        Ok(places)
    }

    /// The processes of these windows, according to the server, which asks the kernel.
    fn owners(&self, windows: &[Window]) -> Result<BTreeSet<i32>, ConnectionError> {
        let mut asked = Vec::with_capacity(windows.len());
        for &client in windows {
            let mask = ClientIdMask::LOCAL_CLIENT_PID;
            asked.push(
                self.conn
                    .res_query_client_ids(&[ClientIdSpec { client, mask }])?,
            );
        }
        let mut pids = BTreeSet::new();
        for one in asked {
            let ids = answer(one.reply())?.map(|reply| reply.ids);
            let values = ids.unwrap_or_default().into_iter().flat_map(|id| id.value);
            pids.extend(
                values
                    .filter_map(|value| i32::try_from(value).ok())
                    .filter(|pid| *pid > 0),
            );
        }
        Ok(pids)
    }

    /// A property that is a list of numbers; `None` if it does not exist.
    fn words(&self, window: Window, name: u32) -> Result<Option<Vec<u32>>, ConnectionError> {
        /// In units of 4 bytes.
        const LENGTH: u32 = 4096;
        let asked = self
            .conn
            .get_property(false, window, name, AtomEnum::ANY, 0, LENGTH)?;
        let reply = answer(asked.reply())?;
        Ok(reply.and_then(|reply| Some(reply.value32()?.collect())))
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
