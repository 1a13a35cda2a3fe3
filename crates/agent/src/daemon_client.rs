// SPDX-License-Identifier: GPL-2.0-or-later
//! The agent's connection to the daemon, kept for the agent's lifetime.
//!
//! The connection never blocks. At most one claim is pending; later changes are merged into the
//! next one, so a slow daemon receives fewer claims, never stale ones. A restarted daemon receives
//! the current claim.
//!
//! Input and frames do not wait for answers, only until the claim of their app has been sent. They
//! are dropped if the daemon is down or does not read: by the time the daemon could receive them,
//! the user would no longer be waiting.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use limelight_proto::{FocusTarget, Notice, Request, Response, SourceStatus, Use, WindowEvent};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::questions::Questions;
use crate::report::Report;
use crate::sources::answer::News;

const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// The daemon answers within milliseconds. If it takes this long, it hangs.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Longest line that is accepted from the daemon, in bytes. A decision names all apps.
const ANSWER_MAX_BYTES: usize = 1 << 20;

/// Maximum number of queued events (input and frames). Also, no event is sent while this many
/// requests are unanswered.
const NEWS_MAX: usize = 64;

/// A focus claim and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Claim {
    source: &'static str,
    target: FocusTarget,
}

/// A connection to the daemon, or the attempt to establish one.
#[derive(Debug)]
pub struct Link {
    socket: PathBuf,
    wanted: Option<Claim>,
    /// How this agent tracks the focus.
    report: Option<Report>,
    /// What else this agent can do.
    facilities: Vec<SourceStatus>,
    /// The user's own configuration: its path and its text.
    rules: Option<(String, String)>,
    /// What the user asks the daemon.
    pub questions: Questions,
    /// Whether the daemon wants apps in their own scopes; `None` until it has answered.
    own_scopes: Option<bool>,
    /// Background processes that are in use, and their uses.
    uses: BTreeSet<(i32, Use)>,
    /// Whether notices about memory shortages are requested.
    listens: bool,
    /// Notices received and not yet taken.
    notices: Vec<Notice>,
    news: VecDeque<Request>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not connected.
    Down {
        retry_at: Option<Instant>,
        pause: Duration,
    },
    Up(Box<Connection>),
}

#[derive(Debug)]
struct Connection {
    fd: OwnedFd,
    /// The last claim sent.
    sent_claim: Option<Claim>,
    /// The last report sent.
    sent_report: Option<(Report, Vec<SourceStatus>)>,
    /// The last configuration sent.
    sent_rules: Option<(String, String)>,
    /// The daemon's answer about own scopes on this connection.
    own_scopes: Option<bool>,
    /// The uses sent so far.
    sent_uses: BTreeSet<(i32, Use)>,
    /// Whether the request for notices must still be sent.
    to_listen: bool,
    notices: Vec<Notice>,
    /// Answers to questions.
    answered: Vec<Response>,
    /// Requests without an answer, oldest first, with the deadline of each.
    asked: VecDeque<(Asked, Instant)>,
    /// Whether the daemon has refused a request of the kind [`Asked::News`] before.
    refused: bool,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

/// Kind of a pending request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// A claim.
    Claim,
    /// An input, a frame, a use, or the request for notices.
    News,
    /// The report about the agent itself.
    Report,
    /// The user's own configuration.
    Rules,
    /// One of [`Questions`].
    Question,
}

impl Link {
    /// A link that has not tried to connect yet.
    pub fn new(socket: PathBuf) -> Self {
        Link {
            socket,
            wanted: None,
            report: None,
            facilities: Vec::new(),
            rules: None,
            questions: Questions::default(),
            own_scopes: None,
            uses: BTreeSet::new(),
            listens: false,
            notices: Vec::new(),
            news: VecDeque::new(),
            state: State::Down {
                retry_at: None,
                pause: RETRY_FIRST,
            },
        }
    }

