// SPDX-License-Identifier: GPL-2.0-or-later
//! The IPC protocol of i3 and sway (i3's `ipc.html`, sway-ipc(7)).
//!
//! Existing crates for it block on their sockets and reject trees with unknown fields. This module
//! needs only five fields of a window.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::Invalid;

const MAGIC: &[u8] = b"i3-ipc";
const HEADER: usize = MAGIC.len() + 8;

/// Maximum length of a message's payload in bytes.
const PAYLOAD_MAX: usize = 16 << 20;

/// Bit of a message's kind that marks an event.
pub const EVENT: u32 = 1 << 31;
const WORKSPACE_EVENT: u32 = EVENT;
/// Type of an event about a window.
pub const WINDOW_EVENT: u32 = EVENT | 3;

/// Window events after which another window may have the focus.
const CHANGES: [&str; 4] = ["focus", "close", "move", "floating"];

/// Window events after which the same windows are visible.
const SAME_VIEW: [&str; 3] = ["title", "mark", "urgent"];

/// A window or another node of the tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its id in the tree.
    pub id: i64,
    focused: bool,
    /// Its process id; i3 does not report it.
    pub pid: Option<i32>,
    /// Its X11 window id; on sway only Xwayland windows have one.
    pub window: Option<u32>,
    /// Whether the window is on a workspace that an output shows, and not behind a tab or below a
    /// full-screen window; i3 does not report it.
    visible: bool,
    nodes: Vec<Node>,
    floating_nodes: Vec<Node>,
}

impl Node {
    /// The focused window in this subtree; `None` if there is none or a workspace has the focus.
    fn focused(&self) -> Option<&Node> {
        let is_window = self.pid.is_some() || self.window.is_some();
        if self.focused {
            return is_window.then_some(self);
        }
        let below = self.nodes.iter().chain(&self.floating_nodes);
        below.into_iter().find_map(Node::focused)
    }

    fn add_visible(&self, pids: &mut BTreeSet<i32>) {
        pids.extend(self.pid.filter(|pid| self.visible && *pid > 0));
        for below in self.nodes.iter().chain(&self.floating_nodes) {
            below.add_visible(pids);
        }
    }
}

/// The processes of all visible windows in sway's tree, on all outputs.
pub fn visible(tree: &[u8]) -> Result<BTreeSet<i32>, Invalid> {
    let tree: Node = serde_json::from_slice(tree).map_err(Invalid::Tree)?;
    let mut pids = BTreeSet::new();
    tree.add_visible(&mut pids);
    Ok(pids)
}

/// Whether other windows may be visible after this event.
pub fn changes_view(kind: u32, payload: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(borrow)]
        change: std::borrow::Cow<'a, str>,
    }
    let event = serde_json::from_slice::<Event<'_>>(payload);
    kind != WINDOW_EVENT || event.is_ok_and(|event| !SAME_VIEW.contains(&&*event.change))
}

/// Tracks the focused window from events and trees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Focus {
    /// The focused window according to the last tree or event. `Some(None)`: no window is focused;
    /// `None`: unknown, so the tree must be requested.
    window: Option<Option<Node>>,
}

impl Focus {
    /// The focused window, if any; `None`: unknown, so the tree must be requested.
    pub fn known(&self) -> Option<&Option<Node>> {
        self.window.as_ref()
    }

    /// Handles an event. The tree must be requested after an event that cannot be parsed or does
    /// not name the new focus.
    pub fn note(&mut self, kind: u32, payload: &[u8]) {
        match effect(kind, payload) {
            Effect::Focus(node) => self.window = Some(Some(node)),
            Effect::Unknown => self.window = None,
            Effect::Nothing => {}
        }
    }

    /// Handles a tree. It already reflects all events that were sent before it.
    pub fn look(&mut self, tree: &[u8]) -> Result<(), Invalid> {
        let tree: Node = serde_json::from_slice(tree).map_err(Invalid::Tree)?;
        self.window = Some(tree.focused().cloned());
        Ok(())
    }
}

/// Effect of an event on the focus.
#[derive(Debug, PartialEq, Eq)]
enum Effect {
    /// This window has the focus now.
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

/// Removes a complete message from the front of `unread` and returns its kind and payload; `None`
/// if the message is still incomplete. Fails if the bytes are not of this protocol.
pub fn decode(unread: &mut Vec<u8>) -> Result<Option<(u32, Vec<u8>)>, Invalid> {
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
        return Err(Invalid::NotI3);
    }
    if unread.len() < HEADER + length {
        return Ok(None);
    }
    let message: Vec<u8> = unread.drain(..HEADER + length).collect();
    Ok(Some((kind, message[HEADER..].to_vec())))
}

fn effect(kind: u32, payload: &[u8]) -> Effect {
    #[derive(Deserialize)]
    struct Event {
        change: String,
        #[serde(default)]
        container: Option<Node>,
    }
    if ![WINDOW_EVENT, WORKSPACE_EVENT].contains(&kind) {
        return Effect::Nothing;
    }
    let Ok(event) = serde_json::from_slice::<Event>(payload) else {
        return Effect::Unknown;
    };
    match (kind, event.change.as_str(), event.container) {
        (WINDOW_EVENT, "focus", Some(node)) => Effect::Focus(node),
        (WINDOW_EVENT, change, _) if !CHANGES.contains(&change) => Effect::Nothing,
        _ => Effect::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_window_focus_events_name_the_new_focus() {
        let title = br#"{"change":"title","container":{"id":5,"pid":7,"focused":true}}"#;
        assert_eq!(effect(WINDOW_EVENT, title), Effect::Nothing);
        let closed = br#"{"change":"close","container":{"id":5,"pid":7,"focused":false}}"#;
        assert_eq!(effect(WINDOW_EVENT, closed), Effect::Unknown);
        let empty = br#"{"change":"focus","current":{"id":3,"focus":[]},"old":null}"#;
        assert_eq!(effect(WORKSPACE_EVENT, empty), Effect::Unknown);
        let focus = br#"{"change":"focus","container":{"id":5,"pid":7,"app_id":"foot"}}"#;
        assert!(matches!(
            effect(WINDOW_EVENT, focus),
            Effect::Focus(Node {
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
    fn visible_windows_of_all_outputs_are_found() {
        let tree = br#"{"id":1,"nodes":[{"id":2,"nodes":[{"id":3,"pid":7,"visible":true}],
            "floating_nodes":[{"id":4,"pid":8,"visible":false},{"id":5,"pid":9,"visible":true}]},
            {"id":6,"visible":true}]}"#;
        assert_eq!(visible(tree).unwrap(), BTreeSet::from([7, 9]));
        assert!(visible(b"[").is_err());
        let event = |change: &str| format!(r#"{{"change":"{change}","container":{{"id":5}}}}"#);
        for (kind, change, changes) in [
            (WINDOW_EVENT, "title", false),
            (WINDOW_EVENT, "fullscreen_mode", true),
            (WORKSPACE_EVENT, "focus", true),
        ] {
            let changed = changes_view(kind, event(change).as_bytes());
            assert_eq!(changed, changes, "{change}");
        }
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
        fn encoded_messages_round_trip(
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
        fn arbitrary_bytes_cause_no_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&mut bytes);
            let _ = effect(WINDOW_EVENT, &bytes);
        }
    }
}
