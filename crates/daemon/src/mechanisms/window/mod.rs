// SPDX-License-Identifier: GPL-2.0-or-later
//! Response windows: the reports of the sources, the model that they feed, and the results for the
//! user.

pub mod device;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use limelight_core::model::window::{AppAnswers, Closing, Opening, Windows};
use limelight_core::model::{App, AppKey};
use limelight_core::policy::{window, Action};
use limelight_core::settings::WindowSettings;
use limelight_proto::{
    AppLatency, ErrorCode, LatencyReport, OpenWindow, Response, SourceStatus, State, WindowEvent,
    WindowStatus, WINDOW_AGE_MAX_US,
};
use limelight_sys::clock;
use tracing::debug;

use crate::config::EvdevSource;
use crate::control::requests::check_source;
use crate::control::socket::RequestLine;
use crate::event_loop::reactor::Token;
use crate::event_loop::Daemon;
use crate::mechanisms::Context;
use crate::restore::Ledger;
use crate::sources::evdev::Evdev;
use crate::system::access::Speaker;
use crate::system::authorization;
use crate::system::identify::{self, Refusal};
use crate::system::now;

/// How long a user's permission to report on the topmost app is cached: checking it takes longer
/// than everything else in a window.
const PASS: Duration = Duration::from_secs(2);

/// A cached permission to report on the topmost app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pass {
    uid: u32,
    app: AppKey,
    until: Duration,
}

/// The model and its sources.
#[derive(Debug)]
pub struct ResponseWindows {
    model: Windows,
    pass: Option<Pass>,
    /// Open connections over which windows were reported, and how often.
    reporters: BTreeMap<u64, u64>,
    /// Input devices and the display's frames, while no client reports windows.
    evdev: Evdev,
    /// The last source that reported over the control socket, and when.
    last_told: Option<(String, Duration)>,
    /// User of the last topmost app.
    owner: Option<Option<u32>>,
    /// Users of the apps that were topmost; only the first two.
    owners: BTreeSet<Option<u32>>,
}

impl ResponseWindows {
    /// Starts with no window open.
    pub fn new(settings: WindowSettings) -> ResponseWindows {
        ResponseWindows {
            model: Windows::new(settings),
            pass: None,
            reporters: BTreeMap::new(),
            evdev: Evdev::default(),
            last_told: None,
            owner: None,
            owners: BTreeSet::new(),
        }
    }

    /// Replaces the settings.
    pub fn configure(&mut self, settings: WindowSettings) {
        self.model.configure(settings);
    }

    /// Another app, or none, is topmost; it belongs to `owner`.
    pub fn topmost(&mut self, front: Option<&App>, owner: Option<u32>) {
        if front.is_some() && self.owner != Some(owner) {
            // The time of input to one user's app must not be shown to another user.
            self.last_told = None;
            self.owner = Some(owner);
            if self.owners.len() < 2 {
                self.owners.insert(owner);
            }
        }
        self.model.topmost(front, owner);
    }

    /// Handles a closed connection.
    pub fn release(&mut self, client: u64) {
        self.reporters.remove(&client);
    }

    /// Whether all counts are of one user's apps.
    pub fn is_of_one_user(&self) -> bool {
        self.owners.len() < 2
    }

    /// The state of the daemon's own sources: devices, and the display's frames.
    pub fn input_details(&self) -> [(bool, bool, &str); 2] {
        self.evdev.details()
    }

    /// Whether a client reports windows regularly. A client that sends a single report and leaves
    /// does not.
    fn is_reported(&self) -> bool {
        self.reporters.values().any(|&times| times > 1)
    }

    fn told_by(&mut self, source: &str, at: Duration) {
        match &mut self.last_told {
            Some((by, when)) if by == source => *when = at,
            last => *last = Some((source.to_owned(), at)),
        }
    }

    /// Closes the daemon's own sources.
    pub fn stop(&mut self, ledger: &mut Ledger) {
        self.evdev.stop(ledger);
    }

    /// Whether a response window of the topmost app is open.
    pub fn is_open(&self) -> bool {
        self.model.open().is_some()
    }

    /// Ends windows that are due.
    pub fn pass_time(&mut self, at: Duration) {
        self.model.pass_time(at);
    }

    /// When the next deadline is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.model.next_deadline()
    }
}

