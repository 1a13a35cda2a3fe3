// SPDX-License-Identifier: GPL-2.0-or-later
//! Parses and answers clients' requests.

mod apps;
mod rules;

use limelight_core::model::topmost::{Claim, Holder};
use limelight_core::model::App;
use limelight_proto::{ErrorCode, FocusTarget, MemoryAction, Request, Response};
use limelight_sys::peercred::PeerCred;
use tracing::debug;

use crate::control::socket::RequestLine;
use crate::event_loop::Daemon;
use crate::system::access::Speaker;
use crate::system::authorization;
use crate::system::identify::{self, Refusal};
use crate::system::now;

use rules::{keeps_promise, rules, Cost};

/// Longest name of a source, in bytes.
const SOURCE_MAX: usize = 64;

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Response {
        let Refusal {
            code,
            message,
            cure,
        } = refusal;
        Response::Error {
            code,
            message,
            cure,
            retry_ms: None,
        }
    }
}

impl Daemon {
    /// The user of a connection, and whether it is in the group of `[access]`.
    pub(crate) fn speaker(&self, client: u64, peer: PeerCred) -> Speaker {
        let groups = self.control.groups_of(client);
        Speaker {
            uid: peer.uid,
            member: self.access.includes(groups),
        }
    }

    /// Answers one request.
    pub(crate) fn request(&mut self, line: &RequestLine) -> Response {
        let request = match serde_json::from_slice::<Request>(&line.text) {
            Ok(request) => request,
            Err(error) => {
                return Response::Error {
                    code: ErrorCode::BadRequest,
                    message: format!("not a request: {error}"),
                    cure: "send {\"op\":\"status\"}, {\"op\":\"explain\",\"pid\":N}, {\"op\":\"latency\"}, {\"op\":\"apps\"}, {\"op\":\"class\",\"pid\":N,\"class\":\"normal\"}, {\"op\":\"in-use\",\"pid\":N,\"use\":\"unsaved\",\"on\":true}, {\"op\":\"history\"}, {\"op\":\"decision\"}, {\"op\":\"listen\"}, {\"op\":\"focus\",\"target\":{\"pid\":N},\"source\":\"NAME\"} or {\"op\":\"window\",\"event\":\"open\",\"source\":\"NAME\"}, one a line".to_owned(),
                    retry_ms: None,
                }
            }
        };
        let speaker = self.speaker(line.client, line.peer);
        let (shows, cost) = rules(&request);
        if let Some(busy) = self.charge(speaker, cost) {
            return busy;
        }
        let result = match request {
            Request::Focus {
                target,
                source,
                hold,
            } => self.focus(line, target, &source, hold),
            Request::Window {
                event,
                at_us,
                pid,
                source,
            } => self.window(line, event, at_us, pid, &source),
            Request::Latency { app } => self.latency(speaker, app.as_deref()),
            Request::Status => {
                self.look_for_oom_daemons();
                Ok(Response::Status(Box::new(self.status_for(speaker))))
            }
            Request::Apps { pid } => self.apps(speaker, pid),
            Request::Class { pid, class } => self.set_class(line, pid, class),
            Request::Agent {
                source,
                detail,
                passed_over,
            } => self.agent(line, source, detail, passed_over),
            Request::InUse { pid, what, on } => self.in_use(line, pid, what, on),
            Request::Decision { action } => Ok(self.decision(speaker, action)),
            Request::Listen => Ok(self.listen(line)),
            Request::History { last } => Ok(Response::History {
                entries: self.history.of(speaker, last),
                hidden: self.hidden(speaker),
            }),
            Request::Explain { pid } => self
                .explain(speaker, pid)
                .map(|explain| Response::Explain(Box::new(explain))),
        };
        let response = result.unwrap_or_else(|refusal| {
            debug!("uid {} is refused: {}", line.peer.uid, refusal.message);
            refusal.into()
        });
        debug_assert!(keeps_promise(shows, &response));
        response
    }

    /// Charges a request to its user. `Some`: the refusal of a user who exceeds the limit.
    fn charge(&mut self, speaker: Speaker, cost: Cost) -> Option<Response> {
        let at = now();
        let tokens = match cost {
            Cost::Work(tokens) => {
                self.control.limiter().was_work(speaker.uid, tokens, at);
                return None;
            }
            Cost::Lookup(tokens) => tokens,
        };
        let (system, access) = (&self.system, &self.access);
        let at_screen =
            || speaker.sees_all() || authorization::may_speak(system, access, speaker).is_ok();
        let limiter = self.control.limiter();
        let granted = limiter.look_up(speaker.uid, tokens, at_screen, at);
        let ms = granted.err()?.as_millis() as u64;
        Some(Response::Error {
            code: ErrorCode::Busy,
            message: format!("uid {} asks limelightd too often", speaker.uid),
            cure: format!("ask again in {ms} ms"),
            retry_ms: Some(ms),
        })
    }

