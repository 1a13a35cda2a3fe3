// SPDX-License-Identifier: GPL-2.0-or-later
//! The foreground app of `gallery-synthetic`: an image viewer reduced to its memory accesses.
//!
//! The viewer reads one command per line from its standard input and answers each with one JSON
//! line: `load` maps all memory and touches it twice, `visit` touches all of it once more,
//! `swipe SENT_NS` shows the next photo, `report` returns the number of resident pages. `SENT_NS`
//! is CLOCK_MONOTONIC at the user's swipe, so that the response time includes waking up the viewer.

use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::unix::fs::FileExt;

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use crate::memory::{cached_pages, major_faults, now_ns, Mapping, MIB, PAGE};
use crate::random::{seed, Random};
use crate::scenario::{Family, Footprint};
use crate::store::{Extent, Store};

/// Pages in a chunk, which is shown as a whole: a swipe touches chunks in random order.
const CHUNK_PAGES: usize = 16;

/// `purpose` of the seed for the viewer's random choices.
const PURPOSE: u64 = 0x114e_1947;

/// The viewer's files and parameters.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// Mapped photos.
    pub photos: Extent,
    /// Files that are only `read()`.
    pub thumbnails: Extent,
    /// The library, whose pages another process has faulted in.
    pub library: Extent,
    /// Anonymous memory.
    pub heap_mib: u32,
    /// Percentage of all memory that a swipe touches.
    pub swipe_percent: u32,
    /// The process that does the work.
    pub family: Family,
    /// Seed of the swipes.
    pub seed: u64,
}

impl Spec {
    /// A viewer with its files from `store`, under names that start with `name`.
    pub fn new(
        store: &mut Store,
        name: &str,
        footprint: &Footprint,
        swipe_percent: u32,
        family: Family,
        repetition: u32,
    ) -> Result<Self> {
        Ok(Spec {
            photos: store.file(&format!("{name}-photos"), footprint.photos_mib)?,
            thumbnails: store.file(&format!("{name}-thumbnails"), footprint.thumbnails_mib)?,
            library: store.file(&format!("{name}-library"), footprint.library_mib)?,
            heap_mib: footprint.heap_mib,
            swipe_percent,
            family,
            seed: seed(PURPOSE, repetition),
        })
    }
}

/// The cost of a swipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swipe {
    /// Time from the user's swipe to the last touched page, without the time to count
    /// `read_miss_pages`.
    pub response_ns: u64,
    /// Faults that waited for the disk.
    pub major_faults: u64,
    /// Number of the major faults that were in the library, whose pages are charged to another
    /// cgroup.
    pub library_major_faults: u64,
    /// Pages to `read()` that were not in the page cache when the swipe began.
    pub read_miss_pages: u64,
}

/// Pages in memory, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resident {
    /// Mapped photos.
    pub photos_pages: u64,
    /// Anonymous memory.
    pub heap_pages: u64,
    /// Files that are only `read()`.
    pub thumbnails_pages: u64,
    /// The library.
    pub library_pages: u64,
}

impl Resident {
    /// Sum of all kinds.
    pub fn total(&self) -> u64 {
        self.photos_pages + self.heap_pages + self.thumbnails_pages + self.library_pages
    }
}

/// Reads commands until the input ends.
pub fn run(spec: &Spec) -> Result<()> {
    let mut lines = io::stdin().lock().lines();
    let mut line = String::new();
    match spec.family {
        Family::Single => {}
        Family::ChildBeforeFocus => hand_over()?,
        Family::ChildAfterFocus => {
            // The first command arrives after the focus change.
            match lines.next() {
                Some(first) => line = first?,
                None => return Ok(()),
            }
            hand_over()?;
        }
    }
    let mut viewer = None;
    loop {
        if line.is_empty() {
            match lines.next() {
                Some(next) => line = next?,
                None => return Ok(()),
            }
        }
        let (command, argument) = line.split_once(' ').unwrap_or((&line, ""));
        match (command, viewer.as_mut()) {
            ("load", None) => answer(&viewer.insert(Viewer::load(spec)?).resident()?)?,
            ("swipe", Some(viewer)) => {
                let sent_ns = argument
                    .parse()
                    .context("swipe needs the time it was sent")?;
                answer(&viewer.swipe(sent_ns)?)?;
            }
            ("visit", Some(viewer)) => {
                viewer.visit()?;
                answer(&viewer.resident()?)?;
            }
            ("report", Some(viewer)) => answer(&viewer.resident()?)?,
            _ => bail!("the viewer does not expect {line:?} now"),
        }
        line.clear();
    }
}