    /// Sets the claim. It is sent at the next [`Link::turn`] and after every reconnection.
    pub fn claim(&mut self, source: &'static str, target: FocusTarget) {
        self.wanted = Some(Claim { source, target });
    }

    /// Sets the report. It is sent at the next [`Link::turn`] and after every reconnection.
    pub fn report(&mut self, report: Report) {
        self.report = Some(report);
    }

    /// Sets what else this agent can do. It is sent with the report.
    pub fn facilities(&mut self, facilities: Vec<SourceStatus>) {
        self.facilities = facilities;
    }

    /// Sets the user's own configuration. It is sent at the next [`Link::turn`] and, unless it is
    /// empty, after every reconnection.
    pub fn rules(&mut self, file: String, text: String) {
        self.rules = Some((file, text));
    }

    /// Whether the daemon wants apps to be moved into their own scopes.
    pub fn wants_own_scopes(&self) -> bool {
        self.own_scopes == Some(true)
    }

    /// Sends the current claim again at the next turn, because its app has moved to another cgroup.
    pub fn claim_again(&mut self) {
        if let State::Up(connection) = &mut self.state {
            connection.sent_claim = None;
        }
    }

    /// Requests notices about memory shortages from now on.
    pub fn listen(&mut self) {
        self.listens = true;
    }

    /// Takes the notices received since the last call.
    pub fn take_heard(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Sets the processes in use. They are sent at the next [`Link::turn`] and after every
    /// reconnection.
    pub fn in_use(&mut self, uses: BTreeSet<(i32, Use)>) {
        self.uses = uses;
    }

    /// Queues an event of a process's app. It is sent at the next [`Link::turn`] if the daemon is
    /// connected.
    pub fn tell(&mut self, source: &'static str, pid: i32, news: News) {
        let (event, at) = match news {
            News::Input(at) => (WindowEvent::Open, at),
            News::Frame(at) => (WindowEvent::Close, at),
        };
        if self.news.len() >= NEWS_MAX {
            self.news.pop_front();
        }
        self.news.push_back(Request::Window {
            event,
            at_us: Some(at.as_micros() as u64),
            pid: Some(pid),
            source: source.to_owned(),
        });
    }

    /// The descriptor to wait for, and its events; `None` while not connected.
    pub fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let State::Up(connection) = &self.state else {
            return None;
        };
        let write = match connection.outgoing.is_empty() {
            true => PollFlags::empty(),
            false => PollFlags::OUT,
        };
        Some((connection.fd.as_fd(), PollFlags::IN | write))
    }

    /// When [`Link::turn`] has work even if the descriptor has no event.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Down { retry_at, .. } => *retry_at,
            State::Up(connection) => connection.asked.front().map(|(_, by)| *by),
        }
    }

    /// Does all work that does not block: connects, sends, takes answers.
    pub fn turn(&mut self, now: Instant) {
        if let State::Down { retry_at, pause } = self.state {
            self.news.clear();
            if retry_at.is_some_and(|at| now < at) {
                self.questions.give_up();
                return;
            }
            match connect(&self.socket) {
                Ok(fd) => {
                    tracing::info!("connected to limelightd on {}", self.socket.display());
                    self.state = State::Up(Box::new(Connection::new(fd, self.listens)));
                }
                Err(errno) => {
                    // Warn only once: on a machine without the daemon this must not fill the log.
                    if retry_at.is_none() {
                        tracing::warn!(
                            "cannot connect to limelightd on {}: {errno}; retrying until it works",
                            self.socket.display()
                        );
                    }
                    self.questions.give_up();
                    let pause_next = (pause * 2).min(RETRY_MAX);
                    self.state = State::Down {
                        retry_at: Some(now + pause),
                        pause: pause_next,
                    };
                    return;
                }
            }
        }
        if let State::Up(connection) = &mut self.state {
            if let Some(report) = &self.report {
                connection.report(report, &self.facilities, now);
            }
            if let Some(rules) = &self.rules {
                connection.rules(rules, now);
            }
            let queues = (&mut self.news, &mut self.questions);
            let turned = connection.turn(self.wanted.as_ref(), &self.uses, queues, now);
            for answer in connection.answered.drain(..) {
                self.questions.answered(answer);
            }
            self.own_scopes = connection.own_scopes.or(self.own_scopes);
            self.notices.append(&mut connection.notices);
            if let Err(why) = turned {
                self.questions.give_up();
                tracing::warn!(
                    "lost the connection to limelightd: {why}; retrying until it is back"
                );
                self.state = State::Down {
                    retry_at: Some(now + RETRY_FIRST),
                    pause: RETRY_FIRST,
                };
            }
        }
    }
}

