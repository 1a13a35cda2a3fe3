// SPDX-License-Identifier: GPL-2.0-or-later
//! Parses and answers clients' requests.

mod apps;
mod never;
mod pause;
mod rules;
mod window;

use std::time::Duration;

use limelight_core::model::topmost::{Claim, Holder};
use limelight_core::model::App;
use limelight_proto::{ErrorCode, FocusTarget, Request, Response};
use limelight_sys::peercred::PeerCred;
use tracing::debug;

use crate::control::agents::{look_at_sessions, wishes, Agents};
use crate::control::report::{self, View};
use crate::control::socket::{ControlSource, RequestLine};
use crate::control::visibility::Viewer;
use crate::reconcile::Reconciler;
use crate::sources::{Input, Sources};
use crate::system::access::Speaker;
use crate::system::identify::{self, Refusal, GROUPS_MAX};
use crate::system::{authorization, now, System};

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

/// The parts of the daemon that requests read and change.
#[derive(Debug)]
pub(crate) struct Desk<'a> {
    pub control: &'a mut ControlSource,
    pub agents: &'a mut Agents,
    pub sources: &'a mut Sources,
    pub reconciler: &'a mut Reconciler,
    /// When the daemon started.
    pub started: Duration,
}

impl Desk<'_> {
    fn speaker(&self, line: &RequestLine) -> Speaker {
        let access = &self.reconciler.access;
        self.control.speaker(access, line.client, line.peer)
    }

    /// Whether this user may currently make claims.
    fn may_speak(&self, speaker: Speaker) -> Result<(), Refusal> {
        authorization::may_speak(&self.reconciler.system, &self.reconciler.access, speaker)
    }

    fn viewer(&self, speaker: Speaker) -> Viewer<'_> {
        Viewer::new(speaker, self.reconciler)
    }

    fn view(&self, speaker: Speaker) -> View<'_> {
        View {
            viewer: self.viewer(speaker),
            sources: self.sources,
            control: self.control,
            agents: self.agents,
            started: self.started,
        }
    }

    /// Answers one request.
    pub(crate) fn answer(&mut self, line: &RequestLine) -> Response {
        let request = match serde_json::from_slice::<Request>(&line.text) {
            Ok(request) => request,
            Err(error) => {
                return Response::Error {
                    code: ErrorCode::BadRequest,
                    message: format!("not a request: {error}"),
                    cure:
                        "send {\"op\":\"status\"}, {\"op\":\"explain\",\"pid\":N}, \
                           {\"op\":\"latency\"}, {\"op\":\"apps\"}, \
                           {\"op\":\"class\",\"pid\":N,\"class\":\"normal\"}, \
                           {\"op\":\"in-use\",\"pid\":N,\"use\":\"unsaved\",\"on\":true}, \
                           {\"op\":\"never\",\"file\":\"PATH\",\"text\":\"\"}, \
                           {\"op\":\"history\"}, {\"op\":\"decision\"}, {\"op\":\"listen\"}, \
                           {\"op\":\"pause\",\"for_ms\":60000}, {\"op\":\"resume\"}, \
                           {\"op\":\"focus\",\"target\":{\"pid\":N},\"source\":\"NAME\"} or \
                           {\"op\":\"window\",\"event\":\"open\",\"source\":\"NAME\"}, one per line"
                            .to_owned(),
                    retry_ms: None,
                }
            }
        };
        let speaker = self.speaker(line);
        let (shows, cost) = rules(&request);
        let is_agents_report = matches!(request, Request::Agent { .. });
        if let Some(busy) = self.charge(speaker, cost) {
            return busy;
        }
        let response = self
            .perform(line, speaker, request)
            .unwrap_or_else(|refusal| {
                debug!("uid {} is refused: {}", line.peer.uid, refusal.message);
                refusal.into()
            });
        debug_assert!(keeps_promise(shows, &response));
        // An agent's report has checked the permission already.
        if !is_agents_report
            && self.control.needs_permission(line.client)
            && self.may_speak(speaker).is_ok()
        {
            self.control.set_permitted(line.client);
        }
        response
    }

    fn perform(
        &mut self,
        line: &RequestLine,
        speaker: Speaker,
        request: Request,
    ) -> Result<Response, Refusal> {
        match request {
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
            } => {
                let report = window::Report {
                    event,
                    at_us,
                    pid,
                    source: &source,
                };
                window::report(self.control, self.reconciler, line, &report)
            }
            Request::Latency { app } => report::latency(self.viewer(speaker), app.as_deref()),
            Request::Status => {
                self.reconciler
                    .mechanisms
                    .swap
                    .oom_daemons
                    .look(&self.reconciler.system, now());
                Ok(Response::Status(Box::new(report::status(
                    self.view(speaker),
                ))))
            }
            Request::Apps { pid } => apps::list(self.reconciler, speaker, pid),
            Request::Class { pid, class, save } => {
                let wish = apps::ClassWish { pid, class, save };
                apps::set_class(self.reconciler, speaker, wish)
            }
            Request::Agent {
                source,
                detail,
                passed_over,
                facilities,
            } => {
                let at_screen = self.may_speak(speaker).is_ok();
                let agents = &mut self.agents;
                let noted = agents.note(line, at_screen, source, detail, passed_over, facilities);
                noted.map(|()| {
                    self.control.set_holding(line.client);
                    if at_screen {
                        self.control.set_permitted(line.client);
                    }
                    wishes(&self.reconciler.config)
                })
            }
            Request::InUse { pid, what, on } => {
                apps::in_use(self.control, self.reconciler, line, (pid, what, on))
            }
            Request::Never { file, text } => {
                never::set(self.control, self.reconciler, line, &file, &text)
            }
            Request::Decision { action } => Ok(report::decision(self.viewer(speaker), action)),
            Request::Listen { foreground } => {
                self.control.set_listening(line.client, foreground);
                let more = match foreground {
                    true => ", and to changes of the foreground app",
                    false => "",
                };
                Ok(Response::Ok {
                    message: format!("subscribed to all notices about memory shortages{more}"),
                })
            }
            Request::Become { uid, groups } => self.become_user(line, uid, groups),
            Request::History { last } => Ok(Response::History {
                entries: self.reconciler.history.of(speaker, last),
                paused: self.reconciler.pause_report(),
                hidden: self.viewer(speaker).hidden(),
            }),
            Request::Pause { for_ms } => pause::pause(self.reconciler, speaker, for_ms),
            Request::Resume => pause::resume(self.reconciler, speaker),
            Request::Explain { pid } => report::explain(self.view(speaker), pid)
                .map(|explain| Response::Explain(Box::new(explain))),
        }
    }

    /// Charges a request to its user. Returns a refusal if the user exceeds the limit.
    fn charge(&mut self, speaker: Speaker, cost: Cost) -> Option<Response> {
        let at = now();
        let tokens = match cost {
            Cost::Work(tokens) => {
                self.control.limiter().was_work(speaker.uid, tokens, at);
                return None;
            }
            Cost::Lookup(tokens) => tokens,
        };
        let (system, access) = (&self.reconciler.system, &self.reconciler.access);
        let at_screen =
            || speaker.sees_all() || authorization::may_speak(system, access, speaker).is_ok();
        let limiter = self.control.limiter();
        let granted = limiter.look_up(speaker.uid, tokens, at_screen, at);
        let ms = granted.err()?.as_millis() as u64;
        Some(Response::Error {
            code: ErrorCode::Busy,
            message: format!("uid {} sends too many requests", speaker.uid),
            cure: format!("ask again in {ms} ms"),
            retry_ms: Some(ms),
        })
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
        let speaker = self.speaker(line);
        let may_speak = self.may_speak(speaker);
        look_at_sessions(&mut self.sources.sessions, self.control, self.reconciler);
        if may_speak.is_ok() {
            self.control.limiter().was_at_screen(peer.uid, now());
        }
        // A session's report may wait until the session is active. A claim that would count at once
        // needs permission now.
        let counts = self.reconciler.model.topmost.counts_of(peer.uid);
        if counts || !hold {
            may_speak.clone()?;
        }
        if !hold {
            self.may_override(peer)?;
        }
        let app = match target {
            FocusTarget::Pid(pid) => Some(claimed_process(&self.reconciler.system, peer, pid)?),
            FocusTarget::Cgroup(path) => {
                Some(claimed_cgroup(&self.reconciler.system, peer, &path)?)
            }
            FocusTarget::None => None,
        };
        let name = app.as_ref().map(describe);
        let claim = Claim {
            app,
            source: source.to_owned(),
            uid: peer.uid,
        };
        let holder = hold.then_some(Holder(line.client));
        if hold {
            self.control.set_holding(line.client);
        }
        self.reconciler.take(Input::Claimed { claim, holder });
        // The refusal is temporary: the claim counts once the user's session is active. The client
        // need not repeat it.
        may_speak.map(|()| Response::Ok {
            message: standing(self.viewer(speaker), name),
        })
    }

    /// Turns root's connection into a user's.
    fn become_user(
        &mut self,
        line: &RequestLine,
        uid: u32,
        groups: Vec<u32>,
    ) -> Result<Response, Refusal> {
        if line.peer.uid != 0 {
            return Err(Refusal::new(
                ErrorCode::NotAllowed,
                format!(
                    "uid {} may not pass on other users' requests",
                    line.peer.uid
                ),
                "connect as root",
            ));
        }
        self.control.set_user(line.client, uid, groups)?;
        Ok(Response::Ok {
            message: format!("this connection is now uid {uid}'s"),
        })
    }

    /// Only root may replace root's explicit claim.
    fn may_override(&self, peer: PeerCred) -> Result<(), Refusal> {
        if peer.uid == 0 || !self.reconciler.model.topmost.is_root_explicit() {
            return Ok(());
        }
        Err(Refusal::new(
            ErrorCode::NotAllowed,
            "root's explicit claim is in force",
            "withdraw it as root (limelight focus --none)",
        ))
    }
}

