// SPDX-License-Identifier: GPL-2.0-or-later
//! Passes response windows to a kernel that supports them.
//!
//! Each mechanism in the kernel decides what to do while a window is open. Unlike all other steps,
//! these steps are not planned from a snapshot: measuring the machine takes longer than many
//! windows last, and the only inputs are the ends of two windows and the time.

use std::time::Duration;

/// One step for the kernel's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Open a window, or change the end of the open one.
    Open {
        /// When the kernel ends the window by itself, since boot.
        ends: Duration,
    },
    /// Close the window.
    Close,
}

/// The step that makes the kernel's window equal to the daemon's. `open`: end of the daemon's open
/// window; `passed`: end of the window that was last passed to the kernel. A window whose end has
/// passed counts as closed on both sides.
pub fn step(open: Option<Duration>, passed: Option<Duration>, now: Duration) -> Option<Step> {
    let runs = |ends: &Duration| *ends > now;
    match (open.filter(runs), passed.filter(runs)) {
        (Some(ends), passed) if passed != Some(ends) => Some(Step::Open { ends }),
        (None, Some(_)) => Some(Step::Close),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn window_is_opened_moved_and_closed_once() {
        let open = Some(Step::Open { ends: MS(500) });
        assert_eq!(step(Some(MS(500)), None, MS(0)), open);
        assert_eq!(step(Some(MS(500)), Some(MS(500)), MS(10)), None);
        let moved = Some(Step::Open { ends: MS(900) });
        assert_eq!(step(Some(MS(900)), Some(MS(500)), MS(10)), moved);
        assert_eq!(step(None, Some(MS(500)), MS(40)), Some(Step::Close));
        assert_eq!(step(None, None, MS(40)), None);
    }

    #[test]
    fn window_that_ended_by_itself_is_not_closed() {
        assert_eq!(step(None, Some(MS(500)), MS(500)), None);
        assert_eq!(step(Some(MS(500)), Some(MS(500)), MS(500)), None);
        let next = Some(Step::Open { ends: MS(1100) });
        assert_eq!(step(Some(MS(1100)), Some(MS(500)), MS(600)), next);
    }

    proptest! {
        /// After each step the kernel's window equals the daemon's, and no step is left.
        #[test]
        fn kernel_window_follows_the_daemon_s(
            windows in prop::collection::vec((0..300u64, prop::option::of(1..400u64)), 0..50),
        ) {
            let (mut now, mut kernel) = (MS(0), None);
            for (pause, length) in windows {
                now += MS(pause);
                let open = length.map(|length| now + MS(length));
                match step(open, kernel, now) {
                    Some(Step::Open { ends }) => kernel = Some(ends),
                    Some(Step::Close) => kernel = None,
                    None => {}
                }
                prop_assert_eq!(kernel.filter(|ends| *ends > now), open);
                prop_assert_eq!(step(open, kernel, now), None);
            }
        }
    }
}
