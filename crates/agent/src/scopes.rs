// SPDX-License-Identifier: GPL-2.0-or-later
//! Gives apps that share a cgroup scopes of their own. Apps started by sway, i3 or startx are in
//! the scope of the session, where no knob applies to one app alone. When such an app first has the
//! focus, the user's systemd moves it to a scope and enables the controllers that Limelight's knobs
//! need there.
//!
//! Memory that was charged before the move stays charged to the old cgroup.

use std::time::{Duration, Instant};

use limelight_core::model::{unit, ProcessId};
use limelight_sys::proc::Proc;
use limelight_sys::process::Stat;
use zbus::blocking::{connection, Connection};
use zbus::zvariant::Value;

/// Scopes are called `app-limelight-ID-PID.scope`.
const PREFIX: &str = "app-limelight-";

/// The default weight; setting it makes systemd enable the controller.
const WEIGHT: u64 = 100;

const SYSTEMD: &str = "org.freedesktop.systemd1";
const SYSTEMD_PATH: &str = "/org/freedesktop/systemd1";
const SYSTEMD_MANAGER: &str = "org.freedesktop.systemd1.Manager";

/// systemd answers within milliseconds and moves the processes a few milliseconds later.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);
const MOVE_PATIENCE: Duration = Duration::from_millis(200);
const MOVE_POLL: Duration = Duration::from_millis(2);

/// Connection to the user's systemd.
#[derive(Debug, Default)]
pub struct Scopes {
    bus: Option<Connection>,
    /// The last process for which a decision was made.
    settled: Option<ProcessId>,
    /// systemd cannot be reached; the warning has been logged.
    is_broken: bool,
}

/// Properties of a process on which the decision depends.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    pid: i32,
    parent: i32,
    /// Its session (setsid(2)); a terminal's shell has a new one.
    session: i32,
    cgroup: String,
}

/// The processes to move, and their new unit.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    unit: String,
    pids: Vec<u32>,
}

impl Scopes {
    /// Moves a process's app into its own scope if it shares its cgroup with another app. Returns
    /// whether it was moved.
    pub fn settle(&mut self, pid: i32) -> bool {
        if self.is_broken {
            return false;
        }
        let Ok((proc, stat, cgroup)) = read_process(pid) else {
            return false;
        };
        let process = ProcessId {
            pid,
            starttime: stat.start_ticks,
        };
        if self.settled == Some(process) || is_own(pid, &cgroup) {
            return false;
        }
        let Ok(members) = all_members(&proc) else {
            return false;
        };
        self.settled = Some(process);
        let Some(plan) = plan(pid, &stat.comm, std::process::id() as i32, &members) else {
            return false;
        };
        match self.start(&plan) {
            Ok(()) => {
                let moved = wait_until_moved(pid, &plan.unit);
                match moved {
                    true => tracing::info!("{} (pid {pid}) is now in {}", stat.comm, plan.unit),
                    false => tracing::warn!(
                        "systemd accepted {} for pid {pid}, but did not move the process in time",
                        plan.unit
                    ),
                }
                moved
            }
            Err(error) => {
                tracing::warn!(
                    "{} (pid {pid}) stays in a shared cgroup: {error}",
                    stat.comm
                );
                // With a connection, the failure concerns only this process.
                self.is_broken = self.bus.is_none();
                false
            }
        }
    }