impl Daemon {
    /// Answers a request about a response window.
    pub(crate) fn window(
        &mut self,
        line: &RequestLine,
        event: WindowEvent,
        at_us: Option<u64>,
        pid: Option<i32>,
        source: &str,
    ) -> Result<Response, Refusal> {
        check_source(source)?;
        let at = now();
        let happened = happened(at_us, at)?;
        let Some(front) = self.topmost.front().map(|front| front.app.clone()) else {
            let speaker = self.speaker(line.client, line.peer);
            authorization::may_speak(&self.system, &self.access, speaker)?;
            if event == WindowEvent::Open {
                self.windows.model.input_elsewhere();
            }
            return Err(Refusal::new(
                ErrorCode::NotFound,
                "no app is topmost, so no answer is awaited",
                "name one first (limelight focus PID, or a session agent)",
            ));
        };
        let speaker = self.speaker(line.client, line.peer);
        self.may_tell(speaker, &front, at)?;
        *self.windows.reporters.entry(line.client).or_default() += 1;
        self.windows.told_by(source, at);
        let other = match pid {
            Some(pid) if !self.is_of_front(&front, pid) => {
                Some(identify::app_of_pid(&self.system, pid)?).filter(|app| app.key != front.key)
            }
            _ => None,
        };
        let model = &mut self.windows.model;
        let message = match (event, other) {
            (WindowEvent::Open, None) => opening(model.input(&front, happened, at), at),
            (WindowEvent::Open, Some(app)) => {
                model.input_elsewhere();
                let name = match authorization::owns_process(
                    &self.system,
                    speaker.uid,
                    pid.unwrap_or(0),
                ) {
                    Ok(()) => app.name,
                    Err(_) => "that app".to_owned(),
                };
                format!("not opened: {name} is not topmost")
            }
            (WindowEvent::Close, None) => closing(model.frame(Some(front.key), happened)),
            (WindowEvent::Close, Some(app)) => closing(model.frame(Some(app.key), happened)),
        };
        self.tell_kernel(at);
        debug!("window of {}: {message} (by {source})", front.name);
        Ok(Response::Ok { message })
    }

    /// Reports to the kernel what has changed for it.
    pub(crate) fn tell_kernel(&mut self, at: Duration) {
        let open = self.windows.model.open().map(|window| window.ends);
        let told = self.actuators.in_force.device_window;
        if let Some(step) = window::step(open, told, at) {
            let context = Context {
                system: &self.system,
                now: at,
                front: None,
                apps: &[],
            };
            self.actuators.apply(&Action::Window(step), context);
        }
    }

    /// Opens and closes the daemon's own sources as needed.
    pub(crate) fn tend_window_sources(&mut self) {
        let guesses = self.guesses_front();
        let ledger = &mut self.actuators.ledger;
        self.wake_graph.want(guesses, &self.system, ledger);
        let windows = self.config.settings.window.enabled
            && match self.config.evdev {
                EvdevSource::On => true,
                EvdevSource::Off => false,
                EvdevSource::Auto => self.topmost.front().is_some() && !self.windows.is_reported(),
            };
        let input = windows || self.wake_graph.listens();
        let evdev = &mut self.windows.evdev;
        evdev.tend(input, windows, &self.system, ledger, &self.reactor);
        let open = self.windows.model.open().is_some();
        evdev.await_frames(open, &self.reactor);
    }

    /// Handles an event of one of the daemon's own sources.
    pub(crate) fn window_source(&mut self, token: Token) {
        let at = now();
        // Event times are of another clock, which stops while the machine is suspended.
        let offset = at.saturating_sub(clock::monotonic());
        match token {
            Token::Plugged => self.windows.evdev.open_devices(&self.system, &self.reactor),
            Token::Input => {
                let strokes = self.windows.evdev.take_input();
                // A client that reports windows has reported these too.
                let told = self.windows.is_reported() && self.config.evdev != EvdevSource::On;
                for stroke in strokes.iter().filter(|stroke| stroke.asks && !told) {
                    let happened = (stroke.at + offset).min(at);
                    match self.topmost.front() {
                        Some(front) => {
                            let _ = self.windows.model.input(&front.app, happened, at);
                        }
                        None => self.windows.model.input_elsewhere(),
                    }
                    self.windows.told_by("evdev", at);
                }
                self.pressed(&strokes, at);
            }
            _ => {
                let since = self.windows.model.open().map(|window| window.since);
                let since = since.map(|since| since.saturating_sub(offset));
                for shown in self.windows.evdev.take_frames(since) {
                    self.windows.model.frame(None, (shown + offset).min(at));
                }
            }
        }
        self.tell_kernel(at);
    }

