// SPDX-License-Identifier: GPL-2.0-or-later
//! The apps that the daemon knows: the source's looks, the model, and what others say of them.

use std::time::Duration;

use limelight_core::model::apps::{Known, Use};
use limelight_core::model::{AppKey, ProcessId};
use tracing::{debug, warn};

use crate::access::Speaker;
use crate::daemon::Daemon;
use crate::doors::now;
use crate::reactor::Token;
use crate::sources::apps::LOOK_EVERY;
use crate::sources::pressure;
use crate::trust;

/// A request that names an app which the last look did not see has another one made, but not more
/// often than this: anybody may ask.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A unit is made first, and has its first process a moment later.
const UNIT_FILLS: Duration = Duration::from_millis(50);

/// Most processes of which one connection says that they are in use.
const ANNOUNCED_MAX: usize = 64;

/// What one connection said of one process.
#[derive(Debug)]
struct Word {
    client: u64,
    uid: u32,
    id: ProcessId,
    what: Use,
    /// It was said from an active session, or its user's session has become active since. Who switches
    /// to another session has his work unsaved still.
    counts: bool,
}

/// Processes that were said to be in use.
#[derive(Debug, Default)]
pub struct Announced {
    all: Vec<Word>,
}

impl Announced {
    /// A connection says it, from a session that is active (`counts`) or may become so. `false`: it
    /// has said too much already.
    pub fn add(&mut self, client: u64, uid: u32, id: ProcessId, what: Use, counts: bool) -> bool {
        let mut own = self.all.iter_mut().filter(|word| word.client == client);
        if let Some(word) = own.find(|word| (word.id, word.what) == (id, what)) {
            word.counts |= counts;
            return true;
        }
        let own = self.all.iter().filter(|word| word.client == client);
        if own.count() >= ANNOUNCED_MAX {
            return false;
        }
        self.all.push(Word {
            client,
            uid,
            id,
            what,
            counts,
        });
        true
    }

    /// A connection takes it back, whether the process lives or not.
    pub fn remove(&mut self, client: u64, pid: i32, what: Use) {
        self.all
            .retain(|word| (word.client, word.id.pid, word.what) != (client, pid, what));
    }

    /// Processes that have ended are in use no longer.
    fn forget(&mut self, lives: impl Fn(ProcessId) -> bool) {
        self.all.retain(|word| lives(word.id));
    }

    /// A connection was closed.
    pub fn release(&mut self, client: u64) {
        self.all.retain(|word| word.client != client);
    }

    /// Whether this connection says anything.
    pub fn says(&self, client: u64) -> bool {
        self.all.iter().any(|word| word.client == client)
    }

    /// What users said who were not asked about then counts from when they are.
    fn hear(&mut self, may_speak: impl Fn(u64, u32) -> bool) {
        let waiting = self.all.iter_mut().filter(|word| !word.counts);
        waiting.for_each(|word| word.counts = may_speak(word.client, word.uid));
    }

    fn processes(&self) -> Vec<(ProcessId, Use)> {
        let counting = self.all.iter().filter(|word| word.counts);
        counting.map(|word| (word.id, word.what)).collect()
    }
}

impl Daemon {
    /// Looks at the apps, unless that was done a moment ago, and forgets those that are gone.
    pub(crate) fn look_at_apps(&mut self) {
        let at = now();
        if !self.app_source.is_due(at) {
            return;
        }
        // Before anybody is forgotten.
        let counters = pressure::counters(&self.doors);
        self.note_oom_kills(pressure::oom_kills(&counters));
        // What was made a moment ago may hold nobody yet.
        let made = self.new_units.take();
        if made.any {
            self.household.look_by(at + LOOK_EVERY);
        }
        self.expect(&made.units);
        let doors = &self.doors;
        self.announced.forget(|id| !doors.has_ended(id));
        let (access, control) = (&self.access, &self.control);
        self.announced.hear(|client, uid| {
            let member = access.includes(control.groups_of(client));
            trust::may_speak(doors, access, Speaker { uid, member }).is_ok()
        });
        let helpers = &self.config.settings.boost.helpers;
        let announced = self.announced.processes();
        let found = match self.app_source.look(&self.doors, helpers, &announced, at) {
            Ok(found) => found,
            // Who cannot be seen is not gone.
            Err(error) => {
                warn!("the apps cannot be looked at, what was known of them stands: {error}");
                return;
            }
        };
        self.household.swapped_out = counters.get("pswpout").unwrap_or(0);
        self.new_units.follow(&self.doors, self.app_source.nests());
        self.wait_for_units();
        let gone = self.apps.observe(found, at);
        for known in &gone {
            debug!("{} is gone", known.found.app.name);
        }
        if !gone.is_empty() {
            let gone = gone.iter().map(Known::key).collect();
            self.actuators.forget_apps(&self.doors, gone);
        }
        self.look_at_expected(at);
    }

