// SPDX-License-Identifier: GPL-2.0-or-later
//! A synthetic app, which simulates a cold launch, warm launches and the user's work.
//!
//! The app prints one JSON line when its cold launch is complete, and one for each command:
//! `launch SENT_NS` brings the app to the foreground, `use` simulates the user's work. `SENT_NS` is
//! CLOCK_MONOTONIC at the user's touch, so that the delay includes starting or waking up the app.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::os::unix::fs::FileExt;

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use crate::memory::{major_faults, now_ns, Mapping, PAGE};
use crate::random::Random;
use crate::store::Extent;

/// Number of adjacent pages that are used together, like the objects of one screen.
const RUN: usize = 8;
/// Percentage of heap and files that a warm launch touches in addition to the hot set.
const STRAY_PERCENT: usize = 3;
/// Percentage of heap and files that the command `use` touches, besides the hot heap.
const USE_PERCENT: usize = 10;
/// Noise words per heap page. The other words are zero, so that a page compresses 2.6:1, as
/// measured for pages in zram (2.6 to 2.7 with lz4 and lzo-rle).
const NOISE_WORDS: usize = 196;
/// Approximate number of instructions in a step of [`work`].
const STEP_INSTRUCTIONS: u64 = 4;

/// Parameters of the app's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// CLOCK_MONOTONIC at the user's touch, in nanoseconds.
    pub sent_ns: u64,
    /// The file that all apps map.
    pub framework: Extent,
    /// Percentage of the framework that a launch touches.
    pub framework_hot_percent: u32,
    /// The app's own files, as one extent.
    pub files: Extent,
    /// File with the app's saved context.
    pub context: std::path::PathBuf,
    /// Pages of anonymous memory.
    pub heap_pages: usize,
    /// CPU work of a cold launch, in instructions.
    pub cold_work: u64,
    /// CPU work of a warm launch, in instructions.
    pub warm_work: u64,
    /// Percentage of heap and files that a warm launch touches.
    pub hot_percent: u32,
    /// Seed of the hot set: the same at each start of the app.
    pub seed: u64,
    /// Seed of the random accesses: different at each start of the app.
    pub life: u64,
}

/// The cost of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launched {
    /// From the user's touch until the app is ready.
    pub delay_ns: u64,
    /// Faults that waited for the disk.
    pub major_faults: u64,
}

/// Runs an app until its input ends.
pub fn run(spec: &Spec) -> Result<()> {
    let mut app = App::start(spec)?;
    answer(spec.sent_ns, major_faults())?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let faults = major_faults();
        match line.split_once(' ') {
            Some(("launch", sent)) => {
                let sent_ns = sent.parse().context("launch needs the time it was sent")?;
                app.come_to_front()?;
                answer(sent_ns, major_faults() - faults)?;
            }
            None if line == "use" => {
                let begun_ns = now_ns();
                app.be_used()?;
                answer(begun_ns, major_faults() - faults)?;
            }
            _ => bail!("an app does not expect {line:?}"),
        }
    }
    Ok(())
}

fn answer(sent_ns: u64, major_faults: u64) -> Result<()> {
    let launched = Launched {
        delay_ns: now_ns() - sent_ns,
        major_faults,
    };
    let mut text = serde_json::to_string(&launched)?;
    text.push('\n');
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    Ok(output.flush()?)
}

struct App<'a> {
    spec: &'a Spec,
    framework: Mapping,
    files: Mapping,
    heap: Mapping,
    hot_framework: Vec<usize>,
    hot_files: Vec<usize>,
    hot_heap: Vec<usize>,
    random: Random,
}

