// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads an app's missing memory back when the app becomes topmost again, ahead of its faults. A
//! fault reads a page and its neighbours, and the app waits for each fault. This thread gives the
//! disk all requests at once.
//!
//! Only memory that the app will need is read: reading all of its swap takes as long as several
//! launches, and evicts the pages of other apps. The needed memory is what the app touched after
//! earlier returns. The kernel reads the pages on advice (`MADV_WILLNEED`) but maps none, so a page
//! that is still in no page table a moment after a return was not needed. The needed file pages are
//! those that the app has mapped at that moment: reclaim has unmapped what it evicted meanwhile, and
//! only the pages that the app touched are mapped again. An app touches the same memory each time
//! the user switches to it (ASAP, USENIX ATC 2021). Nothing is learnt from the app's start, which
//! maps much that the app never touches again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::Receiver;

use limelight_core::model::{AppKey, ProcessId};
use limelight_sys::proc::Proc;
use limelight_sys::remote_memory::{AddressRange, RemoteAdvice};

use crate::event_loop::answers::Reply;
use crate::mechanisms::swap::swapper::footprint::{lock, Footprint, Footprints, Memory};
use crate::mechanisms::swap::swapper::ranges::{both, either, joined, without};
use crate::mechanisms::swap::swapper::{failure, pidfd_of, Done, Errand};
use crate::system::{now, same_process};

/// Maximum number of ranges that are remembered for one process: of its files, and of its memory.
const RANGES: usize = 1024;
const HOT_RANGES: usize = 4096;

/// Maximum number of apps that are remembered.
const APPS: usize = 64;

/// Ranges of file pages that are at most this far apart, in bytes, are remembered as one range.
const GAP: u64 = 32 << 10;

/// Maximum memory of one process that is scanned, in bytes.
const LOOK_MOST: u64 = 1 << 30;

