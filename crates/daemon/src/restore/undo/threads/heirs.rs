// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds threads that inherited values that Limelight gave to other threads.

use std::collections::BTreeSet;

use limelight_core::model::ProcessId;
use limelight_sys::process::Process;
use limelight_sys::tree::ProcessTree;
use tracing::debug;

use crate::restore::undo::lineage::Heritage;
use crate::restore::undo::threads::{is_lowered, look, own_slice_ns, restore_thread};
use crate::restore::{Asking, Entry, Tuned};
use crate::system::System;

/// A change of scheduling values by Limelight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// The values without Limelight.
    pub original: Asking,
    /// The values from Limelight.
    pub ours: Asking,
}

impl From<&Tuned> for Given {
    fn from(tuned: &Tuned) -> Given {
        Given {
            original: tuned.original,
            ours: tuned.ours,
        }
    }
}

impl Given {
    fn lowers(&self) -> bool {
        self.ours.nice < self.original.nice
    }

    fn has_slice(&self) -> bool {
        self.ours.slice_ns != self.original.slice_ns
    }

    /// Whether a thread with the values `found` can have inherited all of them from this change.
    fn is_exactly(&self, found: Asking) -> bool {
        self.ours == found && self.ours != self.original
    }

    /// Whether a thread with the values `found` can have inherited its nice value or its slice from
    /// this change, and has changed the rest.
    fn is_partly(&self, found: Asking) -> bool {
        let nice = self.lowers() && is_lowered(found.nice, self.original.nice, self.ours.nice);
        nice || self.has_slice() && found.slice_ns == self.ours.slice_ns
    }
}

/// Determines which threads may have inherited values that Limelight gave to other threads.
#[derive(Debug)]
pub struct Inheritance<'a> {
    heritage: Heritage<'a, &'a [Tuned], Given>,
    /// Recorded threads, with their start times. Their values do not count as inherited.
    known: BTreeSet<(i32, u64)>,
}

impl<'a> Inheritance<'a> {
    /// Evaluates these entries of the record. `kept` are entries that stay in force.
    pub fn new(entries: &'a [Entry], kept: &[Entry]) -> Inheritance<'a> {
        let changed = |entry: &'a Entry| match entry {
            Entry::Threads { home, threads, .. } => Some((threads.as_slice(), home)),
            _ => None,
        };
        let given = |entry: &'a Entry| match entry {
            Entry::AskingGiven { original, ours, .. } => Some(Given {
                original: *original,
                ours: *ours,
            }),
            _ => None,
        };
        let all = entries.iter().chain(kept).filter_map(|entry| match entry {
            Entry::Threads { threads, .. } => Some(threads),
            _ => None,
        });
        Inheritance {
            heritage: Heritage::new(entries, changed, given),
            known: all.flatten().map(|one| (one.tid, one.starttime)).collect(),
        }
    }

    /// A process tree with the recorded processes and their descendants, for
    /// [`Inheritance::family`].
    pub fn tree(&self, system: &System) -> limelight_sys::Result<ProcessTree> {
        self.heritage.tree(system)
    }

    /// The changes from which a process's threads can have inherited their values.
    pub fn family(
        &self,
        tree: &ProcessTree,
        (id, process): (ProcessId, &Process),
    ) -> limelight_sys::Result<Family> {
        let heritage = &self.heritage;
        let own = heritage.processes.get(&id.pid);
        let own = own.filter(|(own, _)| *own == id).map(|(_, own)| *own);
        // An older process has inherited nothing from its ancestors, but its new threads may have
        // inherited from its other threads.
        let ancestor = match heritage.is_older(id) {
            true => None,
            false => heritage.of_ancestor(tree, id.pid),
        };
        let near = own.into_iter().chain(ancestor).flatten();
        Ok(Family {
            near: near.map(Given::from).collect(),
            far: heritage.of_lineages(process, id.starttime)?,
        })
    }

    /// Makes one pass over the threads that may have inherited values, and restores those that have
    /// inherited some. Returns their number, and whether a process may have been missed.
    pub(crate) fn restore_heirs(
        &self,
        system: &System,
        slice: u64,
    ) -> limelight_sys::Result<(usize, bool)> {
        self.heritage.pass(system, |candidates, id, process| {
            let mut family = self.family(&candidates.tree, (id, process))?;
            let at_home = candidates.homes.contains(&id.pid);
            if at_home && family.near.is_empty() && !self.heritage.is_older(id) {
                let all = self.heritage.processes.values();
                let all = all.flat_map(|(_, threads)| threads.iter());
                family
                    .far
                    .extend(all.map(|tuned| (Given::from(tuned), false)));
            }
            let tids = process.threads()?;
            if family.is_empty() {
                return Ok(0);
            }
            let mut found = 0;
            for tid in tids {
                let heir = match self.heir(process, tid, &family, slice) {
                    Ok(Some(heir)) => heir,
                    Err(error) if error.is_exhausted() => return Err(error),
                    Ok(None) | Err(_) => continue,
                };
                found += 1;
                if let Err(error) = restore_thread(&heir, slice) {
                    debug!("cannot restore the scheduling that a child inherited: {error}");
                }
            }
            Ok(found)
        })
    }

    /// Restores the threads of one process that have inherited values.
    pub fn restore_process(
        &self,
        tree: &ProcessTree,
        (id, process): (ProcessId, &Process),
    ) -> limelight_sys::Result<()> {
        let slice = own_slice_ns();
        let family = self.family(tree, (id, process))?;
        for tid in process.threads()? {
            if let Some(heir) = self.heir(process, tid, &family, slice)? {
                restore_thread(&heir, slice)?;
            }
        }
        Ok(())
    }

    fn heir(
        &self,
        process: &Process,
        tid: i32,
        family: &Family,
        slice: u64,
    ) -> limelight_sys::Result<Option<Tuned>> {
        let starttime = process.thread_start(tid)?;
        if self.known.contains(&(tid, starttime)) {
            return Ok(None);
        }
        let (_, found) = look(tid, slice)?;
        Ok(family.giver(found).map(|Given { original, ours }| Tuned {
            tid,
            starttime,
            original,
            ours,
        }))
    }
}

