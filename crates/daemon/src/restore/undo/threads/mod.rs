// SPDX-License-Identifier: GPL-2.0-or-later
//! Restores the scheduling parameters of threads.
//!
//! Nice value, slice and I/O priority are restored one by one: a value that another program has
//! changed since is left alone. A nice value between Limelight's and the original counts as
//! Limelight's, because an unprivileged thread cannot have reached it from the original. Threads
//! and processes that were created in the meantime have inherited their creator's values. The
//! search for them ([`crate::restore::undo::threads::heirs`]) repeats until a pass finds none, up
//! to a limit.

pub mod heirs;

use limelight_sys::process::Process;
use limelight_sys::sched::{self, Cpu, IoPriority};
use tracing::debug;

use crate::restore::undo::threads::heirs::Inheritance;
use crate::restore::undo::{finish_given, gone_or_failed, Search, Undone};
use crate::restore::{Asking, Entry, Tuned};
use crate::system::System;

/// A thread's present parameters, and the state that is needed to change them. `None` if the fair
/// scheduler does not run the thread. A slice that equals `own_slice_ns` reads as 0.
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
        resets_on_fork: cpu.resets_on_fork(),
    };
    Ok(Some((cpu, asking)))
}

/// Sets a thread's parameters.
pub fn give(tid: i32, cpu: &Cpu, found: Asking, wanted: Asking) -> limelight_sys::Result<()> {
    let of_cpu = |asking: Asking| (asking.nice, asking.slice_ns, asking.resets_on_fork);
    if of_cpu(found) != of_cpu(wanted) {
        let cpu = cpu.with_reset_on_fork(wanted.resets_on_fork);
        cpu.set(tid, wanted.nice, wanted.slice_ns)?;
    }
    if found.io_priority != wanted.io_priority {
        IoPriority(wanted.io_priority).set(tid)?;
    }
    Ok(())
}

/// The slice of threads that have set none, in nanoseconds; 0 on kernels without slices, or if it
/// cannot be determined. To determine it, this thread removes its own slice for a moment.
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
            debug!("cannot determine the kernel's default slice: {error}");
            0
        }
    }
}

/// Restores the threads of all these entries, and the threads that inherited values from them.
/// `kept` are entries that stay in force.
pub fn restore(system: &System, entries: Vec<Entry>, kept: &[Entry]) -> Vec<(Entry, Undone)> {
    if entries.is_empty() {
        return Vec::new();
    }
    let slice = own_slice_ns();
    // Restore creators first, so that threads that they create from now on inherit nothing.
    let mut results: Vec<(Entry, Undone)> = entries
        .into_iter()
        .map(|entry| {
            let undone = restore_process(system, &entry, slice);
            (entry, undone)
        })
        .collect();
    let entries: Vec<Entry> = results.iter().map(|(entry, _)| entry.clone()).collect();
    let inheritance = Inheritance::new(&entries, kept);
    let mut search = Search::default();
    while search.goes_on() {
        search.pass(inheritance.restore_heirs(system, slice));
    }
    finish_given(&mut results, search);
    results
}

fn restore_process(system: &System, entry: &Entry, slice: u64) -> Undone {
    let Entry::Threads { threads, .. } = entry else {
        return Undone::Gone;
    };
    let process = match entry.process().map(|id| system.living(id)) {
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

/// Whether the thread ID still refers to the thread that was changed.
pub fn is_same(process: &Process, tuned: &Tuned) -> bool {
    process
        .thread_start(tuned.tid)
        .is_ok_and(|start| start == tuned.starttime)
}

/// A thread's parameters under any scheduler. A thread outside the fair scheduler keeps its nice
/// value, which applies again when it returns to the fair scheduler.
pub(crate) fn look(tid: i32, slice: u64) -> limelight_sys::Result<(Option<Cpu>, Asking)> {
    if let Some((cpu, found)) = asking(tid, slice)? {
        return Ok((Some(cpu), found));
    }
    let found = Asking {
        nice: sched::nice(tid)?,
        io_priority: IoPriority::of(tid)?.0,
        ..Asking::default()
    };
    Ok((None, found))
}

/// Restores one thread. Returns the values that another program has set, as text; `None` if there
/// are none.
pub(crate) fn restore_thread(tuned: &Tuned, slice: u64) -> limelight_sys::Result<Option<String>> {
    let (cpu, found) = look(tuned.tid, slice)?;
    let (wanted, mut theirs) = wanted(tuned, found);
    match cpu {
        Some(cpu) => give(tuned.tid, &cpu, found, wanted)?,
        None => {
            theirs = vec!["another policy".to_owned()];
            if found.nice != wanted.nice {
                sched::set_nice(tuned.tid, wanted.nice)?;
            }
            if found.io_priority != wanted.io_priority {
                IoPriority(wanted.io_priority).set(tuned.tid)?;
            }
        }
    }
    Ok((!theirs.is_empty()).then(|| format!("thread {}: {}", tuned.tid, theirs.join(" and "))))
}

/// Whether a nice value is Limelight's, or lies between Limelight's and the original. Without
/// privilege, a thread can reach such a value only by raising Limelight's, not by lowering the
/// original.
pub fn is_lowered(found: i32, original: i32, ours: i32) -> bool {
    found == ours || (ours..original).contains(&found)
}

/// The parameters to restore, and the present values that belong to another program, as text.
pub fn wanted(tuned: &Tuned, found: Asking) -> (Asking, Vec<String>) {
    let Tuned { original, ours, .. } = tuned;
    let mut wanted = found;
    let mut theirs = Vec::new();
    if is_lowered(found.nice, original.nice, ours.nice) {
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
    if found.resets_on_fork == ours.resets_on_fork {
        wanted.resets_on_fork = original.resets_on_fork;
    }
    (wanted, theirs)
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
            ..Asking::default()
        })
    }

    #[test]
    fn reset_on_fork_ends_with_the_boost_and_stays_if_the_program_had_set_it() {
        for original in [false, true] {
            let with = |resets_on_fork| Asking {
                resets_on_fork,
                ..Asking::default()
            };
            let tuned = Tuned {
                tid: 1,
                starttime: 2,
                original: with(original),
                ours: with(true),
            };
            let (restored, theirs) = wanted(&tuned, with(true));
            assert_eq!((restored, theirs.len()), (with(original), 0));
        }
    }

    proptest! {
        /// Each value is handled by itself: Limelight's value is restored, the original stays, and
        /// any other value is left alone.
        #[test]
        fn foreign_values_stay(original in asking(), ours in asking(), found in asking()) {
            let tuned = Tuned { tid: 1, starttime: 2, original, ours };
            let (wanted, theirs) = wanted(&tuned, found);
            let expect = |found, ours, original| if found == ours { original } else { found };
            // A nice value between Limelight's and the original counts as Limelight's.
            let between = ours.nice < found.nice && found.nice < original.nice;
            let nice = if between { ours.nice } else { found.nice };
            prop_assert_eq!(wanted.nice, expect(nice, ours.nice, original.nice));
            let io = |asking: Asking| i32::from(asking.io_priority);
            prop_assert_eq!(io(wanted), expect(io(found), io(ours), io(original)));
            let foreign = [
                nice != ours.nice && nice != original.nice,
                found.slice_ns != ours.slice_ns && found.slice_ns != original.slice_ns,
                found.io_priority != ours.io_priority && found.io_priority != original.io_priority,
            ];
            prop_assert_eq!(theirs.len(), foreign.iter().filter(|is| **is).count());
        }
    }
}
