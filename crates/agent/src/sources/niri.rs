// SPDX-License-Identifier: GPL-2.0-or-later
//! niri: asked once for its `EventStream`, it tells its whole state first and every change after.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use serde::Deserialize;
use serde_json::Value;

use super::environment::Environment;
use super::lines::Stream;
use super::pick::NotHere;
use super::{FocusBy, Gone, Seen, Source};

/// niri's IPC.
pub struct Niri {
    stream: Stream,
    windows: Windows,
}

/// What is known of its windows.
#[derive(Debug, Default)]
struct Windows {
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

/// Connects to `$NIRI_SOCKET`.
pub fn connect(environment: &Environment) -> Result<Box<dyn Source>, NotHere> {
    let path = environment.niri.as_deref();
    let path = path.ok_or_else(|| NotHere::because("$NIRI_SOCKET names no socket"))?;
    let mut stream = Stream::connect(path)?;
    stream.say(b"\"EventStream\"\n")?;
    Ok(Box::new(Niri {
        stream,
        windows: Windows::default(),
    }))
}

impl Source for Niri {
    fn name(&self) -> &'static str {
        "niri"
    }

    fn detail(&self) -> String {
        let (peer, path) = (self.stream.peer(), self.stream.path().display());
        format!("{peer} says it over {path}")
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.stream.fd()]
    }

    fn observe(&mut self) -> Result<Seen, Gone> {
        let gone = |why: String| Gone::new("niri", why);
        for line in self.stream.lines().map_err(gone)? {
            self.windows.take(&line).map_err(gone)?;
        }
        Ok(self.windows.seen())
    }
}

impl Windows {
    /// Takes in one line: an answer, or an event. Events that are not known here are passed over.
    fn take(&mut self, line: &str) -> Result<(), String> {
        let said: Value = serde_json::from_str(line).map_err(|e| format!("it said: {e}"))?;
        if let Some(why) = said.get("Err") {
            return Err(format!("it refuses to tell of windows: {why}"));
        }
        let window = |value: &Value| Window::deserialize(value).map_err(|e| e.to_string());
        if let Some(windows) = said.pointer("/WindowsChanged/windows") {
            let windows: Vec<Window> =
                Vec::deserialize(windows).map_err(|error| error.to_string())?;
            *self = Windows::default();
            windows.into_iter().for_each(|window| self.put(window));
        } else if let Some(value) = said.pointer("/WindowOpenedOrChanged/window") {
            self.put(window(value)?);
        } else if let Some(id) = said.pointer("/WindowClosed/id").and_then(Value::as_u64) {
            self.pids.remove(&id);
            self.focused = self.focused.filter(|focused| *focused != id);
        } else if let Some(id) = said.pointer("/WindowFocusChanged/id") {
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

    fn seen(&self) -> Seen {
        match self.focused {
            Some(id) => Seen::of_compositor(id.to_string(), self.pids.get(&id).copied().flatten()),
            None => Seen::nothing(FocusBy::Compositor),
        }
    }
}

#[cfg(test)]
#[path = "niri_tests.rs"]
mod tests;