fn answer(value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string(value)?;
    text.push('\n');
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()?;
    Ok(())
}

/// Continues in a child; the parent only waits for it, as a launcher or a browser's main process
/// does.
fn hand_over() -> Result<()> {
    // SAFETY: the viewer is single-threaded, so the child may continue with the whole program.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()).context("the viewer cannot fork"),
        0 => Ok(()),
        child => {
            let mut status = 0;
            // SAFETY: `status` is valid, and the child is ours.
            unsafe { libc::waitpid(child, &mut status, 0) };
            std::process::exit(if status == 0 { 0 } else { 1 });
        }
    }
}

struct Viewer<'a> {
    spec: &'a Spec,
    photos: Mapping,
    heap: Mapping,
    thumbnails: File,
    library: Mapping,
    random: Random,
    buffer: Vec<u8>,
}

impl<'a> Viewer<'a> {
    fn load(spec: &'a Spec) -> Result<Self> {
        let map = |extent: &Extent| -> Result<Mapping> {
            Mapping::file(&extent.open()?, extent.offset, extent.len as usize)
                .with_context(|| extent.path.display().to_string())
        };
        let mut viewer = Viewer {
            spec,
            photos: map(&spec.photos)?,
            heap: Mapping::anonymous(spec.heap_mib as usize * MIB)?,
            thumbnails: spec.thumbnails.open()?,
            library: map(&spec.library)?,
            random: Random::new(spec.seed),
            buffer: vec![0; CHUNK_PAGES * PAGE],
        };
        let mut noise = Random::new(spec.seed ^ 1);
        for page in 0..viewer.heap.pages() {
            viewer.heap.fill_page(page, &mut noise);
        }
        // Twice, so that every page has been used more than once, as in an app that has been
        // running for a while.
        viewer.visit()?;
        viewer.visit()?;
        Ok(viewer)
    }

    /// Touches all memory.
    fn visit(&mut self) -> Result<()> {
        for chunk in 0..chunks(self.spec.thumbnails.pages()) {
            self.read_chunk(chunk)?;
        }
        for mapping in [&self.photos, &self.heap, &self.library] {
            for page in 0..mapping.pages() {
                mapping.read_page(page);
            }
        }
        Ok(())
    }

    /// Reads a chunk of the thumbnails page by page, like a decoder.
    fn read_chunk(&mut self, chunk: usize) -> Result<()> {
        for page in chunk_pages(chunk, self.spec.thumbnails.pages()) {
            let offset = self.spec.thumbnails.offset + (page * PAGE) as u64;
            self.thumbnails
                .read_exact_at(&mut self.buffer[..PAGE], offset)
                .context("the viewer cannot read its thumbnails")?;
        }
        Ok(())
    }

