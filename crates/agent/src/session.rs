// SPDX-License-Identifier: GPL-2.0-or-later
//! The event loop: waits for the source and the daemon, and passes messages between them. Input and
//! frames have priority, because a report of the focus may require queries to the source.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use limelight_proto::{FocusTarget, SourceStatus, State, Use, NOTIFICATIONS};
use limelight_sys::clock;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::daemon_client::Link;
use crate::notify::Notifier;
use crate::own_rules::OwnRules;
use crate::report::Report;
use crate::scopes::Scopes;
use crate::sources::arrivals::Arrivals;
use crate::sources::environment::Environment;
use crate::sources::pick::Pick;
use crate::sources::{Gone, Seen, Source};
use crate::uses::Uses;

/// Longest wait, without `--stay`, until a lost source returns or another one appears.
const PATIENCE: Duration = Duration::from_secs(10);

/// Source name in the claim that nothing has the focus, sent while there is no source.
const NO_SOURCE: &str = "agent";

/// Reason for the end of the loop.
#[derive(Debug)]
pub enum End {
    /// The source went away, and no source appeared in time.
    SourceGone,
    /// Waiting for events failed.
    Failed(Errno),
}

/// Configuration of the event loop.
pub struct Session {
    /// Finds a source.
    pub find: Box<dyn FnMut() -> (Environment, Pick)>,
    /// Whether to wait for a source without a time limit.
    pub stay: bool,
    /// Whether to report other apps that are visible or audible.
    pub watch_uses: bool,
    /// Shows notifications about memory shortages.
    pub notifier: Option<Notifier>,
    /// Moves apps into their own scopes.
    pub scopes: Option<Scopes>,
    /// The user's own configuration.
    pub rules: OwnRules,
    /// The connection to the daemon.
    pub link: Link,
}

/// State of the focus source.
enum Focus {
    /// A source that works.
    Known {
        source: Box<dyn Source>,
        uses: Box<Uses>,
        last: Option<Seen>,
    },
    /// No source yet: waits until one appears or the time is up.
    Awaited {
        arrivals: Arrivals,
        until: Option<Instant>,
    },
}

/// Runs until the source goes away and none appears in time, or until waiting for events fails.
pub fn run(mut session: Session, environment: Environment, first: Pick) -> End {
    if session.notifier.is_some() {
        session.link.listen();
    }
    session.look_at_rules();
    let mut focus = session.begin(environment, first);
    loop {
        let gone = match &mut focus {
            Focus::Known { source, uses, last } => session.tell(source.as_mut(), uses, last).err(),
            Focus::Awaited { .. } => None,
        };
        if let Some(gone) = gone {
            tracing::warn!("{gone}; waiting for it to come back");
            session.link.claim(NO_SOURCE, FocusTarget::None);
            focus = session.lose(gone);
        }
        session.talk(&focus);
        if let Focus::Awaited { arrivals, until } = &mut focus {
            if arrivals.is_due(clock::monotonic()) {
                let (environment, pick) = (session.find)();
                if pick.source.is_some() {
                    focus = session.begin(environment, pick);
                    continue;
                }
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return End::SourceGone;
            }
        }
        if let Err(errno) = session.wait(&focus) {
            return End::Failed(errno);
        }
    }
}

impl Session {
    /// Starts with the result of a search for sources: uses the source, or waits for one.
    fn begin(&mut self, environment: Environment, pick: Pick) -> Focus {
        let Pick {
            source,
            passed_over,
        } = pick;
        let detail = match &source {
            Some(source) => source.detail(),
            None => "no compositor and no X server; waiting for one".to_owned(),
        };
        let name = source.as_ref().map(|source| source.name());
        for one in &passed_over {
            tracing::debug!("skipped {}: {}", one.name, one.why);
        }
        tracing::info!(
            "the focus is reported by {}: {detail}",
            name.unwrap_or("no source")
        );
        self.link.report(Report {
            source: name,
            detail,
            passed_over,
        });
        if let Some(notifier) = &self.notifier {
            notifier.look_again();
        }
        let Some(source) = source else {
            return self.await_one(&environment);
        };
        // Xwayland's display does not show native Wayland windows, so its windows are not watched.
        let display = environment
            .display
            .filter(|_| environment.wayland.is_none());
        Focus::Known {
            source,
            uses: Box::new(match self.watch_uses {
                true => Uses::watch(display.as_deref()),
                false => Uses::default(),
            }),
            last: None,
        }
    }

    fn lose(&mut self, gone: Gone) -> Focus {
        self.link.report(Report {
            source: None,
            detail: gone.to_string(),
            passed_over: Vec::new(),
        });
        self.link.in_use(Default::default());
        self.await_one(&Environment::of_process(None))
    }

    fn await_one(&self, environment: &Environment) -> Focus {
        Focus::Awaited {
            arrivals: Arrivals::watch(environment.places(), clock::monotonic()),
            until: (!self.stay).then(|| Instant::now() + PATIENCE),
        }
    }

