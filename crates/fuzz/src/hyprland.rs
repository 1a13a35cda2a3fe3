// SPDX-License-Identifier: GPL-2.0-or-later
//! Hyprland's and KWin's words.

use limelight_compositor::{hyprland, kwin, Seen};

/// Whatever is said, a process is named only of a window, and only if it may be one.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for line in text.lines() {
        // An event that concerns the focus says so in its name, not in what a window calls itself.
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