    fn swipe(&mut self, sent_ns: u64) -> Result<Swipe> {
        let percent = self.spec.swipe_percent as usize;
        let mut pick = |pages: usize| {
            let chunks = chunks(pages);
            self.random.sample(chunks, (chunks * percent).div_ceil(100))
        };
        let thumbnails = pick(self.spec.thumbnails.pages());
        let photos = pick(self.photos.pages());
        let heap = pick(self.heap.pages());
        let library = pick(self.library.pages());

        // The time for checking residency must not count as response time.
        let check_start_ns = now_ns();
        let mut read_miss_pages = 0;
        for &chunk in &thumbnails {
            let range = chunk_pages(chunk, self.spec.thumbnails.pages());
            let pages = range.len() as u64;
            let offset = self.spec.thumbnails.offset + (range.start * PAGE) as u64;
            let cached = cached_pages(&self.thumbnails, offset, pages * PAGE as u64)?;
            read_miss_pages += pages.saturating_sub(cached);
        }
        let checking_ns = now_ns() - check_start_ns;

        let before = major_faults();
        for chunk in thumbnails {
            self.read_chunk(chunk)?;
        }
        for chunk in photos {
            for page in chunk_pages(chunk, self.photos.pages()) {
                self.photos.read_page(page);
            }
        }
        for chunk in heap {
            for page in chunk_pages(chunk, self.heap.pages()) {
                let word = self.heap.read_page(page);
                self.heap.dirty_page(page, word);
            }
        }
        let before_library = major_faults();
        for chunk in library {
            for page in chunk_pages(chunk, self.library.pages()) {
                self.library.read_page(page);
            }
        }
        let after = major_faults();
        Ok(Swipe {
            response_ns: now_ns().saturating_sub(sent_ns + checking_ns),
            major_faults: after - before,
            library_major_faults: after - before_library,
            read_miss_pages,
        })
    }

    fn resident(&self) -> Result<Resident> {
        let thumbnails = &self.spec.thumbnails;
        Ok(Resident {
            photos_pages: self.photos.resident_pages()? as u64,
            heap_pages: self.heap.resident_pages()? as u64,
            thumbnails_pages: cached_pages(&self.thumbnails, thumbnails.offset, thumbnails.len)?,
            library_pages: self.library.resident_pages()? as u64,
        })
    }
}

fn chunks(pages: usize) -> usize {
    pages.div_ceil(CHUNK_PAGES)
}

fn chunk_pages(chunk: usize, pages: usize) -> std::ops::Range<usize> {
    let first = chunk * CHUNK_PAGES;
    first..(first + CHUNK_PAGES).min(pages)
}

/// Maps and touches the library before the viewer does, so that the library's pages are charged to
/// this process's cgroup, and sleeps.
pub fn prime(library: &Extent) -> Result<()> {
    let mapping = Mapping::file(&library.open()?, library.offset, library.len as usize)?;
    for page in 0..mapping.pages() {
        mapping.read_page(page);
    }
    answer(&mapping.resident_pages()?)?;
    loop {
        // SAFETY: pause has no preconditions.
        unsafe { libc::pause() };
    }
}

#[cfg(test)]
mod tests {
    use super::{chunk_pages, chunks, Spec, Viewer};
    use crate::memory::now_ns;
    use crate::scenario::{Family, Footprint};
    use crate::store::Store;

    #[test]
    fn chunks_cover_every_page_once() {
        for pages in [0, 1, 15, 16, 17, 250] {
            let covered: Vec<usize> = (0..chunks(pages))
                .flat_map(|chunk| chunk_pages(chunk, pages))
                .collect();
            assert_eq!(covered, (0..pages).collect::<Vec<_>>());
        }
    }

    #[test]
    fn viewer_with_enough_memory_reads_from_the_page_cache() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::Directory(directory.path().to_owned());
        let footprint = Footprint {
            photos_mib: 1,
            heap_mib: 1,
            thumbnails_mib: 1,
            library_mib: 1,
        };
        let spec = Spec::new(&mut store, "test", &footprint, 50, Family::Single, 0).unwrap();
        let mut viewer = Viewer::load(&spec).unwrap();
        assert_eq!(viewer.resident().unwrap().total(), 4 * 256);
        let sent = now_ns();
        let swipe = viewer.swipe(sent).unwrap();
        assert_eq!(swipe.read_miss_pages, 0);
        assert!(swipe.response_ns > 0);
    }
}
