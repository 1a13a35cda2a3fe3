// SPDX-License-Identifier: GPL-2.0-or-later
//! Takes memory from one app at a time.
//!
//! Pages are written to swap in address order (`process_madvise(MADV_PAGEOUT)`). Pages that the app
//! needs when it returns are written only if [`Squeeze::dry`] is set. They are then written last
//! and together, because pages that are adjacent in swap are read back together. Reclaim would
//! write pages in the order of their last use, and each page would then take a request of its own.
//! `memory.reclaim` of the app's own cgroup takes the rest if the advice reached no process or
//! failed. It does so, too, if `dry` is set, because the advice does not reach shared memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
use crate::mechanisms::swap::swapper::{failure, pidfd_of, Done, Job, Squeeze};
use crate::reconcile::gate::Gate;
use crate::restore::Place;
use crate::system::self_tuning::stand_back;
use crate::system::{now, same_process};

/// Bytes per request. Between two requests, the thread checks whether the process has ended, the
/// gate protects it, or an app needs the disk.
const PIECE: u64 = 2 << 20;

/// Maximum memory of one process that is scanned, in bytes.
pub(super) const LOOK_MOST: u64 = 1 << 30;

/// Longest wait for a cgroup that is being frozen. Running processes would fault their pages back
/// in.
const FREEZE: Duration = Duration::from_millis(200);

/// Result of a squeeze.
#[derive(Debug, Default, PartialEq, Eq)]
struct Squeezed {
    /// Bytes that went to swap; 0 without a cgroup.
    swapped: u64,
    /// Decrease of the cgroup's memory, in bytes; without a cgroup, the bytes that the kernel was
    /// advised to page out.
    freed: u64,
    /// Whether all that is left is memory that the app will need when it returns.
    lean: bool,
}

/// The thread that carries out squeezes, and what it needs.
pub(crate) struct Squeezer {
    pub mount: PathBuf,
    pub proc: PathBuf,
    pub sys: PathBuf,
    pub footprints: Footprints,
    /// Incremented when an app waits for the disk.
    pub waits: Arc<AtomicU64>,
    /// While set, nothing is squeezed.
    pub paused: Arc<AtomicBool>,
    /// Checked before each piece.
    pub gate: Gate,
    /// Advises the kernel to page a piece out.
    pub page_out: PageOut,
}

/// Advice on ranges of a process's memory; returns the bytes that the kernel processed.
pub(crate) type PageOut = fn(&Pidfd, &[AddressRange]) -> limelight_sys::Result<u64>;

/// The real [`PageOut`]: `process_madvise(MADV_PAGEOUT)` on one piece.
pub(crate) fn page_out(process: &Pidfd, piece: &[AddressRange]) -> limelight_sys::Result<u64> {
    process.advise(piece, RemoteAdvice::PageOut)
}

