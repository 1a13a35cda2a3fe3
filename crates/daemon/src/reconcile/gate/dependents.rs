// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks whether other processes or the user may be waiting for an app.
//!
//! An app that accepts connections is not frozen, because its clients would wait until it thaws. An
//! app with a terminal open is not throttled, because the user may be waiting for it: for a build,
//! for example. An app is neither frozen nor throttled if it has a pipe to the foreground app, or
//! serves the kernel through one of `DEVICES`.

use std::collections::BTreeSet;
use std::path::Path;

use limelight_core::model::{Harm, ProcessId};
use limelight_sys::process::Process;

use crate::system::System;

/// Maximum number of processes that are checked in an app. An app with more is neither frozen nor
/// throttled. In the foreground app, only the first processes up to this number are searched for
/// pipes.
const PROCESSES_MAX: usize = 64;
/// Maximum number of descriptors that are checked in a process. An app that contains a process with
/// more is neither frozen nor throttled.
const DESCRIPTORS_MAX: usize = 512;

/// Devices through which the kernel sends requests to a process that implements a file system or
/// runs a virtual machine.
const DEVICES: [&str; 3] = ["/dev/fuse", "/dev/kvm", "/dev/vhost-net"];

/// Path prefixes of terminals. A program that the desktop starts has no terminal open.
const TERMINALS: [&str; 2] = ["/dev/pts/", "/dev/tty"];

/// Access modes `O_RDONLY`, `O_WRONLY`, `O_RDWR`: the last two bits of a descriptor's flags.
const READS: u8 = 0;
const WRITES: u8 = 1;
const BOTH: u8 = 2;
const MODE_BITS: u8 = 3;

/// Flag of a socket that accepts connections, in `/proc/net/unix` (`__SO_ACCEPTCON`).
const ACCEPTS: u64 = 1 << 16;

/// Why an app must not be frozen (`harm` is [`Harm::Freeze`]) or throttled ([`Harm::Throttle`]);
/// `None` if it may be. `members`: its processes; `front`: the processes of the topmost app.
///
/// Both are refused if a member holds one of `DEVICES` or has a pipe to a process in `front`, if a
/// member's descriptors cannot be read, or if there are too many members or descriptors to check. A
/// freeze is also refused if a member accepts connections, and a throttle if a member has a
/// terminal open.
pub fn served(
    system: &System,
    members: &[ProcessId],
    front: &[ProcessId],
    harm: Harm,
) -> Option<String> {
    let freezes = harm != Harm::Throttle;
    if members.len() > PROCESSES_MAX {
        return Some("it has more processes than can be checked".to_owned());
    }
    let pipes: BTreeSet<(String, u8)> = front
        .iter()
        .take(PROCESSES_MAX)
        .filter_map(|id| system.same_process(*id))
        .flat_map(|process| targets(&process).unwrap_or_default())
        .filter(|(target, _)| target.starts_with("pipe:"))
        .collect();
    // Two writers of the same pipe, such as programs that write to the session's log, do not wait
    // for each other.
    let waits = |target: &str, mode: u8| {
        let other = |other: &u8| *other != mode || mode == BOTH;
        let mut others = [READS, WRITES, BOTH].into_iter().filter(other);
        others.any(|other| pipes.contains(&(target.to_owned(), other)))
    };
    members.iter().find_map(|id| {
        let process = system.same_process(*id)?;
        let pid = id.pid;
        let Some(open) = targets(&process) else {
            return Some(format!("the open files of pid {pid} cannot be checked"));
        };
        let has_socket = open.iter().any(|(target, _)| target.starts_with("socket:"));
        let listening = match freezes && has_socket {
            true => listening(&process),
            false => BTreeSet::new(),
        };
        open.iter().find_map(|(target, mode)| {
            if DEVICES.contains(&target.as_str()) {
                Some(format!("pid {pid} holds {target}"))
            } else if listening.contains(target) {
                Some(format!("pid {pid} accepts connections"))
            } else if waits(target, *mode) {
                Some(format!("pid {pid} has a pipe to the foreground app"))
            } else if !freezes && TERMINALS.iter().any(|name| target.starts_with(name)) {
                Some(format!("pid {pid} runs in a terminal"))
            } else {
                None
            }
        })
    })
}

/// The targets of a process's descriptors and their access modes; `None` if there are too many or
/// they cannot be read. Empty for a process that has ended.
fn targets(process: &Process) -> Option<Vec<(String, u8)>> {
    let numbers = match process.descriptors(DESCRIPTORS_MAX + 1) {
        Err(error) if error.is_gone() => Vec::new(),
        numbers => numbers.ok()?,
    };
    if numbers.len() > DESCRIPTORS_MAX {
        return None;
    }
    let targets = numbers.iter().filter_map(|number| {
        let path = process.descriptor_target(*number).ok()?;
        Some((path.to_string_lossy().into_owned(), mode(process, *number)))
    });
    Some(targets.collect())
}