    fn start(&mut self, plan: &Plan) -> zbus::Result<()> {
        let bus = match &self.bus {
            Some(bus) => bus,
            None => {
                let bus = connection::Builder::session()?
                    .method_timeout(ANSWER_PATIENCE)
                    .build()?;
                self.bus.insert(bus)
            }
        };
        let properties: Vec<(&str, Value<'_>)> = vec![
            ("Description", "An app in a scope made by Limelight".into()),
            ("Slice", "app.slice".into()),
            ("CollectMode", "inactive-or-failed".into()),
            ("CPUWeight", WEIGHT.into()),
            ("IOWeight", WEIGHT.into()),
            ("PIDs", plan.pids.clone().into()),
        ];
        let auxiliary: Vec<(&str, Vec<(&str, Value<'_>)>)> = Vec::new();
        bus.call_method(
            Some(SYSTEMD),
            SYSTEMD_PATH,
            Some(SYSTEMD_MANAGER),
            "StartTransientUnit",
            &(plan.unit.as_str(), "fail", properties, auxiliary),
        )
        .map(drop)
    }
}

/// Reads the process and its cgroup.
fn read_process(pid: i32) -> limelight_sys::Result<(Proc, Stat, String)> {
    let proc = Proc::open("/proc")?;
    let process = proc.process(pid)?;
    let (stat, cgroup) = (process.stat()?, process.cgroup()?);
    Ok((proc, stat, cgroup.unwrap_or_default()))
}

/// Whether the name of the cgroup alone shows that the app does not share it. Then no other process
/// is read, and the daemon receives the focus sooner.
fn is_own(pid: i32, cgroup: &str) -> bool {
    let name = cgroup.rsplit('/').next().unwrap_or_default();
    match leader(name) {
        Some(leader) => leader == pid,
        None => unit::is_app(name),
    }
}

fn all_members(proc: &Proc) -> limelight_sys::Result<Vec<Member>> {
    let member = |pid: i32| {
        let process = proc.process(pid).ok()?;
        let stat = process.stat().ok()?;
        Some(Member {
            pid,
            parent: stat.ppid,
            session: stat.session,
            cgroup: process.cgroup().ok()??,
        })
    };
    Ok(proc.pids()?.into_iter().filter_map(member).collect())
}

/// Decides whether an app is moved, with which processes, and where to.
fn plan(pid: i32, comm: &str, own: i32, all: &[Member]) -> Option<Plan> {
    fn find(all: &[Member], pid: i32) -> Option<&Member> {
        all.iter().find(|member| member.pid == pid)
    }
    let of = |pid: i32| find(all, pid);
    let app = of(pid)?;
    let is_below = |member: &Member, above: i32| {
        let mut member = member;
        // Bounds the walk: a tree that changed while it was read may contain a loop.
        for _ in 0..all.len() {
            if member.pid == above {
                return true;
            }
            match of(member.parent) {
                Some(parent) => member = parent,
                None => return false,
            }
        }
        false
    };
    // The app that contains the agent, such as its compositor, is not moved.
    if of(own).is_some_and(|agent| is_below(agent, pid)) {
        return None;
    }
    if is_own(pid, &app.cgroup) {
        return None;
    }
    let name = app.cgroup.rsplit('/').next()?;
    let beside = all.iter().filter(|other| other.cgroup == app.cgroup);
    let mut beside = beside.filter(|other| !is_below(other, pid));
    let shares = match leader(name) {
        // A scope made by the agent. Processes in the leader's session (setsid) belong to its app.
        // A program that was started in a terminal has another session, and is another app.
        Some(leader) => beside.any(|other| other.pid == leader && other.session != app.session),
        None => beside.next().is_some(),
    };
    if !shares {
        return None;
    }
    let mine = all.iter().filter(|member| member.cgroup == app.cgroup);
    let mine = mine.filter(|member| is_below(member, pid));
    Some(Plan {
        unit: format!("{PREFIX}{}-{pid}.scope", escape(comm)),
        pids: mine.map(|member| member.pid as u32).collect(),
    })
}

/// The process id in the name of a scope made by the agent.
fn leader(unit: &str) -> Option<i32> {
    let name = unit.strip_prefix(PREFIX)?.strip_suffix(".scope")?;
    name.rsplit_once('-')?.1.parse().ok()
}

/// Escapes text for a unit's name, like systemd-escape.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'.' if at > 0 => escaped.push('.'),
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'_' | b':' => escaped.push(byte.into()),
            byte => escaped.push_str(&format!("\\x{byte:02x}")),
        }
    }
    escaped
}

