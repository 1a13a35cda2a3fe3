// SPDX-License-Identifier: GPL-2.0-or-later
//! Units of apps that are being made: whether an app may go to swap at all must be known before it
//! has taken memory, whether it ever comes to the front or not.
//!
//! The cgroups in which apps were found are watched. One event is enough for a look at all of them,
//! so the queue is waited for once after each look: whoever makes cgroups by the hundred wakes
//! nobody by the hundred.

use std::collections::{BTreeMap, BTreeSet};

use limelight_core::model::unit;
use limelight_sys::inotify::{Event, Inotify, Watch};
use rustix::fs::inotify::{ReadFlags, WatchFlags};
use tracing::{debug, warn};

use super::apps::walk::subtree;
use crate::doors::Doors;

/// Most cgroups that are watched. Top-level subtrees share them evenly: any user can make many places
/// for apps.
const WATCHED_MAX: usize = 64;

/// What was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// Paths below the mount point.
    pub units: Vec<String>,
    /// Something was, although it may not be known what.
    pub any: bool,
}

/// The source.
#[derive(Debug)]
pub struct NewUnits {
    queue: Option<Inotify>,
    /// By path below the mount point.
    watched: BTreeMap<String, Watch>,
}

impl NewUnits {
    /// A source that watches nothing yet.
    pub fn new() -> NewUnits {
        let queue = Inotify::new();
        if let Err(error) = &queue {
            warn!("{error}: new apps are seen at the next look only");
        }
        NewUnits {
            queue: queue.ok(),
            watched: BTreeMap::new(),
        }
    }

    /// To wait for, once.
    pub fn queue(&self) -> Option<&Inotify> {
        self.queue.as_ref()
    }

    /// Watches these cgroups and no others.
    pub fn follow(&mut self, doors: &Doors, places: &BTreeSet<String>) {
        let Some(queue) = &self.queue else {
            return;
        };
        let wanted = in_turns(places, WATCHED_MAX);
        self.watched.retain(|place, watch| {
            let keep = wanted.contains(place);
            if !keep {
                // It ends with its cgroup, if that is gone.
                let _ = queue.unwatch(*watch);
            }
            keep
        });
        for place in wanted {
            if !self.watched.contains_key(place) {
                let path = doors.cgroup_file(place, "");
                let kinds = WatchFlags::CREATE | WatchFlags::ONLYDIR;
                match queue.watch(path.as_ref(), kinds) {
                    Ok(watch) => _ = self.watched.insert(place.clone(), watch),
                    Err(error) => debug!("{place} cannot be watched for new apps: {error}"),
                }
            }
        }
    }

    /// The units of apps that were made since the last time.
    pub fn take(&mut self) -> Made {
        let events = self.queue.as_ref().map(Inotify::events);
        let events = events.and_then(Result::ok).unwrap_or_default();
        // Ended with its cgroup: one of the same path is watched anew.
        let ended = events
            .iter()
            .filter(|e| e.flags.contains(ReadFlags::IGNORED));
        let ended: BTreeSet<Watch> = ended.filter_map(|event| event.watch).collect();
        self.watched.retain(|_, watch| !ended.contains(watch));
        // An overflow says nothing of what was lost.
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

/// At most `most` of these places, from each top-level subtree the same number where there are too many.
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
    use crate::doors::Roots;
    use std::fs;

    #[test]
    fn places_of_one_user_leave_watches_for_the_others() {
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
    fn units_of_apps_are_seen_where_apps_were() {
        let temp = tempfile::tempdir().unwrap();
        for directory in ["proc", "sys", "cgroup/a", "cgroup/b"] {
            fs::create_dir_all(temp.path().join(directory)).unwrap();
        }
        let doors = Doors::open(Roots::below(temp.path())).unwrap();
        let make = |path: &str| fs::create_dir(temp.path().join("cgroup").join(path)).unwrap();
        let places = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut units = NewUnits::new();
        units.follow(&doors, &places(&["/a", "/b", "/none"]));
        assert_eq!(units.take(), Made::default());
        make("a/other.scope");
        assert_eq!(units.take(), Made::default());
        make("a/app-x-1.scope");
        assert_eq!(units.take().units, ["/a/app-x-1.scope"]);
        assert_eq!(units.take(), Made::default());
        units.follow(&doors, &places(&["/b"]));
        make("a/app-y-1.scope");
        assert_eq!(units.take(), Made::default());
        // Removed and made again.
        fs::remove_dir(temp.path().join("cgroup/b")).unwrap();
        assert_eq!(units.take(), Made::default());
        make("b");
        units.follow(&doors, &places(&["/b"]));
        make("b/app-z-1.scope");
        assert!(units.take().any);
    }
}