/// The changes from which a process's threads can have inherited their values.
#[derive(Debug, Default)]
pub struct Family {
    /// The changes of the process's own recorded threads, and of the threads of its nearest
    /// recorded ancestor.
    near: Vec<Given>,
    /// The changes whose lineage covers the process (same user or login, created after the change),
    /// each with whether that lineage is root's. For an orphan in the app's own cgroup, also the
    /// changes of all recorded threads.
    far: Vec<(Given, bool)>,
}

impl Family {
    fn is_empty(&self) -> bool {
        self.near.is_empty() && self.far.is_empty()
    }

    /// The change from which a thread with the values `found` has inherited, if any. The first of
    /// these groups that has a change counts: exact matches of `near`, exact matches of `far`, then
    /// partial matches of `near`, or of `far` if `near` is empty. Within a group, the highest
    /// original nice value counts, so that a thread gains nothing by changing an inherited value.
    ///
    /// `far` processes share only a user, a login or a cgroup with a changed process, so their nice
    /// value may have another origin. A nice value of 0 or more is therefore left alone, unless the
    /// slice is Limelight's. In root's lineages, only values that equal Limelight's count as
    /// inherited.
    pub fn giver(&self, found: Asking) -> Option<Given> {
        let highest = |all: &mut dyn Iterator<Item = Given>| all.max_by_key(|g| g.original.nice);
        let near = || self.near.iter().copied();
        let far = || self.far.iter().copied();
        // An I/O priority alone is not evidence: any program may choose it.
        let is_evidence = |given: &Given| given.has_slice() || given.lowers() && found.nice < 0;
        let any = |(given, roots): &(Given, bool)| {
            !roots && given.is_partly(found) && (found.nice < 0 || is_slice(given, found))
        };
        highest(&mut near().filter(|given| given.is_exactly(found)))
            .or_else(|| {
                let exact = far().map(|(given, _)| given);
                highest(&mut exact.filter(|given| given.is_exactly(found) && is_evidence(given)))
            })
            .or_else(|| match near().next() {
                Some(_) => highest(&mut near().filter(|given| given.is_partly(found))),
                None => highest(&mut far().filter(any).map(|(given, _)| given)),
            })
    }
}

fn is_slice(given: &Given, found: Asking) -> bool {
    given.has_slice() && given.ours.slice_ns == found.slice_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(nice: i32, slice_us: u64) -> Asking {
        Asking {
            nice,
            slice_ns: slice_us * 1000,
            ..Asking::default()
        }
    }

    fn given(original: (i32, u64), ours: (i32, u64)) -> Given {
        Given {
            original: asking(original.0, original.1),
            ours: asking(ours.0, ours.1),
        }
    }

    fn far(given: Given, roots: bool) -> Family {
        Family {
            near: Vec::new(),
            far: vec![(given, roots)],
        }
    }

    #[test]
    fn child_that_changed_what_it_inherited_is_found() {
        let boost = given((0, 0), (-20, 300));
        let family = far(boost, false);
        for found in [(-20, 300), (-19, 300), (-1, 0), (-20, 700), (5, 300)] {
            assert_eq!(
                family.giver(asking(found.0, found.1)),
                Some(boost),
                "{found:?}"
            );
        }
        for found in [(0, 0), (5, 0), (19, 700)] {
            assert_eq!(family.giver(asking(found.0, found.1)), None, "{found:?}");
        }
    }

    #[test]
    fn nice_value_of_0_does_not_count_as_inherited_by_lineage() {
        let family = far(given((10, 0), (-10, 0)), false);
        assert_eq!(family.giver(asking(0, 0)), None);
        assert!(family.giver(asking(-3, 0)).is_some());
    }

    #[test]
    fn only_exact_values_in_roots_lineages_count_as_inherited() {
        let family = far(given((0, 0), (-20, 100)), true);
        assert!(family.giver(asking(-20, 100)).is_some());
        assert_eq!(family.giver(asking(-10, 0)), None);
        assert_eq!(family.giver(asking(-20, 0)), None);
    }

    #[test]
    fn nearest_ancestor_decides() {
        let family = Family {
            near: vec![given((-5, 0), (-20, 300))],
            far: vec![(given((0, 0), (-20, 300)), false)],
        };
        let giver = family.giver(asking(-20, 300)).unwrap();
        assert_eq!(giver.original.nice, -5);
        assert_eq!(family.giver(giver.original), None);
    }
}
