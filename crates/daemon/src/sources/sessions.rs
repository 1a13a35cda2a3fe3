// SPDX-License-Identifier: GPL-2.0-or-later
//! Users with an active session at a seat, from logind's files. Their directory is watched: a
//! switch to another session moves the foreground without any agent's report.

use std::collections::BTreeSet;

use limelight_sys::dir::Dir;
use limelight_sys::inotify::Inotify;
use rustix::fs::inotify::WatchFlags;
use tracing::debug;

use crate::system::System;

/// The watch on logind's directory.
#[derive(Debug, Default)]
pub struct Sessions {
    queue: Option<Inotify>,
}

impl Sessions {
    /// Watches logind's directory, if there is one.
    pub fn watch(system: &System) -> Sessions {
        let watch = || -> limelight_sys::Result<Inotify> {
            let queue = Inotify::new()?;
            // logind writes a temporary file and renames it.
            let kinds = WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::CLOSE_WRITE;
            queue.watch(&system.roots.sessions, kinds)?;
            Ok(queue)
        };
        let queue = watch();
        if let Err(error) = &queue {
            debug!("cannot watch the active session: {error}");
        }
        Sessions { queue: queue.ok() }
    }

    /// The queue to wait for.
    pub fn queue(&self) -> Option<&Inotify> {
        self.queue.as_ref()
    }

    /// Drains the queue.
    pub fn take(&mut self) {
        if let Some(Err(error)) = self.queue.as_ref().map(Inotify::events) {
            debug!("session changes are no longer detected: {error}");
            self.queue = None;
        }
    }
}

/// Users with an active session at a seat. `None` if logind keeps no sessions, or if none of them
/// has a seat: logind then does not know the user at the screen.
pub fn active_users(system: &System) -> Option<BTreeSet<u32>> {
    let directory = Dir::open(&system.roots.sessions).ok()?;
    let names = directory.names().ok()?;
    let sessions: Vec<Session> = names
        .iter()
        // Files that are not sessions are skipped, such as a file that logind is still writing.
        .filter(|name| !name.ends_with(".ref") && !name.starts_with('.'))
        .filter_map(|name| directory.read_text(name).ok())
        .filter_map(|text| Session::parse(&text))
        .collect();
    if sessions.is_empty() {
        return None;
    }
    let active = sessions.iter().filter(|session| session.active);
    Some(active.map(|session| session.uid).collect())
}

/// A session of a person at a screen.
#[derive(Debug, PartialEq, Eq)]
struct Session {
    uid: u32,
    active: bool,
}

impl Session {
    /// Parses logind's file. `None` for a session without a seat (ssh, a terminal in another
    /// session, cron), which is always active, and for sessions that logind keeps for itself
    /// (`CLASS=manager`).
    fn parse(text: &str) -> Option<Session> {
        // The first line with a key counts; logind escapes newlines in the values.
        let value = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('='));
            lines.find_map(|(known, value)| (known == key).then_some(value))
        };
        value("SEAT").filter(|seat| !seat.is_empty())?;
        let class = value("CLASS")?;
        // Variants of a user's session are called "user-early", "user-light" and "user-incomplete".
        let of_person = class == "user" || class.starts_with("user-");
        if !of_person && !["greeter", "lock-screen"].contains(&class) {
            return None;
        }
        Some(Session {
            uid: value("UID")?.parse().ok()?,
            active: value("ACTIVE") == Some("1"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by systemd 257 for a graphical login.
    const GRAPHICAL: &str = "# This is private data. Do not parse.\nUID=1000\nUSER=ada\nACTIVE=1\n\
        IS_DISPLAY=1\nSTATE=active\nREMOTE=0\nLEADER_FD_SAVED=1\nTYPE=wayland\n\
        ORIGINAL_TYPE=wayland\nCLASS=user\nSCOPE=session-2.scope\nFIFO=/run/x\nSEAT=seat0\n\
        TTY=tty2\nSERVICE=gdm-password\nDESKTOP=gnome\nVTNR=2\nPOSITION=0\nLEADER=1291\n";

    #[test]
    fn session_at_a_seat_counts() {
        let seen = Session::parse(GRAPHICAL);
        let expected = Session {
            uid: 1000,
            active: true,
        };
        assert_eq!(seen, Some(expected));
        for class in ["user-light", "user-early", "greeter", "lock-screen"] {
            let text = GRAPHICAL.replace("CLASS=user", &format!("CLASS={class}"));
            assert!(Session::parse(&text).is_some(), "{class}");
        }
    }

    #[test]
    fn session_without_a_seat_or_a_user_does_not_count() {
        for (from, to) in [
            ("SEAT=seat0\n", ""),
            ("SEAT=seat0", "SEAT="),
            ("CLASS=user\n", ""),
            ("CLASS=user", "CLASS=manager"),
            ("CLASS=user", "CLASS=manager-early"),
            ("CLASS=user", "CLASS=background"),
            ("UID=1000", "UID=-1"),
        ] {
            let text = GRAPHICAL.replace(from, to);
            assert_ne!(text, GRAPHICAL, "{from}");
            assert_eq!(Session::parse(&text), None, "{to}");
        }
    }
}
