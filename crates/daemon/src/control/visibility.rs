// SPDX-License-Identifier: GPL-2.0-or-later
//! Hides other users' apps from a user. Root and the group of `[access]` see everything.
//!
//! Any user may connect and poll. Without this filter, a user could learn another user's foreground
//! app, and infer key presses from counters, histograms and times that change with each key press.
//! All users see the state of the machine: which mechanisms work, memory, and stall times.

use limelight_core::model::{App, AppKey};
use limelight_proto::{
    AgentStatus, AppStatus, Change, DeviceStatus, ErrorCode, MechanismId, MechanismStatus,
    SourceStatus, State, Status, WindowStatus, WindowTallies,
};

use crate::mechanisms::changes::Reach;
use crate::reconcile::Reconciler;
use crate::system::access::Speaker;
use crate::system::authorization;
use crate::system::identify::Refusal;

/// Replaces a hidden detail.
const NOT_SHOWN: &str = "its actions are not shown";

/// What one user may see.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Viewer<'a> {
    pub speaker: Speaker,
    pub reconciler: &'a Reconciler,
}

impl<'a> Viewer<'a> {
    pub(crate) fn new(speaker: Speaker, reconciler: &'a Reconciler) -> Viewer<'a> {
        Viewer {
            speaker,
            reconciler,
        }
    }

    /// Whether this user may see the actions on an app.
    pub(crate) fn sees_app(&self, app: &App) -> bool {
        let Reconciler { model, system, .. } = self.reconciler;
        self.speaker.sees_all() || model.owner_of(system, app) == Some(self.speaker.uid)
    }

    /// Whether this user may see the actions on the topmost app, and the times of its input. If no
    /// app is topmost, the previous app decides. Without a previous app, every user who may claim
    /// the foreground may see them.
    pub(crate) fn sees_front(&self) -> bool {
        let daemon = self.reconciler;
        let last = || daemon.model.topmost.previous();
        match daemon.model.front().or_else(last) {
            _ if self.speaker.sees_all() => true,
            Some(app) => self.sees_app(app),
            None => authorization::may_speak(&daemon.system, &daemon.access, self.speaker).is_ok(),
        }
    }

    /// Names the users who see more than this user; `None` for users who see everything.
    pub(crate) fn hidden(&self) -> Option<String> {
        (!self.speaker.sees_all()).then(|| {
            let group = match self.reconciler.access.group() {
                Some(group) => format!(", root and the group {group}"),
                None => " and root".to_owned(),
            };
            format!("the activity of other users' apps is shown only to their owners{group}")
        })
    }

    /// The refusal of a request about another user's process.
    pub(crate) fn not_shown(&self, pid: i32) -> Refusal {
        let cure = match self.reconciler.access.group() {
            Some(group) => format!(
                "ask as its owner or as root, or have root add you to the group {group} (in force from the \
                 next login on)"
            ),
            None => "ask as its owner or as root".to_owned(),
        };
        let message = format!("pid {pid} belongs to another user and is not shown to you");
        Refusal::new(ErrorCode::NotAllowed, message, cure)
    }

    /// Whether this user may ask about a process.
    pub(crate) fn may_ask_of(&self, pid: i32) -> Result<(), Refusal> {
        if self.speaker.sees_all() {
            return Ok(());
        }
        let owns = authorization::owns_process(&self.reconciler.system, self.speaker.uid, pid);
        owns.map_err(|refusal| match refusal.code {
            ErrorCode::NotAllowed => self.not_shown(pid),
            _ => refusal,
        })
    }

    /// The changes in force that this user may see.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let front = self.sees_front();
        let system = &self.reconciler.system;
        let sees = |reach: Reach| match reach {
            _ if self.speaker.sees_all() => true,
            Reach::App(key) => self.owner_of_key(key) == Some(self.speaker.uid),
            Reach::Process(id) => {
                let process = system.same_process(id);
                process.and_then(|process| process.owner_uid().ok()) == Some(self.speaker.uid)
            }
            Reach::Machine => front,
        };
        self.reconciler.mechanisms.shared.changes.all_where(sees)
    }

