// SPDX-License-Identifier: GPL-2.0-or-later
//! Response windows: passes to the kernel, if it supports that, when the user waits.
//!
//! Each mechanism of the kernel decides what to do then. Unlike all other steps these are not
//! planned from a snapshot: measuring the machine takes longer than many windows are open, and two
//! times are all the input.

use std::time::Duration;

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The user waits, until this time at most. Repeated when that time changes.
    Open {
        /// When the kernel ends the window by itself.
        ends: Duration,
    },
    /// The user waits no longer.
    Close,
}

/// The step for a window that is open until `open`, if the kernel knows of one until `told`. A
/// window past its end has ended in the kernel as well.
pub fn step(open: Option<Duration>, told: Option<Duration>, now: Duration) -> Option<Step> {
    let runs = |ends: &Duration| *ends > now;
    match (open.filter(runs), told.filter(runs)) {
        (Some(ends), told) if told != Some(ends) => Some(Step::Open { ends }),
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
        /// After each step the kernel's window and the daemon's are open and closed at the same
        /// times, and no step is left.
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
