// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads back what an app that is in front again misses, ahead of its faults. A fault reads a page
//! and its neighbours and the app waits for each; here the disk has all of them to do at once.
//!
//! Only what it will need: to read all that is in swap takes as long as several launches and
//! pushes out somebody else's pages. Of files that is what it had mapped when it left. Of its
//! memory it is what it touched the last time: advice reads pages but maps none, so what is in no
//! page table a moment after a return was not needed. Switch footprints stay the same from one
//! launch to the next (ASAP, USENIX ATC 2021).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::Receiver;

use limelight_core::model::{AppKey, ProcessId};
use limelight_sys::pidfd::Pidfd;
use limelight_sys::proc::Proc;
use limelight_sys::remote_memory::{AddressRange, RemoteAdvice};

use super::footprint::{lock, Footprints, Memory};
use super::ranges::{both, either, joined, without};
use super::{failure, Done, Errand};
use crate::answers::Reply;
use crate::doors::{now, same_process};

/// Ranges that are remembered of one process's files and memory, and apps of which something is.
const RANGES: usize = 1024;
const HOT_RANGES: usize = 4096;
const APPS: usize = 64;

/// Pages of files closer to each other than this are remembered as one range, in bytes.
const GAP: u64 = 32 << 10;

/// Most that is looked at of one process, in bytes.
const LOOK_MOST: u64 = 1 << 30;

pub(super) fn run(
    proc: &Path,
    footprints: &Footprints,
    errands: &Receiver<Errand>,
    reply: &Reply<Done>,
) {
    let Ok(proc) = Proc::open(&proc.to_string_lossy()) else {
        return;
    };
    for errand in errands {
        match errand {
            Errand::Remember { app, members } => {
                remember(&proc, &mut lock(footprints), app, &members);
            }
            Errand::Learn { app } => {
                let working_set = learn(&proc, &mut lock(footprints), app);
                reply.send(Done::Learnt { app, working_set });
            }
            Errand::Return { app, members, most } => {
                let at = now();
                let brought = bring_back(&proc, &mut lock(footprints), app, &members, most);
                reply.send(Done::Returned {
                    app,
                    at,
                    took: now().saturating_sub(at),
                    swapped: brought.swapped,
                    files: brought.files,
                    failed: brought.failed,
                });
            }
            Errand::Forget { apps } => lock(footprints).retain(|app, _| !apps.contains(app)),
        }
    }
}

#[derive(Debug, Default)]
struct Brought {
    swapped: u64,
    files: u64,
    failed: Option<String>,
}

/// The app has left the front.
fn remember(proc: &Proc, memory: &mut Memory, app: AppKey, members: &[ProcessId]) {
    if memory.len() >= APPS && !memory.contains_key(&app) {
        return;
    }
    let known = memory.entry(app).or_default();
    known.retain(|member, _| members.contains(member));
    for &member in members {
        let process = same_process(proc, member);
        let ranges = process.and_then(|process| process.file_pages(LOOK_MOST).ok());
        let mut files = joined(ranges.unwrap_or_default(), GAP);
        files.truncate(RANGES);
        known.entry(member).or_default().files = files;
    }
}

/// The app has been in front for a moment: what of the missing has it touched? Returns how much it
/// is known to work with, in bytes.
fn learn(proc: &Proc, memory: &mut Memory, app: AppKey) -> u64 {
    for (&member, known) in memory.get_mut(&app).into_iter().flatten() {
        let missed = std::mem::take(&mut known.missed);
        let process = same_process(proc, member).filter(|_| !missed.is_empty());
        let Some(still) = process.and_then(|process| process.swapped(LOOK_MOST).ok()) else {
            continue;
        };
        let touched = without(&missed, &still);
        // Of what was not missing nothing new is known. What lies between was not touched, and is not
        // read: what was lies side by side in swap.
        let before = without(&known.hot, &missed);
        known.hot = either(&touched, &before);
        known.hot.truncate(HOT_RANGES);
    }
    let known = memory.get(&app).into_iter().flat_map(BTreeMap::values);
    let hot = known.flat_map(|known| &known.hot);
    hot.map(AddressRange::bytes).sum()
}

