// SPDX-License-Identifier: GPL-2.0-or-later
//! Second foreground source for Android: the process group manager moves the foreground app into
//! the cpuset `top-app`, of cgroup v1, and all other apps out of it.
//!
//! The cpuset has fewer members than there are processes with an `oom_score_adj` of 0, because an
//! app that runs a broadcast receiver has 0, too. Once the group has had a member, `oom_score_adj`
//! is ignored. A process is a member if its first thread is. Single threads of system processes,
//! which draw, do not count. Nor do isolated processes, in which an app runs a part of itself.
//!
//! The latest arrival is the foreground app. An arrival is detected at once, by the write to the
//! cpuset. A departure without a new arrival is detected at the next periodic check of the topmost
//! app.

use limelight_core::model::ProcessId;
use limelight_sys::cgroup1::Group;
use tracing::{info, warn};

use crate::system::System;

/// Android's uids: each Android user has a range of `USERS` uids. Within it, the range `ISOLATED`
/// is for isolated processes (`AID_APP_ZYGOTE_START` to `AID_ISOLATED_END` of
/// `android_filesystem_config.h`).
const USERS: u32 = 100_000;
const ISOLATED: std::ops::RangeInclusive<u32> = 90_000..=99_999;

/// Foreground source that follows the cpuset `top-app`.
#[derive(Debug)]
pub struct TopApp {
    group: Option<Group>,
    detail: String,
    /// Members of the group, the latest arrival last.
    members: Vec<ProcessId>,
    /// Whether the group has ever had a member.
    used: bool,
}

impl TopApp {
    /// Opens the group, unless the configuration switches it off.
    pub fn start(system: &System, wanted: bool) -> TopApp {
        let path = &system.roots.top_app;
        let (group, detail) = match (wanted, Group::open(path)) {
            (false, _) => {
                let off = "switched off by the configuration ([sources] top_app)";
                (None, off.to_owned())
            }
            (true, Ok(group)) => (Some(group), format!("writes to {}", path.display())),
            (true, Err(error)) if error.is_gone() => {
                let none = format!("{} does not exist: this is not Android", path.display());
                (None, none)
            }
            (true, Err(error)) => {
                warn!("cannot watch {} for changes: {error}", path.display());
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

    /// The group to wait for.
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// Whether this source has reported an app, so that `oom_score_adj` is ignored.
    pub fn speaks(&self) -> bool {
        self.group.is_some() && self.used
    }

    /// How the source works, or why it does not.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Reads the members of the group. `Some`: the foreground process has changed; the inner value
    /// is `None` if there is none now.
    pub fn look(&mut self, system: &System) -> Option<Option<ProcessId>> {
        let group = self.group.as_ref()?;
        let seen = group.take().and_then(|()| group.leaders());
        let pids = match seen {
            Ok(pids) => pids,
            Err(error) => {
                warn!("the cpuset top-app no longer reports the foreground app: {error}");
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
                let (id, process) = system.process(pid).ok()?;
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
        // Of several new members, as when the daemon starts, the youngest process counts as the
        // latest.
        new.sort_by_key(|(_, started)| *started);
        self.members.extend(new.into_iter().map(|(id, _)| id));
        if !self.used && !self.members.is_empty() {
            info!("from now on, {} report the foreground app", self.detail);
            self.used = true;
        }
        let now = self.members.last().copied();
        (now != front).then_some(now)
    }
}

#[cfg(test)]
#[path = "top_app_tests.rs"]
mod tests;
