// SPDX-License-Identifier: GPL-2.0-or-later
//! Uses of apps that clients have announced.

use limelight_core::model::apps::Use;
use limelight_core::model::ProcessId;

use crate::system::access::{Access, Speaker};
use crate::system::authorization;
use crate::system::System;

/// Maximum number of processes that one connection may announce as in use.
const ANNOUNCED_MAX: usize = 64;

/// A process that a connection announced as in use.
#[derive(Debug)]
struct Announcement {
    client: u64,
    uid: u32,
    /// The groups of the process that connected.
    groups: Vec<u32>,
    id: ProcessId,
    what: Use,
    /// Whether the announcement counts: it came from an active session, or its user's session has
    /// become active since. A later switch to another session does not revoke the announcement:
    /// unsaved work remains unsaved.
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
    pub fn add(
        &mut self,
        client: u64,
        (uid, groups): (u32, impl IntoIterator<Item = u32>),
        id: ProcessId,
        what: Use,
        counts: bool,
    ) -> bool {
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
            groups: groups.into_iter().collect(),
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

    /// The processes that are in use. Announcements that wait for permission count once their user
    /// has it.
    pub fn look(&mut self, system: &System, access: &Access) -> Vec<(ProcessId, Use)> {
        self.forget(|id| !system.has_ended(id));
        self.hear(|uid, groups| {
            let member = access.includes(groups.iter().copied());
            authorization::may_speak(system, access, Speaker { uid, member }).is_ok()
        });
        self.processes()
    }

    fn hear(&mut self, may_speak: impl Fn(u32, &[u32]) -> bool) {
        let waiting = self
            .all
            .iter_mut()
            .filter(|announcement| !announcement.counts);
        waiting.for_each(|announcement| {
            announcement.counts = may_speak(announcement.uid, &announcement.groups);
        });
    }

    fn processes(&self) -> Vec<(ProcessId, Use)> {
        let counting = self.all.iter().filter(|announcement| announcement.counts);
        counting
            .map(|announcement| (announcement.id, announcement.what))
            .collect()
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
        assert!(announced.add(1, (1000, []), APP, Use::Unsaved, true));
        assert!(announced.add(1, (1000, []), APP, Use::Unsaved, true));
        assert!(announced.add(2, (1000, []), APP, Use::Audio, true));
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
            announced.add(1, (1000, []), id, Use::Visible, pid % 2 == 0);
        }
        announced.hear(|_, _| true);
        assert_eq!(announced.processes().len(), ANNOUNCED_MAX);
        assert!(announced.add(2, (1000, []), APP, Use::Visible, true));
    }
    #[test]
    fn announcement_counts_once_its_user_has_permission_and_keeps_counting() {
        let mut announced = Announced::default();
        announced.add(1, (1000, []), APP, Use::Unsaved, false);
        announced.hear(|uid, _| uid == 1001);
        assert_eq!(announced.processes(), []);
        announced.hear(|uid, _| uid == 1000);
        announced.hear(|_, _| false);
        assert_eq!(announced.processes(), [(APP, Use::Unsaved)]);
    }
}
