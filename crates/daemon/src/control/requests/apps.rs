// SPDX-License-Identifier: GPL-2.0-or-later
//! Requests about apps: the list of apps, their class, their use.

use limelight_core::model::apps::{Known, Use};
use limelight_core::model::class::Class;
use limelight_core::model::AppKey;
use limelight_proto::{AppReport, ErrorCode, Notice, Response, Role};

use crate::control::report::app_status;
use crate::control::socket::RequestLine;
use crate::event_loop::Daemon;
use crate::sources::apps::Override;
use crate::system::access::Speaker;
use crate::system::authorization;
use crate::system::identify::Refusal;

/// Error for a process of no known app.
fn no_app(pid: i32) -> Refusal {
    Refusal::new(
        ErrorCode::NotAnApp,
        format!("pid {pid} belongs to no app that is known: no unit was made for it, and it was never in front"),
        format!("name a process of an app (limelight class list), or have it known: limelight focus {pid}"),
    )
}

impl Daemon {
    /// Answer to `apps` for this user.
    pub(crate) fn apps(&mut self, speaker: Speaker, pid: Option<i32>) -> Result<Response, Refusal> {
        let only = match pid {
            Some(pid) => {
                self.may_ask_of(speaker, pid)?;
                let key = self.known_app_of(pid).ok_or_else(|| no_app(pid))?;
                let owner = self.apps.get(key).map(|known| known.found.uid);
                if owner.is_some_and(|owner| !speaker.sees(owner)) {
                    return Err(self.not_shown(pid));
                }
                Some(key)
            }
            None => None,
        };
        self.look_at_apps();
        let all = self.apps.by_use().into_iter().rev();
        let chosen = all.filter(|known| {
            speaker.sees(known.found.uid) && only.is_none_or(|key| known.key() == key)
        });
        Ok(Response::Apps {
            apps: chosen.map(|known| self.app_report(known)).collect(),
            hidden: self.hidden(speaker),
        })
    }

    fn app_report(&self, known: &Known) -> AppReport {
        let key = known.key();
        let found = &known.found;
        let swapping = &self.actuators.in_force.swapping;
        let identity = self.app_source.identity(key).cloned().unwrap_or_default();
        AppReport {
            app: app_status(&found.app),
            uid: found.uid,
            role: self.role_of(key),
            class: found.class.class,
            why: found.class.why.clone(),
            set_by: self.app_source.override_of(key).map(|set| set.uid),
            last_topmost_ms: known.last_topmost.map(|at| at.as_millis() as u64),
            started_ms: known.appeared.as_millis() as u64,
            uses: found.uses.clone(),
            untouchable: found.untouchable.clone(),
            processes: found.members.len() as u32,
            resident: found.memory.resident,
            anonymous: found.memory.anonymous,
            swapped: found.memory.swapped,
            frozen: swapping.frozen.iter().any(|(app, _)| *app == key),
            exempt: swapping.exempt.contains(&key),
            desktop_id: identity.desktop_id,
            executable: identity.executable,
            package: identity.package,
            categories: identity.categories,
        }
    }

    fn role_of(&self, key: AppKey) -> Role {
        let front = self.topmost.front().map(|front| front.app.key);
        let previous = self.topmost.previous().map(|app| app.key);
        match key {
            key if front == Some(key) => Role::Topmost,
            key if previous == Some(key) => Role::Previous,
            _ => Role::Background,
        }
    }

    /// Whether a caller may make requests about this process now.
    fn may_speak_of(&self, speaker: Speaker, pid: i32) -> Result<(), Refusal> {
        authorization::may_speak(&self.system, &self.access, speaker)?;
        authorization::owns_process(&self.system, speaker.uid, pid)
    }

