// SPDX-License-Identifier: GPL-2.0-or-later
//! Android's other word on who is in front: the process group manager moves the app in front into the
//! cpuset `top-app`, of cgroup v1, and all others out of it.
//!
//! It is narrower than `oom_score_adj`, which is 0 for whoever runs a broadcast receiver too: once
//! anybody was in that group, it alone counts. A process is in it when its first thread is; single
//! threads of the system's, which draw, do not count, nor do the processes in which an app isolates a
//! part of itself.
//!
//! Whoever came last is in front. That is seen at once, by the write; that somebody has left without
//! another one coming is seen at the next look, of those that the daemon takes at the app in front
//! anyway.

use limelight_core::model::ProcessId;
use limelight_sys::cgroup1::Group;
use tracing::{info, warn};

use crate::doors::Doors;

/// Android's user ids: so many for each person; these of them are for isolated processes
/// (`AID_APP_ZYGOTE_START` to `AID_ISOLATED_END` of `android_filesystem_config.h`).
const USERS: u32 = 100_000;
const ISOLATED: std::ops::RangeInclusive<u32> = 90_000..=99_999;

/// The source.
#[derive(Debug)]
pub struct TopApp {
    group: Option<Group>,
    detail: String,
    /// Who is in it, whoever came last at the end.
    members: Vec<ProcessId>,
    /// Whether anybody ever was.
    used: bool,
}

impl TopApp {
    /// Looks for the group, unless the configuration does not want it.
    pub fn start(doors: &Doors, wanted: bool) -> TopApp {
        let path = &doors.roots.top_app;
        let (group, detail) = match (wanted, Group::open(path)) {
            (false, _) => {
                let off = "switched off by the configuration ([sources] top_app)";
                (None, off.to_owned())
            }
            (true, Ok(group)) => (Some(group), format!("writes to {}", path.display())),
            (true, Err(error)) if error.is_gone() => {
                let none = format!("no {}: this is no Android", path.display());
                (None, none)
            }
            (true, Err(error)) => {
                warn!("who is put into {} is not seen: {error}", path.display());
                (None, error.to_string())
            }
        };
        TopApp {
            group,
            detail,
            members: Vec::new(),
            used: false,
        }
    }

    /// To wait for.
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// Whether its word is the one that counts.
    pub fn speaks(&self) -> bool {
        self.group.is_some() && self.used
    }

    /// How it works, or why it does not.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Looks who is in the group. `Some`: another process, or none, is in front now.
    pub fn look(&mut self, doors: &Doors) -> Option<Option<ProcessId>> {
        let group = self.group.as_ref()?;
        let seen = group.take().and_then(|()| group.leaders());
        let pids = match seen {
            Ok(pids) => pids,
            Err(error) => {
                warn!("who is in front is not seen by cpuset any more: {error}");
                self.detail = error.to_string();
                self.group = None;
                self.members.clear();
                return None;
            }
        };
        let front = self.members.last().copied();
        let here: Vec<(ProcessId, u64)> = pids
            .iter()
            .filter_map(|&pid| {
                let (id, process) = doors.process(pid).ok()?;
                let uid = process.status().ok()?.real_uid;
                (!ISOLATED.contains(&(uid % USERS))).then_some((id, id.starttime))
            })
            .collect();
        self.members
            .retain(|known| here.iter().any(|(id, _)| id == known));
        let mut new: Vec<(ProcessId, u64)> = here
            .into_iter()
            .filter(|(id, _)| !self.members.contains(id))
            .collect();
        // Of several at once, as at the start, the youngest is taken for the last.
        new.sort_by_key(|(_, started)| *started);
        self.members.extend(new.into_iter().map(|(id, _)| id));
        if !self.used && !self.members.is_empty() {
            info!("{}: it tells who is in front from now on", self.detail);
            self.used = true;
        }
        let now = self.members.last().copied();
        (now != front).then_some(now)
    }
}

#[cfg(test)]
#[path = "top_app_tests.rs"]
mod tests;
