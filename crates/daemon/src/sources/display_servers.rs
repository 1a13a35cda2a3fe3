// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds display servers: X servers and Wayland compositors.
//!
//! A display server is a process that holds a socket at which clients find a display: `wayland-N`
//! in any directory, or X11's `/tmp/.X11-unix/XN`. The outermost server holds devices in
//! `/dev/input` open for its input. logind and seatd open them too but have no such socket. The
//! input of a server on a virtual screen (Xvfb, a compositor without devices) is invisible to this
//! daemon. A server without devices counts as a client of another server, as Xwayland and nested
//! compositors are. Devices of the display (`/dev/dri/card*`) are ignored, because only input
//! matters here.
//!
//! The search misses servers in another network namespace, because their sockets are not in the
//! machine's list. It also misses servers whose clients find them by other names (`WAYLAND_SOCKET`
//! alone, Mir, Android). A program that draws on the display without any server wakes no client and
//! is missed even in the foreground.

use std::collections::BTreeSet;
use std::path::Path;

use limelight_core::model::wake_graph::Server;
use limelight_core::model::ProcessId;
use limelight_sys::process::Process;
use limelight_sys::unix_sockets::Listening;

use crate::reconcile::gate::session::runs_installed;
use crate::system::System;

/// Maximum number of descriptors that are read for one process.
const DESCRIPTORS_MAX: usize = 4096;

/// A display server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisplayServer {
    /// Its process.
    pub id: ProcessId,
    /// Its name, for messages.
    pub name: String,
    /// Source of its input.
    pub kind: Server,
}

/// All display servers that run now.
pub fn find(system: &System) -> limelight_sys::Result<Vec<DisplayServer>> {
    let displays = displays(system)?;
    if displays.is_empty() {
        return Ok(Vec::new());
    }
    let server = |pid: i32| {
        let (id, process) = system.process(pid).ok()?;
        let held = Held::look(system, &process, &displays);
        held.display.then(|| DisplayServer {
            id,
            name: process.comm().unwrap_or_default(),
            kind: match held.input {
                true => Server::Outermost,
                false => Server::Nested,
            },
        })
    };
    let pids = system.proc.pids()?;
    Ok(pids.into_iter().filter_map(server).collect())
}

/// The installed programs that serve a display, whatever their names. Their apps are not swapped,
/// frozen or killed. Any user's program can listen at such a socket, so a program that is not
/// installed does not count.
#[derive(Debug, Default)]
pub struct ServingProcesses {
    /// Sockets of the displays at the last search, which is repeated only after they changed.
    sockets: BTreeSet<u64>,
    processes: BTreeSet<ProcessId>,
}

impl ServingProcesses {
    /// The result of the last search.
    pub fn known(&self) -> &BTreeSet<ProcessId> {
        &self.processes
    }

    /// Searches again if a display has appeared or disappeared. The result of the last search
    /// remains if the sockets cannot be listed.
    pub fn refresh(&mut self, system: &System) -> &BTreeSet<ProcessId> {
        let Ok(sockets) = displays(system) else {
            return &self.processes;
        };
        if sockets != self.sockets {
            if let Ok(found) = find(system) {
                let installed = found
                    .into_iter()
                    .filter(|server| runs_installed(system, server.id, &server.name));
                self.processes = installed.map(|server| server.id).collect();
                self.sockets = sockets;
            }
        }
        &self.processes
    }
}

/// Whether this process is a display server.
pub fn is_one(system: &System, id: ProcessId) -> bool {
    let (Some(process), Ok(displays)) = (system.same_process(id), displays(system)) else {
        return false;
    };
    Held::look(system, &process, &displays).display
}

/// Whether this server still runs. An outermost server must also still hold input devices.
pub fn still(system: &System, server: &DisplayServer) -> bool {
    let process = system.same_process(server.id);
    process.is_some_and(|process| {
        server.kind == Server::Nested || Held::look(system, &process, &BTreeSet::new()).input
    })
}

/// Inode numbers of the sockets at which clients find a display.
fn displays(system: &System) -> limelight_sys::Result<BTreeSet<u64>> {
    let sockets = system.proc.listening_sockets()?;
    let displays = sockets.iter().filter(|socket| is_display(socket));
    Ok(displays.map(|socket| socket.inode).collect())
}

/// Relevant descriptors that a process holds open.
#[derive(Default)]
struct Held {
    display: bool,
    input: bool,
}

impl Held {
    fn look(system: &System, process: &Process, displays: &BTreeSet<u64>) -> Held {
        let mut held = Held::default();
        for number in process.descriptors(DESCRIPTORS_MAX).unwrap_or_default() {
            // A descriptor that was closed meanwhile is skipped.
            let Ok(target) = process.descriptor_target(number) else {
                continue;
            };
            held.display |= socket(&target).is_some_and(|inode| displays.contains(&inode));
            held.input |= is_device(&target, &system.roots.input);
        }
        held
    }
}

