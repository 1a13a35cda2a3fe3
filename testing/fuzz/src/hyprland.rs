// SPDX-License-Identifier: GPL-2.0-or-later
//! Messages from Hyprland and KWin.

use limelight_compositor::{hyprland, kwin, Seen};

/// A PID is positive, and is reported only together with a window.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for line in text.lines() {
        // A window's title cannot make an event look like a focus event.
        if hyprland::concerns_focus(line) {
            assert!(line.starts_with("activewindowv2>>") || line.starts_with("closewindow>>"));
        }
        let (window, pid) = line.split_once(',').unwrap_or((line, ""));
        check(&kwin::seen(window, pid));
    }
    if let Ok(seen) = hyprland::active(data) {
        check(&seen);
    }
}

fn check(seen: &Seen) {
    assert!(seen.window.is_some() || seen.pid.is_none(), "{seen:?}");
    assert!(seen.pid.is_none_or(|pid| pid > 0), "{seen:?}");
    assert_eq!(seen.pid.is_some(), seen.pid_by.is_some(), "{seen:?}");
}