    /// Whether this user may report on the topmost app.
    fn may_tell(&mut self, speaker: Speaker, front: &App, at: Duration) -> Result<(), Refusal> {
        let uid = speaker.uid;
        let granted = |pass: &Pass| pass.uid == uid && pass.app == front.key && at < pass.until;
        if uid == 0 || self.windows.pass.as_ref().is_some_and(granted) {
            return Ok(());
        }
        authorization::may_speak(&self.system, &self.access, speaker)?;
        match (&front.process, identify::open_home(&self.system, front)) {
            (Some(process), _) => {
                let owns = authorization::owns_process(&self.system, uid, process.pid);
                owns.map_err(|refusal| not_own(refusal, uid))?;
            }
            (None, home) => {
                let procs = home.and_then(|home| home.procs_below().ok());
                let procs = procs.filter(|procs| !procs.is_empty()).ok_or_else(|| {
                    Refusal::new(
                        ErrorCode::NotFound,
                        "the app in front has no process any more",
                        "name the app that is in front now",
                    )
                })?;
                let owns = authorization::owns_all(&self.system, uid, &procs);
                owns.map_err(|refusal| not_own(refusal, uid))?;
            }
        }
        self.control.limiter().was_at_screen(uid, at);
        self.windows.pass = Some(Pass {
            uid,
            app: front.key,
            until: at + PASS,
        });
        Ok(())
    }

    /// Whether a process is known to belong to the topmost app, by the last measurement.
    fn is_of_front(&self, front: &App, pid: i32) -> bool {
        let claimed = front.process.is_some_and(|process| process.pid == pid);
        let measured = self.last.topmost.as_ref();
        claimed
            || measured.is_some_and(|measured| {
                measured.app.key == front.key && measured.members.iter().any(|id| id.pid == pid)
            })
    }

    /// The answer to `latency` for this user.
    pub(crate) fn latency(&self, speaker: Speaker, app: Option<&str>) -> Result<Response, Refusal> {
        let all = self.windows.model.apps();
        let apps: Vec<AppLatency> = self
            .keep_visible(speaker, all, |answers| answers.owner)
            .into_iter()
            .filter(|answers| app.is_none_or(|name| answers.name == name))
            .map(app_latency)
            .collect();
        match app {
            Some(name) if apps.is_empty() => Err(Refusal::new(
                ErrorCode::NotFound,
                format!("no app named {name:?} had a response window"),
                "limelight latency lists those that had",
            )),
            _ => Ok(Response::Latency(LatencyReport {
                apps,
                hidden: self.hidden(speaker),
            })),
        }
    }

    /// Windows, for `status`.
    pub(crate) fn window_status(&self) -> WindowStatus {
        let at = now();
        let model = &self.windows.model;
        let open = model.open().map(|window| OpenWindow {
            app: window.name.clone(),
            for_us: micros(at.saturating_sub(window.since)),
            ends_in_us: micros(window.ends.saturating_sub(at)),
            inputs: window.inputs,
        });
        let front = self.topmost.front();
        let topmost = front.and_then(|front| {
            let mut apps = model.apps().into_iter();
            let owner = self.owner_of(&front.app);
            apps.find(|answers| answers.name == front.app.name && answers.owner == owner)
        });
        let (state, detail) = if !self.config.settings.window.enabled {
            let detail = "switched off by the configuration ([window] enabled)";
            (State::Off, detail.to_owned())
        } else {
            let detail = match &self.windows.last_told {
                Some((by, when)) => format!(
                    "last told by {by}, {} ms ago",
                    at.saturating_sub(*when).as_millis()
                ),
                None => "no source has reported input or frames yet".to_owned(),
            };
            let state = match open {
                Some(_) => State::Active,
                None => State::Idle,
            };
            (state, detail)
        };
        WindowStatus {
            state,
            detail,
            kernel: self.actuators.kernel_windows(open.is_some()),
            open,
            sources: self.window_sources(),
            tallies: model.tallies(),
            topmost: topmost.map(app_latency),
        }
    }

