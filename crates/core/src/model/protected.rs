// SPDX-License-Identifier: GPL-2.0-or-later
//! Processes that no action may harm: the safety gate's rules.
//!
//! Two apps may share a cgroup, so each action is checked against the processes that it affects:
//! all processes in a cgroup and its descendants, or the listed processes. The policy, the
//! mechanisms and the guard's thread use the same rules.

use std::fmt;
use std::time::Duration;

use super::app::{AppKey, ProcessId};
use super::apps::Known;

/// How long the previous foreground app stays protected, because the user may return to it.
pub const PREVIOUS_FOR: Duration = Duration::from_secs(10);

/// Effect of an action on the target's processes, in rising severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Harm {
    /// Raises the nice value.
    Slow,
    /// Reclaims pages (`memory.reclaim`, `process_madvise()`).
    Squeeze,
    /// Keeps pages out of swap (`memory.swap.max`).
    Limit,
    /// Slows the app's growth (`memory.high`).
    Throttle,
    /// Freezes (`cgroup.freeze`).
    Freeze,
    /// Kills (`cgroup.kill`, `pidfd_send_signal()`).
    Kill,
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Harm::Slow => "slowed down",
            Harm::Squeeze => "squeezed",
            Harm::Limit => "kept out of swap",
            Harm::Throttle => "throttled",
            Harm::Freeze => "frozen",
            Harm::Kill => "killed",
        })
    }
}

/// Why a process is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It belongs to the topmost app.
    Topmost,
    /// It belongs to the app that left the foreground less than [`PREVIOUS_FOR`] ago.
    Previous,
    /// The topmost app descends from it: a launcher, a terminal, a session's first process.
    Ancestor,
    /// The session needs it: its leader, the compositor, the display or sound server, the bus.
    Session,
    /// It is limelightd, a session agent, or init.
    Limelight,
}

impl Why {
    /// Whether this harm is refused for this reason. An ancestor of the topmost app may lose pages,
    /// but killing it can kill the topmost app too, and a frozen ancestor never reaps its children.
    /// A throttled one may make the topmost app wait.
    pub fn refuses(self, harm: Harm) -> bool {
        self != Why::Ancestor || harm >= Harm::Throttle
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Why::Topmost => "which belongs to the foreground app",
            Why::Previous => "which belongs to the app that left the foreground a moment ago",
            Why::Ancestor => "from which the foreground app descends",
            Why::Session => "which the session needs",
            Why::Limelight => "which is part of Limelight or init",
        })
    }
}

/// A protected process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guarded {
    /// The process.
    pub process: ProcessId,
    /// Its cgroup's path below the mount point, with a leading slash; empty if it has none.
    pub cgroup: String,
    /// The app to which it belongs, if any.
    pub app: Option<AppKey>,
    /// Why it is protected.
    pub why: Why,
}

impl Guarded {
    /// Whether this process blocks an action on the cgroup `path` of `app`. An app's own processes
    /// do not block a limit ([`Harm::Limit`]), because its class requires the limit.
    pub fn refuses_group(&self, path: &str, harm: Harm, app: AppKey) -> bool {
        self.refuses_group_from(&self.cgroup, path, harm, app)
    }

    /// Like [`Guarded::refuses_group`], for a process that is now in `cgroup`.
    pub fn refuses_group_from(&self, cgroup: &str, path: &str, harm: Harm, app: AppKey) -> bool {
        let own = harm == Harm::Limit && self.app == Some(app);
        !own && self.why.refuses(harm) && contains(path, cgroup)
    }

    /// Whether `process` is this process, and its protection blocks the action.
    pub fn refuses_process(&self, process: ProcessId, harm: Harm) -> bool {
        self.process == process && self.why.refuses(harm)
    }
}

impl fmt::Display for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it holds pid {}, {}", self.process.pid, self.why)
    }
}

