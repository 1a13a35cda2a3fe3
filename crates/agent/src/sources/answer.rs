// SPDX-License-Identifier: GPL-2.0-or-later
//! Combines drawing operations into frames, and selects the frames to report.
//!
//! X clients draw freely: a frame may be one operation or a hundred, and the server knows the
//! bounds of frames only for clients that use Present. So everything drawn after input counts as
//! one frame until nothing has been drawn for [`SETTLE`]; the frame has the time of the last
//! operation. If a client keeps drawing (a film, an animation), its frame ends after
//! [`DRAWING_MAX`].
//!
//! Only frames after input are reported. Times are on `CLOCK_MONOTONIC`.

use std::time::Duration;

/// A frame is complete once nothing has been drawn for this long: half a frame time at 60 Hz.
const SETTLE: Duration = Duration::from_millis(8);

/// The frame of a client that keeps drawing ends after this time.
const DRAWING_MAX: Duration = Duration::from_millis(100);

/// Input is dropped if nothing is drawn for this long. The daemon waits at most this long, too
/// (`[expert] window_deadline_max_ms`).
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Event to report to the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Input arrived.
    Input(Duration),
    /// A frame was shown.
    Frame(Duration),
}

/// State of the response to input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Answer {
    /// No input is pending: anything drawn now is an animation.
    #[default]
    Idle,
    /// Input is pending and nothing has been drawn yet.
    Waiting {
        /// Time of the last input.
        since: Duration,
    },
    /// A frame is being drawn.
    Drawing {
        /// Time of its first operation.
        first: Duration,
        /// Time of its last operation so far.
        last: Duration,
        /// When the agent received the event of that last operation.
        received: Duration,
    },
}

impl Answer {
    /// Handles input. A frame in progress cannot be the response to this input, so it ends here.
    pub fn input(&mut self, at: Duration) -> impl Iterator<Item = News> {
        let before = match *self {
            Answer::Drawing { last, .. } => Some(News::Frame(last)),
            _ => None,
        };
        *self = Answer::Waiting { since: at };
        before.into_iter().chain([News::Input(at)])
    }

    /// Handles drawing that happened at `at`. On a busy machine, the agent may have received the
    /// event much later, at `received`. [`SETTLE`] counts from `received`, because events of
    /// further drawing are late too.
    pub fn drawn(&mut self, at: Duration, received: Duration) {
        match self {
            Answer::Idle => {}
            Answer::Waiting { since } => {
                let at = at.max(*since);
                *self = Answer::Drawing {
                    first: at,
                    last: at,
                    received,
                };
            }
            Answer::Drawing {
                last,
                received: when,
                ..
            } => {
                *last = at.max(*last);
                *when = received;
            }
        }
    }

    /// Handles a complete frame.
    pub fn shown(&mut self, at: Duration) -> Option<News> {
        match std::mem::take(self) {
            Answer::Idle => None,
            // This frame was on its way to the screen before the input.
            Answer::Waiting { since } if at < since => {
                *self = Answer::Waiting { since };
                None
            }
            Answer::Waiting { .. } | Answer::Drawing { .. } => Some(News::Frame(at)),
        }
    }

    /// Whether drawing has to be observed now, because input is pending.
    pub fn is_wanted(&self) -> bool {
        *self != Answer::Idle
    }

    /// Handles deadlines up to `now`.
    pub fn pass_time(&mut self, now: Duration) -> Option<News> {
        if self.deadline().is_none_or(|at| now < at) {
            return None;
        }
        match std::mem::take(self) {
            Answer::Drawing { last, .. } => Some(News::Frame(last)),
            Answer::Idle | Answer::Waiting { .. } => None,
        }
    }

