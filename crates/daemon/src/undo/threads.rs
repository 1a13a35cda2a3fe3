// SPDX-License-Identifier: GPL-2.0-or-later
//! Putting back what threads ask of the schedulers.
//!
//! Nice value, slice and I/O priority are put back one by one: what somebody else has changed since
//! is theirs, the others are not. Threads and processes that were born meanwhile have inherited what
//! their creator was given, so they are looked for until none is left.

use std::collections::BTreeMap;

use limelight_core::model::ProcessId;
use limelight_sys::process::Process;
use limelight_sys::sched::{Cpu, IoPriority};
use tracing::debug;

use crate::doors::Doors;
use crate::restore::{Asking, Entry, Place, Tuned};
use crate::undo::{fail_without_heirs, gone_or_failed, nearest, procs_of, Undone, PASSES};

/// What a thread asks for now, and what is needed to change it; `None` where the ordinary scheduler
/// does not run it. A slice that is the kernel's own reads as 0.
pub fn asking(tid: i32, own_slice_ns: u64) -> limelight_sys::Result<Option<(Cpu, Asking)>> {
    let cpu = Cpu::of(tid)?;
    if !cpu.is_fair() {
        return Ok(None);
    }
    let slice_ns = match cpu.slice_ns() {
        slice if slice == own_slice_ns => 0,
        slice => slice,
    };
    let asking = Asking {
        nice: cpu.nice(),
        slice_ns,
        io_priority: IoPriority::of(tid)?.0,
    };
    Ok(Some((cpu, asking)))
}

/// Gives a thread what it shall ask for.
pub fn give(tid: i32, cpu: &Cpu, found: Asking, wanted: Asking) -> limelight_sys::Result<()> {
    if (found.nice, found.slice_ns) != (wanted.nice, wanted.slice_ns) {
        cpu.set(tid, wanted.nice, wanted.slice_ns)?;
    }
    if found.io_priority != wanted.io_priority {
        IoPriority(wanted.io_priority).set(tid)?;
    }
    Ok(())
}

/// The slice that threads have which ask for none; 0 on kernels that know no slices. This thread
/// finds out by asking for none itself for a moment.
pub fn own_slice_ns() -> u64 {
    let ask = || {
        let before = Cpu::of(0)?;
        before.set(0, before.nice(), 0)?;
        let own = Cpu::of(0)?.slice_ns();
        if before.slice_ns() != own {
            before.set(0, before.nice(), before.slice_ns())?;
        }
        Ok::<u64, limelight_sys::Error>(own)
    };
    match ask() {
        Ok(slice) => slice,
        Err(error) => {
            debug!("{error}: slices are not told from the kernel's own");
            0
        }
    }
}

/// Puts the threads of all these entries back, and those that inherited from them.
pub fn restore(doors: &Doors, entries: Vec<Entry>) -> Vec<(Entry, Undone)> {
    if entries.is_empty() {
        return Vec::new();
    }
    let slice = own_slice_ns();
    // Before anything is put back: afterwards nothing tells whose child was given what.
    let mut inherited = heirs(doors, &entries, slice);
    let mut results: Vec<(Entry, Undone)> = entries
        .into_iter()
        .map(|entry| {
            let undone = restore_process(doors, &entry, slice);
            (entry, undone)
        })
        .collect();
    let entries: Vec<Entry> = results.iter().map(|(entry, _)| entry.clone()).collect();
    for _ in 0..PASSES {
        let Ok(heirs_left) = &inherited else { break };
        if heirs_left.is_empty() {
            break;
        }
        for heir in heirs_left {
            if let Err(error) = restore_thread(heir, slice) {
                debug!("what a child inherited stays: {error}");
            }
        }
        inherited = heirs(doors, &entries, slice);
    }
    fail_without_heirs(&mut results, inherited.err());
    results
}

fn restore_process(doors: &Doors, entry: &Entry, slice: u64) -> Undone {
    let Entry::Threads { threads, .. } = entry else {
        return Undone::Gone;
    };
    let process = match entry.process().map(|id| doors.living(id)) {
        Some(Ok(Some(process))) => process,
        Some(Err(error)) => return gone_or_failed(&error),
        Some(Ok(None)) | None => return Undone::Gone,
    };
    let mut theirs = Vec::new();
    for tuned in threads {
        match process.thread_start(tuned.tid) {
            Ok(start) if start == tuned.starttime => {}
            Err(error) if error.is_exhausted() => return gone_or_failed(&error),
            _ => continue,
        }
        match restore_thread(tuned, slice) {
            Ok(None) => {}
            Ok(Some(found)) => theirs.push(found),
            Err(error) if error.is_gone() => {}
            Err(error) => return gone_or_failed(&error),
        }
    }
    match theirs.is_empty() {
        true => Undone::Restored,
        false => Undone::Theirs {
            found: theirs.join(", "),
        },
    }
}

/// Whether a number still means the thread that was changed.
pub fn is_same(process: &Process, tuned: &Tuned) -> bool {
    process
        .thread_start(tuned.tid)
        .is_ok_and(|start| start == tuned.starttime)
}

/// Puts one thread back. `Some`: what somebody else has changed, in words.
fn restore_thread(tuned: &Tuned, slice: u64) -> limelight_sys::Result<Option<String>> {
    let Some((cpu, found)) = asking(tuned.tid, slice)? else {
        return Ok(Some(format!("thread {} has another policy", tuned.tid)));
    };
    let (wanted, theirs) = wanted(tuned, found);
    give(tuned.tid, &cpu, found, wanted)?;
    Ok((!theirs.is_empty()).then(|| format!("thread {}: {}", tuned.tid, theirs.join(" and "))))
}

