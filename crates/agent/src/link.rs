// SPDX-License-Identifier: GPL-2.0-or-later
//! The connection to the daemon, kept for as long as the agent runs.
//!
//! It never blocks. At most one claim is under way; what changes meanwhile is merged into the
//! next one, so a slow daemon sees fewer claims, never old ones. When the daemon goes away and
//! comes back, it is told the claim of that moment.
//!
//! Input and frames do not wait for answers, but for the claim of the app that they belong to. What a
//! daemon that is not there or does not listen misses is gone: the user waits no longer by then.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use limelight_core::control::{
    FocusTarget, Notice, PassedOver, Request, Response, WindowEvent, AGENT_TEXT_MAX,
    PASSED_OVER_MAX,
};
use limelight_core::model::apps::Use;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::sources::answer::News;

const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// The daemon answers within milliseconds; one that takes this long is stuck.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// No answer to a claim is longer.
const ANSWER_MAX_BYTES: usize = 64 * 1024;

/// Most input and frames that wait to be told, and most that wait for their answers.
const NEWS_MAX: usize = 64;

/// What is claimed, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Claim {
    source: &'static str,
    target: FocusTarget,
}

/// How an agent learns of the focus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Its source.
    pub source: Option<&'static str>,
    /// How that works here.
    pub detail: String,
    /// Sources that do not work.
    pub passed_over: Vec<PassedOver>,
}

/// A connection to the daemon, or the way to one.
#[derive(Debug)]
pub struct Link {
    socket: PathBuf,
    wanted: Option<Claim>,
    /// How this agent works here.
    report: Option<Report>,
    /// What the daemon wants of agents; `None` until it has said so.
    own_scopes: Option<bool>,
    /// Processes that are in use, and why.
    uses: BTreeSet<(i32, Use)>,
    /// The daemon is asked to tell of shortages of memory.
    listens: bool,
    /// What it told of them.
    heard: Vec<Notice>,
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
    /// The claim that the daemon was told last.
    told: Option<Claim>,
    /// The report that it was told.
    told_report: Option<Report>,
    /// What it wants, if it has said so since this was asked last.
    own_scopes: Option<bool>,
    /// The uses that it was told.
    told_uses: BTreeSet<(i32, Use)>,
    /// It is still to be asked to tell of shortages of memory.
    to_listen: bool,
    heard: Vec<Notice>,
    /// What it was asked and has not answered yet, oldest first, and until when it must have.
    asked: VecDeque<(Asked, Instant)>,
    /// It has refused input or frames before.
    refused: bool,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

/// What the daemon was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Claim,
    News,
    Report,
}

impl Link {
    /// A link that has not been tried yet.
    pub fn new(socket: PathBuf) -> Self {
        Link {
            socket,
            wanted: None,
            report: None,
            own_scopes: None,
            uses: BTreeSet::new(),
            listens: false,
            heard: Vec::new(),
            news: VecDeque::new(),
            state: State::Down {
                retry_at: None,
                pause: RETRY_FIRST,
            },
        }
    }

    /// Sets what the daemon is to be told, at the next [`Link::turn`] and after every reconnection.
    pub fn claim(&mut self, source: &'static str, target: FocusTarget) {
        self.wanted = Some(Claim { source, target });
    }

    /// Sets how this agent works, at the next [`Link::turn`] and after every reconnection.
    pub fn report(&mut self, report: Report) {
        self.report = Some(report);
    }

    /// Whether the daemon wants apps to be moved into scopes of their own.
    pub fn wants_own_scopes(&self) -> bool {
        self.own_scopes == Some(true)
    }

    /// Has the claim in force told again: what is claimed has moved to another cgroup.
    pub fn claim_again(&mut self) {
        if let State::Up(connection) = &mut self.state {
            connection.told = None;
        }
    }

    /// From now on the daemon is asked to tell of shortages of memory.
    pub fn listen(&mut self) {
        self.listens = true;
    }