    /// When [`Answer::pass_time`] has work next.
    pub fn deadline(&self) -> Option<Duration> {
        match *self {
            Answer::Idle => None,
            Answer::Waiting { since } => Some(since + WAIT_MAX),
            Answer::Drawing {
                first, received, ..
            } => Some((received + SETTLE).min(first + DRAWING_MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn input(answer: &mut Answer, ms: u64) -> Vec<News> {
        answer.input(MS(ms)).collect()
    }

    #[test]
    fn frame_ends_when_drawing_pauses() {
        let mut answer = Answer::default();
        assert_eq!(input(&mut answer, 100), [News::Input(MS(100))]);
        for ms in [120, 121, 127] {
            answer.drawn(MS(ms), MS(ms));
            assert_eq!(answer.pass_time(MS(ms + 7)), None);
        }
        assert_eq!(answer.deadline(), Some(MS(135)));
        assert_eq!(answer.pass_time(MS(135)), Some(News::Frame(MS(127))));
        assert!(!answer.is_wanted());
    }

    #[test]
    fn complete_frame_is_reported_at_once() {
        let mut answer = Answer::default();
        input(&mut answer, 100);
        assert_eq!(answer.shown(MS(99)), None, "on its way before the input");
        assert_eq!(answer.shown(MS(116)), Some(News::Frame(MS(116))));
        assert_eq!(answer.shown(MS(132)), None);
        input(&mut answer, 200);
        answer.drawn(MS(215), MS(215));
        assert_eq!(answer.shown(MS(216)), Some(News::Frame(MS(216))));
    }

    #[test]
    fn animations_are_not_reported() {
        let mut answer = Answer::default();
        for ms in 0..100 {
            answer.drawn(MS(ms * 16), MS(ms * 16));
            assert_eq!(answer.pass_time(MS(ms * 16 + 15)), None);
        }
        assert_eq!(answer.deadline(), None);
    }

    #[test]
    fn continuous_drawing_counts_as_a_frame_after_a_while() {
        let mut answer = Answer::default();
        input(&mut answer, 0);
        let mut told = Vec::new();
        for ms in 10..300 {
            answer.drawn(MS(ms), MS(ms));
            told.extend(answer.pass_time(MS(ms)));
        }
        assert_eq!(told, [News::Frame(MS(110))]);
    }

    #[test]
    fn late_event_has_the_servers_time_and_settles_from_its_receipt() {
        let mut answer = Answer::default();
        input(&mut answer, 100);
        answer.drawn(MS(120), MS(150));
        assert_eq!(answer.pass_time(MS(157)), None);
        answer.drawn(MS(155), MS(157));
        // A time from another clock does not move the frame before earlier operations.
        answer.drawn(MS(90), MS(158));
        assert_eq!(answer.pass_time(MS(166)), Some(News::Frame(MS(155))));
        input(&mut answer, 200);
        answer.drawn(MS(190), MS(201));
        assert_eq!(answer.pass_time(MS(209)), Some(News::Frame(MS(200))));
    }

    #[test]
    fn input_ends_the_frame_in_progress() {
        let mut answer = Answer::default();
        input(&mut answer, 0);
        answer.drawn(MS(20), MS(20));
        let told = input(&mut answer, 24);
        assert_eq!(told, [News::Frame(MS(20)), News::Input(MS(24))]);
        answer.drawn(MS(40), MS(40));
        assert_eq!(answer.pass_time(MS(48)), Some(News::Frame(MS(40))));
    }

    #[test]
    fn unanswered_input_is_dropped() {
        let mut answer = Answer::default();
        input(&mut answer, 0);
        assert_eq!(answer.pass_time(MS(9_999)), None);
        assert!(answer.is_wanted());
        assert_eq!(answer.pass_time(MS(10_000)), None);
        assert!(!answer.is_wanted());
    }

    proptest! {
        /// Each reported frame follows an input.
        #[test]
        fn frames_follow_input(steps in prop::collection::vec((0..4u8, 0..40u64), 0..200)) {
            let mut answer = Answer::default();
            let (mut now, mut last_input, mut waiting) = (MS(0), None, false);
            for (kind, pause) in steps {
                now += MS(pause);
                let told: Vec<News> = match kind {
                    0 => answer.input(now).collect(),
                    1 => { answer.drawn(now - MS(pause), now); Vec::new() }
                    2 => answer.shown(now).into_iter().collect(),
                    _ => answer.pass_time(now).into_iter().collect(),
                };
                for news in told {
                    match news {
                        News::Input(at) => { last_input = Some(at); waiting = true; }
                        News::Frame(at) => {
                            prop_assert!(waiting);
                            prop_assert!(last_input.is_some_and(|input| input <= at));
                            waiting = false;
                        }
                    }
                }
                prop_assert!(answer.deadline().is_some() == answer.is_wanted());
            }
        }
    }
}
