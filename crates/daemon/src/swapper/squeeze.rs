// SPDX-License-Identifier: GPL-2.0-or-later
//! Takes memory from one app at a time, at its own expense (`memory.reclaim`).

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use limelight_sys::cgroup::Reclaimed;
use limelight_sys::cgroup::{Cgroup, CgroupPath, Hierarchy};

use super::{failure, Done, Squeeze};
use crate::answers::Reply;
use crate::daemon::stand_back;
use crate::doors::now;

/// Bytes that are asked for at once: between two requests the group may have ended, or somebody may
/// wait for the disk.
const PIECE: u64 = 2 << 20;

/// How long a group that was told to stop is waited for: what runs would take its pages back.
const FREEZE: Duration = Duration::from_millis(200);

pub(super) fn run(mount: &Path, jobs: &Receiver<Squeeze>, reply: &Reply<Done>, waits: &AtomicU64) {
    // What it does is no hurry; the daemon's own priority is for what is.
    stand_back();
    for job in jobs {
        let at = now();
        let result = squeeze(mount, &job, waits);
        let took = now().saturating_sub(at);
        let (swapped, freed, failed) = match result {
            Ok((swapped, freed)) => (swapped, freed, None),
            Err(error) => (0, 0, failure(error)),
        };
        reply.send(Done::Squeezed {
            app: job.app,
            at,
            took,
            swapped,
            freed,
            failed,
        });
    }
}

/// Bytes that went to swap, and bytes of memory that the group has less.
fn squeeze(mount: &Path, job: &Squeeze, waits: &AtomicU64) -> limelight_sys::Result<(u64, u64)> {
    let Some(path) = CgroupPath::parse(&job.place.path) else {
        return Ok((0, 0));
    };
    let group = Hierarchy::at(mount)?.open(&path)?;
    if group.id().0 != job.place.inode {
        return Ok((0, 0));
    }
    if group.freezes()? {
        group.wait_frozen(true, FREEZE)?;
    }
    let before = usage(&group)?;
    let mut left = job.bytes;
    let begun = waits.load(Ordering::Relaxed);
    while left > 0 && waits.load(Ordering::Relaxed) == begun {
        let piece = left.min(PIECE);
        if group.reclaim(piece, None)? == Reclaimed::Less {
            break;
        }
        left -= piece;
    }
    let after = usage(&group)?;
    Ok((
        after.1.saturating_sub(before.1),
        before.0.saturating_sub(after.0),
    ))
}

/// Memory and swap that are charged to the group.
fn usage(group: &Cgroup) -> limelight_sys::Result<(u64, u64)> {
    Ok((group.memory_current()?, group.swap_current().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::Place;
    use limelight_core::model::AppKey;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_group_is_asked_piece_by_piece_and_a_stranger_of_its_name_is_not() {
        let (temp, waits) = (tempfile::tempdir().unwrap(), AtomicU64::new(0));
        let group = temp.path().join("app");
        std::fs::create_dir(&group).unwrap();
        for (file, text) in [
            ("cgroup.procs", ""),
            ("cgroup.freeze", "0"),
            ("memory.current", "50000000"),
            ("memory.reclaim", ""),
        ] {
            std::fs::write(group.join(file), text).unwrap();
        }
        let inode = std::fs::metadata(&group).unwrap().ino();
        let job = |inode| Squeeze {
            app: AppKey::Cgroup { inode },
            place: Place {
                path: "/app".to_owned(),
                inode,
            },
            bytes: PIECE + 4096,
        };
        let asked = || std::fs::read_to_string(group.join("memory.reclaim")).unwrap();
        assert_eq!(
            squeeze(temp.path(), &job(inode + 1), &waits).unwrap(),
            (0, 0)
        );
        assert_eq!(asked(), "");
        assert_eq!(squeeze(temp.path(), &job(inode), &waits).unwrap(), (0, 0));
        assert_eq!(asked(), "4096");
        std::fs::remove_dir_all(&group).unwrap();
        assert!(squeeze(temp.path(), &job(inode), &waits)
            .unwrap_err()
            .is_gone());
    }
}
