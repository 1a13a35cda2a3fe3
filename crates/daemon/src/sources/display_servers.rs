// SPDX-License-Identifier: GPL-2.0-or-later
//! Which processes are display servers: X servers and Wayland compositors.
//!
//! A display server is a process that holds a socket at which clients find a display: `wayland-N` in
//! some directory, or X11's `/tmp/.X11-unix/XN`. The outermost one has its input from devices in
//! `/dev/input`, which it holds open; logind and seatd open them, too, but have no such socket, and
//! a server on a virtual screen (Xvfb, a compositor without devices) has no input of which this
//! daemon hears. A server without devices is another one's client, as Xwayland and nested compositors
//! are. Whether it has the display (`/dev/dri/card*`) plays no part: it is input that is followed.
//!
//! What is not found: servers in another network namespace, whose sockets are not listed with the machine's;
//! those whose clients find them by other names (`WAYLAND_SOCKET` alone, Mir, Android); and a program
//! that draws on the display without any server, which wakes nobody and is in front all the same.

use std::collections::BTreeSet;
use std::path::Path;

use limelight_core::model::wake_graph::Server;
use limelight_core::model::ProcessId;
use limelight_sys::process::Process;
use limelight_sys::unix_sockets::Listening;

use crate::doors::Doors;

/// Most descriptors of a process that are looked at.
const DESCRIPTORS_MAX: usize = 4096;

/// A display server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisplayServer {
    /// Its process.
    pub id: ProcessId,
    /// Its name, for people.
    pub name: String,
    /// Where it has its input from.
    pub kind: Server,
}

/// All of them, as of now.
pub fn find(doors: &Doors) -> limelight_sys::Result<Vec<DisplayServer>> {
    let displays = displays(doors)?;
    if displays.is_empty() {
        return Ok(Vec::new());
    }
    let server = |pid: i32| {
        let (id, process) = doors.process(pid).ok()?;
        let held = Held::look(doors, &process, &displays);
        held.display.then(|| DisplayServer {
            id,
            name: process.comm().unwrap_or_default(),
            kind: match held.input {
                true => Server::Outermost,
                false => Server::Nested,
            },
        })
    };
    let pids = doors.proc.pids()?;
    Ok(pids.into_iter().filter_map(server).collect())
}

/// Whether this process is one.
pub fn is_one(doors: &Doors, id: ProcessId) -> bool {
    let (Some(process), Ok(displays)) = (doors.same_process(id), displays(doors)) else {
        return false;
    };
    Held::look(doors, &process, &displays).display
}

/// Whether this very server still runs, and has the devices that it had.
pub fn still(doors: &Doors, server: &DisplayServer) -> bool {
    let process = doors.same_process(server.id);
    process.is_some_and(|process| {
        server.kind == Server::Nested || Held::look(doors, &process, &BTreeSet::new()).input
    })
}

/// Numbers of the sockets at which clients find a display.
fn displays(doors: &Doors) -> limelight_sys::Result<BTreeSet<u64>> {
    let sockets = doors.proc.listening_sockets()?;
    let displays = sockets.iter().filter(|socket| is_display(socket));
    Ok(displays.map(|socket| socket.inode).collect())
}

/// What of this matters a process holds open.
#[derive(Default)]
struct Held {
    display: bool,
    input: bool,
}

impl Held {
    fn look(doors: &Doors, process: &Process, displays: &BTreeSet<u64>) -> Held {
        let mut held = Held::default();
        for number in process.descriptors(DESCRIPTORS_MAX).unwrap_or_default() {
            // One that was closed meanwhile is not held.
            let Ok(target) = process.descriptor_target(number) else {
                continue;
            };
            held.display |= socket(&target).is_some_and(|inode| displays.contains(&inode));
            held.input |= is_device(&target, &doors.roots.input);
        }
        held
    }
}

fn socket(target: &Path) -> Option<u64> {
    let inode = target.to_str()?.strip_prefix("socket:[")?;
    inode.strip_suffix(']')?.parse().ok()
}

/// A server in another root has the directory there.
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
    use crate::doors::Roots;
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
    fn servers_are_told_from_their_clients_and_from_those_who_hold_devices_for_them() {
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
        let doors = Doors::open(Roots {
            proc: path("proc"),
            sys: path("sys"),
            cgroup: Some(path("cgroup")),
            ..Roots::default()
        })
        .unwrap();
        let found = find(&doors).unwrap();
        let kinds: Vec<(i32, Server)> = found
            .iter()
            .map(|server| (server.id.pid, server.kind))
            .collect();
        assert_eq!(kinds, [(20, Server::Outermost), (21, Server::Nested)]);
        assert_eq!(found[0].name, "p20");
        assert!(still(&doors, &found[0]) && still(&doors, &found[1]));
        let client = doors.process(23).unwrap().0;
        assert!(is_one(&doors, found[1].id) && !is_one(&doors, client));
        // Its session is not on the screen any more.
        fs::remove_file(path("proc/20/fd/2")).unwrap();
        assert!(!still(&doors, &found[0]));
        fs::remove_dir_all(path("proc/21")).unwrap();
        assert!(!still(&doors, &found[1]));
    }

    #[test]
    fn devices_are_known_by_their_nodes() {
        let input = Path::new("/dev/input");
        for target in ["/dev/input/event0", "/rootfs/dev/input/event12"] {
            assert!(is_device(Path::new(target), input), "{target}");
        }
        for target in ["/dev/input/mice", "/dev/event0", "/home/dev/inputs/event0"] {
            assert!(!is_device(Path::new(target), input), "{target}");
        }
    }

    #[test]
    fn displays_are_known_by_the_names_of_their_sockets() {
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