fn claimed_process(system: &System, peer: PeerCred, pid: i32) -> Result<App, Refusal> {
    authorization::owns_process(system, peer.uid, pid)?;
    let app = identify::app_of_pid(system, pid)?;
    // The pid may have been reused meanwhile: check the owner of the process that was resolved.
    authorization::owns_process(system, peer.uid, pid)?;
    Ok(authorization::confine(system, peer.uid, app))
}

fn claimed_cgroup(system: &System, peer: PeerCred, path: &str) -> Result<App, Refusal> {
    let app = identify::app_of_cgroup(system, path)?;
    let home = identify::open_home(system, &app);
    let procs = match home.map(|home| home.procs_below_within(GROUPS_MAX)) {
        None => Vec::new(),
        Some(Err(error)) if error.is_gone() => Vec::new(),
        Some(procs) => procs.map_err(|error| {
            Refusal::new(
                ErrorCode::BadRequest,
                format!("cannot claim {}: {error}", describe(&app)),
                "name a process of the app",
            )
        })?,
    };
    if procs.is_empty() {
        return Err(Refusal::new(
            ErrorCode::NotFound,
            format!("{} holds no process", describe(&app)),
            "start the app first",
        ));
    }
    authorization::owns_all(system, peer.uid, &procs).map_err(|refusal| match refusal.code {
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

/// Describes the claim that is in force after a request.
fn standing(viewer: Viewer<'_>, claimed: Option<String>) -> String {
    let Some(front) = viewer.reconciler.model.topmost.front() else {
        return "no app is in the foreground".to_owned();
    };
    let name = viewer.name_for(&front.app, describe(&front.app));
    match front.leaves_at {
        Some(at) => format!(
            "{name} stays in the foreground for another {} ms",
            at.saturating_sub(now()).as_millis()
        ),
        None if claimed.as_ref() == Some(&name) => format!("{name} is in the foreground"),
        None if !viewer.sees_app(&front.app) => format!("claim noted; {name} is in the foreground"),
        None => format!(
            "claim noted; {name} is in the foreground, claimed by {}",
            front.source
        ),
    }
}

/// Checks that a caller's name for itself is short and printable.
fn check_source(source: &str) -> Result<(), Refusal> {
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
