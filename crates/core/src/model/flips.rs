// SPDX-License-Identifier: GPL-2.0-or-later
//! Frames of the display as a whole: which of them can be an answer.
//!
//! The kernel tells when a frame has reached the screen, not what is on it nor when it was drawn. While
//! the display is drawn all the time, the first frame after input was on its way already.

use std::time::Duration;

/// A display that showed a frame this long before the input was being drawn all the time.
const BUSY: Duration = Duration::from_millis(50);

/// A frame waits at most this long for the screen: one of a display of 60 Hz.
const ON_ITS_WAY: Duration = Duration::from_millis(17);

/// The display's frames.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flips {
    last: Option<Duration>,
    /// The last one before the input that is waited for.
    before: Option<Duration>,
}

impl Flips {
    /// A frame was shown; input came at `since`, if there is any that waits. Whether the frame may
    /// answer it.
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
    fn on_a_display_at_rest_the_first_frame_is_the_answer() {
        let mut flips = Flips::default();
        assert!(flips.shown(MS(5), Some(MS(2))));
        assert!(flips.shown(MS(900), None));
        assert!(flips.shown(MS(1008), Some(MS(1000))));
    }

    #[test]
    fn on_a_busy_one_the_first_frame_was_on_its_way() {
        let mut flips = Flips::default();
        assert!(flips.shown(MS(990), None));
        assert!(!flips.shown(MS(1006), Some(MS(1000))));
        assert!(!flips.shown(MS(1010), Some(MS(1000))), "another display's");
        assert!(flips.shown(MS(1023), Some(MS(1000))));
    }

    proptest! {
        /// Which frame may answer depends on the rest before the input alone, whatever came earlier.
        #[test]
        fn the_rest_before_the_input_decides(
            earlier in prop::collection::vec(1..200u64, 0..20),
            rest in 0..200u64,
            later in prop::collection::vec(1..40u64, 1..10),
        ) {
            let mut flips = Flips::default();
            let mut now = MS(1000);
            for pause in earlier {
                now += MS(pause);
                prop_assert!(flips.shown(now, None), "what nobody waits for is not held back");
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
