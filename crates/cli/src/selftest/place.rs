// SPDX-License-Identifier: GPL-2.0-or-later
//! The cgroups of the test: a limited one, with one child for the viewer and one for the load.
//!
//! Where systemd manages the session, the limited cgroup is a scope. It ends with its processes,
//! and systemd removes it. Elsewhere it is a cgroup of root's, and a guard process removes it when
//! the test's main process ends, in whatever way.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use limelight_sys::cgroup::{Cgroup, CgroupPath, Hierarchy, Limit, MemoryKnob};
use limelight_sys::proc::Proc;
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::parts::ourselves;
use super::{failed, Role, Wish, LIMIT};
use crate::exit::Failure;
use crate::run::{manager, Manager, SYSTEMD_RUN};

/// Name of the limited cgroup, without its number.
const NAME: &str = "limelight-selftest-";
/// The daemon takes a cgroup with this form of name for an app's own.
const VIEWER: &str = "app-limelight_selftest_viewer-1.scope";
const LOAD: &str = "load";
/// Cgroup of the main process inside a scope: only cgroups without processes of their own can limit
/// their children separately.
const MAIN: &str = "main";
/// Longest wait for killed processes.
const END_MAX: Duration = Duration::from_secs(10);

/// The cgroups.
#[derive(Debug)]
pub struct Place {
    viewer: Cgroup,
    load: Cgroup,
    guard: Option<(Child, ChildStdin)>,
}

impl Place {
    /// The viewer's cgroup.
    pub fn viewer(&self) -> &Cgroup {
        &self.viewer
    }

    /// The load's cgroup.
    pub fn load(&self) -> &Cgroup {
        &self.load
    }

    /// Uses the scope in which this process runs.
    pub fn inside_scope(_: &Wish) -> Result<Place, Failure> {
        let proc = Proc::open("/proc").map_err(failed)?;
        let own = proc.process(std::process::id() as i32);
        let own = own.and_then(|own| own.cgroup()).map_err(failed)?;
        let path = own.as_deref().and_then(CgroupPath::parse);
        let path = path.filter(|path| path.name().starts_with(NAME));
        let path = path.ok_or_else(|| Failure::Other("this is not the test's scope".to_owned()))?;
        let scope = Hierarchy::find(&proc).and_then(|hierarchy| hierarchy.open(&path));
        let scope = scope.map_err(failed)?;
        if scope.limit(MemoryKnob::Max).ok() != Some(Limit::Bytes(LIMIT)) {
            return Err(Failure::Curable {
                message: "systemd did not limit the test's memory: your session has no memory \
                          controller"
                    .to_owned(),
                cure: "delegate it to user@.service (Delegate=memory pids), or run the test as \
                       root"
                    .to_owned(),
            });
        }
        let main = scope.create_child(MAIN).map_err(failed)?;
        main.attach(std::process::id() as i32).map_err(failed)?;
        Place::divide(&scope, None)
    }

    /// Makes a cgroup below the root of the hierarchy, and starts its guard.
    pub fn own_tree(wish: &Wish) -> Result<Place, Failure> {
        let root = root()?;
        let controllers = root.subtree_control().map_err(failed)?;
        if !controllers.iter().any(|name| name == "memory") {
            return Err(Failure::Curable {
                message: "the memory controller is not enabled below the root cgroup".to_owned(),
                cure: "start limelightd, which enables it, or: echo +memory > \
                       /sys/fs/cgroup/cgroup.subtree_control"
                    .to_owned(),
            });
        }
        let name = format!("{NAME}{}", std::process::id());
        // The guard is started first, so that it outlives the cgroup.
        let mut guard = ourselves(Role::Guard, &name)?
            .arg("--limit")
            .arg(wish.limit.as_secs().to_string())
            .stdin(Stdio::piped())
            // Ctrl+C ends the terminal's foreground process group.
            .process_group(0)
            .spawn()?;
        let stdin = guard.stdin.take();
        let stdin = stdin.ok_or_else(|| Failure::Other("no pipe".to_owned()))?;
        let tree = root.create_child(&name).map_err(failed)?;
        let limit = Limit::Bytes(LIMIT);
        tree.set_limit(MemoryKnob::Max, limit).map_err(failed)?;
        // The file is absent where the kernel has no swap.
        let _ = tree.set_limit(MemoryKnob::SwapMax, Limit::ZERO);
        Place::divide(&tree, Some((guard, stdin)))
    }

    fn divide(limited: &Cgroup, guard: Option<(Child, ChildStdin)>) -> Result<Place, Failure> {
        limited
            .set_subtree_controller("memory", true)
            .map_err(failed)?;
        Ok(Place {
            viewer: limited.create_child(VIEWER).map_err(failed)?,
            load: limited.create_child(LOAD).map_err(failed)?,
            guard,
        })
    }

