// SPDX-License-Identifier: GPL-2.0-or-later
//! Response windows: when the user waits, and for how long.
//!
//! A window opens when input for the topmost app arrives, and closes when the frame that answers it
//! reaches the display server, or at a deadline. What happens in between:
//!
//! * *Overlapping inputs.* Input while a window is open belongs to it. The frame that closes it
//!   answers all of them, and the time is that of the first: how long the user may have waited.
//! * *Input without a frame.* The window ends at its deadline; nothing is recorded. A frame that
//!   comes later, but within the largest deadline and before further input, is a late answer: it is
//!   recorded, or an app that is always slow would seem quick. It makes the app's next deadline longer.
//! * *Frames without input* (animations) and frames that were shown before the input change nothing.
//! * *A frame of another app* changes nothing.
//! * *The focus moves to another app inside a window*: the window is now about that app, for its
//!   frame is what the user waits for. How long that takes is the switch's time, not a response, and
//!   is not recorded. When it moves to none the window ends.
//!
//! Events carry the time at which they happened and may come in a little late and out of order:
//! input that is older than the last frame is answered by it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::app::{App, AppKey};
use super::latency::{Latency, Percentiles};
use crate::settings::WindowSettings;

/// What input came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// A window opened, and ends at this time at the latest.
    Opened {
        /// When.
        ends: Duration,
    },
    /// It belongs to the window that is open.
    Joined,
    /// A frame that is known already answered it, after this time.
    Answered(Duration),
    /// Windows are switched off.
    Off,
}

/// What a frame came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// It answers input, after this time.
    Answered(Duration),
    /// It answers input whose window had ended, after this time.
    Late(Duration),
    /// The focus moved inside the window; this is the new app's first frame.
    Moved,
    /// Nobody waits for it.
    Unasked,
    /// It is another app's.
    Elsewhere,
}

/// How windows came and went, also in the protocol's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tallies {
    /// Windows that opened.
    pub opened: u64,
    /// Closed by a frame in time.
    pub answered: u64,
    /// Ended at their deadline.
    pub expired: u64,
    /// Of those, answered by a later frame.
    pub late: u64,
    /// Of those that expired, never answered.
    pub unanswered: u64,
    /// Ended after the focus had moved.
    pub moved: u64,
    /// Ended because no app was topmost any more.
    pub abandoned: u64,
    /// Inputs that found a window open.
    pub inputs_joined: u64,
    /// Inputs for an app that is not topmost, or while none was.
    pub inputs_elsewhere: u64,
    /// Frames that nobody waited for.
    pub frames_unasked: u64,
    /// Frames of an app that is not the window's.
    pub frames_elsewhere: u64,
}

/// The window that is open, or was and whose answer may still come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Whose frame is waited for.
    pub app: AppKey,
    /// Its name.
    pub name: String,
    /// Its user.
    owner: Option<u32>,
    /// When the first input came.
    pub since: Duration,
    /// When it ends without a frame.
    pub ends: Duration,
    /// How many inputs it has.
    pub inputs: u32,
    /// The focus moved inside it: its time is not recorded.
    moved: bool,
    /// It has ended; only a late answer is waited for.
    over: bool,
}

/// Why a window ended without an answer.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The focus had moved inside it.
    Moved,
    /// There is nothing to wait for.
    Abandoned,
}

/// One app's answers.
#[derive(Debug, Clone)]
struct Answers {
    latency: Latency,
    late: u64,
    unanswered: u64,
    /// When it was last used, by a count of uses.
    used: u64,
}

/// One app's answers, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppAnswers {
    /// Name of the app.
    pub name: String,
    /// Its user, if that is known.
    pub owner: Option<u32>,
    /// How often it answered, late answers included.
    pub answers: u64,
    /// Of those, after the deadline.
    pub late: u64,
    /// How often it did not.
    pub unanswered: u64,
    /// How long it took.
    pub took: Percentiles,
    /// How long its next answer is waited for.
    pub deadline: Duration,
}

/// Name and user of an app.
type Named = (String, Option<u32>);

/// All windows.
#[derive(Debug, Clone, Default)]
pub struct Windows {
    settings: WindowSettings,
    current: Option<Window>,
    /// The last frame, and whose it was; `None`: the display's, which shows everybody.
    last_frame: Option<(Option<AppKey>, Duration)>,
    tallies: Tallies,
    /// By name and user: the same program of two users answers each of them.
    apps: BTreeMap<Named, Answers>,
    /// User of the topmost app.
    owner: Option<u32>,
    uses: u64,
}

impl Windows {
    /// No window is open.
    pub fn new(settings: WindowSettings) -> Windows {
        Windows {
            settings,
            ..Windows::default()
        }
    }

    /// Takes other settings; a window that is open keeps its deadline, but for one that ends now
    /// because windows are switched off.
    pub fn configure(&mut self, settings: WindowSettings) {
        if !settings.enabled {
            self.end(End::Abandoned);
        }
        self.settings = settings;
        self.forget_least_used(self.settings.apps);
    }

    /// The window that is open.
    pub fn open(&self) -> Option<&Window> {
        self.current.as_ref().filter(|window| !window.over)
    }

    /// How windows came and went.
    pub fn tallies(&self) -> Tallies {
        self.tallies
    }

    /// Input for the topmost app, which is `app`, came at `at`.
    pub fn input(&mut self, app: &App, at: Duration, now: Duration) -> Opening {
        if !self.settings.enabled {
            return Opening::Off;
        }
        let settings = self.settings;
        self.pass_time(at);
        if let Some(window) = self.current.as_mut().filter(|window| !window.over) {
            if window.app == app.key {
                // Two sources may deliver in another order than things happened.
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

    /// Input came for an app that is not topmost, or while none was.
    pub fn input_elsewhere(&mut self) {
        self.tallies.inputs_elsewhere += 1;
    }

    /// A frame was shown at `at`: of this app, or of the display as a whole.
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
        // By the event's own time: that nobody looked at the clock in between changes nothing.
        let late = window.over || at > window.ends;
        let (name, owner) = (window.name.clone(), window.owner);
        if late && !window.over {
            self.tallies.expired += 1;
        }
        self.current = None;
        let answers = self.answers(&name, owner);
        answers.latency.observe(took);
        if late {
            answers.late += 1;
            self.tallies.late += 1;
            return Closing::Late(took);
        }
        self.tallies.answered += 1;
        Closing::Answered(took)
    }

    /// Another app, or none, is topmost; it belongs to `owner`.
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

    /// Ends what has reached its deadline.
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

    /// When [`Windows::pass_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        // When a late answer would be too late matters to nobody before the next input.
        self.open().map(|window| window.ends)
    }

    /// The apps' answers, those used last first.
    pub fn apps(&self) -> Vec<AppAnswers> {
        let mut apps: Vec<(&Named, &Answers)> = self.apps.iter().collect();
        apps.sort_by_key(|(_, answers)| std::cmp::Reverse(answers.used));
        let told = apps.into_iter().map(|((name, owner), answers)| AppAnswers {
            name: name.clone(),
            owner: *owner,
            answers: answers.latency.answers(),
            late: answers.late,
            unanswered: answers.unanswered,
            took: answers.latency.percentiles(),
            deadline: answers.latency.deadline(&self.settings),
        });
        told.collect()
    }

    /// Nobody waits for the window's answer any longer. Whatever the reason, one that was over by
    /// then has not been answered.
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

    /// The answers of the app of this name; another app's are forgotten for it when there are many.
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