    /// Passes the source's reports on to the daemon.
    fn tell(
        &mut self,
        source: &mut dyn Source,
        uses: &mut Uses,
        last: &mut Option<Seen>,
    ) -> Result<(), Gone> {
        for (pid, news) in source.responses()? {
            self.link.tell(source.name(), pid, news);
        }
        let seen = source.observe()?;
        if last.as_ref() != Some(&seen) {
            tracing::debug!(?seen, "focus");
            self.give_own_scope(&seen);
            self.link.claim(source.name(), seen.target());
            self.look_at_rules();
            let notifier = self.notifier.as_ref();
            let question = notifier.zip(seen.pid);
            if let Some(question) = question.and_then(|(notifier, pid)| notifier.focused(pid)) {
                self.link.questions.add(question);
            }
            *last = Some(seen);
        }
        self.link.turn(Instant::now());
        uses.turn(clock::monotonic());
        let mut in_use = uses.processes();
        if self.watch_uses {
            let visible = source.visible()?.into_iter();
            in_use.extend(visible.map(|pid| (pid, Use::Visible)));
        }
        self.link.in_use(in_use);
        // The daemon's request for own scopes may have arrived just now.
        if last.as_ref().is_some_and(|seen| self.give_own_scope(seen)) {
            self.link.claim_again();
        }
        Ok(())
    }

    /// Passes the user's own configuration on, if it has changed.
    fn look_at_rules(&mut self) {
        if let Some((file, text)) = self.rules.look() {
            self.link.rules(file, text);
        }
    }

    /// Returns whether the app was moved just now.
    fn give_own_scope(&mut self, seen: &Seen) -> bool {
        match (&mut self.scopes, seen.pid) {
            (Some(scopes), Some(pid)) if self.link.wants_own_scopes() => scopes.settle(pid),
            _ => false,
        }
    }

    /// Exchanges messages with the daemon and with the notification server.
    fn talk(&mut self, focus: &Focus) {
        self.link.facilities(self.facilities(focus));
        let questions = self.notifier.as_mut().map(Notifier::turn);
        for question in questions.into_iter().flatten() {
            self.link.questions.add(question);
        }
        self.link.turn(Instant::now());
        let Some(notifier) = &mut self.notifier else {
            return;
        };
        for notice in self.link.take_heard() {
            notifier.tell(&notice, Instant::now());
        }
        for (purpose, answer) in self.link.questions.take_answers() {
            if let Some(next) = notifier.answer(purpose, &answer) {
                self.link.questions.add(next);
                self.link.turn(Instant::now());
            }
        }
    }

    /// What this agent can do besides the focus.
    fn facilities(&self, focus: &Focus) -> Vec<SourceStatus> {
        let notifications = self.notifier.as_ref().map(Notifier::status);
        let notifications = notifications.unwrap_or_else(|| SourceStatus {
            name: NOTIFICATIONS.to_owned(),
            state: State::Off,
            detail: "--no-notifications".to_owned(),
        });
        let uses = match focus {
            Focus::Known { uses, .. } => Some(uses.statuses()),
            Focus::Awaited { .. } => None,
        };
        let uses = uses.into_iter().flatten();
        [notifications].into_iter().chain(uses).collect()
    }

    /// Waits for the source, the other watched descriptors, the daemon, or a deadline.
    fn wait(&self, focus: &Focus) -> Result<(), Errno> {
        if matches!(focus, Focus::Known { source, .. } if source.is_behind()) {
            return Ok(());
        }
        let (sources, due): (Vec<BorrowedFd<'_>>, _) = match focus {
            Focus::Known { source, uses, .. } => {
                let responses = source.responses_fd();
                let all = source.fds().into_iter().chain(uses.fds()).chain(responses);
                let due = [source.responses_deadline(), uses.deadline()];
                (all.collect(), due.into_iter().flatten().min())
            }
            Focus::Awaited { arrivals, .. } => {
                (arrivals.fd().into_iter().collect(), arrivals.deadline())
            }
        };
        let until = match focus {
            Focus::Awaited { until, .. } => *until,
            Focus::Known { .. } => None,
        };
        let due = due.map(|due| Instant::now() + due.saturating_sub(clock::monotonic()));
        let deadlines = [self.link.deadline(), due, until];
        let notifier = self.notifier.as_ref().map(Notifier::fd);
        let sources: Vec<_> = sources.into_iter().chain(notifier).collect();
        wait(&sources, &self.link, deadlines.into_iter().flatten().min())
    }
}

fn wait(sources: &[BorrowedFd<'_>], link: &Link, deadline: Option<Instant>) -> Result<(), Errno> {
    let sources = sources.iter();
    let mut fds: Vec<PollFd<'_>> = sources.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let daemon = link.interest();
    fds.extend(daemon.as_ref().map(|(fd, events)| PollFd::new(fd, *events)));
    let timeout = deadline.map(|deadline| {
        // Rounded up, so that the deadline has passed when the wait ends.
        let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}
