// SPDX-License-Identifier: GPL-2.0-or-later
//! An X client that answers each key press by presenting a pixmap of which no region is updated.
//! There is no damage event for such a frame; only the Present extension reports it. Games and
//! video players show their frames in this way. With [`Spec::animates`], the client presents frames
//! continuously instead.

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};
use x11rb::connection::Connection;
use x11rb::protocol::present::{ConnectionExt as _, EventMask as PresentMask};
use x11rb::protocol::xfixes::ConnectionExt as _;
use x11rb::protocol::xproto::{
    ConnectionExt as _, CreateWindowAux, EventMask, PropMode, Window, WindowClass,
};
use x11rb::protocol::Event;
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

const SIZE: u16 = 200;

/// The client's parameters.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// Display name of the X server.
    pub display: String,
    /// Whether the client presents frame after frame without input.
    #[serde(default)]
    pub animates: bool,
}

/// The client's report: one at the start, and one for each frame that answers a key press.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The client's window.
    pub window: Window,
    /// Number of frames that the server has shown so far.
    pub shown: u32,
}

/// Runs until the server exits.
pub fn run(spec: &Spec) -> Result<()> {
    let (conn, screen) = x11rb::connect(Some(&spec.display))
        .with_context(|| format!("no X server on {}", spec.display))?;
    let root = &conn.setup().roots[screen];
    conn.present_query_version(1, 0)?.reply()?;
    conn.xfixes_query_version(5, 0)?.reply()?;
    let window = conn.generate_id()?;
    let events = EventMask::KEY_PRESS | EventMask::STRUCTURE_NOTIFY;
    let attributes = CreateWindowAux::new()
        .event_mask(events)
        .background_pixel(root.white_pixel);
    conn.create_window(
        x11rb::COPY_DEPTH_FROM_PARENT,
        window,
        root.root,
        0,
        0,
        SIZE,
        SIZE,
        0,
        WindowClass::INPUT_OUTPUT,
        x11rb::COPY_FROM_PARENT,
        &attributes,
    )?;
    // Window managers do not focus a window without an input hint (WM_HINTS: InputHint).
    let hints = [1u32, 1, 0, 0, 0, 0, 0, 0, 0];
    let kind = x11rb::protocol::xproto::AtomEnum::WM_HINTS;
    conn.change_property32(PropMode::REPLACE, window, kind, kind, &hints)?;
    let id = conn.generate_id()?;
    conn.present_select_input(id, window, PresentMask::COMPLETE_NOTIFY)?;
    conn.map_window(window)?;
    conn.flush()?;
    while !matches!(conn.wait_for_event()?, Event::MapNotify(_)) {}
    let mut report = Said { window, shown: 0 };
    println!("{}", serde_json::to_string(&report)?);
    if spec.animates {
        present(&conn, window, report.shown, root.root_depth)?;
    }
    loop {
        match conn.wait_for_event()? {
            Event::PresentCompleteNotify(_) if spec.animates => {
                report.shown += 1;
                present(&conn, window, report.shown, root.root_depth)?;
            }
            Event::KeyPress(_) if !spec.animates => {
                present(&conn, window, report.shown, root.root_depth)?;
            }
            Event::PresentCompleteNotify(_) => {
                report.shown += 1;
                println!("{}", serde_json::to_string(&report)?);
            }
            Event::Error(error) => bail!("the X server reports an error: {error:?}"),
            _ => {}
        }
    }
}

fn present(conn: &RustConnection, window: Window, serial: u32, depth: u8) -> Result<()> {
    let pixmap = conn.generate_id()?;
    conn.create_pixmap(depth, pixmap, window, SIZE, SIZE)?;
    let nothing = conn.generate_id()?;
    conn.xfixes_create_region(nothing, &[])?;
    let none = x11rb::NONE;
    conn.present_pixmap(
        window,
        pixmap,
        serial,
        none,
        nothing,
        0,
        0,
        none,
        none,
        none,
        0,
        0,
        0,
        0,
        &[],
    )?;
    conn.xfixes_destroy_region(nothing)?;
    conn.free_pixmap(pixmap)?;
    Ok(conn.flush()?)
}
