// SPDX-License-Identifier: GPL-2.0-or-later
//! Response windows: when the user waits, and for how long.
//!
//! A window opens when input for the topmost app arrives. It closes when the frame that answers the
//! input reaches the display server, or at a deadline. Special cases:
//!
//! * *Overlapping inputs.* Input that arrives while a window is open joins that window. The frame
//!   that closes the window answers all of its inputs. The recorded time starts at the first input,
//!   because the user may have waited that long.
//! * *Input without a frame.* The window ends at its deadline and nothing is recorded. A later
//!   frame, within the largest deadline and before further input, is a late answer. It is recorded,
//!   because otherwise an app that is always slow would seem quick. It also extends the app's next
//!   deadline.
//! * *Frames without input* (animations), and frames shown before the input, change nothing.
//! * *A frame of another app* changes nothing.
//! * *The focus moves to another app inside a window*: the window moves to that app, because the
//!   user now waits for its frame. The time until that frame is a switching time and not a response
//!   time, so it is not recorded. If the focus moves to no app, the window ends.
//!
//! Events carry their own timestamps and may arrive slightly late and out of order. A frame that is
//! reported before an input, but was shown after it, answers that input.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use limelight_proto::WindowTallies;

use super::app::{App, AppKey};
use super::latency::{Latency, Percentiles};
use crate::settings::WindowSettings;

/// Result of an input event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// A window opened; it ends at `ends` at the latest.
    Opened {
        /// Its deadline.
        ends: Duration,
    },
    /// The input joined the open window.
    Joined,
    /// A frame that was reported before the input answers it. Contains the response time.
    Answered(Duration),
    /// Windows are switched off.
    Off,
}

/// Result of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// The frame answers input. Contains the response time.
    Answered(Duration),
    /// The frame answers input of a window that had ended. Contains the response time.
    Late(Duration),
    /// The focus moved inside the window, and this is the new app's first frame.
    Moved,
    /// The frame answers no input: none waits, or the frame is older than the input or too late.
    Unasked,
    /// The frame belongs to another app than the window.
    Elsewhere,
}

/// The open window, or one that has ended and may still get a late answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The app whose frame is awaited.
    pub app: AppKey,
    /// Its name.
    pub name: String,
    /// User id of its owner, if known.
    owner: Option<u32>,
    /// Time of the first input.
    pub since: Duration,
    /// Its deadline.
    pub ends: Duration,
    /// Number of inputs.
    pub inputs: u32,
    /// The focus moved while it was open, so its time is not recorded.
    moved: bool,
    /// It has ended, but may still get a late answer.
    over: bool,
}

/// Why a window ended without an answer.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The focus had moved while it was open.
    Moved,
    /// No frame is expected any more.
    Abandoned,
}

/// Number of response times that are kept for each app, in addition to the percentiles.
const RECENT: usize = 40;

/// Answers of one app.
#[derive(Debug, Clone)]
struct Answers {
    latency: Latency,
    /// The last response times, oldest first; at most [`RECENT`].
    recent: VecDeque<Duration>,
    late: u64,
    unanswered: u64,
    /// Last use, as a value of [`Windows::uses`].
    used: u64,
}

/// Answers of one app, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppAnswers {
    /// Name of the app.
    pub name: String,
    /// User id of its owner, if known.
    pub owner: Option<u32>,
    /// Number of answers, late ones included.
    pub answers: u64,
    /// Number of answers after the deadline.
    pub late: u64,
    /// Number of windows without an answer.
    pub unanswered: u64,
    /// Response times.
    pub took: Percentiles,
    /// The last response times, oldest first.
    pub recent: Vec<Duration>,
    /// Deadline for its next answer.
    pub deadline: Duration,
}

/// Name of an app, and user id of its owner if known.
type Named = (String, Option<u32>);

