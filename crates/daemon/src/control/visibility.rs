// SPDX-License-Identifier: GPL-2.0-or-later
//! Hides other users' apps from a user. Root and the group of `[access]` see everything.
//!
//! Any user may connect and poll. Without this, another user could learn the foreground app, and
//! infer key presses from counters, histograms and times that change with each of them. All users
//! see the state of the machine: which mechanisms and sources work, memory, and stall times.

use limelight_core::model::{App, AppKey};
use limelight_proto::{
    AgentStatus, Change, DeviceStatus, ErrorCode, MechanismStatus, SourceStatus, State, Status,
    WindowStatus, WindowTallies,
};

use crate::event_loop::Daemon;
use crate::mechanisms::changes::Reach;
use crate::system::access::Speaker;
use crate::system::authorization;
use crate::system::identify::{self, Refusal};

/// Replaces a hidden detail.
const NOT_SHOWN: &str = "its actions are not shown";

impl Daemon {
    /// The user of an app; `None` if unknown.
    pub(crate) fn owner_of(&self, app: &App) -> Option<u32> {
        if let Some(known) = self.apps.get(app.key) {
            return Some(known.found.uid);
        }
        let pid = match app.process {
            Some(process) => process.pid,
            None => *identify::open_home(&self.system, app)?
                .procs_below()
                .ok()?
                .first()?,
        };
        let (_, process) = self.system.process(pid).ok()?;
        process.owner_uid().ok()
    }

    /// Whether this user may see the actions on an app.
    pub(crate) fn sees_app(&self, speaker: Speaker, app: &App) -> bool {
        speaker.sees_all() || self.owner_of(app) == Some(speaker.uid)
    }

    /// Whether this user may see the actions on the topmost app, and the times of its input. If
    /// none is topmost, a user at the screen may, unless the last one was another user's.
    pub(crate) fn sees_front(&self, speaker: Speaker) -> bool {
        let last = || self.topmost.previous();
        match self.topmost.front().map(|front| &front.app).or_else(last) {
            _ if speaker.sees_all() => true,
            Some(app) => self.sees_app(speaker, app),
            None => authorization::may_speak(&self.system, &self.access, speaker).is_ok(),
        }
    }

    /// Describes who sees more than this user; `None` for users who see everything.
    pub(crate) fn hidden(&self, speaker: Speaker) -> Option<String> {
        (!speaker.sees_all()).then(|| {
            let group = match self.access.group() {
                Some(group) => format!(", root and the group {group}"),
                None => " and root".to_owned(),
            };
            format!("what other users' apps do is shown to their owners{group} only")
        })
    }

    /// The refusal of a request about another user's process.
    pub(crate) fn not_shown(&self, pid: i32) -> Refusal {
        let cure = match self.access.group() {
            Some(group) => format!(
                "ask as its owner or as root, or have root add you to the group {group} (in force from the \
                 next login on)"
            ),
            None => "ask as its owner or as root".to_owned(),
        };
        let message = format!("pid {pid} is another user's, and not shown to you");
        Refusal::new(ErrorCode::NotAllowed, message, cure)
    }

    /// Whether this user may ask about a process.
    pub(crate) fn may_ask_of(&self, speaker: Speaker, pid: i32) -> Result<(), Refusal> {
        if speaker.sees_all() {
            return Ok(());
        }
        let owns = authorization::owns_process(&self.system, speaker.uid, pid);
        owns.map_err(|refusal| match refusal.code {
            ErrorCode::NotAllowed => self.not_shown(pid),
            _ => refusal,
        })
    }

    /// The changes in force that this user may see.
    pub(crate) fn changes_for(&self, speaker: Speaker) -> Vec<Change> {
        let front = self.sees_front(speaker);
        let sees = |reach: Reach| match reach {
            _ if speaker.sees_all() => true,
            Reach::App(key) => self.owner_of_key(key) == Some(speaker.uid),
            Reach::Process(id) => {
                let process = self.system.same_process(id);
                process.and_then(|process| process.owner_uid().ok()) == Some(speaker.uid)
            }
            Reach::Machine => front,
        };
        self.actuators.changes.all_where(sees)
    }