/// Whether the cgroup `outer` is `inner` or an ancestor of it. Both paths start with a slash; an
/// empty one matches nothing. Allocates nothing.
pub fn contains(outer: &str, inner: &str) -> bool {
    if inner.is_empty() || outer.is_empty() {
        return false;
    }
    let outer = outer.trim_end_matches('/');
    let rest = inner.strip_prefix(outer);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// All protected processes, as of the snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protected(pub Vec<Guarded>);

impl Protected {
    /// The process that blocks this harm to the cgroup `path` of `app`, if any.
    pub fn in_group(&self, path: &str, harm: Harm, app: AppKey) -> Option<&Guarded> {
        let mut all = self.0.iter();
        all.find(|guarded| guarded.refuses_group(path, harm, app))
    }

    /// A process in `members` that is protected from this harm, if any.
    pub fn among(&self, members: &[ProcessId], harm: Harm) -> Option<&Guarded> {
        let mut all = self.0.iter();
        all.find(|guarded| {
            let named = |id: &ProcessId| guarded.refuses_process(*id, harm);
            members.iter().any(named)
        })
    }

    /// The process that blocks this harm to the app, if any. Checks the app's own cgroup, if it has
    /// one, and the app's processes.
    pub fn within(&self, known: &Known, harm: Harm) -> Option<&Guarded> {
        let home = known.found.app.own_home();
        let in_group = home.and_then(|home| self.in_group(&home.path, harm, known.key()));
        // A limit affects only the cgroup.
        let members = match harm {
            Harm::Limit => &[][..],
            _ => &known.found.members,
        };
        in_group.or_else(|| self.among(members, harm))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: AppKey = AppKey::Cgroup { inode: 7 };

    fn guarded(pid: i32, cgroup: &str, why: Why) -> Guarded {
        Guarded {
            process: ProcessId { pid, starttime: 1 },
            cgroup: cgroup.to_owned(),
            app: None,
            why,
        }
    }

    #[test]
    fn cgroup_contains_itself_and_descendants_only() {
        for (outer, inner, within) in [
            ("/fg", "/fg", true),
            ("/fg", "/fg/sub/deep", true),
            ("/", "/fg", true),
            ("/fg", "/fgx", false),
            ("/fg/sub", "/fg", false),
            ("", "/fg", false),
            ("/fg", "", false),
        ] {
            assert_eq!(contains(outer, inner), within, "{outer} {inner}");
        }
    }

    #[test]
    fn process_in_a_descendant_cgroup_blocks_every_harm() {
        let protected = Protected(vec![guarded(5, "/fg/sub", Why::Topmost)]);
        let harms = [
            Harm::Squeeze,
            Harm::Limit,
            Harm::Throttle,
            Harm::Freeze,
            Harm::Kill,
        ];
        for harm in harms {
            assert!(protected.in_group("/fg", harm, APP).is_some(), "{harm}");
            assert!(protected.in_group("/fg/other", harm, APP).is_none());
            let id = |pid| ProcessId { pid, starttime: 1 };
            assert!(protected.among(&[id(4), id(5)], harm).is_some());
            assert!(protected.among(&[id(4)], harm).is_none());
        }
    }

    #[test]
    fn ancestor_may_lose_pages_but_not_be_slowed_frozen_or_killed() {
        let protected = Protected(vec![guarded(5, "/fg", Why::Ancestor)]);
        let refused = |harm| protected.in_group("/fg", harm, APP).is_some();
        assert!(!refused(Harm::Squeeze) && !refused(Harm::Limit));
        assert!(refused(Harm::Throttle) && refused(Harm::Freeze) && refused(Harm::Kill));
    }

    #[test]
    fn reused_pid_is_not_protected() {
        let protected = Protected(vec![guarded(5, "/fg", Why::Topmost)]);
        let later = ProcessId {
            pid: 5,
            starttime: 2,
        };
        assert!(protected.among(&[later], Harm::Kill).is_none());
    }

    #[test]
    fn app_may_be_kept_out_of_swap_for_its_own_class() {
        let own = Guarded {
            app: Some(APP),
            ..guarded(5, "/fg", Why::Topmost)
        };
        let other = AppKey::Cgroup { inode: 8 };
        assert!(!own.refuses_group("/fg", Harm::Limit, APP));
        assert!(own.refuses_group("/fg", Harm::Limit, other));
        assert!(own.refuses_group("/fg", Harm::Freeze, APP));
    }
}