    fn window_sources(&self) -> Vec<SourceStatus> {
        let reporters = self.windows.reporters.len();
        let mut sources = vec![SourceStatus {
            name: "control socket".to_owned(),
            state: match reporters {
                0 => State::Idle,
                _ => State::Active,
            },
            detail: format!("{reporters} session agents or compositors tell of input and frames"),
        }];
        let [input, frames] = self.windows.evdev.details();
        for (name, (on, works, how)) in [("evdev", input), ("display frames", frames)] {
            let (state, detail) = match (self.config.evdev, on, works) {
                (EvdevSource::Off, ..) => {
                    let why = "switched off by the configuration ([sources] evdev)";
                    (State::Off, why)
                }
                (_, false, _) if self.windows.is_reported() => {
                    (State::Idle, "not needed: others tell")
                }
                (_, false, _) => (State::Idle, "not needed: nothing is topmost"),
                (_, true, true) => (State::Active, how),
                (_, true, false) => (State::Unavailable, how),
            };
            sources.push(SourceStatus {
                name: name.to_owned(),
                state,
                detail: detail.to_owned(),
            });
        }
        sources
    }

    /// What `explain` says of the topmost app.
    pub(crate) fn window_note(&self) -> Option<String> {
        let status = self.window_status();
        let name = &self.topmost.front()?.app.name;
        Some(match (status.state, status.topmost) {
            (State::Off, _) => status.detail,
            (_, None) => "no response window of this app has been answered yet, so how quickly it \
                          answers is not known"
                .to_owned(),
            (_, Some(seen)) => format!(
                "{name} answered {} times: half within {}, 99 of 100 within {}; it is waited for \
                 at most {} ms",
                seen.answers,
                took(Duration::from_micros(seen.p50_us)),
                took(Duration::from_micros(seen.p99_us)),
                seen.deadline_ms
            ),
        })
    }
}

/// A refusal that does not name the topmost app, which is another user's.
fn not_own(refusal: Refusal, uid: u32) -> Refusal {
    match refusal.code {
        ErrorCode::NotAllowed => Refusal::new(
            refusal.code,
            format!("the app in front does not belong to uid {uid}"),
            "tell of the input of your own app while it is in front, or as root",
        ),
        _ => refusal,
    }
}

/// The time of an event, in the daemon's own time.
fn happened(at_us: Option<u64>, now: Duration) -> Result<Duration, Refusal> {
    let Some(at_us) = at_us else {
        return Ok(now);
    };
    // A time that is a little ahead of our clock counts as now.
    let ago = clock::monotonic().saturating_sub(Duration::from_micros(at_us));
    if ago > Duration::from_micros(WINDOW_AGE_MAX_US) {
        return Err(Refusal::new(
            ErrorCode::BadRequest,
            format!("at_us {at_us} is {} ms ago", ago.as_millis()),
            "give the event's time in microseconds of CLOCK_MONOTONIC, and at once",
        ));
    }
    Ok(now.saturating_sub(ago))
}

fn opening(opening: Opening, now: Duration) -> String {
    match opening {
        Opening::Opened { ends } => format!(
            "open for at most {} ms",
            ends.saturating_sub(now).as_millis()
        ),
        Opening::Joined => "a window is open already and has it, too".to_owned(),
        Opening::Answered(time) => format!("answered already, after {}", took(time)),
        Opening::Off => "not opened: the configuration says so ([window] enabled)".to_owned(),
    }
}

fn closing(closing: Closing) -> String {
    match closing {
        Closing::Answered(time) => format!("answered after {}", took(time)),
        Closing::Late(time) => format!("answered late, after {}", took(time)),
        Closing::Moved => "closed: the focus had moved".to_owned(),
        Closing::Unasked => "no window was open".to_owned(),
        Closing::Elsewhere => "the window is another app's and stays open".to_owned(),
    }
}

fn took(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn app_latency(answers: AppAnswers) -> AppLatency {
    AppLatency {
        name: answers.name,
        answers: answers.answers,
        late: answers.late,
        unanswered: answers.unanswered,
        p50_us: micros(answers.took.p50),
        p95_us: micros(answers.took.p95),
        p99_us: micros(answers.took.p99),
        max_us: micros(answers.took.max),
        deadline_ms: micros(answers.deadline) / 1000,
    }
}
