// SPDX-License-Identifier: GPL-2.0-or-later
//! The app with which PREMAP is measured: its heap grows, is used, and shrinks again. It requests
//! memory directly from the kernel, like common allocators, so that every arm makes the same
//! requests.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::ptr;
use std::thread;

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use crate::memory::{now_ns, PAGE};
use crate::random::Random;
use crate::scenario::Growth;

/// Pages by which glibc grows the heap: M_TOP_PAD plus the request that did not fit.
const STEP: usize = 33;
/// Distance between two writes in a used page, in bytes.
const LINE: usize = 64;
/// Pages reserved for a thread's arena.
const ARENA: usize = 64 << 8;

/// Parameters of the app's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// The heap's growth pattern.
    pub growth: Growth,
    /// Seed of the random sizes and addresses.
    pub seed: u64,
}

/// Result of a round.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Round {
    /// Time to grow and use the heap, and with [`Growth::Swipe`] also to shrink it. The time to
    /// read the peak does not count.
    pub elapsed_ns: u64,
    /// Number of pages used.
    pub used_pages: u64,
    /// Resident memory before the heap shrank, in KiB.
    pub peak_kib: u64,
}

/// The app's process: prints a line when it is ready, does a round for each line of input and
/// prints its result, and exits at the end of its input.
pub fn app(spec: &Spec) -> Result<()> {
    println!("true");
    let mut random = Random::new(spec.seed);
    for line in io::stdin().lock().lines() {
        line?;
        let round = match spec.growth {
            Growth::Swipe { pages } => swipe(pages as usize, &mut random)?,
            Growth::Sparse { mib, every } => sparse(mib as usize, every as usize, &mut random)?,
            Growth::Arenas { threads, pages } => arenas(threads, pages as usize, &mut random)?,
            Growth::Program => bail!("the heap app does not run other programs"),
        };
        println!("{}", serde_json::to_string(&round)?);
    }
    Ok(())
}

/// A new private anonymous mapping; the caller unmaps it.
pub(crate) fn map_anonymous(pages: usize, protection: i32, flags: i32) -> Result<*mut u8> {
    // SAFETY: a new private mapping at an address of the kernel's choice aliases nothing.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            pages * PAGE,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error())
            .with_context(|| format!("cannot map {pages} pages"));
    }
    Ok(start.cast())
}

/// A range of pages that the kernel gave to the app.
#[derive(Clone, Copy)]
struct Piece {
    start: *mut u8,
    pages: usize,
}

impl Piece {
    /// Creates a separate mapping.
    fn map(pages: usize, protection: i32, flags: i32) -> Result<Piece> {
        let start = map_anonymous(pages, protection, flags)?;
        Ok(Piece { start, pages })
    }

    fn heap(pages: usize) -> Result<Piece> {
        Piece::map(pages, libc::PROT_READ | libc::PROT_WRITE, 0)
    }

    /// Grows the heap by `pages`.
    fn grow(pages: usize) -> Result<Piece> {
        // SAFETY: nothing else in this process moves the break while a round runs: no memory is
        // allocated between the first growth and the end of `swipe`, which shrinks the heap.
        let start = unsafe { libc::sbrk((pages * PAGE) as isize) };
        if start as isize == -1 {
            return Err(io::Error::last_os_error())
                .with_context(|| format!("cannot grow the heap by {pages} pages"));
        }
        Ok(Piece {
            start: start.cast(),
            pages,
        })
    }

    fn unmap(self) {
        // SAFETY: the piece is our own mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), self.pages * PAGE) };
    }

    /// Writes to every line of a page.
    fn write(self, page: usize, word: u64) {
        assert!(page < self.pages);
        for line in 0..PAGE / LINE {
            // SAFETY: the address lies inside the piece, which is mapped writable and used by this
            // process only.
            unsafe {
                let address = self.start.add(page * PAGE + line * LINE).cast::<u64>();
                ptr::write_volatile(address, word);
            }
        }
    }

    /// Writes to all pages except about one in fifty, in order of address; returns the number of
    /// written pages.
    fn use_most(self, random: &mut Random) -> u64 {
        let mut used = 0;
        for page in 0..self.pages {
            if random.below(50) != 0 {
                self.write(page, random.word());
                used += 1;
            }
        }
        used
    }
}

