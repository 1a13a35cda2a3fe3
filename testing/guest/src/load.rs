// SPDX-License-Identifier: GPL-2.0-or-later
//! Background loads. Each counts its progress in shared memory. The cell's runner reads the counter
//! at the start and at the end of the measured time, which gives the exact throughput.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::memory::{Mapping, MIB, PAGE};
use crate::random::Random;
use crate::scenario::{Access, Load};
use crate::store::{Extent, Store};

/// Bytes that an indexer reads at each random offset.
const PIECE: usize = 16 << 10;
/// Bytes per read and write of a copy.
const BLOCK: usize = 128 << 10;
/// Largest size of a copy's target, in MiB; a longer copy wraps around in it. Writing this much
/// evicts everything else from the guest's memory.
const COPY_TARGET_MIB: u32 = 128;

/// Parameters of a load's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// The kind of load.
    pub load: Load,
    /// The file that the load reads, if any.
    pub source: Option<Extent>,
    /// The file that the load writes, if any.
    pub target: Option<Extent>,
    /// File of the progress counter, which counts KiB.
    pub counter: PathBuf,
    /// Seed of the load's random choices.
    pub seed: u64,
}

impl Spec {
    /// The load with its files from `store`.
    pub fn new(load: Load, store: &mut Store, counter: PathBuf, seed: u64) -> Result<Self> {
        let (source, target) = match load {
            Load::Copy { mib } => (
                Some(store.file("background", mib)?),
                Some(store.target("copy", mib.min(COPY_TARGET_MIB))),
            ),
            Load::Index { mib, .. } => (Some(store.file("background", mib)?), None),
            Load::Grow { .. } | Load::Rounds { .. } => (None, None),
        };
        Ok(Spec {
            load,
            source,
            target,
            counter,
            seed,
        })
    }
}

/// The name of a load in values, results and cgroups.
pub fn name(load: &Load) -> &'static str {
    match load {
        Load::Copy { .. } => "copy",
        Load::Index {
            access: Access::Read,
            ..
        } => "index_read",
        Load::Index {
            access: Access::Mapping,
            ..
        } => "index_mapping",
        Load::Grow { .. } => "grow",
        Load::Rounds { .. } => "rounds",
    }
}

/// A counter in a file that two processes map. A load counts the KiB that it has copied, read or
/// touched.
pub struct Counter(Mapping);

impl Counter {
    /// Creates the counter's file, at 0.
    pub fn create(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        file.set_len(PAGE as u64)?;
        Ok(Counter(Mapping::shared_word(&file)?))
    }

    /// Opens a counter created by another process.
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        let mapping = Mapping::shared_word(&file)?;
        mapping.lock()?;
        Ok(Counter(mapping))
    }

    /// Adds to the counter.
    pub fn add(&self, amount: u64) {
        self.0.word().fetch_add(amount, Ordering::Relaxed);
    }

    /// The count so far. A load counts KiB; other programs count pages, steps or milliseconds.
    pub fn kib(&self) -> u64 {
        self.0.word().load(Ordering::Relaxed)
    }
}

/// Runs a load until it is killed.
pub fn run(spec: &Spec) -> Result<()> {
    let counter = Counter::open(&spec.counter)?;
    let done = counter.0.word();
    let mut random = Random::new(spec.seed);
    let source = || spec.source.as_ref().context("this load needs a source");
    match spec.load {
        Load::Copy { .. } => copy(
            source()?,
            spec.target.as_ref().context("a copy needs a target")?,
            done,
        ),
        Load::Index {
            access: Access::Read,
            ..
        } => read_pieces(source()?, &mut random, done),
        Load::Index {
            access: Access::Mapping,
            ..
        } => touch_pieces(source()?, &mut random, done),
        Load::Grow { mib } => grow(mib as usize * MIB, &mut random, done),
        Load::Rounds { mib, rest_ms } => {
            let rest = Duration::from_millis(rest_ms.into());
            work_in_rounds(mib as usize * MIB, rest, &mut random, done)
        }
    }
}

fn copy(source: &Extent, target: &Extent, done: &AtomicU64) -> Result<()> {
    let from = source.open()?;
    let to = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&target.path)
        .with_context(|| format!("cannot write {}", target.path.display()))?;
    let mut block = vec![0u8; BLOCK];
    loop {
        for offset in (0..source.len).step_by(BLOCK) {
            from.read_exact_at(&mut block, source.offset + offset)
                .context("a copy cannot read its source")?;
            to.write_all_at(&block, target.offset + offset % target.len)
                .context("a copy cannot write its target")?;
            done.fetch_add(BLOCK as u64 >> 10, Ordering::Relaxed);
        }
    }
}

fn read_pieces(source: &Extent, random: &mut Random, done: &AtomicU64) -> Result<()> {
    let file: File = source.open()?;
    let pieces = source.len / PIECE as u64;
    let mut piece = vec![0u8; PIECE];
    loop {
        let offset = source.offset + random.below(pieces) * PIECE as u64;
        file.read_exact_at(&mut piece, offset)
            .context("an indexer cannot read its file")?;
        done.fetch_add(PIECE as u64 >> 10, Ordering::Relaxed);
    }
}

fn touch_pieces(source: &Extent, random: &mut Random, done: &AtomicU64) -> Result<()> {
    let file: File = source.open()?;
    let mapping = Mapping::file(&file, source.offset, source.len as usize)?;
    let pages_a_piece = PIECE / PAGE;
    let pieces = mapping.pages() / pages_a_piece;
    loop {
        let first = random.below(pieces as u64) as usize * pages_a_piece;
        for page in first..first + pages_a_piece {
            mapping.touch_page(page);
        }
        done.fetch_add(PIECE as u64 >> 10, Ordering::Relaxed);
    }
}

fn work_in_rounds(
    bytes: usize,
    rest: Duration,
    random: &mut Random,
    done: &AtomicU64,
) -> Result<()> {
    let mut memory = Mapping::anonymous(bytes)?;
    let mut order: Vec<usize> = (0..memory.pages()).collect();
    for &page in &order {
        memory.fill_page(page, random);
    }
    loop {
        for next in (1..order.len()).rev() {
            order.swap(next, random.below(next as u64 + 1) as usize);
        }
        for &page in &order {
            memory.dirty_page(page, random.word());
            done.fetch_add(PAGE as u64 >> 10, Ordering::Relaxed);
        }
        sleep(rest);
    }
}

fn grow(bytes: usize, random: &mut Random, done: &AtomicU64) -> Result<()> {
    let mut memory = Mapping::anonymous(bytes)?;
    for page in 0..memory.pages() {
        memory.fill_page(page, random);
        done.fetch_add(PAGE as u64 >> 10, Ordering::Relaxed);
    }
    loop {
        let page = random.below(memory.pages() as u64) as usize;
        memory.dirty_page(page, random.word());
        done.fetch_add(PAGE as u64 >> 10, Ordering::Relaxed);
    }
}