impl<'a> App<'a> {
    /// A cold launch: faults in code and files, and fills the heap.
    fn start(spec: &'a Spec) -> Result<Self> {
        let map = |extent: &Extent| -> Result<Mapping> {
            Mapping::file(&extent.open()?, extent.offset, extent.len as usize)
                .with_context(|| extent.path.display().to_string())
        };
        let mut random = Random::new(spec.seed);
        // The framework's hot set is the same for all apps.
        let mut shared = Random::new(spec.framework.len);
        let mut app = App {
            spec,
            framework: map(&spec.framework)?,
            files: map(&spec.files)?,
            heap: Mapping::anonymous(spec.heap_pages * PAGE)?,
            hot_framework: hot(
                spec.framework.pages(),
                spec.framework_hot_percent,
                &mut shared,
            ),
            hot_files: hot(spec.files.pages(), spec.hot_percent, &mut random),
            hot_heap: hot(spec.heap_pages, spec.hot_percent, &mut random),
            random: Random::new(spec.seed ^ spec.life),
        };
        restore(spec)?;
        for &page in &app.hot_framework {
            app.framework.touch_page(page);
        }
        // Initialisation touches all files and computes the heap from them.
        let runs = spec.heap_pages.div_ceil(RUN).max(1);
        let file_pages = app.files.pages();
        for run in 0..runs {
            let (from, to) = (file_pages * run / runs, file_pages * (run + 1) / runs);
            for page in from..to {
                app.files.touch_page(page);
            }
            for page in run * RUN..((run + 1) * RUN).min(spec.heap_pages) {
                app.heap.fill_words(page, NOISE_WORDS, &mut app.random);
            }
            work(spec.cold_work / runs as u64);
        }
        Ok(app)
    }

    /// A warm launch.
    fn come_to_front(&mut self) -> Result<()> {
        for &page in &self.hot_framework {
            self.framework.touch_page(page);
        }
        for &page in &self.hot_files {
            self.files.touch_page(page);
        }
        let runs = self.hot_heap.len().div_ceil(RUN).max(1);
        for run in self.hot_heap.chunks(RUN) {
            for &page in run {
                self.heap.touch_page(page);
                // A frame writes about half of the pages that it reads.
                if page % 2 == 0 {
                    self.heap.dirty_page(page, self.random.word());
                }
            }
            work(self.spec.warm_work / runs as u64);
        }
        self.stray(STRAY_PERCENT);
        save(self.spec)
    }

    /// Simulates the user's work with the app.
    fn be_used(&mut self) -> Result<()> {
        self.stray(USE_PERCENT);
        for &page in &self.hot_heap {
            self.heap.touch_page(page);
        }
        Ok(())
    }

    /// Touches a random part of heap and files.
    fn stray(&mut self, percent: usize) {
        let heap = self.heap.pages() / RUN;
        for run in self.random.sample(heap, heap * percent / 100) {
            for page in run * RUN..(run + 1) * RUN {
                self.heap.dirty_page(page, self.random.word());
            }
        }
        let files = self.files.pages() / RUN;
        for run in self.random.sample(files, files * percent / 100) {
            for page in run * RUN..(run + 1) * RUN {
                self.files.touch_page(page);
            }
        }
    }
}

/// `percent` of `pages`, in random runs, in ascending order.
fn hot(pages: usize, percent: u32, random: &mut Random) -> Vec<usize> {
    let runs = pages / RUN;
    let mut chosen = random.sample(runs, runs * percent as usize / 100);
    chosen.sort_unstable();
    let pages = |run: usize| run * RUN..(run + 1) * RUN;
    chosen.into_iter().flat_map(pages).collect()
}

/// Executes about this many instructions.
fn work(instructions: u64) {
    let mut value = instructions;
    for step in 0..instructions / STEP_INSTRUCTIONS {
        value = black_box(value.wrapping_add(step));
    }
}

/// Writes a few bytes of saved context.
fn save(spec: &Spec) -> Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&spec.context)
        .with_context(|| format!("cannot create {}", spec.context.display()))?;
    Ok(file.write_all_at(&spec.seed.to_le_bytes(), 0)?)
}

fn restore(spec: &Spec) -> Result<()> {
    let mut bytes = [0; 8];
    match File::open(&spec.context) {
        Ok(file) => {
            file.read_exact_at(&mut bytes, 0)
                .with_context(|| format!("cannot read {}", spec.context.display()))?;
            if bytes != spec.seed.to_le_bytes() {
                bail!("{} holds another app's context", spec.context.display());
            }
            Ok(())
        }
        // The first launch ever.
        Err(error) if error.kind() == io::ErrorKind::NotFound => save(spec),
        Err(error) => Err(error).with_context(|| spec.context.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_set_consists_of_runs_and_is_reproducible() {
        let pages = hot(1000, 30, &mut Random::new(5));
        assert_eq!(pages.len(), 296);
        assert!(pages
            .chunks(RUN)
            .all(|run| run[0] % RUN == 0 && run.windows(2).all(|two| two[1] == two[0] + 1)));
        assert_eq!(pages, hot(1000, 30, &mut Random::new(5)));
        assert_ne!(pages, hot(1000, 30, &mut Random::new(6)));
    }
}
