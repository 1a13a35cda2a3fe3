// SPDX-License-Identifier: GPL-2.0-or-later
//! A connection to i3 or to sway, which use the same protocol.

use std::collections::BTreeSet;
use std::path::Path;

use limelight_compositor::i3::{changes_view, decode, encode, visible, Focus, Node, EVENT};
use limelight_compositor::Invalid;
use serde::Deserialize;

use super::lines::{Stream, StreamError};

const SUBSCRIBE: u32 = 2;
const GET_TREE: u32 = 4;
const GET_VERSION: u32 = 7;

/// A connection, and the focus according to its events.
#[derive(Debug)]
pub struct Ipc {
    stream: Stream,
    focus: Focus,
    /// Whether other windows may be visible than in the last tree that was searched for them.
    view_changed: bool,
}

impl Ipc {
    /// Connects and subscribes to events that concern the focus.
    pub fn connect(path: &Path) -> Result<Ipc, StreamError> {
        let mut ipc = Ipc {
            stream: Stream::connect(path)?,
            focus: Focus::default(),
            view_changed: true,
        };
        let agreed = ipc.ask(SUBSCRIBE, br#"["window","workspace"]"#)?;
        #[derive(Deserialize)]
        struct Agreed {
            success: bool,
        }
        match serde_json::from_slice(&agreed) {
            Ok(Agreed { success: true }) => Ok(ipc),
            _ => Err(StreamError::Refused(path.to_owned())),
        }
    }

    /// The connection itself.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The peer's version string.
    pub fn version(&mut self) -> Result<String, StreamError> {
        #[derive(Deserialize)]
        struct Version {
            human_readable: String,
        }
        let version = self.ask(GET_VERSION, b"")?;
        let version: Version = serde_json::from_slice(&version).map_err(Invalid::from)?;
        Ok(version.human_readable)
    }

    /// The window that has the focus, according to all events received so far.
    pub fn focused(&mut self) -> Result<Option<Node>, StreamError> {
        loop {
            self.stream.read()?;
            while let Some((kind, payload)) = self.take()? {
                self.note(kind, &payload);
            }
            if let Some(known) = self.focus.known() {
                return Ok(known.clone());
            }
            let tree = self.ask(GET_TREE, b"")?;
            // Events received with the answer are handled next.
            self.focus.look(&tree)?;
        }
    }

    /// The processes of all visible windows, if others may be visible than at the last call.
    pub fn visible(&mut self) -> Result<Option<BTreeSet<i32>>, StreamError> {
        if !std::mem::take(&mut self.view_changed) {
            return Ok(None);
        }
        let tree = self.ask(GET_TREE, b"")?;
        Ok(Some(visible(&tree)?))
    }

    fn note(&mut self, kind: u32, payload: &[u8]) {
        self.focus.note(kind, payload);
        self.view_changed |= changes_view(kind, payload);
    }

    /// Sends a request and waits for the answer. Handles the events that arrive before it.
    fn ask(&mut self, kind: u32, payload: &[u8]) -> Result<Vec<u8>, StreamError> {
        self.stream.say(&encode(kind, payload))?;
        loop {
            while let Some((answer, payload)) = self.take()? {
                match answer & EVENT {
                    0 => return Ok(payload),
                    _ => self.note(answer, &payload),
                }
            }
            self.stream.wait()?;
            self.stream.read()?;
        }
    }

    fn take(&mut self) -> Result<Option<(u32, Vec<u8>)>, StreamError> {
        Ok(decode(self.stream.unread())?)
    }
}
