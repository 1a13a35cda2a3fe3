// SPDX-License-Identifier: GPL-2.0-or-later
//! Detects new app units. Before an app takes memory, the daemon must know whether the app may be
//! swapped out at all. This holds for apps that are never topmost, too.
//!
//! The source watches the cgroups in which apps were found. One event causes a scan of all of them,
//! so the loop waits for only one event after each scan. Bursts of new cgroups therefore cause one
//! wakeup, not hundreds.

use std::collections::{BTreeMap, BTreeSet};

use limelight_core::model::unit;
use limelight_sys::inotify::{Event, Inotify, Watch};
use rustix::fs::inotify::{ReadFlags, WatchFlags};
use tracing::{debug, warn};

use crate::sources::apps::walk::subtree;
use crate::system::System;

/// Maximum number of cgroups that are watched. Top-level subtrees share them evenly, because any
/// user can make many cgroups for apps.
const WATCHED_MAX: usize = 64;

/// App units that were created since the last call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// Paths below the mount point.
    pub units: Vec<String>,
    /// Whether units were created, or events were lost, so that a scan is needed.
    pub any: bool,
}

/// Watches the cgroups in which apps appear.
#[derive(Debug)]
pub struct NewUnits {
    queue: Option<Inotify>,
    /// Watches by path below the mount point.
    watched: BTreeMap<String, Watch>,
}

impl NewUnits {
    /// A source that watches nothing yet.
    pub fn new() -> NewUnits {
        let queue = Inotify::new();
        if let Err(error) = &queue {
            warn!("{error}: new apps are found only by the next scan");
        }
        NewUnits {
            queue: queue.ok(),
            watched: BTreeMap::new(),
        }
    }

    /// The queue to wait for, once after each scan.
    pub fn queue(&self) -> Option<&Inotify> {
        self.queue.as_ref()
    }

    /// Watches these cgroups and no others.
    pub fn follow(&mut self, system: &System, places: &BTreeSet<String>) {
        let Some(queue) = &self.queue else {
            return;
        };
        let wanted = in_turns(places, WATCHED_MAX);
        self.watched.retain(|place, watch| {
            let keep = wanted.contains(place);
            if !keep {
                // This fails if the kernel has removed the watch together with its cgroup.
                let _ = queue.unwatch(*watch);
            }
            keep
        });
        for place in wanted {
            if !self.watched.contains_key(place) {
                let path = system.cgroup_file(place, "");
                let kinds = WatchFlags::CREATE | WatchFlags::ONLYDIR;
                match queue.watch(path.as_ref(), kinds) {
                    Ok(watch) => _ = self.watched.insert(place.clone(), watch),
                    Err(error) => debug!("{place} cannot be watched for new apps: {error}"),
                }
            }
        }
    }

    /// Returns the app units created since the last call.
    pub fn take(&mut self) -> Made {
        let events = self.queue.as_ref().map(Inotify::events);
        let events = events.and_then(Result::ok).unwrap_or_default();
        // The watch ended with its cgroup. A new cgroup at the same path gets a new watch.
        let ended = events
            .iter()
            .filter(|e| e.flags.contains(ReadFlags::IGNORED));
        let ended: BTreeSet<Watch> = ended.filter_map(|event| event.watch).collect();
        self.watched.retain(|_, watch| !ended.contains(watch));
        // An overflow does not name the lost events.
        let lost = |event: &Event| event.flags.contains(ReadFlags::QUEUE_OVERFLOW);
        let units = events.iter().filter_map(|event| {
            let name = event.name.as_ref().filter(|name| unit::is_app(name))?;
            let mut places = self.watched.iter();
            let (place, _) = places.find(|(_, watch)| Some(**watch) == event.watch)?;
            Some(format!("{}/{name}", place.trim_end_matches('/')))
        });
        let units: Vec<String> = units.collect();
        Made {
            any: !units.is_empty() || events.iter().any(lost),
            units,
        }
    }
}

/// At most `most` of these places. The top-level subtrees take turns, so that each gets an equal
/// share.
fn in_turns(places: &BTreeSet<String>, most: usize) -> BTreeSet<&String> {
    let mut turns: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all: Vec<(usize, &String)> = Vec::new();
    for place in places {
        let turn = turns.entry(subtree(place)).or_default();
        all.push((*turn, place));
        *turn += 1;
    }
    all.sort_unstable();
    all.into_iter().take(most).map(|(_, place)| place).collect()
}

impl Default for NewUnits {
    fn default() -> Self {
        NewUnits::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Roots;
    use std::fs;

    #[test]
    fn cgroups_of_one_user_leave_watches_for_other_users() {
        let mut places: BTreeSet<String> = (0..200)
            .map(|number| format!("/user.slice/user-1000.slice/{number}"))
            .collect();
        let others = [
            "/app.slice",
            "/user.slice/user-1001.slice/user@1001.service/app.slice",
        ];
        places.extend(others.map(str::to_owned));
        let watched = in_turns(&places, WATCHED_MAX);
        assert_eq!(watched.len(), WATCHED_MAX);
        for other in others {
            assert!(watched.contains(&other.to_owned()), "{other}");
        }
    }

    #[test]
    fn new_app_units_are_seen_in_watched_cgroups() {
        let temp = tempfile::tempdir().unwrap();
        for directory in ["proc", "sys", "cgroup/a", "cgroup/b"] {
            fs::create_dir_all(temp.path().join(directory)).unwrap();
        }
        let system = System::open(Roots::below(temp.path())).unwrap();
        let make = |path: &str| fs::create_dir(temp.path().join("cgroup").join(path)).unwrap();
        let places = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut units = NewUnits::new();
        units.follow(&system, &places(&["/a", "/b", "/none"]));
        assert_eq!(units.take(), Made::default());
        make("a/other.scope");
        assert_eq!(units.take(), Made::default());
        make("a/app-x-1.scope");
        assert_eq!(units.take().units, ["/a/app-x-1.scope"]);
        assert_eq!(units.take(), Made::default());
        units.follow(&system, &places(&["/b"]));
        make("a/app-y-1.scope");
        assert_eq!(units.take(), Made::default());
        // Removed and created again.
        fs::remove_dir(temp.path().join("cgroup/b")).unwrap();
        assert_eq!(units.take(), Made::default());
        make("b");
        units.follow(&system, &places(&["/b"]));
        make("b/app-z-1.scope");
        assert!(units.take().any);
    }
}
