// SPDX-License-Identifier: GPL-2.0-or-later
//! KWin: the agent's script in it tells of the active window, everything as text.

use crate::{FocusBy, Seen};

/// The window that is active and its process, as the script says them; both empty: none is.
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
    fn an_active_window_has_a_process() {
        assert_eq!(seen("{5f1}", "4242").pid, Some(4242));
        assert_eq!(seen("{5f1}", "-1").pid, None);
        assert_eq!(seen("{5f1}", "undefined").pid, None);
        assert_eq!(seen("", ""), Seen::nothing(FocusBy::Compositor));
    }
}
