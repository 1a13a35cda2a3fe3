// SPDX-License-Identifier: GPL-2.0-or-later
//! niri: parses its event stream of JSON lines, the whole state first and then every change.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{FocusBy, Invalid, Seen};

/// All windows, and which of them has the focus.
#[derive(Debug, Default)]
pub struct Windows {
    pids: BTreeMap<u64, Option<i32>>,
    focused: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Window {
    id: u64,
    #[serde(default)]
    pid: Option<i32>,
    #[serde(default)]
    is_focused: bool,
}

impl Windows {
    /// Handles one line: an answer or an event. Ignores unknown events. An error says what could
    /// not be parsed.
    pub fn take(&mut self, line: &str) -> Result<(), Invalid> {
        let message: Value = serde_json::from_str(line).map_err(Invalid::Line)?;
        if let Some(why) = message.get("Err") {
            return Err(Invalid::Refused(why.clone()));
        }
        if let Some(windows) = message.pointer("/WindowsChanged/windows") {
            let windows: Vec<Window> = Vec::deserialize(windows)?;
            *self = Windows::default();
            windows.into_iter().for_each(|window| self.put(window));
        } else if let Some(value) = message.pointer("/WindowOpenedOrChanged/window") {
            self.put(Window::deserialize(value)?);
        } else if let Some(id) = message.pointer("/WindowClosed/id").and_then(Value::as_u64) {
            self.pids.remove(&id);
            self.focused = self.focused.filter(|focused| *focused != id);
        } else if let Some(id) = message.pointer("/WindowFocusChanged/id") {
            self.focused = id.as_u64();
        }
        Ok(())
    }

    fn put(&mut self, window: Window) {
        self.pids.insert(window.id, window.pid);
        match (window.is_focused, self.focused) {
            (true, _) => self.focused = Some(window.id),
            (false, Some(focused)) if focused == window.id => self.focused = None,
            (false, _) => {}
        }
    }

    /// The current focus.
    pub fn seen(&self) -> Seen {
        match self.focused {
            Some(id) => Seen::of_compositor(id.to_string(), self.pids.get(&id).copied().flatten()),
            None => Seen::nothing(FocusBy::Compositor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_text_causes_no_panic(words in ".{0,80}") {
            let _ = Windows::default().take(&words);
        }
    }
}
