// SPDX-License-Identifier: GPL-2.0-or-later
//! `prezero`: zeroes pages between response windows, enough for one window of any known app.

mod pool;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use limelight_core::model::prezero::{Demand, Engine};
use limelight_core::model::{App, AppKey};
use limelight_core::policy::prezero::Step;
use limelight_sys::device::Device;
use tracing::{debug, warn};

use crate::mechanisms::shared::{Context, Effect, Mechanism, Shared};
use crate::system::System;

use pool::{switch, ZeroedDisk};

/// The mechanism's directory below sysfs.
pub const FOLDER: &str = "kernel/mm/limelight/prezero";

/// Counters in `/proc/vmstat` of the zeroed pages that the topmost app was given: pages from the
/// pool, and pages that had to be zeroed during faults.
const TAKEN: [&str; 2] = ["limelight_prezero_served", "limelight_prezero_missed"];

/// Shortest time between two writes of the demand file.
const WRITE_EVERY: Duration = Duration::from_secs(60);

/// Name of the file in the daemon's state directory that keeps each app's demand.
pub const FILE_NAME: &str = "prezero.json";

/// Maximum number of bytes that are read from the demand file. A file that the daemon wrote is
/// smaller.
const FILE_MAX_BYTES: u64 = 64 << 10;

/// State of the `prezero` mechanism.
#[derive(Debug, Default)]
pub struct Prezero {
    /// The pages that each app takes in a window, kept on disk across restarts of the daemon.
    demand: Demand,
    /// The topmost app at the last observation.
    front: Option<AppKey>,
    /// The demand file; `None`: the demand is not kept on disk, as in a dry run.
    file: Option<PathBuf>,
    /// The demand as the file holds it.
    written: Vec<(String, u64)>,
    written_at: Option<Duration>,
    /// The disk from which zeroes are read.
    disk: Option<ZeroedDisk>,
}

impl Prezero {
    /// Loads the demand that an earlier run of the daemon kept in `directory`. `None`: loads
    /// nothing and keeps nothing on disk.
    pub fn open(directory: Option<&Path>) -> Prezero {
        let file = directory.map(|directory| directory.join(FILE_NAME));
        let written = file.as_deref().map(read).unwrap_or_default();
        Prezero {
            demand: Demand::from_known(written.clone()),
            file,
            written,
            ..Prezero::default()
        }
    }

    /// Updates the topmost app's demand from the counters, unless a response window is open.
    /// Returns the largest number of pages that any known app takes in a window.
    pub fn observe(
        &mut self,
        system: &System,
        front: Option<&App>,
        window: bool,
        now: Duration,
    ) -> Option<u64> {
        let key = front.map(|app| app.key);
        if self.front != key {
            self.front = key;
            self.demand.restart();
        }
        if let Some(front) = front.filter(|_| !window) {
            match system.proc.vmstat() {
                Ok(vmstat) => {
                    let taken = TAKEN.iter().filter_map(|name| vmstat.get(name)).sum();
                    self.demand.observe(&front.name, taken);
                }
                Err(error) => debug!("{error}"),
            }
        }
        let recent = |at: Duration| now.saturating_sub(at) < WRITE_EVERY;
        if !self.written_at.is_some_and(recent) {
            self.write(now);
        }
        self.demand.largest()
    }

    /// Writes the demand to disk, if it has changed.
    pub fn write(&mut self, now: Duration) {
        let Some(file) = self.file.as_deref() else {
            return;
        };
        if self.demand.known() == self.written {
            return;
        }
        self.written_at = Some(now);
        self.written = self.demand.known().to_vec();
        if let Err(error) = write(file, &self.written) {
            warn!(
                "cannot write {}: {error}; the number of pages that apps take in a window is \
                 measured again after a restart",
                file.display()
            );
        }
    }
}

impl Mechanism for Prezero {
    type Step = Step;

    fn apply(&mut self, step: &Step, shared: &mut Shared, context: Context<'_>) -> Effect {
        let Step::Switch { pool } = step;
        let set = |device: &Device| switch(device, pool.as_ref(), &mut self.disk);
        if shared.switch(pool.is_some(), pool::change(step, context), set) {
            shared.in_force.device_prezero.clone_from(pool);
        }
        Effect::None
    }
}

/// The contents of the file; empty if it is missing or damaged.
fn read(file: &Path) -> Vec<(String, u64)> {
    let mut text = Vec::new();
    let read = File::open(file).and_then(|open| open.take(FILE_MAX_BYTES).read_to_end(&mut text));
    match read {
        Ok(_) => serde_json::from_slice(&text).unwrap_or_else(|error| {
            warn!("{} is damaged and not used: {error}", file.display());
            Vec::new()
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            warn!("{} cannot be read: {error}", file.display());
            Vec::new()
        }
    }
}

/// Writes a temporary file and renames it, so that the demand file is never incomplete.
fn write(file: &Path, known: &[(String, u64)]) -> std::io::Result<()> {
    if let Some(directory) = file.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    let beside = file.with_extension("new");
    let mut open = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)?;
    open.write_all(&serde_json::to_vec(known)?)?;
    std::fs::rename(beside, file)
}

/// Engines that can zero pages now, as the kernel reports them.
pub fn engines(system: &System) -> Vec<Engine> {
    let text = system.sys.read_text(format!("{FOLDER}/engines"));
    ready(&text.unwrap_or_default())
}

/// Parses one line per engine; an unavailable engine is followed by a colon and what it lacks.
fn ready(text: &str) -> Vec<Engine> {
    let is_ready = |engine: &Engine| text.lines().any(|line| line == engine.name());
    Engine::ALL.into_iter().filter(is_ready).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_survives_a_restart_and_a_damaged_file_is_ignored() {
        let temp = tempfile::tempdir().unwrap();
        let state = temp.path().join("state");
        let mut zeroing = Prezero::open(Some(&state));
        zeroing.demand = Demand::from_known(vec![("viewer".to_owned(), 800)]);
        zeroing.write(Duration::ZERO);
        assert_eq!(Prezero::open(Some(&state)).demand.of("viewer"), Some(800));
        std::fs::write(state.join(FILE_NAME), "[[\"viewer\"").unwrap();
        assert_eq!(Prezero::open(Some(&state)).demand.largest(), None);
        assert_eq!(Prezero::open(None).demand.largest(), None);
    }

    #[test]
    fn only_engines_that_are_ready_count() {
        let text = "cpu\nblock\ndma: no channel\n";
        assert_eq!(ready(text), [Engine::Cpu, Engine::Block]);
        assert_eq!(ready("dma\nnew\n"), [Engine::Dma]);
        assert_eq!(ready(""), []);
    }
}