fn wait_until_moved(pid: i32, unit: &str) -> bool {
    let until = Instant::now() + MOVE_PATIENCE;
    loop {
        let process = Proc::open("/proc").and_then(|proc| proc.process(pid)?.cgroup());
        match process {
            Ok(Some(cgroup)) if cgroup.split('/').any(|name| name == unit) => return true,
            Ok(_) if Instant::now() < until => std::thread::sleep(MOVE_POLL),
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SESSION: &str = "/user.slice/user-7.slice/session-2.scope";
    const FOOT: &str =
        "/user.slice/user-7.slice/user@7.service/app.slice/app-limelight-foot-20.scope";

    fn member(pid: i32, parent: i32, session: i32, cgroup: &str) -> Member {
        Member {
            pid,
            parent,
            session,
            cgroup: cgroup.to_owned(),
        }
    }

    /// A login shell (10), sway (11), the agent (12), foot (20) with a shell (21) and an editor
    /// that was started there (22), which has a helper (23).
    fn session() -> Vec<Member> {
        vec![
            member(10, 1, 10, SESSION),
            member(11, 10, 10, SESSION),
            member(12, 11, 12, SESSION),
            member(20, 1, 20, SESSION),
            member(21, 20, 21, SESSION),
            member(22, 21, 21, SESSION),
            member(23, 22, 21, SESSION),
        ]
    }

    #[test]
    fn app_in_a_session_scope_is_moved_with_its_descendants() {
        let plan = |pid: i32| plan(pid, "fo-ot", 12, &session());
        let foot = plan(20).unwrap();
        assert_eq!(foot.unit, "app-limelight-fo\\x2dot-20.scope");
        assert_eq!(foot.pids, [20, 21, 22, 23]);
        assert_eq!(plan(22).unwrap().pids, [22, 23]);
        // The app that contains the agent is not moved, nor is a missing process.
        assert_eq!(plan(11), None);
        assert_eq!(plan(12), None);
        assert_eq!(plan(99), None);
    }

    #[test]
    fn editor_started_in_a_terminal_is_another_app() {
        let mut all = session();
        for member in all.iter_mut().filter(|member| member.pid >= 20) {
            member.cgroup = FOOT.to_owned();
        }
        assert_eq!(plan(20, "foot", 12, &all), None);
        assert_eq!(plan(22, "vi", 12, &all).unwrap().pids, [22, 23]);
        // A second process of the same app, such as a plug-in with a window, is not another app.
        all.push(member(24, 20, 20, FOOT));
        assert_eq!(plan(24, "plug-in", 12, &all), None);
        // Without the terminal, no other process shares the scope.
        all.retain(|member| ![20, 24].contains(&member.pid));
        assert_eq!(plan(22, "vi", 12, &all), None);
    }

    #[test]
    fn app_with_its_own_unit_is_not_moved() {
        let unit = "/user.slice/u/app.slice/app-gnome-firefox-77.scope";
        let all = [member(77, 1, 77, unit), member(78, 1, 78, unit)];
        assert_eq!(plan(77, "firefox", 12, &all), None);
        let alone = [member(77, 1, 77, SESSION), member(78, 77, 78, SESSION)];
        assert_eq!(plan(77, "firefox", 12, &alone), None);
    }

    proptest! {
        /// The daemon parses this name.
        #[test]
        fn unit_name_contains_the_leader_and_is_an_app_unit(comm in "[!-~]{1,15}", pid in 1..4_194_304i32) {
            let unit = format!("{PREFIX}{}-{pid}.scope", escape(&comm));
            prop_assert_eq!(leader(&unit), Some(pid));
            prop_assert!(unit::is_app(&unit));
            prop_assert!(!unit.contains('/'));
        }

        #[test]
        fn any_process_tree_is_handled(
            all in prop::collection::vec((1..9i32, 0..9i32, 1..4i32), 0..12),
            pid in 1..9i32,
        ) {
            let all: Vec<Member> = all.into_iter().map(|(pid, parent, session)| member(pid, parent, session, SESSION)).collect();
            if let Some(plan) = plan(pid, "x", 1, &all) {
                prop_assert!(plan.pids.contains(&(pid as u32)));
            }
        }
    }
}
