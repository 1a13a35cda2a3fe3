// SPDX-License-Identifier: GPL-2.0-or-later
//! Response windows: the kernel is told while the user waits, where it wants to know.
//!
//! What it does then is each mechanism's own affair. Unlike everything else this is not planned from a
//! snapshot: measuring the machine takes longer than many a window is open, and two times are all that
//! has to be known.

use std::time::Duration;

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The user waits, until this time at most. Said again when that time has moved.
    Open {
        /// When the kernel ends the window by itself.
        ends: Duration,
    },
    /// The user waits no longer.
    Close,
}

/// What to say, when a window is open until `open` and the kernel was told of one until `told`. One
/// whose time is over has ended in the kernel as it has here.
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
    fn a_window_is_opened_moved_and_closed_once() {
        let open = Some(Step::Open { ends: MS(500) });
        assert_eq!(step(Some(MS(500)), None, MS(0)), open);
        assert_eq!(step(Some(MS(500)), Some(MS(500)), MS(10)), None);
        let moved = Some(Step::Open { ends: MS(900) });
        assert_eq!(step(Some(MS(900)), Some(MS(500)), MS(10)), moved);
        assert_eq!(step(None, Some(MS(500)), MS(40)), Some(Step::Close));
        assert_eq!(step(None, None, MS(40)), None);
    }

    #[test]
    fn what_ended_by_itself_is_not_closed() {
        assert_eq!(step(None, Some(MS(500)), MS(500)), None);
        assert_eq!(step(Some(MS(500)), Some(MS(500)), MS(500)), None);
        let next = Some(Step::Open { ends: MS(1100) });
        assert_eq!(step(Some(MS(1100)), Some(MS(500)), MS(600)), next);
    }

    proptest! {
        /// After each step the kernel's window and ours are open and closed at the same times, and
        /// there is nothing left to say.
        #[test]
        fn the_kernel_follows(
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