    fn owner_of_key(&self, key: AppKey) -> Option<u32> {
        let Reconciler { model, system, .. } = self.reconciler;
        let mut named = model.front().into_iter().chain(model.topmost.previous());
        match named.find(|app| app.key == key) {
            Some(app) => model.owner_of(system, app),
            None => model.apps.get(key).map(|known| known.found.uid),
        }
    }

    /// Removes from `status` what this user may not see.
    pub(crate) fn filter(&self, status: &mut Status) {
        if self.speaker.sees_all() {
            return;
        }
        let daemon = self.reconciler;
        let previous = daemon.model.topmost.previous();
        // The previous app disappears when another user switches apps, so showing it would reveal
        // the switch.
        let shown = self.sees_front();
        let previous = previous.filter(|app| shown && self.sees_app(app));
        status.previous = previous.map(AppStatus::from);
        let own = |agent: &AgentStatus| agent.uid == self.speaker.uid;
        status.agents.retain(own);
        if !shown {
            self.hide_front(status);
        } else if !daemon.mechanisms.window.is_of_one_user() {
            status.window.tallies = WindowTallies::default();
            let kernel = &mut status.window.kernel;
            (kernel.opened, kernel.closed, kernel.failed) = (0, 0, 0);
        }
    }

    /// Removes everything that changes when the topmost app changes or gets input.
    fn hide_front(&self, status: &mut Status) {
        status.hidden = self.hidden();
        status.topmost = None;
        status.window = self.window_of_idle_machine();
        let zeroes = self.reconciler.model.last.device_prezero;
        for mechanism in &mut status.mechanisms {
            hide_mechanism(mechanism, zeroes);
        }
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
        let daemon = self.reconciler;
        let mut kernel = daemon
            .mechanisms
            .window
            .told
            .status(&daemon.mechanisms.shared.device, false);
        (kernel.opened, kernel.closed, kernel.failed) = (0, 0, 0);
        let (state, detail) = match daemon.config.settings.window.enabled {
            true => (State::Idle, "the times of input are not shown"),
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
    pub(crate) fn name_for(&self, app: &App, name: String) -> String {
        match self.sees_app(app) {
            true => name,
            false => "another user's app".to_owned(),
        }
    }

    /// Removes the apps that this user may not see.
    pub(crate) fn keep_visible<T>(&self, all: Vec<T>, owner: impl Fn(&T) -> Option<u32>) -> Vec<T> {
        let sees = |one: &T| {
            self.speaker.sees_all() || owner(one).is_some_and(|owner| self.speaker.sees(owner))
        };
        all.into_iter().filter(sees).collect()
    }
}

/// Hides a mechanism's activity. Whether it works at all stays visible, with the reason if it does
/// not. `boost`, and `prezero` if the kernel has it (`zeroes`), can be unavailable because of the
/// foreground app, so this state is hidden too.
fn hide_mechanism(mechanism: &mut MechanismStatus, zeroes: bool) {
    mechanism.counters.clear();
    let is = |id: MechanismId| mechanism.name == id.name();
    let of_machine = match mechanism.state {
        State::Off => true,
        State::Unavailable => {
            let of_app = is(MechanismId::Boost) || (zeroes && is(MechanismId::Prezero));
            !of_app
        }
        State::Active | State::Idle => false,
    };
    if !of_machine {
        mechanism.state = State::Idle;
        mechanism.detail = NOT_SHOWN.to_owned();
        mechanism.short.clear();
    }
}

/// Hides a source's state: it depends on what other users' sessions report.
fn hide_source(source: &mut SourceStatus) {
    if source.state != State::Off {
        source.state = State::Idle;
        source.detail = NOT_SHOWN.to_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_that_depends_on_the_foreground_app_is_hidden() {
        let shown = |id: MechanismId, zeroes| {
            let mut mechanism = MechanismStatus {
                name: id.name().to_owned(),
                state: State::Unavailable,
                detail: String::new(),
                counters: Default::default(),
                short: String::new(),
            };
            hide_mechanism(&mut mechanism, zeroes);
            mechanism.state == State::Unavailable
        };
        assert!(!shown(MechanismId::Boost, false));
        // Without a pool in force, an app is in the foreground.
        assert!(!shown(MechanismId::Prezero, true));
        assert!(shown(MechanismId::Prezero, false));
        assert!(shown(MechanismId::Swap, true));
    }
}