    /// What it has told since this was asked last.
    pub fn take_heard(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.heard)
    }

    /// Sets which processes are in use, at the next [`Link::turn`] and after every reconnection.
    pub fn in_use(&mut self, uses: BTreeSet<(i32, Use)>) {
        self.uses = uses;
    }

    /// Something happened to the app of a process: the daemon is told at the next [`Link::turn`], if
    /// it is there.
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

    /// The descriptor to wait for, and for what.
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

    /// When [`Link::turn`] has something to do, whatever the descriptor says.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Down { retry_at, .. } => *retry_at,
            State::Up(connection) => connection.asked.front().map(|(_, by)| *by),
        }
    }

    /// Does what can be done without waiting: connects, sends, takes answers.
    pub fn turn(&mut self, now: Instant) {
        if let State::Down { retry_at, pause } = self.state {
            self.news.clear();
            if retry_at.is_some_and(|at| now < at) {
                return;
            }
            match connect(&self.socket) {
                Ok(fd) => {
                    tracing::info!("connected to limelightd on {}", self.socket.display());
                    self.state = State::Up(Box::new(Connection::new(fd, self.listens)));
                }
                Err(errno) => {
                    // Once is enough: a machine without the daemon is no reason to fill a log.
                    if retry_at.is_none() {
                        tracing::warn!(
                            "no limelightd on {}: {errno}; trying again until there is one",
                            self.socket.display()
                        );
                    }
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
            connection.report(self.report.as_ref(), now);
            let turned = connection.turn(self.wanted.as_ref(), &self.uses, &mut self.news, now);
            self.own_scopes = connection.own_scopes.or(self.own_scopes);
            self.heard.append(&mut connection.heard);
            if let Err(why) = turned {
                tracing::warn!("lost limelightd: {why}; trying again until it is back");
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
            told: None,
            told_report: None,
            own_scopes: None,
            told_uses: BTreeSet::new(),
            to_listen,
            heard: Vec::new(),
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
        news: &mut VecDeque<Request>,
        now: Instant,
    ) -> Result<(), String> {
        self.receive()?;
        if self.asked.front().is_some_and(|(_, by)| now >= *by) {
            return Err("it does not answer".into());
        }
        let claiming = self.asked.iter().any(|(asked, _)| *asked == Asked::Claim);
        if let (false, Some(claim)) = (claiming, wanted) {
            if self.told.as_ref() != Some(claim) {
                self.ask(&claim.request(), Asked::Claim, now)?;
                self.told = Some(claim.clone());
            }
        }
        if self.told.as_ref() == wanted {
            while self.asked.len() < NEWS_MAX {
                let Some(request) = news.pop_front() else {
                    break;
                };
                self.ask(&request, Asked::News, now)?;
            }
        }
        self.tell_uses(uses, now)?;
        if std::mem::take(&mut self.to_listen) {
            self.ask(&Request::Listen, Asked::News, now)?;
        }
        self.send()
    }

    /// Tells how this agent works, if that is news.
    fn report(&mut self, report: Option<&Report>, now: Instant) {
        let Some(report) = report.filter(|report| self.told_report.as_ref() != Some(report)) else {
            return;
        };
        let words = |text: &str| {
            let clean = text.chars().filter(|c| !c.is_control());
            let mut left = AGENT_TEXT_MAX;
            let fitting = clean.take_while(|c| {
                let fits = c.len_utf8() <= left;
                left -= c.len_utf8().min(left);
                fits
            });
            fitting.collect::<String>()
        };
        let passed_over = report.passed_over.iter().take(PASSED_OVER_MAX);
        let request = Request::Agent {
            source: report.source.map(str::to_owned),
            detail: words(&report.detail),
            passed_over: passed_over
                .map(|one| PassedOver {
                    name: words(&one.name),
                    why: words(&one.why),
                })
                .collect(),
        };
        // JSON cannot fail on text.
        if self.ask(&request, Asked::Report, now).is_ok() {
            self.told_report = Some(report.clone());
        }
    }

    /// Tells what has changed of the processes that are in use. They can wait for all else.
    fn tell_uses(&mut self, uses: &BTreeSet<(i32, Use)>, now: Instant) -> Result<(), String> {
        while self.asked.len() < NEWS_MAX {
            let ended = self.told_uses.difference(uses).next().copied();
            let begun = || uses.difference(&self.told_uses).next().copied();
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
                true => self.told_uses.insert(one),
                false => self.told_uses.remove(&one),
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
            // A daemon that has just died must not end us by SIGPIPE.
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
                return Err("its answer has no end".into());
            }
        }
        while let Some(end) = self.incoming.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.incoming.drain(..=end).collect();
            let said = serde_json::from_slice::<Response>(&line).map_err(|error| error.to_string());
            // Nobody asked for it, so it answers nothing.
            if let Ok(Response::Notice(notice)) = said {
                self.heard.push(notice);
                continue;
            }
            // Said again whenever the daemon's configuration changes.
            if let Ok(Response::Agent { own_scopes }) = said {
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
            // Once is enough: a user who types would fill a log with it.
            let loud = asked != Some(Asked::News) || !self.refused;
            let taken = report(said, loud);
            self.refused |= asked == Some(Asked::News) && !taken;
        }
        Ok(())
    }
}

/// Logs what the daemon answered. A refusal is no failure of ours: the app may have ended, or the
/// session is not the active one. Whether it was agreed.
fn report(said: Result<Response, String>, loud: bool) -> bool {
    let refusal = match said {
        Ok(Response::Ok { message }) => {
            tracing::debug!("limelightd: {message}");
            return true;
        }
        Ok(Response::Error { message, cure, .. }) => format!("refused: {message} ({cure})"),
        Ok(_) => "answered another question".to_owned(),
        Err(error) => format!("answered in an unknown form: {error}"),
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
            // It ends with the connection: a session that dies claims nothing any more.
            hold: true,
        }
    }
}

fn connect(socket: &std::path::Path) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(socket)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&fd, &address)?;
    Ok(fd)
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
