// SPDX-License-Identifier: GPL-2.0-or-later
//! Decides which frames of the whole display can be the answer to an input.
//!
//! The kernel reports when a frame reached the screen, but neither its content nor when it was
//! drawn. On a display that is redrawn all the time, the first frame after an input was drawn
//! before that input.

use std::time::Duration;

/// A display counts as busy if its last frame before an input was shown less than this long before
/// the input.
const BUSY: Duration = Duration::from_millis(50);

/// Longest time from the drawing of a frame until it is shown: one frame interval at 60 Hz.
const ON_ITS_WAY: Duration = Duration::from_millis(17);

/// Times of the display's frames.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flips {
    /// Time of the last frame.
    last: Option<Duration>,
    /// Time of the last frame before the pending input.
    before: Option<Duration>,
}

impl Flips {
    /// Notes a frame that was shown at `at`. `since`: time of the pending input, if any. Returns
    /// whether the frame may be the answer to that input; `true` if no input is pending.
    pub fn shown(&mut self, at: Duration, since: Option<Duration>) -> bool {
        let Some(since) = since else {
            self.last = Some(at);
            return true;
        };
        if self.last.is_some_and(|last| last <= since) {
            self.before = self.last;
        }
        self.last = Some(at);
        let busy = self
            .before
            .is_some_and(|before| before <= since && since - before < BUSY);
        !busy || at.saturating_sub(since) >= ON_ITS_WAY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn first_frame_answers_on_an_idle_display() {
        let mut flips = Flips::default();
        assert!(flips.shown(MS(5), Some(MS(2))));
        assert!(flips.shown(MS(900), None));
        assert!(flips.shown(MS(1008), Some(MS(1000))));
    }

    #[test]
    fn first_frame_was_already_on_its_way_on_a_busy_display() {
        let mut flips = Flips::default();
        assert!(flips.shown(MS(990), None));
        assert!(!flips.shown(MS(1006), Some(MS(1000))));
        assert!(
            !flips.shown(MS(1010), Some(MS(1000))),
            "another display's frame"
        );
        assert!(flips.shown(MS(1023), Some(MS(1000))));
    }

    proptest! {
        /// Of all earlier frames, only the last one before the input matters.
        #[test]
        fn pause_before_the_input_decides(
            earlier in prop::collection::vec(1..200u64, 0..20),
            rest in 0..200u64,
            later in prop::collection::vec(1..40u64, 1..10),
        ) {
            let mut flips = Flips::default();
            let mut now = MS(1000);
            for pause in earlier {
                now += MS(pause);
                prop_assert!(flips.shown(now, None), "without a pending input every frame counts");
            }
            prop_assert!(flips.shown(now, None));
            let since = now + MS(rest);
            now = since;
            for pause in later {
                now += MS(pause);
                let busy = MS(rest) < BUSY;
                let may = flips.shown(now, Some(since));
                prop_assert_eq!(may, !busy || now - since >= ON_ITS_WAY);
            }
        }
    }
}
