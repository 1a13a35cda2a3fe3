// SPDX-License-Identifier: GPL-2.0-or-later
//! Changes of the foreground that no client claims: reports of sources, and the end of an app.

use limelight_core::model::topmost::{Claim, Holder};
use limelight_core::model::ProcessId;
use limelight_proto::WAKE_GRAPH;
use tracing::debug;

use crate::reconcile::Reconciler;
use crate::system::access::Speaker;
use crate::system::{authorization, identify, now};

impl Reconciler {
    /// Drops the claims of users without permission after the last session at a seat has ended.
    /// Otherwise these claims would count, because no session is known then. `groups` returns the
    /// groups of a connection's user.
    pub fn drop_waiting_claims(&mut self, groups: impl Fn(Holder) -> Vec<u32>) {
        let mut claimants = self.model.topmost.claimants();
        claimants.retain(|&(holder, uid)| {
            let groups = holder.map(&groups);
            let member = groups.is_some_and(|groups| self.access.includes(groups));
            let speaker = Speaker { uid, member };
            authorization::may_speak(&self.system, &self.access, speaker).is_err()
        });
        let shift = self.model.topmost.drop_claims(&claimants, now());
        self.after(shift);
    }

    /// Claims the foreground for this process, as a source has inferred it; `by_owner`: the
    /// process's owner may have caused the claim.
    pub(super) fn infer(&mut self, id: ProcessId, source: &str, by_owner: bool) {
        if !self.model.topmost.hears_inferred() {
            debug!(
                "{source} reports pid {} in the foreground, but a claim of higher priority is in \
                 force",
                id.pid
            );
            return;
        }
        if let Some(claim) = self.claim_of(id, source, by_owner) {
            let shift = self.model.topmost.claim_inferred(claim, now());
            self.after(shift);
        }
    }

    /// Claims the foreground for the guessed process, if the guess has changed.
    pub(super) fn guess(&mut self, front: Option<ProcessId>) {
        if front == self.model.topmost.guessed().and_then(|app| app.process) {
            return;
        }
        let claim = front.and_then(|id| self.claim_of(id, WAKE_GRAPH, false));
        let claim = claim.unwrap_or_else(|| no_app(WAKE_GRAPH));
        let shift = self.model.topmost.claim_guessed(claim, now());
        self.after(shift);
    }

    /// The claim that a process is topmost, on behalf of its owner. If the owner may have caused
    /// the claim (`by_owner`), the owner needs permission. Otherwise only an inactive session of
    /// the owner rules the claim out. `None` if the claim is refused, or the process has ended or
    /// belongs to no app.
    pub(super) fn claim_of(&self, id: ProcessId, source: &str, by_owner: bool) -> Option<Claim> {
        let process = self.system.same_process(id)?;
        let mut uid = process.owner_uid().ok()?;
        let allowed = match by_owner {
            true => {
                // In procfs, root owns a process that is not dumpable or has root's privileges. The
                // user who started it may have opened the file before that, so the uids in its
                // status count too.
                let status = process.status().ok()?;
                let owners = [uid, status.effective_uid, status.real_uid];
                let mut users = owners.into_iter().filter(|uid| *uid != 0);
                uid = users.clone().next().unwrap_or(0);
                users.try_for_each(|uid| {
                    let speaker = self.access.speaker_of(&process, uid);
                    authorization::may_speak(&self.system, &self.access, speaker)
                })
            }
            false => authorization::may_be_claimed(&self.system, uid),
        };
        let app = allowed.and_then(|()| identify::app_of_pid(&self.system, id.pid));
        match app {
            Ok(app) => Some(Claim {
                app: Some(authorization::confine(&self.system, uid, app)),
                source: source.to_owned(),
                uid,
            }),
            Err(refusal) => {
                let why = refusal.message;
                debug!("the claim of {source} for pid {} is refused: {why}", id.pid);
                None
            }
        }
    }

    /// Demotes the topmost app if it has ended, and drops the previous app if it has ended.
    /// Identifies either one again if it has moved to another cgroup.
    pub(super) fn check_front(&mut self) {
        let front = self.model.front().cloned();
        let previous = self.model.topmost.previous().cloned();
        for app in front.into_iter().chain(previous) {
            if let Some(moved) = authorization::moved(&self.system, &app) {
                debug!("{} has moved to another cgroup", app.name);
                let shift = self.model.topmost.moved(app.key, moved, now());
                self.after(shift);
                continue;
            }
            if !identify::is_alive(&self.system, &app) {
                debug!("{} has ended", app.name);
                let shift = self.model.topmost.vanished(app.key, now());
                self.after(shift);
            }
        }
    }
}

/// A source's claim that no app is topmost.
pub(super) fn no_app(source: &str) -> Claim {
    Claim {
        app: None,
        source: source.to_owned(),
        uid: 0,
    }
}
