// SPDX-License-Identifier: GPL-2.0-or-later
//! Takes memory from one app at a time.
//!
//! Pages are written to swap in address order (`process_madvise(MADV_PAGEOUT)`). Pages that the app
//! needs when it returns go last and together, because pages that are adjacent in swap are read
//! back together. Reclaim would write pages in the order of their last use, and each page would
//! then take a request of its own. Memory that the advice does not reach (shared memory, or all
//! memory on a kernel without the call) is taken through `memory.reclaim` of the app's own cgroup.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::Arc;
use std::time::Duration;

use limelight_core::model::{Harm, ProcessId};
use limelight_sys::cgroup::Reclaimed;
use limelight_sys::cgroup::{Cgroup, CgroupPath, Hierarchy};
use limelight_sys::persistent_file::PersistentFile;
use limelight_sys::pidfd::Pidfd;
use limelight_sys::proc::Proc;
use limelight_sys::remote_memory::{AddressRange, RemoteAdvice};

use crate::event_loop::answers::Reply;
use crate::mechanisms::swap::swapper::footprint::{lock, Footprints};
use crate::mechanisms::swap::swapper::ranges::{both, without};
use crate::mechanisms::swap::swapper::{failure, Done, Squeeze};
use crate::reconcile::gate::Gate;
use crate::restore::Place;
use crate::system::self_tuning::stand_back;
use crate::system::{now, same_process};

/// Bytes per request. The squeeze can stop between two requests: the cgroup may have ended, or an
/// app may need the disk.
const PIECE: u64 = 2 << 20;

/// Most memory of one process that is scanned, in bytes.
const LOOK_MOST: u64 = 1 << 30;

/// Longest wait for a cgroup to freeze. Running processes would fault their pages back in.
const FREEZE: Duration = Duration::from_millis(200);

/// Result of a squeeze.
#[derive(Debug, Default, PartialEq, Eq)]
struct Squeezed {
    /// Bytes that went to swap.
    swapped: u64,
    /// Decrease of the cgroup's memory, in bytes.
    freed: u64,
    /// Whether only memory is left that the app will need when it returns.
    lean: bool,
}

/// State of the thread.
pub(crate) struct Squeezer {
    pub mount: PathBuf,
    pub proc: PathBuf,
    pub footprints: Footprints,
    /// Incremented when an app waits for the disk.
    pub waits: Arc<AtomicU64>,
    /// Checked before each piece.
    pub gate: Gate,
}

impl Squeezer {
    pub fn run(&self, jobs: &Receiver<Squeeze>, reply: &Reply<Done>) {
        // Squeezing is not urgent; the daemon's own priority is for urgent work.
        stand_back();
        for job in jobs {
            let at = now();
            let result = self.squeeze(&job);
            let took = now().saturating_sub(at);
            let (squeezed, failed) = match result {
                Ok(squeezed) => (squeezed, None),
                Err(error) => (Squeezed::default(), failure(error)),
            };
            reply.send(Done::Squeezed {
                app: job.app,
                at,
                took,
                swapped: squeezed.swapped,
                freed: squeezed.freed,
                lean: squeezed.lean,
                failed,
            });
        }
    }

    fn squeeze(&self, job: &Squeeze) -> limelight_sys::Result<Squeezed> {
        let group = match &job.place {
            None => None,
            Some(place) => {
                let Some(group) = self.open(place)? else {
                    return Ok(Squeezed::default());
                };
                Some(group)
            }
        };
        if let Some(group) = &group {
            if group.freezes()? {
                group.wait_frozen(true, FREEZE)?;
            }
        }
        let begun = self.waits.load(Ordering::Relaxed);
        let waited_for = || self.waits.load(Ordering::Relaxed) != begun;
        let before = usage(group.as_ref())?;
        let mut left = job.bytes;
        let mut able = false;
        for &member in &job.members {
            let pieces = self.pieces(job, member, left);
            // Skip processes that have ended, which have no pages. On a kernel without the call,
            // all processes are skipped, and `memory.reclaim` takes the memory.
            let (Ok(pieces), Ok(pidfd)) = (pieces, Pidfd::open(member.pid)) else {
                continue;
            };
            able = true;
            let place = self.place(member);
            for piece in pieces {
                if left == 0 || waited_for() || !pidfd.is_alive() {
                    break;
                }
                let place = place.as_ref();
                if self.gate.process(member, place, Harm::Squeeze).is_some() {
                    break;
                }
                if pidfd.advise(&piece, RemoteAdvice::PageOut).is_err() {
                    able = false;
                    break;
                }
                let bytes: u64 = piece.iter().map(AddressRange::bytes).sum();
                left = left.saturating_sub(bytes);
            }
        }
        let lean = able && !job.dry && left > 0 && !waited_for();
        let Some(group) = group else {
            return Ok(Squeezed {
                swapped: 0,
                freed: job.bytes - left,
                lean,
            });
        };
        if job.dry || !able {
            let gone = before.0.saturating_sub(usage(Some(&group))?.0);
            let mut left = job.bytes.saturating_sub(gone);
            // A shortfall of up to a quarter does not justify the fallback.
            while left > job.bytes / 4 && !waited_for() {
                let path = group.path().as_str();
                if self.gate.group(path, Harm::Squeeze, job.app).is_some() {
                    break;
                }
                let piece = left.min(PIECE);
                if group.reclaim(piece, None)? == Reclaimed::Less {
                    break;
                }
                left -= piece;
            }
        }
        let after = usage(Some(&group))?;
        Ok(Squeezed {
            swapped: after.1.saturating_sub(before.1),
            freed: before.0.saturating_sub(after.0),
            lean,
        })
    }