/// What a thread shall ask for again, and which of its present values are somebody else's.
pub fn wanted(tuned: &Tuned, found: Asking) -> (Asking, Vec<String>) {
    let Tuned { original, ours, .. } = tuned;
    let mut wanted = found;
    let mut theirs = Vec::new();
    if found.nice == ours.nice {
        wanted.nice = original.nice;
    } else if found.nice != original.nice {
        theirs.push(format!("nice {}", found.nice));
    }
    if found.slice_ns == ours.slice_ns {
        wanted.slice_ns = original.slice_ns;
    } else if found.slice_ns != original.slice_ns {
        theirs.push(format!("slice {} us", found.slice_ns / 1000));
    }
    if found.io_priority == ours.io_priority {
        wanted.io_priority = original.io_priority;
    } else if found.io_priority != original.io_priority {
        theirs.push(format!("I/O priority {}", IoPriority(found.io_priority)));
    }
    (wanted, theirs)
}

/// Threads that are not recorded but ask for exactly what one that is was given: they can only have
/// inherited it. Each with what it would ask for without us. An error where nothing is left to look with.
pub fn heirs(doors: &Doors, entries: &[Entry], slice: u64) -> limelight_sys::Result<Vec<Tuned>> {
    let recorded: BTreeMap<i32, (ProcessId, &[Tuned])> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Threads { pid, threads, .. } => {
                Some((*pid, (entry.process()?, threads.as_slice())))
            }
            _ => None,
        })
        .collect();
    if recorded.is_empty() {
        return Ok(Vec::new());
    }
    let roots: Vec<i32> = recorded.keys().copied().collect();
    let tree = doors.tree_below(&roots)?;
    let alive = |id: ProcessId| {
        tree.get(id.pid)
            .is_some_and(|stat| stat.start_ticks == id.starttime)
    };
    let mut candidates: Vec<i32> = Vec::new();
    for (id, _) in recorded.values() {
        if alive(*id) {
            candidates.push(id.pid);
            candidates.extend(tree.descendants(id.pid));
        }
    }
    let mut homes: Vec<&Place> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Threads { home, .. } => home.as_ref(),
            _ => None,
        })
        .collect();
    homes.dedup();
    for home in homes {
        candidates.extend(procs_of(doors, home)?);
    }
    candidates.sort_unstable();
    candidates.dedup();

    let mut heirs = Vec::new();
    for pid in candidates {
        let looked = doors.proc.process(pid);
        let (tids, process) = match looked.and_then(|found| Ok((found.threads()?, found))) {
            Ok(found) => found,
            Err(error) if error.is_exhausted() => return Err(error),
            Err(_) => continue,
        };
        let own = recorded.get(&pid).filter(|(id, _)| alive(*id));
        let ancestor = nearest(&tree, pid, |pid| {
            recorded.get(&pid).filter(|(id, _)| alive(*id))
        });
        let known = |tid: i32, start: u64| {
            let mut all = recorded.values().flat_map(|(_, threads)| threads.iter());
            all.any(|tuned| (tuned.tid, tuned.starttime) == (tid, start))
        };
        for tid in tids {
            let starttime = match process.thread_start(tid) {
                Ok(starttime) => starttime,
                Err(error) if error.is_exhausted() => return Err(error),
                Err(_) => continue,
            };
            if known(tid, starttime) {
                continue;
            }
            let Ok(Some((_, found))) = asking(tid, slice) else {
                continue;
            };
            // Its creator was a thread of its own process, else of an ancestor, else of one that has
            // ended since and was recorded.
            let near = own.into_iter().chain(ancestor).map(|(_, threads)| *threads);
            let all = recorded.values().map(|(_, threads)| *threads);
            let giver = near
                .chain(all)
                .flatten()
                .find(|tuned| tuned.ours == found && tuned.ours != tuned.original);
            if let Some(giver) = giver {
                heirs.push(Tuned {
                    tid,
                    starttime,
                    ..*giver
                });
            }
        }
    }
    Ok(heirs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn asking() -> impl Strategy<Value = Asking> {
        (-20..3i32, 0..3u64, 0..3u16).prop_map(|(nice, slice_ns, io_priority)| Asking {
            nice,
            slice_ns,
            io_priority,
        })
    }

    proptest! {
        /// Each value by itself: ours goes back, the original stays, anything else is theirs.
        #[test]
        fn what_is_not_ours_stays(original in asking(), ours in asking(), found in asking()) {
            let tuned = Tuned { tid: 1, starttime: 2, original, ours };
            let (wanted, theirs) = wanted(&tuned, found);
            let expect = |found, ours, original| if found == ours { original } else { found };
            prop_assert_eq!(wanted.nice, expect(found.nice, ours.nice, original.nice));
            let io = |asking: Asking| i32::from(asking.io_priority);
            prop_assert_eq!(io(wanted), expect(io(found), io(ours), io(original)));
            let foreign = [
                found.nice != ours.nice && found.nice != original.nice,
                found.slice_ns != ours.slice_ns && found.slice_ns != original.slice_ns,
                found.io_priority != ours.io_priority && found.io_priority != original.io_priority,
            ];
            prop_assert_eq!(theirs.len(), foreign.iter().filter(|is| **is).count());
        }
    }
}