    /// Has the guard remove the cgroups, and waits until it has. The processes must have ended. A
    /// scope stays until this process ends.
    pub fn remove(self) -> Result<(), Failure> {
        let Some((mut guard, stdin)) = self.guard else {
            return Ok(());
        };
        drop(stdin);
        match guard.wait()?.success() {
            true => Ok(()),
            false => Err(Failure::Other(
                "the test's cgroups could not be removed".to_owned(),
            )),
        }
    }
}

fn root() -> Result<Cgroup, Failure> {
    let proc = Proc::open("/proc").map_err(failed)?;
    let root = Hierarchy::find(&proc).and_then(|hierarchy| hierarchy.open(&CgroupPath::root()));
    root.map_err(failed)
}

/// Continues inside a scope, in the same process, if systemd manages the session. Returns if it
/// does not and this is root, who needs no systemd.
pub fn enter_scope(wish: &Wish) -> Result<(), Failure> {
    let manager = match manager() {
        Ok(manager) => manager,
        Err(_) if rustix::process::geteuid().is_root() => return Ok(()),
        Err(why) => {
            return Err(Failure::Curable {
                message: format!("no cgroup can be made for the test: {why}"),
                cure: "run it as root: sudo limelight selftest".to_owned(),
            })
        }
    };
    let mut command = Command::new(SYSTEMD_RUN);
    command.args(scope_arguments(
        manager,
        std::process::id(),
        wish.lifetime(),
    ));
    command.arg("--").arg(std::env::current_exe()?);
    command.arg("--socket").arg(wish.socket);
    command
        .arg("--timeout")
        .arg(wish.patience.as_secs().to_string());
    if wish.json {
        command.arg("--json");
    }
    command.args(["selftest", "--role", Role::Inside.word()]);
    command.arg("--limit").arg(wish.limit.as_secs().to_string());
    if let Some(directory) = wish.directory {
        command.arg("--directory").arg(directory);
    }
    let error: io::Error = command.exec();
    Err(Failure::Other(format!("cannot run {SYSTEMD_RUN}: {error}")))
}

fn scope_arguments(manager: Manager, pid: u32, lifetime: Duration) -> Vec<String> {
    let user = (manager == Manager::User).then(|| "--user".to_owned());
    // Not --quiet, which would also hide why the scope cannot be made.
    let words = ["--scope", "--collect", "--slice=app.slice"];
    let unit = format!("--unit={NAME}{pid}.scope");
    let properties = [
        "Delegate=yes".to_owned(),
        format!("MemoryMax={LIMIT}"),
        "MemorySwapMax=0".to_owned(),
        format!("RuntimeMaxSec={}", lifetime.as_secs()),
    ];
    let properties = properties.map(|property| format!("--property={property}"));
    let words = words.map(str::to_owned).into_iter();
    user.into_iter()
        .chain(words)
        .chain([unit])
        .chain(properties)
        .collect()
}

/// The guard: waits until the main process closes the pipe, by its end at the latest, and at most
/// for `lifetime`. Removes the test's cgroup of this name.
pub fn guard(name: &str, lifetime: Duration) -> Result<(), Failure> {
    if !name.starts_with(NAME) {
        return Err(Failure::Other(format!(
            "{name:?} is not a cgroup of the test"
        )));
    }
    let stdin = io::stdin();
    let limit = Timespec {
        tv_sec: lifetime.as_secs() as i64,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&limit)).map_err(io::Error::from)?;
    let root = root()?;
    match root.open_child(name) {
        Ok(tree) => remove(&root, &tree, name).map_err(failed),
        // The main process ended before it made the cgroup.
        Err(error) if error.is_gone() => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

fn remove(root: &Cgroup, tree: &Cgroup, name: &str) -> limelight_sys::Result<()> {
    tree.kill()?;
    let deadline = Instant::now() + END_MAX;
    while tree.is_populated()? && Instant::now() < deadline {
        sleep(Duration::from_millis(10));
    }
    for child in [VIEWER, LOAD] {
        match tree.remove_child(child) {
            Err(error) if !error.is_gone() => return Err(error),
            _ => {}
        }
    }
    root.remove_child(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use limelight_core::model::unit;

    #[test]
    fn scope_is_limited_in_memory_and_time() {
        let words = scope_arguments(Manager::User, 7, Duration::from_secs(75)).join(" ");
        assert_eq!(
            words,
            "--user --scope --collect --slice=app.slice --unit=limelight-selftest-7.scope \
             --property=Delegate=yes --property=MemoryMax=67108864 --property=MemorySwapMax=0 \
             --property=RuntimeMaxSec=75"
        );
        assert!(!scope_arguments(Manager::System, 7, Duration::ZERO).contains(&"--user".to_owned()));
    }

    #[test]
    fn only_the_viewer_is_an_app() {
        assert!(unit::is_app(VIEWER));
        assert!(!unit::is_app(&format!("{NAME}7.scope")) && !unit::is_app(LOAD));
    }

    #[test]
    fn guard_removes_no_other_cgroup() {
        assert!(guard("user.slice", Duration::ZERO).is_err());
    }
}