    /// The `cgroup` file of a process, open; `None` when the process has ended.
    fn place(&self, member: ProcessId) -> Option<PersistentFile> {
        let proc = Proc::open(&self.proc.to_string_lossy()).ok()?;
        PersistentFile::open(same_process(&proc, member)?.dir(), "cgroup").ok()
    }

    /// Opens the cgroup; `None` if another cgroup has its path now. Fails if the path is gone.
    fn open(&self, place: &Place) -> limelight_sys::Result<Option<Cgroup>> {
        let Some(path) = CgroupPath::parse(&place.path) else {
            return Ok(None);
        };
        let group = Hierarchy::at(&self.mount)?.open(&path)?;
        Ok((group.id().0 == place.inode).then_some(group))
    }

    /// The process's memory in pieces of at most [`PIECE`], `most` bytes in all. Memory that the
    /// app does not need when it returns comes first.
    fn pieces(
        &self,
        job: &Squeeze,
        member: ProcessId,
        most: u64,
    ) -> limelight_sys::Result<Vec<Vec<AddressRange>>> {
        let proc = Proc::open(&self.proc.to_string_lossy())?;
        let Some(process) = same_process(&proc, member) else {
            return Ok(Vec::new());
        };
        let present = process.anonymous_pages(LOOK_MOST)?;
        let known = lock(&self.footprints);
        let known = known.get(&job.app).and_then(|app| app.get(&member));
        let hot = known.map_or(&[][..], |known| &known.hot);
        let mut ordered = without(&present, hot);
        if job.dry {
            ordered.extend(both(&present, hot));
        }
        Ok(cut(&ordered, most))
    }
}

/// The first `most` bytes of ranges, in pieces of at most [`PIECE`].
fn cut(ranges: &[AddressRange], most: u64) -> Vec<Vec<AddressRange>> {
    let mut pieces: Vec<Vec<AddressRange>> = Vec::new();
    let (mut left, mut room) = (most, 0);
    for range in ranges {
        let mut start = range.start;
        while start < range.end && left > 0 {
            if room == 0 {
                pieces.push(Vec::new());
                room = PIECE;
            }
            let bytes = (range.end - start).min(room).min(left);
            if let Some(piece) = pieces.last_mut() {
                piece.push(AddressRange {
                    start,
                    end: start + bytes,
                });
            }
            start += bytes;
            room -= bytes;
            left -= bytes;
        }
    }
    pieces
}

/// Memory and swap that are charged to the cgroup; 0 without one.
fn usage(group: Option<&Cgroup>) -> limelight_sys::Result<(u64, u64)> {
    match group {
        Some(group) => Ok((group.memory_current()?, group.swap_current().unwrap_or(0))),
        None => Ok((0, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limelight_core::model::AppKey;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn remainder_is_reclaimed_from_the_cgroup_and_never_from_one_that_reuses_its_name() {
        let temp = tempfile::tempdir().unwrap();
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
            place: Some(Place {
                path: "/app".to_owned(),
                inode,
            }),
            members: Vec::new(),
            dry: false,
            bytes: 2 * PIECE,
        };
        let squeezer = Squeezer {
            mount: temp.path().to_owned(),
            proc: "/proc".into(),
            footprints: Footprints::default(),
            waits: Arc::default(),
            gate: Gate::default(),
        };
        let asked = || std::fs::read_to_string(group.join("memory.reclaim")).unwrap();
        assert_eq!(
            squeezer.squeeze(&job(inode + 1)).unwrap(),
            Squeezed::default()
        );
        assert_eq!(asked(), "");
        assert_eq!(squeezer.squeeze(&job(inode)).unwrap(), Squeezed::default());
        assert_eq!(asked(), PIECE.to_string());
        std::fs::remove_dir_all(&group).unwrap();
        assert!(squeezer.squeeze(&job(inode)).unwrap_err().is_gone());
    }

    #[test]
    fn ranges_are_cut_to_pieces() {
        let range = |start, end| AddressRange { start, end };
        let all = [range(0, PIECE / 2), range(PIECE, 3 * PIECE)];
        let pieces = cut(&all, u64::MAX);
        let bytes =
            |piece: &Vec<AddressRange>| -> u64 { piece.iter().map(AddressRange::bytes).sum() };
        let sizes: Vec<u64> = pieces.iter().map(bytes).collect();
        assert_eq!(sizes, [PIECE, PIECE, PIECE / 2]);
        assert_eq!(
            pieces[0],
            [range(0, PIECE / 2), range(PIECE, PIECE + PIECE / 2)]
        );
        assert_eq!(cut(&all, PIECE / 4), [vec![range(0, PIECE / 4)]]);
        assert_eq!(cut(&all, 0), Vec::<Vec<AddressRange>>::new());
    }
}