/// A browser's allocations for one swipe, at least `pages` pages in total. Most of them extend the
/// heap; larger ones are separate mappings.
fn swipe(pages: usize, random: &mut Random) -> Result<Round> {
    let mut mapped: Vec<Piece> = Vec::with_capacity(pages);
    let mut grown = 0;
    let mut total = 0;
    let mut used = 0;
    let start = now_ns();
    while total < pages {
        let piece = match random.below(20) {
            0 => Piece::heap(256)?,
            1..=3 => Piece::heap(16 + random.below(48) as usize)?,
            _ => {
                grown += STEP;
                total += STEP;
                used += Piece::grow(STEP)?.use_most(random);
                continue;
            }
        };
        mapped.push(piece);
        total += piece.pages;
        used += piece.use_most(random);
    }
    let busy = now_ns() - start;
    let peak_kib = resident_kib()?;
    let start = now_ns();
    // SAFETY: returns what `Piece::grow` took; nothing refers to it any more.
    unsafe { libc::sbrk(-((grown * PAGE) as isize)) };
    mapped.iter().for_each(|piece| piece.unmap());
    Ok(Round {
        elapsed_ns: busy + now_ns() - start,
        used_pages: used,
        peak_kib,
    })
}

/// Reserves `mib` MiB and uses one page in `every`, in random order. Then creates a small mapping
/// for each used page, and uses the first page of each mapping.
fn sparse(mib: usize, every: usize, random: &mut Random) -> Result<Round> {
    let large = Piece::map(
        mib << 8,
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_NORESERVE,
    )?;
    let places = random.sample(large.pages / every, large.pages / every);
    let mut small = Vec::with_capacity(places.len());
    let start = now_ns();
    for place in &places {
        large.write(place * every + random.below(every as u64) as usize, 1);
    }
    for _ in &places {
        // The last page stays PROT_NONE, which keeps the kernel from merging adjacent mappings.
        let piece = Piece::map(every + 1, libc::PROT_NONE, 0)?;
        allow(piece, every)?;
        piece.write(0, 1);
        small.push(piece);
    }
    let elapsed_ns = now_ns() - start;
    let peak_kib = resident_kib()?;
    large.unmap();
    small.iter().for_each(|piece| piece.unmap());
    Ok(Round {
        elapsed_ns,
        used_pages: 2 * places.len() as u64,
        peak_kib,
    })
}

/// Each thread reserves an arena and commits it in steps, as glibc's threads do.
fn arenas(threads: u32, pages: usize, random: &mut Random) -> Result<Round> {
    let start = now_ns();
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let seed = random.word();
            thread::spawn(move || arena(pages, seed))
        })
        .collect();
    let mut used = 0;
    let mut arenas = Vec::new();
    for worker in workers {
        let (piece, pages) = match worker.join() {
            Ok(done) => done?,
            Err(_) => bail!("a thread of the heap app panicked"),
        };
        arenas.push(Piece {
            start: piece as *mut u8,
            pages: ARENA,
        });
        used += pages;
    }
    let elapsed_ns = now_ns() - start;
    let peak_kib = resident_kib()?;
    arenas.iter().for_each(|piece| piece.unmap());
    Ok(Round {
        elapsed_ns,
        used_pages: used,
        peak_kib,
    })
}

/// Reserves an arena and commits its pages in steps, until at least `pages` pages are committed or
/// the arena is nearly full. Returns the arena's address and the number of used pages.
fn arena(pages: usize, seed: u64) -> Result<(usize, u64)> {
    let mut random = Random::new(seed);
    let arena = Piece::map(ARENA, libc::PROT_NONE, libc::MAP_NORESERVE)?;
    let mut done = 0;
    let mut used = 0;
    while done < pages.min(ARENA - STEP) {
        let step = Piece {
            // SAFETY: the step lies inside the arena.
            start: unsafe { arena.start.add(done * PAGE) },
            pages: STEP,
        };
        allow(step, STEP)?;
        used += step.use_most(&mut random);
        done += STEP;
    }
    Ok((arena.start as usize, used))
}

/// Makes the first `pages` pages writable.
fn allow(piece: Piece, pages: usize) -> Result<()> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the range is our own mapping.
    if unsafe { libc::mprotect(piece.start.cast(), pages * PAGE, access) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot make memory writable");
    }
    Ok(())
}

/// This process's resident memory, from smaps_rollup: the counters in `status` lag behind.
fn resident_kib() -> Result<u64> {
    let mut text = [0; 256];
    let len = File::open("/proc/self/smaps_rollup")?.read(&mut text)?;
    let text = text.get(..len).unwrap_or_default();
    std::str::from_utf8(text)?
        .lines()
        .find_map(|line| line.strip_prefix("Rss:"))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse().ok())
        .context("/proc/self/smaps_rollup has no Rss")
}

// `swipe` has no unit test, because the test harness may move the break at the same time. The lab's
// scenarios test `swipe`.
#[cfg(test)]
mod tests {
    use super::{arenas, sparse};
    use crate::random::Random;

    #[test]
    fn sparse_heap_uses_few_pages() {
        let round = sparse(64, 64, &mut Random::new(7)).unwrap();
        assert_eq!(round.used_pages, 512);
    }

    #[test]
    fn each_thread_grows_an_arena() {
        let round = arenas(3, 330, &mut Random::new(7)).unwrap();
        assert!((930..=990).contains(&round.used_pages), "{round:?}");
    }
}
