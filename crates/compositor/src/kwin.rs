// SPDX-License-Identifier: GPL-2.0-or-later
//! KWin: parses the windows that the agent's script in KWin reports, all values as text.

use std::collections::BTreeSet;

use crate::{FocusBy, Seen};

/// Parses the active window and its process id. Both texts are empty if no window is active.
pub fn seen(window: &str, pid: &str) -> Seen {
    match window {
        "" => Seen::nothing(FocusBy::Compositor),
        window => Seen::of_compositor(window.to_owned(), pid.parse().ok()),
    }
}

/// Parses the process ids of the full-screen windows, which are separated by spaces.
pub fn full_screen(pids: &str) -> BTreeSet<i32> {
    let pids = pids.split(' ').filter_map(|pid| pid.parse().ok());
    pids.filter(|pid| *pid > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_window_has_a_process() {
        assert_eq!(seen("{5f1}", "4242").pid, Some(4242));
        assert_eq!(seen("{5f1}", "-1").pid, None);
        assert_eq!(seen("{5f1}", "undefined").pid, None);
        assert_eq!(seen("", ""), Seen::nothing(FocusBy::Compositor));
    }

    #[test]
    fn full_screen_windows_have_processes() {
        assert_eq!(full_screen(""), BTreeSet::new());
        assert_eq!(full_screen("7 -1 undefined  9"), BTreeSet::from([7, 9]));
    }
}
