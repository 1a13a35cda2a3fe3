// SPDX-License-Identifier: GPL-2.0-or-later
//! i3, over its IPC: i3 names X11 windows, and the X server returns their processes.
//!
//! i3 maintains `_NET_ACTIVE_WINDOW`, so the X11 source works with i3 too. That source also
//! observes input and frames, so x11 comes first, and this source is used only on request.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use x11rb::protocol::xproto::{AtomEnum, ConnectionExt as _};
use x11rb::rust_connection::RustConnection;

use super::environment::Environment;
use super::i3_ipc::Ipc;
use super::pick::NotHere;
use super::{x11, FocusBy, Gone, PidBy, Seen, Source};

/// i3's IPC, and its X server.
pub struct I3 {
    ipc: Ipc,
    conn: RustConnection,
    detail: String,
}

/// Connects to the display, and to i3 over `$I3SOCK` or the socket that i3 names on the display.
pub fn connect(environment: &Environment) -> Result<Box<dyn Source>, NotHere> {
    let display = environment.display.as_deref();
    let display = display.ok_or_else(|| NotHere::because("there is no X11 display"))?;
    let (conn, screen) = RustConnection::connect(Some(display))
        .map_err(|error| NotHere::because(format!("{display}: {error}")))?;
    if !x11::has_client_ids(&conn).unwrap_or(false) {
        return Err(NotHere::because(
            "the X server does not report a window's process (XRes 1.2)",
        ));
    }
    let path = environment.i3.clone().or_else(|| socket(&conn, screen));
    let path = path.ok_or_else(|| NotHere::because(format!("i3 does not run on {display}")))?;
    let mut ipc = Ipc::connect(&path)?;
    let version = ipc.version()?;
    let (peer, path) = (ipc.stream().peer(), path.display());
    let detail = format!(
        "{peer}, version {version}, reports the focus over {path}; X server {display} names the \
         processes"
    );
    Ok(Box::new(I3 { ipc, conn, detail }))
}

/// The path of i3's socket (`i3 --get-socketpath`).
fn socket(conn: &RustConnection, screen: usize) -> Option<PathBuf> {
    use x11rb::connection::Connection;
    let root = conn.setup().roots.get(screen)?.root;
    let name = conn
        .intern_atom(true, b"I3_SOCKET_PATH")
        .ok()?
        .reply()
        .ok()?;
    if name.atom == x11rb::NONE {
        return None;
    }
    let property = conn.get_property(false, root, name.atom, AtomEnum::ANY, 0, 1024);
    let value = property.ok()?.reply().ok()?.value;
    let value = String::from_utf8(value).ok()?;
    (!value.is_empty()).then(|| PathBuf::from(value.trim_end_matches('\0')))
}

impl Source for I3 {
    fn name(&self) -> &'static str {
        "i3"
    }

    fn detail(&self) -> String {
        self.detail.clone()
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.ipc.stream().fd()]
    }

    fn observe(&mut self) -> Result<Seen, Gone> {
        let focused = self.ipc.focused().map_err(|why| Gone::new("i3", why))?;
        let nothing = Seen::nothing(FocusBy::WindowManager);
        let Some(window) = focused.and_then(|node| node.window) else {
            return Ok(nothing);
        };
        let pid = x11::client_pid(&self.conn, window);
        let pid = pid.map_err(|error| Gone::new("the X server", error))?;
        Ok(Seen {
            pid,
            window: Some(format!("{window:#x}")),
            pid_by: pid.map(|_| PidBy::Server),
            ..nothing
        })
    }
}