fn socket(target: &Path) -> Option<u64> {
    let inode = target.to_str()?.strip_prefix("socket:[")?;
    inode.strip_suffix(']')?.parse().ok()
}

/// Whether this is an input device node. Only the end of the directory is compared, because a
/// server may run in another root.
fn is_device(target: &Path, directory: &Path) -> bool {
    let directory = directory.strip_prefix("/").unwrap_or(directory);
    let name = target.file_name().and_then(|name| name.to_str());
    target
        .parent()
        .is_some_and(|parent| parent.ends_with(directory))
        && name.is_some_and(|name| name.starts_with("event"))
}

fn is_display(socket: &Listening) -> bool {
    let numbered = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    let path = socket.name.trim_start_matches('@');
    if let Some(rest) = path.strip_prefix("/tmp/.X11-unix/X") {
        return numbered(rest);
    }
    let name = path.rsplit_once('/').map(|(_, name)| name);
    let rest = name.and_then(|name| name.strip_prefix("wayland-"));
    rest.is_some_and(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Roots;
    use std::fs;
    use std::os::unix::fs::symlink;

    const SOCKETS: &str = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01   900 /run/user/1000/wayland-1
0000000000000000: 00000002 00000000 00010000 0001 01   901 @/tmp/.X11-unix/X0
0000000000000000: 00000002 00000000 00010000 0001 01   902 /run/seatd.sock
0000000000000000: 00000003 00000000 00000000 0001 03   903 /run/user/1000/wayland-1
";

    #[test]
    fn servers_differ_from_clients_and_from_holders_of_devices() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        for directory in ["proc/1/net", "sys", "cgroup"] {
            fs::create_dir_all(path(directory)).unwrap();
        }
        fs::write(path("proc/1/net/unix"), SOCKETS).unwrap();
        let process = |pid: i32, targets: &[&str]| {
            let fd = path(&format!("proc/{pid}/fd"));
            fs::create_dir_all(&fd).unwrap();
            let stat = format!("{pid} (x) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n");
            fs::write(path(&format!("proc/{pid}/stat")), stat).unwrap();
            fs::write(path(&format!("proc/{pid}/comm")), format!("p{pid}\n")).unwrap();
            for (number, target) in targets.iter().enumerate() {
                symlink(target, fd.join(number.to_string())).unwrap();
            }
        };
        process(20, &["/dev/null", "socket:[900]", "/dev/input/event3"]);
        process(21, &["socket:[901]", "/dev/dri/renderD128"]);
        process(22, &["socket:[902]", "/dev/input/event3", "/dev/dri/card0"]);
        process(23, &["socket:[903]", "/dev/input/event3"]);
        let system = System::open(Roots {
            proc: path("proc"),
            sys: path("sys"),
            cgroup: Some(path("cgroup")),
            ..Roots::default()
        })
        .unwrap();
        let found = find(&system).unwrap();
        let kinds: Vec<(i32, Server)> = found
            .iter()
            .map(|server| (server.id.pid, server.kind))
            .collect();
        assert_eq!(kinds, [(20, Server::Outermost), (21, Server::Nested)]);
        assert_eq!(found[0].name, "p20");
        assert!(still(&system, &found[0]) && still(&system, &found[1]));
        let client = system.process(23).unwrap().0;
        assert!(is_one(&system, found[1].id) && !is_one(&system, client));
        // The first server's session has left the screen, so it holds no devices.
        fs::remove_file(path("proc/20/fd/2")).unwrap();
        assert!(!still(&system, &found[0]));
        fs::remove_dir_all(path("proc/21")).unwrap();
        assert!(!still(&system, &found[1]));
    }

    #[test]
    fn input_devices_are_recognised_by_their_nodes() {
        let input = Path::new("/dev/input");
        for target in ["/dev/input/event0", "/rootfs/dev/input/event12"] {
            assert!(is_device(Path::new(target), input), "{target}");
        }
        for target in ["/dev/input/mice", "/dev/event0", "/home/dev/inputs/event0"] {
            assert!(!is_device(Path::new(target), input), "{target}");
        }
    }

    #[test]
    fn displays_are_recognised_by_their_socket_names() {
        let named = |name: &str| Listening {
            inode: 1,
            name: name.to_owned(),
        };
        for name in [
            "/run/user/1000/wayland-0",
            "/tmp/.X11-unix/X12",
            "@/tmp/.X11-unix/X0",
        ] {
            assert!(is_display(&named(name)), "{name}");
        }
        for name in [
            "/run/user/1000/wayland-0-awww-daemon.sock",
            "/run/user/1000/wayland-proxy",
            "/tmp/.X11-unix/X",
            "/run/user/1000/bus",
            "",
        ] {
            assert!(!is_display(&named(name)), "{name}");
        }
    }
}