    /// Answer to `class`.
    pub(crate) fn set_class(
        &mut self,
        line: &RequestLine,
        pid: i32,
        class: Option<Class>,
    ) -> Result<Response, Refusal> {
        let peer = line.peer;
        self.may_speak_of(self.speaker(line.client, peer), pid)?;
        let key = self.known_app_of(pid).ok_or_else(|| no_app(pid))?;
        // Owning one process in another user's app does not mean owning the app.
        let known = self.apps.get(key).ok_or_else(|| no_app(pid))?;
        let pids: Vec<i32> = known.found.members.iter().map(|id| id.pid).collect();
        authorization::owns_all(&self.system, peer.uid, &pids)?;
        let name = known.found.app.name.clone();
        let before = self.app_source.override_of(key);
        if peer.uid != 0 {
            self.may_lower(key, &name, before, class)?;
        }
        let set = class.map(|class| Override {
            class,
            uid: peer.uid,
        });
        self.app_source.set_override(key, set);
        self.look_at_apps();
        let now = self.apps.get(key).map(|known| &known.found.class);
        let now = now.ok_or_else(|| no_app(pid))?;
        Ok(Response::Ok {
            message: format!("{name} is {}: {}", now.class, now.why),
        })
    }

    /// Limits what an app's owner may set: only a lower class, and none over root's.
    fn may_lower(
        &self,
        key: AppKey,
        name: &str,
        before: Option<Override>,
        class: Option<Class>,
    ) -> Result<(), Refusal> {
        if before.is_some_and(|set| set.uid == 0) {
            return Err(Refusal::new(
                ErrorCode::NotAllowed,
                format!("root set the class of {name}"),
                "ask root to take it back (limelight class set)",
            ));
        }
        let given = self.app_source.given_class(key).unwrap_or_default();
        match class {
            Some(class) if class > given.class => Err(Refusal::new(
                ErrorCode::NotAllowed,
                format!(
                    "{name} is {}, and only root may raise it to {class}: {}",
                    given.class, given.why
                ),
                "set it as root, or add it to [class] in /etc/limelight/limelight.toml",
            )),
            _ => Ok(()),
        }
    }

    /// Answer to `in-use`.
    pub(crate) fn in_use(
        &mut self,
        line: &RequestLine,
        pid: i32,
        what: Use,
        on: bool,
    ) -> Result<Response, Refusal> {
        let uid = line.peer.uid;
        let mut may_speak = Ok(());
        if on {
            authorization::owns_process(&self.system, uid, pid)?;
            let speaker = self.speaker(line.client, line.peer);
            may_speak = authorization::may_speak(&self.system, &self.access, speaker);
            let process = self.system.process(pid);
            let (id, _) =
                process.map_err(|error| crate::system::identify::no_process(pid, error))?;
            let counts = may_speak.is_ok();
            if !self.announced.add(line.client, uid, id, what, counts) {
                return Err(Refusal::new(
                    ErrorCode::Busy,
                    "this connection said of too many processes that they are in use",
                    "take back what has ended",
                ));
            }
        } else {
            // A connection can only remove its own announcements.
            self.announced.remove(line.client, pid, what);
        }
        let holds = self.announced.says(line.client);
        self.control.set_announcing(line.client, holds);
        let message = match on {
            true => format!("pid {pid} {}, until this connection closes", what.clause()),
            false => format!("pid {pid} is not said to be in use so any more"),
        };
        // The refusal is temporary: the announcement counts once the session is active, without a
        // repeat.
        may_speak.map(|()| Response::Ok { message })
    }

    /// Answer to `listen`.
    pub(crate) fn listen(&mut self, line: &RequestLine) -> Response {
        self.control.set_listening(line.client);
        Response::Ok {
            message: "told of everything that a shortage of memory leads to".to_owned(),
        }
    }

    /// Sends the actions recorded since the last call to listening clients.
    pub(crate) fn tell_deeds(&mut self) {
        for entry in self.history.take_fresh() {
            let owner = entry.uid;
            let notice = Notice::Done(entry);
            self.control
                .tell(owner, &notice, None, crate::system::now());
        }
    }
}
