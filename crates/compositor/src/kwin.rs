// SPDX-License-Identifier: GPL-2.0-or-later
//! KWin: parses the active window that the agent's script in KWin reports, all values as text.

use crate::{FocusBy, Seen};

/// Parses the active window and its process id. Both texts are empty if no window is active.
pub fn seen(window: &str, pid: &str) -> Seen {
    match window {
        "" => Seen::nothing(FocusBy::Compositor),
        window => Seen::of_compositor(window.to_owned(), pid.parse().ok()),
    }
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
}
