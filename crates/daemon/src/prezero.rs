// SPDX-License-Identifier: GPL-2.0-or-later
//! What `prezero` must know: how much fresh memory the topmost app takes, and what can zero pages.

use limelight_core::model::prezero::{Demand, Engine};
use limelight_core::model::{App, AppKey};
use tracing::debug;

use crate::doors::Doors;

/// The mechanism's folder below sysfs.
pub const FOLDER: &str = "kernel/mm/limelight/prezero";

/// Counters of pages that the topmost app was given zeroed: out of the pool, and not.
const TAKEN: [&str; 2] = ["limelight_prezero_served", "limelight_prezero_missed"];

/// The topmost app's demand, while it is followed.
#[derive(Debug, Default)]
pub struct Zeroing {
    demand: Demand,
    front: Option<AppKey>,
}

impl Zeroing {
    /// Looks at the counters, unless a window is open. Pages that the app in front takes in one.
    pub fn look(&mut self, doors: &Doors, front: Option<&App>, window: bool) -> Option<u64> {
        let key = front.map(|app| app.key);
        if self.front != key {
            self.front = key;
            self.demand.restart();
        }
        let front = front?;
        if !window {
            match doors.proc.vmstat() {
                Ok(vmstat) => {
                    let taken = TAKEN.iter().filter_map(|name| vmstat.get(name)).sum();
                    self.demand.observe(&front.name, taken);
                }
                Err(error) => debug!("{error}"),
            }
        }
        self.demand.of(&front.name)
    }
}

/// Engines that can zero pages now, as the kernel says.
pub fn engines(doors: &Doors) -> Vec<Engine> {
    let text = doors.sys.read_text(format!("{FOLDER}/engines"));
    ready(&text.unwrap_or_default())
}

/// A line for each engine, with a colon and what it lacks if it cannot be had.
fn ready(text: &str) -> Vec<Engine> {
    let is_ready = |engine: &Engine| text.lines().any(|line| line == engine.name());
    Engine::ALL.into_iter().filter(is_ready).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_engines_that_are_ready_count() {
        let text = "cpu\nblock\ndma: no channel\n";
        assert_eq!(ready(text), [Engine::Cpu, Engine::Block]);
        assert_eq!(ready("dma\nnew\n"), [Engine::Dma]);
        assert_eq!(ready(""), []);
    }
}
