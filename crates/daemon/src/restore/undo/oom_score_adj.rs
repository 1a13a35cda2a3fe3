// SPDX-License-Identifier: GPL-2.0-or-later
//! Restores `oom_score_adj` of recorded processes and of the children that inherited it.
//!
//! An unprivileged process may raise its own value. It may lower the value again down to the last
//! value that a privileged process wrote, which was Limelight's. So each value from Limelight's up
//! to, but not including, the original counts as Limelight's. A privileged write that restores a
//! value also revokes that permission. A value above the original is the process's own choice and
//! stays.

use std::collections::BTreeSet;

use limelight_core::model::ProcessId;
use limelight_sys::process::Process;
use limelight_sys::tree::ProcessTree;
use tracing::debug;

use crate::restore::undo::lineage::Heritage;
use crate::restore::undo::{finish_given, gone_or_failed, Search, Undone};
use crate::restore::Entry;
use crate::system::System;

/// A change: the value without Limelight, and the value that Limelight gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lowered {
    original: i16,
    ours: i16,
}

impl Lowered {
    fn holds(self, value: i16) -> bool {
        (self.ours..self.original).contains(&value)
    }
}

/// Restores `oom_score_adj` of the processes of `entries`, and of the children that inherited a
/// value from them. `kept` are entries that stay in force.
pub(crate) fn raise(system: &System, entries: Vec<Entry>, kept: &[Entry]) -> Vec<(Entry, Undone)> {
    if entries.is_empty() {
        return Vec::new();
    }
    // Restore parents first, so that children that they fork from now on inherit nothing.
    let mut results: Vec<(Entry, Undone)> = entries
        .into_iter()
        .map(|entry| {
            let undone = raise_one(system, &entry);
            (entry, undone)
        })
        .collect();
    let entries: Vec<Entry> = results.iter().map(|(entry, _)| entry.clone()).collect();
    let inheritance = Inheritance::new(&entries, kept);
    let mut search = Search::default();
    let mut floors = BTreeSet::new();
    while search.goes_on() {
        search.pass(inheritance.raise_heirs(system, &mut floors));
    }
    finish_given(&mut results, search);
    results
}

/// Restores the value of one process. The process's previous floor, which is the lowest value that
/// it may set without privilege, cannot be read. The original value becomes the floor instead.
fn raise_one(system: &System, entry: &Entry) -> Undone {
    let Entry::OomScoreAdj { original, ours, .. } = entry else {
        return Undone::Gone;
    };
    let process = match entry.process().map(|id| system.living(id)) {
        Some(Ok(Some(process))) => process,
        Some(Err(error)) => return gone_or_failed(&error),
        Some(Ok(None)) | None => return Undone::Gone,
    };
    let found = match process.oom_score_adj() {
        Ok(found) => found,
        Err(error) => return gone_or_failed(&error),
    };
    let theirs = Undone::Theirs {
        found: found.to_string(),
    };
    if found < *ours {
        return theirs;
    }
    let lowered = Lowered {
        original: *original,
        ours: *ours,
    };
    // Write the value even if it is the original again: otherwise the process could still lower it.
    let value = if lowered.holds(found) {
        *original
    } else {
        found
    };
    match process.set_oom_score_adj_and_floor(value, *original) {
        Ok(()) if value == *original => Undone::Restored,
        Ok(()) => theirs,
        Err(error) => gone_or_failed(&error),
    }
}

/// Determines which processes may have inherited a lowered value.
#[derive(Debug)]
pub struct Inheritance<'a> {
    heritage: Heritage<'a, Lowered, Lowered>,
    /// Other processes that have a value from Limelight and keep it.
    kept: BTreeSet<ProcessId>,
}

