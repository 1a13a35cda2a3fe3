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
    /// See [`Ipc::is_behind`].
    behind: bool,
}

impl Ipc {
    /// Connects and subscribes to events that concern the focus.
    pub fn connect(path: &Path) -> Result<Ipc, StreamError> {
        let mut ipc = Ipc {
            stream: Stream::connect(path)?,
            focus: Focus::default(),
            view_changed: true,
            behind: false,
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
            self.note_all()?;
            if let Some(known) = self.focus.known() {
                self.behind = false;
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
        self.note_all()?;
        Ok(Some(visible(&tree)?))
    }

    /// Whether events have arrived since the last call of [`Ipc::focused`], with the answer to
    /// [`Ipc::visible`]. They are read, so the socket does not become readable for them.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// Notes all events that have been read.
    fn note_all(&mut self) -> Result<(), StreamError> {
        while let Some((kind, payload)) = self.take()? {
            self.note(kind, &payload);
        }
        Ok(())
    }

    fn note(&mut self, kind: u32, payload: &[u8]) {
        self.behind = true;
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use limelight_compositor::i3::WINDOW_EVENT;

    use super::*;

    fn tree(visible: &[i32]) -> Vec<u8> {
        let windows = visible.iter();
        let windows = windows
            .map(|pid| format!(r#"{{"id":{pid},"pid":{pid},"visible":true,"focused":true}}"#));
        let windows = windows.collect::<Vec<_>>().join(",");
        encode(
            GET_TREE,
            format!(r#"{{"id":1,"nodes":[{windows}]}}"#).as_bytes(),
        )
    }

    /// A film goes to full screen, and another window gets the focus, while the first tree is on its
    /// way.
    #[test]
    fn events_that_arrive_with_an_answer_are_not_left_until_the_next_event() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("sway.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let focus = r#"{"change":"focus","container":{"id":8,"pid":8,"focused":true}}"#;
        let full = r#"{"change":"fullscreen_mode","container":{"id":8,"pid":8}}"#;
        let events = [focus, full].map(|event| encode(WINDOW_EVENT, event.as_bytes()));
        let answers = [
            encode(SUBSCRIBE, br#"{"success":true}"#),
            tree(&[7]),
            [tree(&[7]), events.concat()].concat(),
            tree(&[8]),
        ];
        let sway = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                let mut head = [0; 14];
                stream.read_exact(&mut head).unwrap();
                let len = u32::from_ne_bytes(head[6..10].try_into().unwrap());
                stream.read_exact(&mut vec![0; len as usize]).unwrap();
                stream.write_all(&answer).unwrap();
            }
            stream
        });
        let mut ipc = Ipc::connect(&path).unwrap();
        assert_eq!(ipc.focused().unwrap().unwrap().pid, Some(7));
        assert!(!ipc.is_behind());
        assert_eq!(ipc.visible().unwrap(), Some([7].into()));
        assert!(ipc.is_behind());
        assert_eq!(ipc.focused().unwrap().unwrap().pid, Some(8));
        assert_eq!(ipc.visible().unwrap(), Some([8].into()));
        assert!(!ipc.is_behind());
        drop(sway.join().unwrap());
    }
}