impl Connection {
    fn new(fd: OwnedFd, to_listen: bool) -> Self {
        Connection {
            fd,
            sent_claim: None,
            sent_report: None,
            sent_rules: None,
            own_scopes: None,
            sent_uses: BTreeSet::new(),
            to_listen,
            notices: Vec::new(),
            answered: Vec::new(),
            asked: VecDeque::new(),
            refused: false,
            outgoing: Vec::new(),
            incoming: Vec::new(),
        }
    }

    fn turn(
        &mut self,
        wanted: Option<&Claim>,
        uses: &BTreeSet<(i32, Use)>,
        (news, questions): (&mut VecDeque<Request>, &mut Questions),
        now: Instant,
    ) -> Result<(), String> {
        self.receive()?;
        if self.asked.front().is_some_and(|(_, by)| now >= *by) {
            return Err("it did not answer in time".into());
        }
        let claiming = self.asked.iter().any(|(asked, _)| *asked == Asked::Claim);
        if let (false, Some(claim)) = (claiming, wanted) {
            if self.sent_claim.as_ref() != Some(claim) {
                self.ask(&claim.request(), Asked::Claim, now)?;
                self.sent_claim = Some(claim.clone());
            }
        }
        if self.sent_claim.as_ref() == wanted {
            while self.asked.len() < NEWS_MAX {
                let Some(request) = news.pop_front() else {
                    break;
                };
                self.ask(&request, Asked::News, now)?;
            }
            // A question about an app follows the claim that makes the app known.
            while let Some(request) = questions.send_next() {
                self.ask(&request, Asked::Question, now)?;
            }
        }
        self.send_uses(uses, now)?;
        if std::mem::take(&mut self.to_listen) {
            self.ask(&Request::Listen { foreground: false }, Asked::News, now)?;
        }
        self.send()
    }

    /// Sends the report if it has changed.
    fn report(&mut self, report: &Report, facilities: &[SourceStatus], now: Instant) {
        let sent = self.sent_report.as_ref();
        if sent.is_some_and(|(sent, with)| (sent, with.as_slice()) == (report, facilities)) {
            return;
        }
        let request = report.request(facilities);
        // Serialising text to JSON cannot fail.
        if self.ask(&request, Asked::Report, now).is_ok() {
            self.sent_report = Some((report.clone(), facilities.to_vec()));
        }
    }

    /// Sends the user's own configuration if it has changed. Without a configuration, the daemon
    /// need not be told that there is none.
    fn rules(&mut self, rules: &(String, String), now: Instant) {
        let (file, text) = rules;
        let sent = self.sent_rules.as_ref();
        if sent == Some(rules) || (sent.is_none() && text.is_empty()) {
            return;
        }
        let request = Request::Never {
            file: file.clone(),
            text: text.clone(),
        };
        // Serialising text to JSON cannot fail.
        if self.ask(&request, Asked::Rules, now).is_ok() {
            self.sent_rules = Some(rules.clone());
        }
    }