/// The current window, and the answers of all apps.
#[derive(Debug, Clone, Default)]
pub struct Windows {
    settings: WindowSettings,
    current: Option<Window>,
    /// The last frame: its app (`None`: a frame of the whole display, which may answer input for
    /// any app) and its time.
    last_frame: Option<(Option<AppKey>, Duration)>,
    tallies: WindowTallies,
    /// By name and user, so that users of the same program have separate answers.
    apps: BTreeMap<Named, Answers>,
    /// User id of the topmost app's owner.
    owner: Option<u32>,
    uses: u64,
}

impl Windows {
    /// Starts without an open window.
    pub fn new(settings: WindowSettings) -> Windows {
        Windows {
            settings,
            ..Windows::default()
        }
    }

    /// Replaces the settings. An open window keeps its deadline, but ends at once if windows are
    /// switched off.
    pub fn configure(&mut self, settings: WindowSettings) {
        if !settings.enabled {
            self.end(End::Abandoned);
        }
        self.settings = settings;
        self.forget_least_used(self.settings.apps);
    }

    /// The open window.
    pub fn open(&self) -> Option<&Window> {
        self.current.as_ref().filter(|window| !window.over)
    }

    /// Counts since [`Windows::new`].
    pub fn tallies(&self) -> WindowTallies {
        self.tallies
    }

    /// Handles input at `at` for the topmost app `app`. `now`: the current time.
    pub fn input(&mut self, app: &App, at: Duration, now: Duration) -> Opening {
        if !self.settings.enabled {
            return Opening::Off;
        }
        let settings = self.settings;
        self.pass_time(at);
        if let Some(window) = self.current.as_mut().filter(|window| !window.over) {
            if window.app == app.key {
                // Events of two sources may arrive out of order.
                window.since = window.since.min(at);
                window.inputs = window.inputs.saturating_add(1);
                self.tallies.inputs_joined += 1;
                return Opening::Joined;
            }
        }
        self.end(End::Abandoned);
        self.tallies.opened += 1;
        let (name, owner) = (app.name.clone(), self.owner);
        let ends = at + self.answers(&name, owner).latency.deadline(&settings);
        self.current = Some(Window {
            app: app.key,
            name,
            owner,
            since: at,
            ends,
            inputs: 1,
            moved: false,
            over: false,
        });
        if let Some((of, shown)) = self.last_frame {
            if shown > at && of.is_none_or(|of| of == app.key) {
                if let Closing::Answered(took) | Closing::Late(took) = self.answer(of, shown) {
                    return Opening::Answered(took);
                }
            }
        }
        self.pass_time(now);
        Opening::Opened { ends }
    }

    /// Counts input that was not for the topmost app, or that came while no app was topmost.
    pub fn input_elsewhere(&mut self) {
        self.tallies.inputs_elsewhere += 1;
    }

    /// Handles a frame shown at `at`. `of`: its app; `None`: a frame of the whole display.
    pub fn frame(&mut self, of: Option<AppKey>, at: Duration) -> Closing {
        if self.last_frame.is_none_or(|(_, last)| last < at) {
            self.last_frame = Some((of, at));
        }
        self.answer(of, at)
    }

    fn answer(&mut self, of: Option<AppKey>, at: Duration) -> Closing {
        let Some(window) = &self.current else {
            self.tallies.frames_unasked += 1;
            return Closing::Unasked;
        };
        if of.is_some_and(|of| of != window.app) {
            self.tallies.frames_elsewhere += 1;
            return Closing::Elsewhere;
        }
        let Some(took) = at.checked_sub(window.since) else {
            self.tallies.frames_unasked += 1;
            return Closing::Unasked;
        };
        if took
            > self
                .settings
                .deadline_max
                .max(window.ends.saturating_sub(window.since))
        {
            self.pass_time(at);
            self.tallies.frames_unasked += 1;
            return Closing::Unasked;
        }
        if window.moved {
            self.end(End::Moved);
            return Closing::Moved;
        }
        // Uses the frame's own timestamp, because the deadline may not have been checked yet.
        let late = window.over || at > window.ends;
        let (name, owner) = (window.name.clone(), window.owner);
        if late && !window.over {
            self.tallies.expired += 1;
        }
        self.current = None;
        let answers = self.answers(&name, owner);
        answers.latency.observe(took);
        if answers.recent.len() == RECENT {
            answers.recent.pop_front();
        }
        answers.recent.push_back(took);
        if late {
            answers.late += 1;
            self.tallies.late += 1;
            return Closing::Late(took);
        }
        self.tallies.answered += 1;
        Closing::Answered(took)
    }

