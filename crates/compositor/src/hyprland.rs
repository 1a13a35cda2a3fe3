// SPDX-License-Identifier: GPL-2.0-or-later
//! Hyprland: parses the lines of its event socket (`activewindowv2>>ADDRESS`) and the answer to
//! `j/activewindow` on its request socket.

use serde::Deserialize;

use crate::{FocusBy, Invalid, Seen};

/// Events after which another window may be active. `activewindowv2` alone is not enough: a window
/// can close without another one becoming active.
const EVENTS: [&str; 2] = ["activewindowv2", "closewindow"];

/// Whether another window may be active after the event in this line.
pub fn concerns_focus(line: &str) -> bool {
    let event = line.split_once(">>").map(|(event, _)| event);
    event.is_some_and(|event| EVENTS.contains(&event))
}

/// Parses the answer to `j/activewindow`, which is an object without fields if no window is active.
/// An error says why the answer is invalid.
pub fn active(answer: &[u8]) -> Result<Seen, Invalid> {
    #[derive(Deserialize)]
    struct Window {
        address: Option<String>,
        pid: Option<i32>,
    }
    let window: Window = serde_json::from_slice(answer).map_err(Invalid::ActiveWindow)?;
    Ok(match window.address {
        Some(address) => Seen::of_compositor(address, window.pid),
        None => Seen::nothing(FocusBy::Compositor),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_events_do_not_concern_the_focus() {
        assert!(concerns_focus("activewindowv2>>55d3b5c3c0a0"));
        assert!(concerns_focus("closewindow>>55d3b5c3c0a0"));
        assert!(!concerns_focus("activewindow>>kitty,activewindowv2>>x"));
        assert!(!concerns_focus("activewindowv2"));
    }

    #[test]
    fn active_window_has_a_process() {
        let kitty = active(br#"{"address": "0x55d3", "class": "kitty", "pid": 4242}"#).unwrap();
        assert_eq!(
            (kitty.pid, kitty.window.as_deref()),
            (Some(4242), Some("0x55d3"))
        );
        assert_eq!(active(b"{}").unwrap(), Seen::nothing(FocusBy::Compositor));
        assert!(active(b"unknown request").is_err());
    }
}
