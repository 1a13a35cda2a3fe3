// SPDX-License-Identifier: GPL-2.0-or-later
//! Processes that are in use in the background: processes that hold a logind lock against sleep or
//! shutdown, and processes that play or record sound.

use limelight_core::model::apps::Use;
use limelight_sys::dir::Dir;
use limelight_sys::proc::Proc;

/// Maximum number of entries that are read in a directory; sound cards and locks are few.
const FILES_MAX: usize = 256;

/// Processes that hold a lock. `directory` is logind's `/run/systemd/inhibit`.
pub fn inhibitors(directory: &std::path::Path) -> Vec<(i32, Use)> {
    let Ok(directory) = Dir::open(directory) else {
        return Vec::new();
    };
    let names = directory.names().unwrap_or_default();
    let locks = names.iter().filter(|name| !name.ends_with(".ref"));
    locks
        .take(FILES_MAX)
        .filter_map(|name| holder(&directory.read_text(name).ok()?))
        .map(|pid| (pid, Use::Inhibitor))
        .collect()
}

/// The process of a lock that blocks an action. Delay locks do not count: they only ask for a
/// notification, as many system services do.
fn holder(text: &str) -> Option<i32> {
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines.find(|(name, _)| *name == key).map(|(_, value)| value)
    };
    // A lock on key handling protects no work that sleep would interrupt.
    let what = value("WHAT")?;
    let work = ["sleep", "shutdown", "idle"];
    let blocks = value("MODE")?.starts_with("block") && what.split(':').any(|w| work.contains(&w));
    blocks.then(|| value("PID")?.parse().ok())?
}

/// Processes with a running sound device. A sound server appears here while its clients play; only
/// the server knows which clients play.
pub fn sounding(proc: &Proc) -> Vec<(i32, Use)> {
    let Ok(asound) = proc.dir().open_dir("asound") else {
        return Vec::new();
    };
    let below = |directory: &Dir, prefix: &str, digit_follows: bool| -> Vec<Dir> {
        let names = directory.directories().unwrap_or_default();
        let fits = |name: &&String| {
            let rest = name.strip_prefix(prefix);
            rest.is_some_and(|rest| {
                !digit_follows || rest.starts_with(|c: char| c.is_ascii_digit())
            })
        };
        let names = names.iter().filter(fits).take(FILES_MAX);
        names
            .filter_map(|name| directory.open_dir(name).ok())
            .collect()
    };
    let mut players = Vec::new();
    for card in below(&asound, "card", true) {
        for stream in below(&card, "pcm", true) {
            for sub in below(&stream, "sub", true) {
                let status = sub.read_text("status").unwrap_or_default();
                players.extend(running(&status).map(|pid| (pid, Use::Audio)));
            }
        }
    }
    players
}

/// The owner of a running stream.
fn running(status: &str) -> Option<i32> {
    let value = |key: &str| {
        let mut lines = status.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(name, _)| name.trim() == key)?;
        Some(value.trim())
    };
    (value("state")? == "RUNNING").then(|| value("owner_pid")?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    #[test]
    fn only_blocking_locks_count() {
        let temp = tempfile::tempdir().unwrap();
        let write = |name: &str, what: &str, mode: &str, pid: i32| {
            let text = format!("# This is private data. Do not parse.\nWHAT={what}\nMODE={mode}\nUID=1000\nPID={pid}\nWHO=x\n");
            fs::write(temp.path().join(name), text).unwrap();
        };
        write("1", "sleep:idle", "block", 11);
        write("2", "sleep", "delay", 12);
        write("3", "handle-power-key", "block", 13);
        write("4", "shutdown", "block-weak", 14);
        fs::write(temp.path().join("4.ref"), "").unwrap();
        let mut pids: Vec<i32> = inhibitors(temp.path())
            .into_iter()
            .map(|(pid, _)| pid)
            .collect();
        pids.sort_unstable();
        assert_eq!(pids, [11, 14]);
        assert_eq!(inhibitors(&temp.path().join("none")), []);
    }

    #[test]
    fn owners_of_running_streams_are_found() {
        let temp = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = temp.path().join("asound").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let status = "state: RUNNING\nowner_pid   : 4711\ntrigger_time: 5.1\n";
        write("card0/pcm0p/sub0/status", status);
        write("card0/pcm0p/sub1/status", "closed\n");
        write(
            "card1/pcm3c/sub0/status",
            "state: RUNNING\nowner_pid   : 4712\n",
        );
        write(
            "card1/pcm3p/sub0/status",
            "state: PREPARED\nowner_pid   : 4713\n",
        );
        write("card1/id", "Generic\n");
        let proc = Proc::open(temp.path().to_str().unwrap()).unwrap();
        let mut pids: Vec<i32> = sounding(&proc).into_iter().map(|(pid, _)| pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [4711, 4712]);
    }

    proptest! {
        #[test]
        fn no_panics(text in ".*", lines in "(WHAT=|MODE=block|PID=|state|:|\n|[a-z0-9]){0,40}") {
            for text in [text, lines] {
                holder(&text);
                running(&text);
            }
        }
    }
}