    /// Handles a change of the topmost app, perhaps to none. `owner`: user id of its owner.
    pub fn topmost(&mut self, front: Option<&App>, owner: Option<u32>) {
        self.owner = owner;
        let Some(window) = &mut self.current else {
            return;
        };
        match front {
            Some(app) if app.key == window.app => {}
            Some(_) if window.over => self.end(End::Abandoned),
            Some(app) => {
                window.app = app.key;
                window.name.clone_from(&app.name);
                window.owner = owner;
                window.moved = true;
            }
            None => self.end(End::Abandoned),
        }
    }

    /// Ends the window if its deadline has passed.
    pub fn pass_time(&mut self, now: Duration) {
        let Some(window) = &mut self.current else {
            return;
        };
        if !window.over && window.ends <= now {
            if window.moved {
                return self.end(End::Moved);
            }
            window.over = true;
            self.tallies.expired += 1;
        }
        if window.over && window.since + self.settings.deadline_max < now {
            self.end(End::Abandoned);
        }
    }

    /// When [`Windows::pass_time`] is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        // The wait for a late answer needs no timer: the next input ends it.
        self.open().map(|window| window.ends)
    }

    /// Answers of all apps, last used first.
    pub fn apps(&self) -> Vec<AppAnswers> {
        let mut apps: Vec<(&Named, &Answers)> = self.apps.iter().collect();
        apps.sort_by_key(|(_, answers)| std::cmp::Reverse(answers.used));
        let shown = apps.into_iter().map(|((name, owner), answers)| AppAnswers {
            name: name.clone(),
            owner: *owner,
            answers: answers.latency.answers(),
            late: answers.late,
            unanswered: answers.unanswered,
            took: answers.latency.percentiles(),
            recent: answers.recent.iter().copied().collect(),
            deadline: answers.latency.deadline(&self.settings),
        });
        shown.collect()
    }

    /// Discards the window. A window that had reached its deadline counts as unanswered, whatever
    /// the reason.
    fn end(&mut self, reason: End) {
        let Some(window) = self.current.take() else {
            return;
        };
        if window.over {
            self.tallies.unanswered += 1;
            if let Some(answers) = self.apps.get_mut(&(window.name, window.owner)) {
                answers.unanswered += 1;
            }
            return;
        }
        match reason {
            End::Moved => self.tallies.moved += 1,
            End::Abandoned => self.tallies.abandoned += 1,
        }
    }

    /// The app's answers. If there are too many apps, a new app replaces the least recently used
    /// one.
    fn answers(&mut self, name: &str, owner: Option<u32>) -> &mut Answers {
        let named = (name.to_owned(), owner);
        if !self.apps.contains_key(&named) {
            self.forget_least_used(self.settings.apps.saturating_sub(1));
        }
        self.uses += 1;
        let used = self.uses;
        let settings = self.settings;
        let fresh = || Answers {
            latency: Latency::new(&settings),
            recent: VecDeque::new(),
            late: 0,
            unanswered: 0,
            used,
        };
        let answers = self.apps.entry(named).or_insert_with(fresh);
        answers.used = used;
        answers
    }

    fn forget_least_used(&mut self, keep: u32) {
        while self.apps.len() > keep as usize {
            let least = self.apps.iter().min_by_key(|(_, answers)| answers.used);
            let Some(name) = least.map(|(name, _)| name.clone()) else {
                return;
            };
            self.apps.remove(&name);
        }
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
