// SPDX-License-Identifier: GPL-2.0-or-later
//! The apps that the daemon knows: results of scans, the model, and uses announced by clients.

use std::time::Duration;

use limelight_core::model::apps::{Known, Use};
use limelight_core::model::{AppKey, ProcessId};
use tracing::{debug, warn};

use crate::event_loop::reactor::Token;
use crate::event_loop::Daemon;
use crate::sources::apps::LOOK_EVERY;
use crate::sources::pressure;
use crate::sources::services;
use crate::system::access::Speaker;
use crate::system::authorization;
use crate::system::now;

/// Shortest time between two scans for requests that name an app missing from the last scan. The
/// limit is needed because any user may send such requests.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A unit is made first and gets its first process a moment later.
const UNIT_FILLS: Duration = Duration::from_millis(50);

/// Most processes that one connection may announce as in use.
const ANNOUNCED_MAX: usize = 64;

/// A process that a connection announced as in use.
#[derive(Debug)]
struct Announcement {
    client: u64,
    uid: u32,
    id: ProcessId,
    what: Use,
    /// It came from an active session, or the user's session has become active since. A switch to
    /// another session does not revoke it: unsaved work remains unsaved.
    counts: bool,
}

/// All processes that are announced as in use.
#[derive(Debug, Default)]
pub struct Announced {
    all: Vec<Announcement>,
}

impl Announced {
    /// Adds an announcement of a connection, from a session that is active (`counts`) or may become
    /// so. `false` if the connection has reached its limit.
    pub fn add(&mut self, client: u64, uid: u32, id: ProcessId, what: Use, counts: bool) -> bool {
        let mut own = self
            .all
            .iter_mut()
            .filter(|announcement| announcement.client == client);
        if let Some(announcement) =
            own.find(|announcement| (announcement.id, announcement.what) == (id, what))
        {
            announcement.counts |= counts;
            return true;
        }
        let own = self
            .all
            .iter()
            .filter(|announcement| announcement.client == client);
        if own.count() >= ANNOUNCED_MAX {
            return false;
        }
        self.all.push(Announcement {
            client,
            uid,
            id,
            what,
            counts,
        });
        true
    }

    /// Removes an announcement of a connection, whether the process still runs or not.
    pub fn remove(&mut self, client: u64, pid: i32, what: Use) {
        self.all.retain(|announcement| {
            (announcement.client, announcement.id.pid, announcement.what) != (client, pid, what)
        });
    }

    /// Drops the announcements of ended processes.
    fn forget(&mut self, lives: impl Fn(ProcessId) -> bool) {
        self.all.retain(|announcement| lives(announcement.id));
    }

    /// Drops the announcements of a closed connection.
    pub fn release(&mut self, client: u64) {
        self.all
            .retain(|announcement| announcement.client != client);
    }

    /// Whether this connection has announced anything.
    pub fn says(&self, client: u64) -> bool {
        self.all
            .iter()
            .any(|announcement| announcement.client == client)
    }

    /// Makes waiting announcements count once their user may make them.
    fn hear(&mut self, may_speak: impl Fn(u64, u32) -> bool) {
        let waiting = self
            .all
            .iter_mut()
            .filter(|announcement| !announcement.counts);
        waiting.for_each(|announcement| {
            announcement.counts = may_speak(announcement.client, announcement.uid)
        });
    }

    fn processes(&self) -> Vec<(ProcessId, Use)> {
        let counting = self.all.iter().filter(|announcement| announcement.counts);
        counting
            .map(|announcement| (announcement.id, announcement.what))
            .collect()
    }
}

impl Daemon {
    /// Scans the apps unless the last scan is fresh, and drops those that are gone.
    pub(crate) fn look_at_apps(&mut self) {
        let at = now();
        if !self.app_source.is_due(at) {
            return;
        }
        // Attribute the kills before ended apps are dropped.
        let counters = pressure::counters(&self.system);
        self.note_oom_kills(pressure::oom_kills(&counters));
        // A unit created a moment ago may still be empty.
        let made = self.new_units.take();
        if made.any {
            self.app_scan.look_by(at + LOOK_EVERY);
        }
        self.expect(&made.units);
        let system = &self.system;
        self.announced.forget(|id| !system.has_ended(id));
        let (access, control) = (&self.access, &self.control);
        self.announced.hear(|client, uid| {
            let member = access.includes(control.groups_of(client));
            authorization::may_speak(system, access, Speaker { uid, member }).is_ok()
        });
        let helpers = &self.config.settings.boost.helpers;
        let announced = self.announced.processes();
        let found = match self.app_source.look(&self.system, helpers, &announced, at) {
            Ok(found) => found,
            // A failed scan does not mean that the apps are gone.
            Err(error) => {
                warn!("the scan for apps failed, the last one stays valid: {error}");
                return;
            }
        };
        self.app_scan.swapped_out = counters.get("pswpout").unwrap_or(0);
        self.new_units.follow(&self.system, self.app_source.nests());
        self.wait_for_units();
        let gone = self.apps.observe(found, at);
        self.apps.users.observe(services::users(&self.system), at);
        for known in &gone {
            debug!("{} is gone", known.found.app.name);
        }
        if !gone.is_empty() {
            let gone = gone.iter().map(Known::key).collect();
            self.actuators.forget_apps(&self.system, gone);
        }
        self.look_at_expected(at);
    }

    /// Handles events in the cgroups that contain app units.
    pub(crate) fn units_made(&mut self) {
        let made = self.new_units.take();
        if made.any {
            let due = self.app_source.due_at();
            self.app_scan.look_by(due.max(now() + UNIT_FILLS));
        }
        self.expect(&made.units);
        if !made.any || self.pending_units.has_room() {
            self.wait_for_units();
        }
    }

    fn wait_for_units(&self) {
        let lost = "new apps are found by the next scan only";
        self.wait_again(self.new_units.queue(), Token::Units, lost);
    }

    /// Marks the topmost app, and the one before it, as used now.
    pub(crate) fn note_topmost(&mut self, at: Duration) {
        if let Some(app) = self.topmost.previous() {
            self.apps.was_topmost(app.key, at);
        }
        // The topmost app comes last, so that it counts as used most recently.
        if let Some(front) = self.topmost.front() {
            self.app_source.was_topmost(&front.app);
            self.apps.was_topmost(front.app.key, at);
        }
    }

    /// The app to which a process belongs. Scans again if the last scan is too old and lacks it.
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
    fn announcements_end_with_their_connection() {
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
    fn announcements_per_connection_are_limited() {
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
    fn early_announcement_counts_once_its_user_may_speak_and_stays() {
        let mut announced = Announced::default();
        announced.add(1, 1000, APP, Use::Unsaved, false);
        announced.hear(|_, uid| uid == 1001);
        assert_eq!(announced.processes(), []);
        announced.hear(|_, uid| uid == 1000);
        announced.hear(|_, _| false);
        assert_eq!(announced.processes(), [(APP, Use::Unsaved)]);
    }
}