    /// Something was made where apps are put.
    pub(crate) fn units_made(&mut self) {
        let made = self.new_units.take();
        if made.any {
            let due = self.app_source.due_at();
            self.household.look_by(due.max(now() + UNIT_FILLS));
        }
        self.expect(&made.units);
        if !made.any || self.expected.has_room() {
            self.wait_for_units();
        }
    }

    fn wait_for_units(&self) {
        let lost = "new apps are seen at the next look only";
        self.wait_again(self.new_units.queue(), Token::Units, lost);
    }

    /// The app in front, and the one before it until now, were used.
    pub(crate) fn note_topmost(&mut self, at: Duration) {
        if let Some(app) = self.topmost.previous() {
            self.apps.was_topmost(app.key, at);
        }
        // Last, so that it counts as used later.
        if let Some(front) = self.topmost.front() {
            self.app_source.was_topmost(&front.app);
            self.apps.was_topmost(front.app.key, at);
        }
    }

    /// The app to which a process belongs, as of a look that is recent enough.
    pub(crate) fn known_app_of(&mut self, pid: i32) -> Option<AppKey> {
        let find = |daemon: &Daemon| {
            let all = daemon.apps.by_use();
            let has = |known: &&&Known| known.found.members.iter().any(|member| member.pid == pid);
            all.iter().find(has).map(|known| known.key())
        };
        self.look_at_apps();
        if let Some(key) = find(self) {
            return Some(key);
        }
        if !self.app_source.looked_within(LOOK_AGAIN, now()) {
            self.app_source.forget_look();
            self.look_at_apps();
        }
        find(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: ProcessId = ProcessId {
        pid: 7,
        starttime: 1,
    };

    #[test]
    fn what_a_connection_said_ends_with_it() {
        let mut announced = Announced::default();
        assert!(announced.add(1, 1000, APP, Use::Unsaved, true));
        assert!(announced.add(1, 1000, APP, Use::Unsaved, true));
        assert!(announced.add(2, 1000, APP, Use::Audio, true));
        assert_eq!(announced.processes().len(), 2);
        announced.remove(2, APP.pid, Use::Unsaved);
        announced.release(1);
        assert_eq!(announced.processes(), [(APP, Use::Audio)]);
        assert!(announced.says(2) && !announced.says(1));
        announced.forget(|id| id != APP);
        assert!(!announced.says(2));
    }

    #[test]
    fn no_connection_says_without_end() {
        let mut announced = Announced::default();
        for pid in 0..1000 {
            let id = ProcessId { pid, starttime: 1 };
            announced.add(1, 1000, id, Use::Visible, pid % 2 == 0);
        }
        announced.hear(|_, _| true);
        assert_eq!(announced.processes().len(), ANNOUNCED_MAX);
        assert!(announced.add(2, 1000, APP, Use::Visible, true));
    }
    #[test]
    fn what_was_said_too_early_counts_from_when_its_user_may_speak_and_stays() {
        let mut announced = Announced::default();
        announced.add(1, 1000, APP, Use::Unsaved, false);
        announced.hear(|_, uid| uid == 1001);
        assert_eq!(announced.processes(), []);
        announced.hear(|_, uid| uid == 1000);
        announced.hear(|_, _| false);
        assert_eq!(announced.processes(), [(APP, Use::Unsaved)]);
    }
}