fn bring_back(
    proc: &Proc,
    memory: &mut Memory,
    app: AppKey,
    members: &[ProcessId],
    most: u64,
) -> Brought {
    let mut brought = Brought::default();
    if memory.len() >= APPS && !memory.contains_key(&app) {
        return brought;
    }
    let known = memory.entry(app).or_default();
    for &member in members {
        let Some(process) = same_process(proc, member) else {
            continue;
        };
        let known = known.entry(member).or_default();
        // Code first: nothing runs without it.
        let files = within(&known.files, most.saturating_sub(brought.files));
        let advised = advise(proc, member, &files).and_then(|bytes| {
            brought.files = brought.files.saturating_add(bytes);
            known.missed = process.swapped(LOOK_MOST)?;
            let room = most.saturating_sub(brought.swapped);
            let swapped = within(&both(&known.missed, &known.hot), room);
            advise(proc, member, &swapped)
        });
        match advised {
            Ok(bytes) => brought.swapped = brought.swapped.saturating_add(bytes),
            Err(error) => brought.failed = failure(error).or(brought.failed),
        }
    }
    brought
}

/// As many of the first ranges as have `most` bytes together.
fn within(ranges: &[AddressRange], most: u64) -> Vec<AddressRange> {
    let mut left = most;
    let taken = ranges.iter().take_while(|range| {
        let fits = range.bytes() <= left;
        left = left.saturating_sub(range.bytes());
        fits
    });
    taken.copied().collect()
}

fn advise(proc: &Proc, member: ProcessId, ranges: &[AddressRange]) -> limelight_sys::Result<u64> {
    if ranges.is_empty() {
        return Ok(0);
    }
    let pidfd = Pidfd::open(member.pid)?;
    // Opened first, looked at then: whoever has the number now is the one that is meant.
    match same_process(proc, member) {
        Some(_) => pidfd.advise(ranges, RemoteAdvice::WillNeed),
        None => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::footprint::Footprint;
    use super::*;

    const APP: AppKey = AppKey::Cgroup { inode: 7 };

    fn own(proc: &Proc) -> ProcessId {
        let pid = std::process::id() as i32;
        let stat = proc.process(pid).and_then(|process| process.stat());
        ProcessId {
            pid,
            starttime: stat.unwrap().start_ticks,
        }
    }

    #[test]
    fn only_as_many_ranges_as_fit_are_taken() {
        let range = |start, end| AddressRange { start, end };
        let all = [range(0, 100), range(200, 250)];
        assert_eq!(within(&all, 149), [range(0, 100)]);
        assert_eq!(within(&all, 150), all);
        assert_eq!(within(&all, 0), []);
    }

    #[test]
    fn the_files_of_a_process_are_remembered_and_asked_for() {
        let proc = Proc::open("/proc").unwrap();
        let member = own(&proc);
        let mut memory = Memory::default();
        remember(&proc, &mut memory, APP, &[member]);
        assert!(!memory[&APP][&member].files.is_empty(), "this program");
        let brought = bring_back(&proc, &mut memory, APP, &[member], u64::MAX);
        // Without the privilege the reason is told.
        assert!(brought.files > 0 || brought.failed.is_some(), "{brought:?}");
        let stranger = ProcessId {
            starttime: member.starttime + 1,
            ..member
        };
        remember(&proc, &mut memory, APP, &[stranger]);
        assert_eq!(memory[&APP].len(), 1);
        assert!(memory[&APP][&stranger].files.is_empty());
    }

    #[test]
    fn what_was_touched_is_hot_and_what_was_not_missing_stays_as_it_was() {
        let proc = Proc::open("/proc").unwrap();
        let member = own(&proc);
        let range = |start, end| AddressRange { start, end };
        let mut memory = Memory::default();
        // Far from anything that this process has, so that nothing of it is in swap now.
        let (low, high) = (range(0, 0x1000), range(0x10_0000, 0x20_0000));
        let footprint = Footprint {
            hot: vec![high],
            missed: vec![low],
            ..Footprint::default()
        };
        memory.entry(APP).or_default().insert(member, footprint);
        let working_set = learn(&proc, &mut memory, APP);
        assert_eq!(memory[&APP][&member].hot, [low, high]);
        assert_eq!(memory[&APP][&member].missed, []);
        assert_eq!(working_set, low.bytes() + high.bytes());
        learn(&proc, &mut memory, APP);
        assert_eq!(memory[&APP][&member].hot, [low, high]);
    }
}
