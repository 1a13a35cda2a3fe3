// SPDX-License-Identifier: GPL-2.0-or-later
//! The protocol of i3, which sway also speaks (i3's `ipc.html`, sway-ipc(7)).
//!
//! The crates for it block on their sockets and refuse trees with unknown fields. Little of them
//! would be used here: all that is needed are four fields of a window.

use serde::Deserialize;

const MAGIC: &[u8] = b"i3-ipc";
const HEADER: usize = MAGIC.len() + 8;

/// Maximum length of a message.
const PAYLOAD_MAX: usize = 16 << 20;

/// Events have the highest bit set.
pub const EVENT: u32 = 1 << 31;
const WORKSPACE_EVENT: u32 = EVENT;
const WINDOW_EVENT: u32 = EVENT | 3;

/// Changes of a window after which another one may have the focus.
const CHANGES: [&str; 4] = ["focus", "close", "move", "floating"];

/// A window or another node of the tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its id in the tree.
    pub id: i64,
    focused: bool,
    /// Its process; i3 does not report it.
    pub pid: Option<i32>,
    /// Its X11 window; on sway only Xwayland windows have one.
    pub window: Option<u32>,
    nodes: Vec<Node>,
    floating_nodes: Vec<Node>,
}

impl Node {
    /// The focused window in it; a focused workspace is not a window.
    fn focused(&self) -> Option<&Node> {
        let is_window = self.pid.is_some() || self.window.is_some();
        if self.focused {
            return is_window.then_some(self);
        }
        let below = self.nodes.iter().chain(&self.floating_nodes);
        below.into_iter().find_map(Node::focused)
    }
}

/// The known state of the focus.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Focus {
    /// The focused window of the last answer or event; `None`: the tree must be requested.
    window: Option<Option<Node>>,
}

impl Focus {
    /// The focused window, if any; `None`: the tree must be requested.
    pub fn known(&self) -> Option<&Option<Node>> {
        self.window.as_ref()
    }

    /// Handles an event. One that cannot be parsed may have been about the focus.
    pub fn note(&mut self, kind: u32, payload: &[u8]) {
        match word(kind, payload) {
            Word::Focus(node) => self.window = Some(Some(node)),
            Word::Unknown => self.window = None,
            Word::Nothing => {}
        }
    }

    /// Handles the tree. It includes all events that came before it.
    pub fn look(&mut self, tree: &[u8]) -> Result<(), String> {
        let tree: Node = serde_json::from_slice(tree).map_err(|e| format!("its tree: {e}"))?;
        self.window = Some(tree.focused().cloned());
        Ok(())
    }
}

/// What an event says about the focus.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    /// This window has the focus.
    Focus(Node),
    /// The tree must be requested.
    Unknown,
    /// The focus is unchanged.
    Nothing,
}

/// Encodes a message.
pub fn encode(kind: u32, payload: &[u8]) -> Vec<u8> {
    let mut message = MAGIC.to_vec();
    message.extend((payload.len() as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(payload);
    message
}

/// Takes a complete message from the front: its kind and its payload. An error means another
/// protocol.
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
    fn title_events_do_not_concern_the_focus() {
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
    fn focused_workspace_is_not_a_window() {
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
        fn encoded_messages_decode_to_the_same(
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
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&mut bytes);
            let _ = word(WINDOW_EVENT, &bytes);
        }
    }
}