impl<'a> Inheritance<'a> {
    /// Evaluates these entries of the record. `kept` are entries that stay in force.
    pub fn new(entries: &'a [Entry], kept: &[Entry]) -> Inheritance<'a> {
        let lowered = |original: &i16, ours: &i16| Lowered {
            original: *original,
            ours: *ours,
        };
        let changed = |entry: &'a Entry| match entry {
            Entry::OomScoreAdj {
                original,
                ours,
                home,
                ..
            } => Some((lowered(original, ours), home)),
            _ => None,
        };
        let given = |entry: &'a Entry| match entry {
            Entry::ScoreGiven { original, ours, .. } => Some(lowered(original, ours)),
            _ => None,
        };
        let scores = kept.iter().filter(|entry| entry.is_score());
        Inheritance {
            heritage: Heritage::new(entries, changed, given),
            kept: scores.filter_map(Entry::process).collect(),
        }
    }

    /// A process tree with the recorded processes and their descendants, for
    /// [`Inheritance::original`].
    pub fn tree(&self, system: &System) -> limelight_sys::Result<ProcessTree> {
        self.heritage.tree(system)
    }

    /// The value that a process would have without Limelight; `None` if it cannot have inherited
    /// its value from Limelight.
    pub fn original(
        &self,
        tree: &ProcessTree,
        (id, process): (ProcessId, &Process),
        value: i16,
    ) -> limelight_sys::Result<Option<i16>> {
        let givers = self.givers(tree, (id, process), false)?;
        Ok(givers.original(value))
    }

    fn givers(
        &self,
        tree: &ProcessTree,
        (id, process): (ProcessId, &Process),
        at_home: bool,
    ) -> limelight_sys::Result<Givers> {
        let heritage = &self.heritage;
        if heritage.is_older(id) {
            return Ok(Givers::default());
        }
        let ancestor = heritage.of_ancestor(tree, id.pid);
        let near: Vec<Lowered> = ancestor.into_iter().collect();
        let mut far = heritage.of_lineages(process, id.starttime)?;
        if near.is_empty() && at_home {
            let all = heritage.processes.values();
            far.extend(all.map(|(_, lowered)| (*lowered, false)));
        }
        Ok(Givers { near, far })
    }

    /// Makes one pass over the processes that may have inherited a value, and restores those that
    /// have inherited one. Returns their number, and whether a process may have been missed.
    fn raise_heirs(
        &self,
        system: &System,
        floors: &mut BTreeSet<ProcessId>,
    ) -> limelight_sys::Result<(usize, bool)> {
        self.heritage.pass(system, |candidates, id, process| {
            let mut recorded = self.heritage.processes.values();
            if recorded.any(|(one, _)| *one == id) || self.kept.contains(&id) {
                return Ok(0);
            }
            let value = process.oom_score_adj()?;
            let at_home = candidates.homes.contains(&id.pid);
            let givers = self.givers(&candidates.tree, (id, process), at_home)?;
            let (found, done) = if let Some(original) = givers.original(value) {
                (1, process.set_oom_score_adj(original))
            } else if let Some(floor) = givers.floor(value).filter(|_| floors.insert(id)) {
                (0, process.set_oom_score_adj_and_floor(value, floor))
            } else {
                return Ok(0);
            };
            if let Err(error) = done {
                debug!("cannot restore a child's inherited oom_score_adj: {error}");
            }
            Ok(found)
        })
    }
}

/// The changes from which a process can have inherited its value.
#[derive(Debug, Default)]
struct Givers {
    /// The change of the nearest recorded ancestor.
    near: Vec<Lowered>,
    /// The changes whose lineage covers the process (same user or login, created after the change),
    /// each with whether that lineage is root's. For an orphan in the app's own cgroup, also the
    /// changes of all recorded processes.
    far: Vec<(Lowered, bool)>,
}