impl Squeezer {
    pub fn run(&self, jobs: &Receiver<Job>, reply: &Reply<Done>) {
        // Squeezing is not urgent; the daemon's own priority is for urgent work.
        stand_back();
        for job in jobs {
            let at = now();
            reply.send(match job {
                Job::Squeeze(job) => {
                    let (squeezed, failed) = match self.squeeze(&job) {
                        Ok(squeezed) => (squeezed, None),
                        Err(error) => (Squeezed::default(), failure(error)),
                    };
                    Done::Squeezed {
                        app: job.app,
                        at,
                        took: now().saturating_sub(at),
                        swapped: squeezed.swapped,
                        freed: squeezed.freed,
                        lean: squeezed.lean,
                        failed,
                    }
                }
                Job::WriteBack(job) => {
                    let (bytes, failed) = self.write_back(&job);
                    Done::WrittenBack {
                        app: job.app,
                        at,
                        took: now().saturating_sub(at),
                        bytes,
                        failed,
                    }
                }
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
        let waited_for =
            || self.paused.load(Ordering::Relaxed) || self.waits.load(Ordering::Relaxed) != begun;
        let before = usage(group.as_ref())?;
        let mut left = job.bytes;
        // Whether the advice reached a process, and whether it failed for one. If it reached none
        // or failed, or if `job.dry`, `memory.reclaim` takes the rest.
        let (mut reached, mut failed) = (false, false);
        for &member in &job.members {
            let (pieces, pidfd) = match self.pieces(job, member, left) {
                Ok(Some(found)) => found,
                // A process that has ended has no memory.
                Ok(None) => continue,
                Err(error) => {
                    failed |= !error.is_gone();
                    continue;
                }
            };
            reached = true;
            let place = self.place(member);
            for piece in pieces {
                if left == 0 || waited_for() || !pidfd.is_alive() {
                    break;
                }
                let place = place.as_ref();
                if self.gate.process(member, place, Harm::Squeeze).is_some() {
                    break;
                }
                if let Err(error) = (self.page_out)(&pidfd, &piece) {
                    failed |= !error.is_gone();
                    break;
                }
                let bytes: u64 = piece.iter().map(AddressRange::bytes).sum();
                left = left.saturating_sub(bytes);
            }
        }
        let able = reached && !failed;
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
            // A shortfall of up to a quarter does not justify reclaim through the cgroup.
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
    pub(super) fn place(&self, member: ProcessId) -> Option<PersistentFile> {
        let proc = Proc::open(&self.proc.to_string_lossy()).ok()?;
        PersistentFile::open(same_process(&proc, member)?.dir(), "cgroup").ok()
    }

    /// Opens the cgroup; `None` if its path is invalid or belongs to another cgroup now. Fails if
    /// the path is gone.
    fn open(&self, place: &Place) -> limelight_sys::Result<Option<Cgroup>> {
        let Some(path) = CgroupPath::parse(&place.path) else {
            return Ok(None);
        };
        let group = Hierarchy::at(&self.mount)?.open(&path)?;
        Ok((group.id().0 == place.inode).then_some(group))
    }

    /// The process's memory in pieces of at most [`PIECE`], `most` bytes in all, and the process.
    /// Memory that the app needs when it returns is left out; with `job.dry` it comes last. `None`
    /// if the process has ended.
    fn pieces(
        &self,
        job: &Squeeze,
        member: ProcessId,
        most: u64,
    ) -> limelight_sys::Result<Option<(Vec<Vec<AddressRange>>, Pidfd)>> {
        let proc = Proc::open(&self.proc.to_string_lossy())?;
        let opened = (same_process(&proc, member), pidfd_of(&proc, member)?);
        let (Some(process), Some(pidfd)) = opened else {
            return Ok(None);
        };
        let present = process.anonymous_pages(LOOK_MOST)?;
        let known = lock(&self.footprints);
        let known = known.get(&job.app).and_then(|app| app.get(&member));
        let hot = known.map_or(&[][..], |known| &known.hot);
        let mut ordered = without(&present, hot);
        if job.dry {
            ordered.extend(both(&present, hot));
        }
        Ok(Some((cut(&ordered, most), pidfd)))
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

/// Memory and swap that are charged to the cgroup, in bytes; both 0 without a cgroup.
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

    /// A directory with a fake cgroup `app`, and the inode of the cgroup.
    fn fake_group() -> (tempfile::TempDir, u64) {
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
        (temp, inode)
    }

    fn job(inode: u64) -> Squeeze {
        Squeeze {
            app: AppKey::Cgroup { inode },
            place: Some(Place {
                path: "/app".to_owned(),
                inode,
            }),
            members: Vec::new(),
            dry: false,
            bytes: 2 * PIECE,
        }
    }

    fn squeezer(mount: &std::path::Path, page_out: PageOut) -> Squeezer {
        Squeezer {
            mount: mount.to_owned(),
            proc: "/proc".into(),
            sys: "/sys".into(),
            footprints: Footprints::default(),
            waits: Arc::default(),
            paused: Arc::default(),
            gate: Gate::default(),
            page_out,
        }
    }

    #[test]
    fn remainder_is_reclaimed_from_the_cgroup_and_never_from_one_that_reuses_its_name() {
        let (temp, inode) = fake_group();
        let group = temp.path().join("app");
        let squeezer = squeezer(temp.path(), page_out);
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

    /// A process, killed on drop.
    struct Sleeper(std::process::Child);

    impl Sleeper {
        fn new() -> Sleeper {
            let mut sleep = std::process::Command::new("sleep");
            Sleeper(sleep.arg("600").spawn().unwrap())
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// The process whose memory [`refuse_one`] cannot page out.
    static REFUSED: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);

    fn refuse_one(process: &Pidfd, piece: &[AddressRange]) -> limelight_sys::Result<u64> {
        match process.pid() == REFUSED.load(Ordering::Relaxed) {
            true => Err(limelight_sys::Error::new(
                "advise on the memory of",
                "/proc",
                rustix::io::Errno::PERM,
            )),
            false => Ok(piece.iter().map(AddressRange::bytes).sum()),
        }
    }

    #[test]
    fn memory_that_cannot_be_paged_out_is_reclaimed_from_the_cgroup() {
        let (temp, inode) = fake_group();
        let children = [Sleeper::new(), Sleeper::new()];
        let proc = Proc::open("/proc").unwrap();
        let id = |pid: u32| ProcessId {
            pid: pid as i32,
            starttime: proc.stat(pid as i32).unwrap().unwrap().start_ticks,
        };
        let members: Vec<ProcessId> = children.iter().map(|child| id(child.0.id())).collect();
        // A process has at least a stack; wait until the programs have started.
        let pages = |member: &ProcessId| {
            let process = proc.process(member.pid).unwrap();
            process
                .anonymous_pages(LOOK_MOST)
                .is_ok_and(|pages| !pages.is_empty())
        };
        while !members.iter().all(pages) {
            std::thread::sleep(Duration::from_millis(5));
        }
        for refused in &members {
            REFUSED.store(refused.pid, Ordering::Relaxed);
            std::fs::write(temp.path().join("app/memory.reclaim"), "").unwrap();
            let squeezer = squeezer(temp.path(), refuse_one);
            let mut job = job(inode);
            job.members = members.clone();
            let squeezed = squeezer.squeeze(&job).unwrap();
            assert!(
                !squeezed.lean,
                "lean, although one process's memory was not taken"
            );
            let asked = std::fs::read_to_string(temp.path().join("app/memory.reclaim")).unwrap();
            assert_eq!(asked, PIECE.to_string());
        }
    }

    /// The advice then reaches no process.
    #[test]
    fn process_that_reuses_a_pid_is_not_squeezed() {
        let (temp, inode) = fake_group();
        let other = Sleeper::new();
        let mut job = job(inode);
        job.members = vec![ProcessId {
            pid: other.0.id() as i32,
            starttime: 0,
        }];
        squeezer(temp.path(), page_out).squeeze(&job).unwrap();
        let asked = std::fs::read_to_string(temp.path().join("app/memory.reclaim")).unwrap();
        assert_eq!(asked, PIECE.to_string());
    }

    #[test]
    fn ranges_are_cut_into_pieces() {
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