pub(crate) fn run(
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
            Errand::Left { app } => leave(footprints, app),
            Errand::Learn { app } => {
                let working_set = learn(&proc, footprints, app);
                reply.send(Done::Learnt { app, working_set });
            }
            Errand::Return { app, members, most } => {
                let at = now();
                let brought = bring_back(&proc, footprints, app, &members, most, advise);
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

/// Whether this app is remembered already, or there is room for it. If there is none, first forgets
/// apps that have ended: an errand to forget them may have been dropped.
fn has_room(proc: &Proc, footprints: &Footprints, app: AppKey) -> bool {
    let full = |memory: &Memory| memory.len() >= APPS && !memory.contains_key(&app);
    let known: Vec<(AppKey, Vec<ProcessId>)> = match &*lock(footprints) {
        memory if !full(memory) => return true,
        memory => {
            let members = |app: &BTreeMap<_, _>| app.keys().copied().collect();
            memory
                .iter()
                .map(|(key, app)| (*key, members(app)))
                .collect()
        }
    };
    let lives = |member: &ProcessId| same_process(proc, *member).is_some();
    let ended = known
        .iter()
        .filter(|(_, members)| !members.iter().any(lives));
    let ended: Vec<AppKey> = ended.map(|(key, _)| *key).collect();
    let mut memory = lock(footprints);
    memory.retain(|key, _| !ended.contains(key));
    !full(&memory)
}

/// Notes that the app has left the foreground.
fn leave(footprints: &Footprints, app: AppKey) {
    let mut memory = lock(footprints);
    let known = memory.get_mut(&app).into_iter().flatten();
    known.for_each(|(_, known)| known.left = true);
}

/// Determines which memory the app has needed since it became topmost: the missing pages that it
/// touched, and the file pages that it has mapped. Returns the size of the app's known working set
/// in its memory, without files, in bytes.
fn learn(proc: &Proc, footprints: &Footprints, app: AppKey) -> u64 {
    let take_missed = |(member, known): (&ProcessId, &mut Footprint)| {
        let missed = std::mem::take(&mut known.missed);
        (*member, missed, known.left)
    };
    let mut memory = lock(footprints);
    let known = memory.get_mut(&app).into_iter().flatten();
    let returned: Vec<_> = known.map(take_missed).collect();
    drop(memory);
    // Only this thread adds and removes footprints, so it can scan without the lock.
    let needed = |(member, missed, left): (ProcessId, Vec<AddressRange>, bool)| {
        let process = same_process(proc, member)?;
        let still = (!missed.is_empty()).then(|| process.swapped(LOOK_MOST).ok());
        let touched = still.flatten().map(|still| without(&missed, &still));
        let files = left.then(|| process.file_pages(LOOK_MOST).ok()).flatten();
        Some((member, missed, touched, files))
    };
    let needed: Vec<_> = returned.into_iter().filter_map(needed).collect();
    let mut memory = lock(footprints);
    let Some(known) = memory.get_mut(&app) else {
        return 0;
    };
    for (member, missed, touched, files) in needed {
        let known = known.entry(member).or_default();
        if let Some(touched) = touched {
            // Keep the hot pages that were not missing: nothing new is known about them. Gaps
            // between touched pages are neither recorded nor read, because the touched pages are
            // adjacent in swap.
            let before = without(&known.hot, &missed);
            known.hot = either(&touched, &before);
            known.hot.truncate(HOT_RANGES);
        }
        if let Some(files) = files {
            known.files = joined(files, GAP);
            known.files.truncate(RANGES);
        }
    }
    let hot = known.values().flat_map(|known| &known.hot);
    hot.map(AddressRange::bytes).sum()
}

/// Reads the app's missing memory, up to `most` bytes of its files and as much of its swapped
/// memory. `advise` requests ranges of a process.
fn bring_back(
    proc: &Proc,
    footprints: &Footprints,
    app: AppKey,
    members: &[ProcessId],
    most: u64,
    advise: impl Fn(&Proc, ProcessId, &[AddressRange]) -> limelight_sys::Result<u64>,
) -> Brought {
    let mut brought = Brought::default();
    if !has_room(proc, footprints, app) {
        return brought;
    }
    if let Some(known) = lock(footprints).get_mut(&app) {
        known.retain(|member, _| members.contains(member));
    }
    for &member in members {
        let Some(process) = same_process(proc, member) else {
            continue;
        };
        let (files, hot) = {
            let mut memory = lock(footprints);
            let known = memory.entry(app).or_default().entry(member).or_default();
            (known.files.clone(), known.hot.clone())
        };
        // File pages first: they hold the code, and nothing runs without it.
        let files = within(&files, most.saturating_sub(brought.files));
        let advised = advise(proc, member, &files).and_then(|bytes| {
            brought.files = brought.files.saturating_add(bytes);
            let missed = process.swapped(LOOK_MOST)?;
            let room = most.saturating_sub(brought.swapped);
            let swapped = within(&both(&missed, &hot), room);
            let mut memory = lock(footprints);
            let known = memory.entry(app).or_default().entry(member).or_default();
            known.missed = missed;
            drop(memory);
            advise(proc, member, &swapped)
        });
        match advised {
            Ok(bytes) => brought.swapped = brought.swapped.saturating_add(bytes),
            Err(error) => brought.failed = failure(error).or(brought.failed),
        }
    }
    brought
}

/// The first ranges, as many as fit into `most` bytes together.
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
    match pidfd_of(proc, member)? {
        Some(pidfd) => pidfd.advise(ranges, RemoteAdvice::WillNeed),
        None => Ok(0),
    }
}

#[cfg(test)]
mod tests {
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

    /// Brings the app to the foreground, and learns what it needed.
    fn come_to_front(proc: &Proc, footprints: &Footprints, members: &[ProcessId]) -> Brought {
        let brought = bring_back(proc, footprints, APP, members, u64::MAX, advise);
        learn(proc, footprints, APP);
        brought
    }

    #[test]
    fn files_mapped_after_a_return_are_requested_at_the_next() {
        let proc = Proc::open("/proc").unwrap();
        let member = own(&proc);
        let footprints = Footprints::default();
        let files = || lock(&footprints)[&APP][&member].files.clone();
        come_to_front(&proc, &footprints, &[member]);
        assert_eq!(files(), [], "most of it is needed only for the start");
        leave(&footprints, APP);
        let brought = come_to_front(&proc, &footprints, &[member]);
        assert_eq!(brought.files, 0, "nothing was known yet");
        assert!(!files().is_empty(), "mapped files are not remembered");
        leave(&footprints, APP);
        let brought = come_to_front(&proc, &footprints, &[member]);
        // Without the privilege for the advice, the reason is reported.
        assert!(brought.files > 0 || brought.failed.is_some(), "{brought:?}");
        let stranger = ProcessId {
            starttime: member.starttime + 1,
            ..member
        };
        come_to_front(&proc, &footprints, &[stranger]);
        assert!(lock(&footprints)[&APP].is_empty(), "{stranger:?} has ended");
    }

    /// The errand that forgets an app is dropped while the queue is full.
    #[test]
    fn ended_apps_leave_room_for_others() {
        let proc = Proc::open("/proc").unwrap();
        let member = own(&proc);
        let footprints = Footprints::default();
        for inode in 0..APPS as u64 {
            let ended = ProcessId {
                starttime: member.starttime + 1,
                ..member
            };
            let app = AppKey::Cgroup {
                inode: 1000 + inode,
            };
            let footprint = BTreeMap::from([(ended, Footprint::default())]);
            lock(&footprints).insert(app, footprint);
        }
        come_to_front(&proc, &footprints, &[member]);
        assert!(lock(&footprints).contains_key(&APP));
    }

    #[test]
    fn squeezes_go_on_while_memory_is_read_back() {
        let proc = Proc::open("/proc").unwrap();
        let member = own(&proc);
        let footprints = Footprints::default();
        come_to_front(&proc, &footprints, &[member]);
        leave(&footprints, APP);
        come_to_front(&proc, &footprints, &[member]);
        let reads = std::cell::Cell::new(0);
        let advise = |_: &Proc, _: ProcessId, ranges: &[AddressRange]| {
            assert!(
                footprints.try_lock().is_ok(),
                "the squeezer would wait for the disk"
            );
            reads.set(reads.get() + 1);
            Ok(ranges.iter().map(AddressRange::bytes).sum())
        };
        let brought = bring_back(&proc, &footprints, APP, &[member], u64::MAX, advise);
        assert!(brought.files > 0 && reads.get() == 2, "{brought:?}");
    }

    #[test]
    fn touched_ranges_are_hot_and_ranges_that_were_not_missing_stay() {
        let proc = Proc::open("/proc").unwrap();
        let member = own(&proc);
        let range = |start, end| AddressRange { start, end };
        let footprints = Footprints::default();
        // These ranges are far from all mappings of this process, so no page in them is in swap.
        let (low, high) = (range(0, 0x1000), range(0x10_0000, 0x20_0000));
        let footprint = Footprint {
            hot: vec![high],
            missed: vec![low],
            ..Footprint::default()
        };
        let hot = || lock(&footprints)[&APP][&member].hot.clone();
        lock(&footprints)
            .entry(APP)
            .or_default()
            .insert(member, footprint);
        let working_set = learn(&proc, &footprints, APP);
        assert_eq!(hot(), [low, high]);
        assert_eq!(lock(&footprints)[&APP][&member].missed, []);
        assert_eq!(working_set, low.bytes() + high.bytes());
        learn(&proc, &footprints, APP);
        assert_eq!(hot(), [low, high]);
    }
}