    /// Answer to `decision` for this user.
    fn decision(&self, speaker: Speaker, action: Option<MemoryAction>) -> Response {
        let decision = self.decisions.last(action).cloned().map(|mut decision| {
            decision.weighed = self.keep_visible(speaker, decision.weighed, |one| one.uid);
            Box::new(decision)
        });
        Response::Decision {
            decision,
            hidden: self.hidden(speaker),
        }
    }

    fn focus(
        &mut self,
        line: &RequestLine,
        target: FocusTarget,
        source: &str,
        hold: bool,
    ) -> Result<Response, Refusal> {
        check_source(source)?;
        let peer = line.peer;
        let speaker = self.speaker(line.client, peer);
        let may_speak = authorization::may_speak(&self.system, &self.access, speaker);
        self.look_at_sessions();
        if may_speak.is_ok() {
            self.control.limiter().was_at_screen(peer.uid, now());
        }
        // A session's report may wait until the session is active. A claim that would count at once
        // needs permission now.
        let counts = self.topmost.counts_of(peer.uid);
        if counts || !hold {
            may_speak.clone()?;
        }
        if !hold {
            self.may_override(peer)?;
        }
        let app = match target {
            FocusTarget::Pid(pid) => Some(self.claimed_process(peer, pid)?),
            FocusTarget::Cgroup(path) => Some(self.claimed_cgroup(peer, &path)?),
            FocusTarget::None => None,
        };
        let name = app.as_ref().map(describe);
        let claim = Claim {
            app,
            source: source.to_owned(),
            uid: peer.uid,
        };
        let at = now();
        let shift = if hold {
            self.control.set_holding(line.client);
            self.topmost.claim_session(Holder(line.client), claim, at)
        } else {
            self.topmost.claim_explicit(claim, at)
        };
        self.after(shift);
        // The refusal is temporary: the claim counts at the next switch of sessions, without a
        // repeat.
        may_speak.map(|()| Response::Ok {
            message: self.standing(speaker, name),
        })
    }

    /// Only root may replace root's explicit claim.
    fn may_override(&self, peer: PeerCred) -> Result<(), Refusal> {
        if peer.uid == 0 || !self.topmost.is_root_explicit() {
            return Ok(());
        }
        Err(Refusal::new(
            ErrorCode::NotAllowed,
            "root's explicit claim is in force",
            "withdraw it as root (limelight focus --none)",
        ))
    }

    fn claimed_process(&self, peer: PeerCred, pid: i32) -> Result<App, Refusal> {
        authorization::owns_process(&self.system, peer.uid, pid)?;
        let app = identify::app_of_pid(&self.system, pid)?;
        // The pid may have been reused meanwhile: check the owner of the process that was resolved.
        authorization::owns_process(&self.system, peer.uid, pid)?;
        Ok(authorization::confine(&self.system, peer.uid, app))
    }

    fn claimed_cgroup(&self, peer: PeerCred, path: &str) -> Result<App, Refusal> {
        let app = identify::app_of_cgroup(&self.system, path)?;
        let procs = identify::open_home(&self.system, &app)
            .and_then(|home| home.procs_below().ok())
            .unwrap_or_default();
        if procs.is_empty() {
            return Err(Refusal::new(
                ErrorCode::NotFound,
                format!("{} holds no process", describe(&app)),
                "start the app first",
            ));
        }
        authorization::owns_all(&self.system, peer.uid, &procs).map_err(|refusal| match refusal
            .code
        {
            // Omits the pid of another user's process.
            ErrorCode::NotAllowed => Refusal {
                message: format!(
                    "{path} holds processes of other users than uid {}",
                    peer.uid
                ),
                ..refusal
            },
            _ => refusal,
        })?;
        Ok(app)
    }

    /// Describes the claim in force after this one.
    fn standing(&self, speaker: Speaker, claimed: Option<String>) -> String {
        let Some(front) = self.topmost.front() else {
            return "no app is topmost".to_owned();
        };
        let name = self.name_for(speaker, &front.app, describe(&front.app));
        match front.leaves_at {
            Some(at) => format!(
                "{name} is topmost for another {} ms",
                at.saturating_sub(now()).as_millis()
            ),
            None if claimed.as_ref() == Some(&name) => format!("{name} is topmost"),
            None if !self.sees_app(speaker, &front.app) => format!("noted; {name} is topmost"),
            None => format!("noted; {name} is topmost by the claim of {}", front.source),
        }
    }
}

/// Checks that a caller's name for itself is short and printable.
pub(crate) fn check_source(source: &str) -> Result<(), Refusal> {
    if source.is_empty() || source.len() > SOURCE_MAX || source.chars().any(char::is_control) {
        return Err(Refusal::new(
            ErrorCode::BadRequest,
            format!("the source must be 1 to {SOURCE_MAX} printable bytes"),
            "name the program that reports, for example \"cli\"",
        ));
    }
    Ok(())
}

fn describe(app: &App) -> String {
    match app.process {
        Some(process) => format!("{} (pid {})", app.name, process.pid),
        None => app.name.clone(),
    }
}
