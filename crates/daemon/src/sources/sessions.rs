// SPDX-License-Identifier: GPL-2.0-or-later
//! Which users have an active session, by logind's files. Their directory is watched: whoever
//! switches to another session gives up the front without any agent saying so.

use std::collections::BTreeSet;

use limelight_sys::dir::Dir;
use limelight_sys::inotify::Inotify;
use limelight_sys::keyed::Keyed;
use rustix::fs::inotify::WatchFlags;
use tracing::debug;

use crate::doors::Doors;

/// The watch.
#[derive(Debug, Default)]
pub struct Sessions {
    queue: Option<Inotify>,
}

impl Sessions {
    /// Watches logind's directory, where there is one.
    pub fn watch(doors: &Doors) -> Sessions {
        let watch = || -> limelight_sys::Result<Inotify> {
            let queue = Inotify::new()?;
            // logind writes beside them and renames.
            let kinds = WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::CLOSE_WRITE;
            queue.watch(&doors.roots.sessions, kinds)?;
            Ok(queue)
        };
        let queue = watch();
        if let Err(error) = &queue {
            debug!("nobody tells whose session is active: {error}");
        }
        Sessions { queue: queue.ok() }
    }

    /// To wait for.
    pub fn queue(&self) -> Option<&Inotify> {
        self.queue.as_ref()
    }

    /// Takes what is waiting.
    pub fn take(&mut self) {
        if let Some(Err(error)) = self.queue.as_ref().map(Inotify::events) {
            debug!("changes of sessions are not seen any more: {error}");
            self.queue = None;
        }
    }
}

/// Users with an active session; `None` where no logind keeps sessions.
pub fn active_users(doors: &Doors) -> Option<BTreeSet<u32>> {
    let sessions = Dir::open(&doors.roots.sessions).ok()?;
    let names = sessions.names().ok()?;
    let files: Vec<Keyed> = names
        .iter()
        // What logind is writing is no session yet.
        .filter(|name| !name.ends_with(".ref") && !name.starts_with('.'))
        .filter_map(|name| sessions.read_text(name).ok())
        .map(|text| Keyed::parse(&text.replace('=', " ")))
        .collect();
    if files.is_empty() {
        return None;
    }
    let active = files.iter().filter(|file| file.get("ACTIVE") == Some(1));
    Some(
        active
            .filter_map(|file| u32::try_from(file.get("UID")?).ok())
            .collect(),
    )
}
