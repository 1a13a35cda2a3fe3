// SPDX-License-Identifier: GPL-2.0-or-later
//! What a user is shown of other users' apps: nothing. Root and the group of `[access]` see
//! everything.
//!
//! Anybody may connect and poll. Without this, another user would learn which app is in the
//! foreground, and from counters, histograms and times that change with each key also when
//! something is pressed. What is left for everybody is what is known of the machine: which
//! mechanisms and sources work, memory, and what programs wait for.

use limelight_core::control::{
    AgentStatus, Change, DeviceStatus, ErrorCode, MechanismStatus, SourceStatus, State, Status,
    WindowStatus, WindowTallies, WAKE_GRAPH,
};
use limelight_core::model::{App, AppKey};

use crate::access::Speaker;
use crate::actuators::changes::Reach;
use crate::daemon::Daemon;
use crate::identify::{self, Refusal};
use crate::trust;

/// Stands where the detail was.
const NOT_SHOWN: &str = "what it does for whom is not shown";

impl Daemon {
    /// The user of an app; `None` when it cannot be told.
    pub(crate) fn owner_of(&self, app: &App) -> Option<u32> {
        if let Some(known) = self.apps.get(app.key) {
            return Some(known.found.uid);
        }
        let pid = match app.process {
            Some(process) => process.pid,
            None => *identify::open_home(&self.doors, app)?
                .procs_below()
                .ok()?
                .first()?,
        };
        let (_, process) = self.doors.process(pid).ok()?;
        process.owner_uid().ok()
    }

    /// Whether this user may see what is done for an app.
    pub(crate) fn sees_app(&self, speaker: Speaker, app: &App) -> bool {
        speaker.sees_all() || self.owner_of(app) == Some(speaker.uid)
    }

    /// Whether this user may see what is done for the app in front, and when it gets input. With
    /// none in front, whoever sits at the screen may.
    pub(crate) fn sees_front(&self, speaker: Speaker) -> bool {
        match self.topmost.front() {
            _ if speaker.sees_all() => true,
            Some(front) => self.sees_app(speaker, &front.app),
            None => trust::may_speak(&self.doors, &self.access, speaker).is_ok(),
        }
    }

    /// Who is shown more than this user; `None` for those who are shown everything.
    pub(crate) fn hidden(&self, speaker: Speaker) -> Option<String> {
        (!speaker.sees_all()).then(|| {
            let group = match self.access.group() {
                Some(group) => format!(", root and the group {group}"),
                None => " and root".to_owned(),
            };
            format!("what other users' apps do is shown to their owners{group} only")
        })
    }

    /// The refusal for a question about a process of another user.
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
        let owns = trust::owns_process(&self.doors, speaker.uid, pid);
        owns.map_err(|refusal| match refusal.code {
            ErrorCode::NotAllowed => self.not_shown(pid),
            _ => refusal,
        })
    }

    /// Changes in force of which this user may know.
    pub(crate) fn changes_for(&self, speaker: Speaker) -> Vec<Change> {
        let front = self.sees_front(speaker);
        let sees = |reach: Reach| match reach {
            _ if speaker.sees_all() => true,
            Reach::App(key) => self.owner_of_key(key) == Some(speaker.uid),
            Reach::Process(id) => {
                let process = self.doors.same_process(id);
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
        let previous = previous.filter(|app| self.sees_app(speaker, app));
        status.previous = previous.map(crate::report::app_status);
        let own = |agent: &AgentStatus| agent.uid == speaker.uid;
        status.agents.retain(own);
        if !self.sees_front(speaker) {
            self.hide_front(speaker, &mut status);
        } else if !self.windows.is_of_one_user() {
            status.window.tallies = WindowTallies::default();
            let kernel = &mut status.window.kernel;
            (kernel.opened, kernel.closed, kernel.failed) = (0, 0, 0);
        }
        status
    }

    /// Leaves nothing that changes when the app in front changes, or gets input.
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

    /// An app's name for a message to this user.
    pub(crate) fn name_for(&self, speaker: Speaker, app: &App, name: String) -> String {
        match self.sees_app(speaker, app) {
            true => name,
            false => "another user's app".to_owned(),
        }
    }

    /// Leaves out the apps that this user may not see.
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

/// What works at all stays, with the reason if it does not. `boost` cannot work only for a certain
/// app.
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

fn hide_source(source: &mut SourceStatus) {
    if matches!(source.state, State::Off | State::Unavailable) {
        return;
    }
    source.state = State::Idle;
    // It tells how many inputs it has seen, and whom they woke.
    if source.name == WAKE_GRAPH {
        source.detail = NOT_SHOWN.to_owned();
    }
}