impl Givers {
    /// The value without Limelight, if `value` was inherited. The first of these groups that has a
    /// change counts: exact matches of `near`, exact matches of `far`, other changes of `near`,
    /// other changes of `far`. Within a group, the highest original value counts, so that a process
    /// gains nothing by changing an inherited value.
    ///
    /// `far` processes share only a user, a login or a cgroup with a changed process, so their
    /// value may have another origin. A value of 0 or more is therefore left alone. In root's
    /// lineages, only a value that equals Limelight's counts as inherited.
    fn original(&self, value: i16) -> Option<i16> {
        let is_exact = |lowered: &Lowered| lowered.ours == value && lowered.holds(value);
        let near = self.near.iter();
        let far = self.far.iter().filter(|_| value < 0);
        let near_exact = near.clone().filter(|lowered| is_exact(lowered));
        let far_exact = far.clone().filter(|(lowered, _)| is_exact(lowered));
        let near_any = near.filter(|lowered| lowered.holds(value));
        let alone = self.near.is_empty();
        let far_any = far.filter(|(lowered, roots)| alone && !roots && lowered.holds(value));
        let original = |lowered: &Lowered| lowered.original;
        near_exact
            .map(original)
            .max()
            .or_else(|| far_exact.map(|(lowered, _)| lowered.original).max())
            .or_else(|| near_any.map(original).max())
            .or_else(|| far_any.map(|(lowered, _)| lowered.original).max())
    }

    /// The new floor (lowest value that a process may set itself) for a process that may have
    /// inherited a lower floor.
    fn floor(&self, value: i16) -> Option<i16> {
        let users = self.far.iter().filter(|(_, roots)| !roots);
        let all = self.near.iter().chain(users.map(|(lowered, _)| lowered));
        let inherited = all.filter(|lowered| lowered.ours <= value);
        let floors = inherited.map(|lowered| match lowered.original <= value {
            true => lowered.original,
            false => value,
        });
        floors.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn lowered(original: i16, ours: i16) -> Lowered {
        Lowered { original, ours }
    }

    const FAMILY: [Lowered; 2] = [lowered(0, -500), lowered(200, -300)];

    fn far(family: &[Lowered], roots: bool) -> Givers {
        Givers {
            near: Vec::new(),
            far: family.iter().map(|lowered| (*lowered, roots)).collect(),
        }
    }

    fn near(family: &[Lowered]) -> Givers {
        Givers {
            near: family.to_vec(),
            far: Vec::new(),
        }
    }

    #[test]
    fn changing_an_inherited_value_gains_nothing() {
        let (near, far) = (near(&FAMILY), far(&FAMILY, false));
        for (value, original) in [
            (-500, Some(0)),
            (-300, Some(200)),
            (-499, Some(0)),
            (-299, Some(200)),
            (200, None),
            (-501, None),
        ] {
            assert_eq!(far.original(value), original, "value {value}");
            assert_eq!(near.original(value), original, "value {value}");
        }
        // The service manager gives a user's services the value 100.
        assert_eq!(far.original(100), None);
        assert_eq!(near.original(100), Some(200));
    }

    #[test]
    fn floor_is_the_original_or_a_lower_present_value() {
        let far = far(&FAMILY, false);
        let floors = [300, 200, 100, -800].map(|value| far.floor(value));
        assert_eq!(floors, [Some(200), Some(200), Some(100), None]);
    }

    #[test]
    fn only_exact_values_in_roots_lineages_count_as_inherited() {
        let far = far(&FAMILY[..1], true);
        assert_eq!(far.original(-500), Some(0));
        assert_eq!(far.original(-250), None);
        assert_eq!(far.floor(0), None);
    }

    proptest! {
        /// Each restore raises the value, and a value is restored at most once per change.
        #[test]
        fn restoring_terminates(
            family in prop::collection::vec((-20i16..20, 1i16..20), 1..4),
            value in -40i16..40,
        ) {
            let all = family.iter();
            let all = all.map(|(original, points)| lowered(*original, original - points));
            let far = far(&all.collect::<Vec<_>>(), false);
            let mut value = value;
            let mut steps = 0;
            while let Some(original) = far.original(value) {
                prop_assert!(original > value);
                value = original;
                steps += 1;
            }
            prop_assert!(steps <= family.len());
        }
    }
}
