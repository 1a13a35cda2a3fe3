// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads back what an app that is in front again misses, ahead of its faults: the pages of files
//! that it had mapped when it left, and what of its memory is in swap. A fault reads a page and
//! its neighbours and the app waits for each; here the disk has all of them to do at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::Receiver;

use limelight_core::model::{AppKey, ProcessId};
use limelight_sys::pidfd::Pidfd;
use limelight_sys::proc::Proc;
use limelight_sys::remote_memory::{AddressRange, RemoteAdvice};

use super::{failure, Done, Errand};
use crate::answers::Reply;
use crate::doors::{now, same_process};

/// Ranges that are remembered of one process, and apps of which something is.
const RANGES: usize = 1024;
const APPS: usize = 64;

/// Pages of files closer to each other than this are remembered as one range, in bytes.
const GAP: u64 = 32 << 10;

/// Most pages of files that are remembered of one process, in bytes.
const FILES_MOST: u64 = 256 << 20;

type Remembered = BTreeMap<AppKey, Vec<(ProcessId, Vec<AddressRange>)>>;

pub(super) fn run(proc: &Path, errands: &Receiver<Errand>, reply: &Reply<Done>) {
    let Ok(proc) = Proc::open(&proc.to_string_lossy()) else {
        return;
    };
    let mut remembered = Remembered::new();
    for errand in errands {
        match errand {
            Errand::Remember { app, members } => {
                if remembered.len() < APPS || remembered.contains_key(&app) {
                    let files = members.iter().map(|&member| (member, files(&proc, member)));
                    remembered.insert(app, files.collect());
                }
            }
            Errand::Return { app, members, most } => {
                let at = now();
                let files = remembered.remove(&app).unwrap_or_default();
                let brought = bring_back(&proc, &files, &members, most);
                reply.send(Done::Returned {
                    app,
                    at,
                    took: now().saturating_sub(at),
                    swapped: brought.swapped,
                    files: brought.files,
                    failed: brought.failed,
                });
            }
            Errand::Forget { apps } => remembered.retain(|app, _| !apps.contains(app)),
        }
    }
}

/// The pages of files that a process has mapped; none of one that ended.
fn files(proc: &Proc, member: ProcessId) -> Vec<AddressRange> {
    let process = same_process(proc, member);
    let ranges = process.and_then(|process| process.file_pages(FILES_MOST).ok());
    let mut ranges = joined(ranges.unwrap_or_default());
    ranges.truncate(RANGES);
    ranges
}

/// Ranges whose gaps are not worth a request of their own are one.
fn joined(ranges: Vec<AddressRange>) -> Vec<AddressRange> {
    let mut joined: Vec<AddressRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start.saturating_sub(last.end) <= GAP => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

#[derive(Debug, Default)]
struct Brought {
    swapped: u64,
    files: u64,
    failed: Option<String>,
}

fn bring_back(
    proc: &Proc,
    files: &[(ProcessId, Vec<AddressRange>)],
    members: &[ProcessId],
    most: u64,
) -> Brought {
    let mut brought = Brought::default();
    // Code first: nothing runs without it.
    for (member, ranges) in files {
        let room = most.saturating_sub(brought.files);
        match advise(proc, *member, &within(ranges, room)) {
            Ok(bytes) => brought.files = brought.files.saturating_add(bytes),
            Err(error) => brought.failed = failure(error).or(brought.failed),
        }
    }
    for member in members {
        let room = most.saturating_sub(brought.swapped);
        let swapped = same_process(proc, *member)
            .map_or(Ok(Vec::new()), |process| process.swapped(room))
            .and_then(|ranges| advise(proc, *member, &ranges));
        match swapped {
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
    use super::*;

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange { start, end }
    }

    #[test]
    fn near_ranges_are_one_and_only_as_many_as_fit_are_taken() {
        let far = 100 + 2 * GAP;
        let all = joined(vec![range(0, 10), range(20, 100), range(far, far + 50)]);
        assert_eq!(all, [range(0, 100), range(far, far + 50)]);
        assert_eq!(within(&all, 149), [range(0, 100)]);
        assert_eq!(within(&all, 150), all);
        assert_eq!(within(&all, 0), []);
    }

    #[test]
    fn the_files_of_a_process_are_remembered_and_asked_for() {
        let proc = Proc::open("/proc").unwrap();
        let own = std::process::id() as i32;
        let process = proc.process(own).unwrap();
        let member = ProcessId {
            pid: own,
            starttime: process.stat().unwrap().start_ticks,
        };
        let remembered = files(&proc, member);
        assert!(!remembered.is_empty(), "this program is mapped");
        let brought = bring_back(&proc, &[(member, remembered)], &[member], u64::MAX);
        // Without the privilege the reason is told.
        assert!(brought.files > 0 || brought.failed.is_some(), "{brought:?}");
        let stranger = ProcessId {
            starttime: member.starttime + 1,
            ..member
        };
        assert_eq!(files(&proc, stranger), []);
        assert_eq!(advise(&proc, stranger, &[range(0, 4096)]).unwrap(), 0);
    }
}