/// The access mode of a descriptor: the last two bits of `flags` in `/proc/PID/fdinfo/FD`, an octal
/// number. [`BOTH`] if it cannot be read.
fn mode(process: &Process, number: i32) -> u8 {
    let text = process.dir().read_text(format!("fdinfo/{number}"));
    let text = text.unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    match flags.and_then(|flags| flags.trim().as_bytes().last()) {
        Some(digit) => digit & MODE_BITS,
        None => BOTH,
    }
}

/// All sockets in the process's network namespace that accept connections, each written like the
/// target of a descriptor: `socket:[INODE]`.
fn listening(process: &Process) -> BTreeSet<String> {
    let read = |file: &str| {
        process
            .dir()
            .read_text(Path::new("net").join(file))
            .unwrap_or_default()
    };
    let mut found = BTreeSet::new();
    for line in read("unix").lines().skip(1) {
        // Fields: Num RefCount Protocol Flags Type St Inode Path
        let words: Vec<&str> = line.split_whitespace().collect();
        let flags = words
            .get(3)
            .and_then(|word| u64::from_str_radix(word, 16).ok());
        if let (Some(inode), true) = (
            words.get(6),
            flags.is_some_and(|flags| flags & ACCEPTS != 0),
        ) {
            found.insert(format!("socket:[{inode}]"));
        }
    }
    for file in ["tcp", "tcp6"] {
        for line in read(file).lines().skip(1) {
            // Fields: sl local remote st queues timer retransmits uid timeout inode; st 0A is
            // listening.
            let words: Vec<&str> = line.split_whitespace().collect();
            if let (Some(&"0A"), Some(inode)) = (words.get(3), words.get(9)) {
                found.insert(format!("socket:[{inode}]"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Roots;
    use std::fs::File;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Command, Stdio};

    #[test]
    fn process_whose_descriptors_cannot_be_read_is_not_frozen() {
        let temp = tempfile::tempdir().unwrap();
        for directory in ["proc/7", "sys", "cgroup"] {
            std::fs::create_dir_all(temp.path().join(directory)).unwrap();
        }
        let file = |name: &str| temp.path().join("proc/7").join(name);
        let stat = "7 (x) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n";
        std::fs::write(file("stat"), stat).unwrap();
        // `fd` is a file here. Opening it as a directory fails, as it does without permission or
        // without a free descriptor.
        std::fs::write(file("fd"), "").unwrap();
        let system = System::open(Roots::below(temp.path())).unwrap();
        let id = system.process(7).unwrap().0;
        assert!(served(&system, &[id], &[], Harm::Freeze).is_some());
        std::fs::remove_file(file("stat")).unwrap();
        let why = served(&system, &[id], &[], Harm::Freeze);
        assert_eq!(why, None, "an ended process");
    }

    /// Uses real processes: this one, and children of it.
    #[test]
    fn serving_processes_are_recognised_by_their_descriptors() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("cgroup")).unwrap();
        std::fs::write(temp.path().join("cgroup/cgroup.procs"), "").unwrap();
        let system = System::open(Roots {
            cgroup: Some(temp.path().join("cgroup")),
            ..Roots::default()
        })
        .unwrap();
        let child = |input: Stdio| {
            let mut command = Command::new("sleep");
            command.arg("100").stdin(input);
            let child = command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let id = system.process(child.id() as i32).unwrap().0;
            (child, id)
        };
        let own = system.process(std::process::id() as i32).unwrap().0;
        let (mut idle, idle_id) = child(Stdio::null());
        let (mut piped, piped_id) = child(Stdio::piped());
        let listener = UnixListener::bind(temp.path().join("socket")).unwrap();
        let (mut server, server_id) = child(Stdio::from(std::os::fd::OwnedFd::from(listener)));
        let (one, _other) = UnixStream::pair().unwrap();
        let (mut peer, peer_id) = child(Stdio::from(std::os::fd::OwnedFd::from(one)));
        let why = |id: ProcessId, front: &[ProcessId]| served(&system, &[id], front, Harm::Freeze);
        assert_eq!(why(idle_id, &[idle_id]), None);
        assert!(why(piped_id, &[own]).unwrap().contains("a pipe"));
        assert_eq!(why(piped_id, &[]), None);
        assert!(why(server_id, &[]).unwrap().contains("accepts"));
        let slowed = |id: ProcessId| served(&system, &[id], &[own], Harm::Throttle);
        assert_eq!(slowed(server_id), None, "its clients wait only a moment");
        assert!(slowed(piped_id).unwrap().contains("a pipe"));
        if let Ok(console) = File::open("/dev/tty0") {
            let (mut build, id) = child(Stdio::from(console));
            assert!(slowed(id).unwrap().contains("a terminal"));
            assert_eq!(why(id, &[]), None);
            build.kill().unwrap();
            build.wait().unwrap();
        }
        assert_eq!(
            why(peer_id, &[]),
            None,
            "a connected socket alone does not make a process a server"
        );
        if let Ok(fuse) = File::open("/dev/fuse") {
            let (mut mounted, id) = child(Stdio::from(fuse));
            assert!(why(id, &[]).unwrap().contains("/dev/fuse"));
            mounted.kill().unwrap();
            mounted.wait().unwrap();
        }
        for one in [&mut idle, &mut piped, &mut server, &mut peer] {
            one.kill().unwrap();
            one.wait().unwrap();
        }
    }
}