    /// Sends changes of the processes in use. They have the lowest priority.
    fn send_uses(&mut self, uses: &BTreeSet<(i32, Use)>, now: Instant) -> Result<(), String> {
        while self.asked.len() < NEWS_MAX {
            let ended = self.sent_uses.difference(uses).next().copied();
            let begun = || uses.difference(&self.sent_uses).next().copied();
            let (one, on) = match ended {
                Some(one) => (one, false),
                None => match begun() {
                    Some(one) => (one, true),
                    None => return Ok(()),
                },
            };
            let (pid, what) = one;
            self.ask(&Request::InUse { pid, what, on }, Asked::News, now)?;
            match on {
                true => self.sent_uses.insert(one),
                false => self.sent_uses.remove(&one),
            };
        }
        Ok(())
    }

    fn ask(&mut self, request: &Request, asked: Asked, now: Instant) -> Result<(), String> {
        serde_json::to_writer(&mut self.outgoing, request).map_err(|error| error.to_string())?;
        self.outgoing.push(b'\n');
        self.asked.push_back((asked, now + ANSWER_PATIENCE));
        Ok(())
    }

    fn send(&mut self) -> Result<(), String> {
        while !self.outgoing.is_empty() {
            // NOSIGNAL: if the daemon has just died, SIGPIPE must not end the agent.
            match net::send(&self.fd, &self.outgoing, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.outgoing.drain(..sent)),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.to_string()),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), String> {
        let mut buffer = [0u8; 4096];
        loop {
            match rustix::io::read(&self.fd, &mut buffer) {
                Ok(0) => return Err("it closed the connection".into()),
                Ok(count) => self.incoming.extend_from_slice(&buffer[..count]),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.to_string()),
            }
            if self.incoming.len() > ANSWER_MAX_BYTES {
                return Err("its answer is too long".into());
            }
        }
        while let Some(end) = self.incoming.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.incoming.drain(..=end).collect();
            let answer =
                serde_json::from_slice::<Response>(&line).map_err(|error| error.to_string());
            // A notice answers no request.
            if let Ok(Response::Notice(notice)) = answer {
                self.notices.push(notice);
                continue;
            }
            // The daemon sends this also without a request, when its configuration changes.
            if let Ok(Response::Agent { own_scopes }) = answer {
                self.own_scopes = Some(own_scopes);
                if self
                    .asked
                    .front()
                    .is_some_and(|(asked, _)| *asked == Asked::Report)
                {
                    self.asked.pop_front();
                }
                continue;
            }
            let asked = self.asked.pop_front().map(|(asked, _)| asked);
            if asked == Some(Asked::Question) {
                self.answered.push(answer?);
                continue;
            }
            // Warn only once: otherwise each key that the user types would log a warning.
            let loud = asked != Some(Asked::News) || !self.refused;
            let taken = report(answer, loud);
            self.refused |= asked == Some(Asked::News) && !taken;
        }
        Ok(())
    }
}

/// Logs the daemon's answer. A refusal is not a failure of the agent: the app may have ended, or
/// the session may not be the active one. Returns whether the daemon accepted.
fn report(answer: Result<Response, String>, loud: bool) -> bool {
    let refusal = match answer {
        Ok(Response::Ok { message }) => {
            tracing::debug!("limelightd: {message}");
            return true;
        }
        Ok(Response::Error { message, cure, .. }) => format!("refused: {message} ({cure})"),
        Ok(_) => "sent an answer that does not match the request".to_owned(),
        Err(error) => format!("sent an answer that cannot be parsed: {error}"),
    };
    match loud {
        true => tracing::warn!("limelightd {refusal}"),
        false => tracing::debug!("limelightd {refusal}"),
    }
    false
}

impl Claim {
    fn request(&self) -> Request {
        Request::Focus {
            target: self.target.clone(),
            source: self.source.to_owned(),
            // The claim ends with the connection, so a dead session claims nothing.
            hold: true,
        }
    }
}

/// Connects to a stream socket, without blocking.
pub fn connect(socket: &Path) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(socket)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&fd, &address)?;
    Ok(fd)
}

#[cfg(test)]
#[path = "daemon_client_tests.rs"]
mod tests;