    fn owner_of_key(&self, key: AppKey) -> Option<u32> {
        let front = self.topmost.front().map(|front| &front.app);
        let mut named = front.into_iter().chain(self.topmost.previous());
        match named.find(|app| app.key == key) {
            Some(app) => self.owner_of(app),
            None => self.apps.get(key).map(|known| known.found.uid),
        }
    }

    /// Answer to `status` for this user.
    pub(crate) fn status_for(&self, speaker: Speaker) -> Status {
        let mut status = self.status();
        status.changes = self.changes_for(speaker);
        if speaker.sees_all() {
            return status;
        }
        let previous = self.topmost.previous();
        // Otherwise its disappearance would reveal that another user switches apps.
        let shown = self.sees_front(speaker);
        let previous = previous.filter(|app| shown && self.sees_app(speaker, app));
        status.previous = previous.map(crate::control::report::app_status);
        let own = |agent: &AgentStatus| agent.uid == speaker.uid;
        status.agents.retain(own);
        if !shown {
            self.hide_front(speaker, &mut status);
        } else if !self.windows.is_of_one_user() {
            status.window.tallies = WindowTallies::default();
            let kernel = &mut status.window.kernel;
            (kernel.opened, kernel.closed, kernel.failed) = (0, 0, 0);
        }
        status
    }

    /// Removes everything that changes when the topmost app changes or gets input.
    fn hide_front(&self, speaker: Speaker, status: &mut Status) {
        status.hidden = self.hidden(speaker);
        status.topmost = None;
        status.window = self.window_of_idle_machine();
        status.mechanisms.iter_mut().for_each(hide_mechanism);
        status.sources.iter_mut().for_each(hide_source);
        status.memory.protected = 0;
        status.memory.locked = 0;
        status.memory.lowered_steps = 0;
        if let DeviceStatus::Open {
            generation,
            members,
            ..
        } = &mut status.device
        {
            (*generation, *members) = (0, 0);
        }
    }

    fn window_of_idle_machine(&self) -> WindowStatus {
        let mut kernel = self.actuators.kernel_windows(false);
        (kernel.opened, kernel.closed, kernel.failed) = (0, 0, 0);
        let (state, detail) = match self.config.settings.window.enabled {
            true => (State::Idle, "when input comes is not shown"),
            false => (
                State::Off,
                "switched off by the configuration ([window] enabled)",
            ),
        };
        WindowStatus {
            state,
            detail: detail.to_owned(),
            open: None,
            sources: Vec::new(),
            kernel,
            tallies: WindowTallies::default(),
            topmost: None,
        }
    }

    /// An app's name in a message to this user.
    pub(crate) fn name_for(&self, speaker: Speaker, app: &App, name: String) -> String {
        match self.sees_app(speaker, app) {
            true => name,
            false => "another user's app".to_owned(),
        }
    }

    /// Removes the apps that this user may not see.
    pub(crate) fn keep_visible<T>(
        &self,
        speaker: Speaker,
        all: Vec<T>,
        owner: impl Fn(&T) -> Option<u32>,
    ) -> Vec<T> {
        let sees =
            |one: &T| speaker.sees_all() || owner(one).is_some_and(|owner| speaker.sees(owner));
        all.into_iter().filter(sees).collect()
    }
}

/// Hides a mechanism's activity. Whether it works at all stays visible, with the reason if it does
/// not. `boost` can be unavailable for a particular app only, so that is hidden too.
fn hide_mechanism(mechanism: &mut MechanismStatus) {
    mechanism.counters.clear();
    let of_machine = match mechanism.state {
        State::Off => true,
        State::Unavailable => mechanism.name != "boost",
        State::Active | State::Idle => false,
    };
    if !of_machine {
        mechanism.state = State::Idle;
        mechanism.detail = NOT_SHOWN.to_owned();
    }
}

/// Hides a source's state: it depends on what other users' sessions report.
fn hide_source(source: &mut SourceStatus) {
    if source.state != State::Off {
        source.state = State::Idle;
        source.detail = NOT_SHOWN.to_owned();
    }
}
