// SPDX-License-Identifier: GPL-2.0-or-later
//! The protocol of i3, which sway speaks, too (i3's `ipc.html`, sway-ipc(7)).
//!
//! The crates for it block on their sockets and refuse trees with fields that they do not know; of
//! either little would be left here, and what is needed are four fields of a window.

use serde::Deserialize;

const MAGIC: &[u8] = b"i3-ipc";
const HEADER: usize = MAGIC.len() + 8;

/// No message is longer.
const PAYLOAD_MAX: usize = 16 << 20;

/// Events have the highest bit.
pub const EVENT: u32 = 1 << 31;
const WORKSPACE_EVENT: u32 = EVENT;
const WINDOW_EVENT: u32 = EVENT | 3;

/// Changes of a window after which another one may have the focus.
const CHANGES: [&str; 4] = ["focus", "close", "move", "floating"];

/// A window, or anything else in the tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its number in the tree.
    pub id: i64,
    focused: bool,
    /// Its process; i3 does not know it.
    pub pid: Option<i32>,
    /// Its X11 window; of sway's, those of Xwayland alone have one.
    pub window: Option<u32>,
    nodes: Vec<Node>,
    floating_nodes: Vec<Node>,
}

impl Node {
    /// The window in it that has the focus; a workspace may have it, too, and is none.
    fn focused(&self) -> Option<&Node> {
        let is_window = self.pid.is_some() || self.window.is_some();
        if self.focused {
            return is_window.then_some(self);
        }
        let below = self.nodes.iter().chain(&self.floating_nodes);
        below.into_iter().find_map(Node::focused)
    }
}

/// What is known of the focus.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Focus {
    /// What the last answer or event said has it; `None`: it has to be asked for.
    window: Option<Option<Node>>,
}

impl Focus {
    /// The window that has it, if any; `None`: the tree has to be asked for.
    pub fn known(&self) -> Option<&Option<Node>> {
        self.window.as_ref()
    }

    /// Takes in an event. One that cannot be understood may have been about the focus.
    pub fn note(&mut self, kind: u32, payload: &[u8]) {
        match word(kind, payload) {
            Word::Focus(node) => self.window = Some(Some(node)),
            Word::Unknown => self.window = None,
            Word::Nothing => {}
        }
    }

    /// Takes in the tree. Events that came before it are in it.
    pub fn look(&mut self, tree: &[u8]) -> Result<(), String> {
        let tree: Node = serde_json::from_slice(tree).map_err(|e| format!("its tree: {e}"))?;
        self.window = Some(tree.focused().cloned());
        Ok(())
    }
}

/// What was said of the focus.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    /// This window has it.
    Focus(Node),
    /// It has to be asked for.
    Unknown,
    /// It stays where it is.
    Nothing,
}

/// A message.
pub fn encode(kind: u32, payload: &[u8]) -> Vec<u8> {
    let mut message = MAGIC.to_vec();
    message.extend((payload.len() as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(payload);
    message
}

/// Takes a whole message from the front: its kind and its payload. An error: this is another protocol.
pub fn decode(unread: &mut Vec<u8>) -> Result<Option<(u32, Vec<u8>)>, String> {
    let Some(header) = unread.get(..HEADER) else {
        return Ok(None);
    };
    let (magic, numbers) = header.split_at(MAGIC.len());
    let number = |at: usize| {
        let bytes = numbers.get(at..at + 4).and_then(|b| b.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    };
    let (length, kind) = (number(0) as usize, number(4));
    if magic != MAGIC || length > PAYLOAD_MAX {
        return Err("it does not speak i3's protocol".into());
    }
    if unread.len() < HEADER + length {
        return Ok(None);
    }
    let message: Vec<u8> = unread.drain(..HEADER + length).collect();
    Ok(Some((kind, message[HEADER..].to_vec())))
}

fn word(kind: u32, payload: &[u8]) -> Word {
    #[derive(Deserialize)]
    struct Event {
        change: String,
        #[serde(default)]
        container: Option<Node>,
    }
    if ![WINDOW_EVENT, WORKSPACE_EVENT].contains(&kind) {
        return Word::Nothing;
    }
    let Ok(event) = serde_json::from_slice::<Event>(payload) else {
        return Word::Unknown;
    };
    match (kind, event.change.as_str(), event.container) {
        (WINDOW_EVENT, "focus", Some(node)) => Word::Focus(node),
        (WINDOW_EVENT, change, _) if !CHANGES.contains(&change) => Word::Nothing,
        _ => Word::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn titles_say_nothing_of_the_focus() {
        let title = br#"{"change":"title","container":{"id":5,"pid":7,"focused":true}}"#;
        assert_eq!(word(WINDOW_EVENT, title), Word::Nothing);
        let closed = br#"{"change":"close","container":{"id":5,"pid":7,"focused":false}}"#;
        assert_eq!(word(WINDOW_EVENT, closed), Word::Unknown);
        let empty = br#"{"change":"focus","current":{"id":3,"focus":[]},"old":null}"#;
        assert_eq!(word(WORKSPACE_EVENT, empty), Word::Unknown);
        let focus = br#"{"change":"focus","container":{"id":5,"pid":7,"app_id":"foot"}}"#;
        assert!(matches!(
            word(WINDOW_EVENT, focus),
            Word::Focus(Node {
                id: 5,
                pid: Some(7),
                ..
            })
        ));
    }

    #[test]
    fn a_workspace_that_has_the_focus_is_no_window() {
        let tree = |window: bool| {
            let text = format!(
                r#"{{"id":1,"focused":false,"nodes":[{{"id":2,"type":"workspace","focused":{},
                "nodes":[],"floating_nodes":[{{"id":3,"pid":9,"focused":{window}}}]}}]}}"#,
                !window
            );
            serde_json::from_str::<Node>(&text).unwrap()
        };
        assert_eq!(tree(true).focused().map(|node| node.id), Some(3));
        assert_eq!(tree(false).focused(), None);
    }

    #[test]
    fn another_protocol_is_an_error() {
        let mut http = b"HTTP/1.1 400 Bad Request".to_vec();
        assert!(decode(&mut http).is_err());
        let mut endless = encode(EVENT, b"");
        endless[6..10].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(decode(&mut endless).is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            messages in prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 0..40)), 0..5),
            cut in 0usize..200,
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(|(kind, payload)| encode(*kind, payload)).collect();
            let cut = cut.min(bytes.len());
            let mut unread = Vec::new();
            let mut read = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                unread.extend_from_slice(part);
                while let Some(message) = decode(&mut unread).unwrap() {
                    read.push(message);
                }
            }
            prop_assert_eq!(read, messages);
        }

        #[test]
        fn no_bytes_make_it_fall_over(mut bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&mut bytes);
            let _ = word(WINDOW_EVENT, &bytes);
        }
    }
}
