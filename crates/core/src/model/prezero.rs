// SPDX-License-Identifier: GPL-2.0-or-later
//! Pages zeroed in advance: the engines, the pool, and how many pages an app needs in a response
//! window.

use std::path::PathBuf;

/// An engine that zeroes pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// The processor, with stores that bypass its caches.
    Cpu,
    /// Reads from a disk range that contains zeroes (the engine of PREZERO).
    Block,
    /// A channel of a DMA controller.
    Dma,
}

impl Engine {
    /// All engines, in ascending order.
    pub const ALL: [Engine; 3] = [Engine::Cpu, Engine::Block, Engine::Dma];

    /// Its name in the configuration, the protocol and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Cpu => "cpu",
            Engine::Block => "block",
            Engine::Dma => "dma",
        }
    }
}

/// A range of zeroes on a disk. No other program may change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// The block device.
    pub device: PathBuf,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Whether the kernel uses the data without checking that it is zero.
    pub trusted: bool,
}

/// A pool of pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// The engine that fills it.
    pub engine: Engine,
    /// The disk range that the engine `block` reads; `None` for the other engines.
    pub extent: Option<Extent>,
    /// Target size in pages.
    pub target: u64,
}

/// Maximum number of apps with a known demand. Beyond it, the app that has been out of the
/// foreground for longest is dropped.
const APPS_MAX: usize = 64;

/// Pages of fresh memory that each app takes in one response window.
///
/// The counter of these pages is read only while no window is open. One sample therefore covers the
/// time from the last reading before a window to the first one after it. It also contains the pages
/// taken shortly before and after the window. The pool must cover these pages too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// Name and demand in pages of each app, last foreground app at the end.
    apps: Vec<(String, u64)>,
    /// Last reading of the counter; `None` after a change of the foreground app.
    counted: Option<u64>,
}

impl Demand {
    /// Adds a reading of the counter of pages that the topmost app took. Must be called only while
    /// no window is open.
    pub fn observe(&mut self, app: &str, counter: u64) {
        let Some(before) = self.counted.replace(counter) else {
            return;
        };
        let taken = counter.saturating_sub(before);
        let known = self.apps.iter().position(|(name, _)| name == app);
        // A large demand decays slowly: each smaller sample reduces it by at most an eighth.
        let pages = match known.map(|at| self.apps.remove(at).1) {
            // A sample of 0 pages is taken to contain no window.
            Some(known) if taken == 0 => known,
            Some(known) => taken.max(known - known / 8),
            None => taken,
        };
        if self.apps.len() == APPS_MAX {
            self.apps.remove(0);
        }
        if pages > 0 {
            self.apps.push((app.to_owned(), pages));
        }
    }

    /// Starts over after a change of the foreground app: pages taken until the next reading count
    /// for no app.
    pub fn restart(&mut self) {
        self.counted = None;
    }

    /// Pages that an app took in one window; `None` if unknown.
    pub fn of(&self, app: &str) -> Option<u64> {
        let known = self.apps.iter().find(|(name, _)| name == app)?;
        Some(known.1)
    }

    /// The largest known demand of an app, in pages; `None` if no app is known. That app may be
    /// started next, and its first window opens before the pool could be filled.
    pub fn largest(&self) -> Option<u64> {
        self.apps.iter().map(|(_, pages)| *pages).max()
    }

    /// Demands to save for the daemon's next start: name and pages, last topmost app at the end.
    pub fn known(&self) -> &[(String, u64)] {
        &self.apps
    }

    /// Restores saved demands; drops the first ones beyond `APPS_MAX`.
    pub fn from_known(known: Vec<(String, u64)>) -> Demand {
        let mut apps = known;
        apps.drain(..apps.len().saturating_sub(APPS_MAX));
        Demand {
            apps,
            counted: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn demand_follows_the_largest_window_and_decays() {
        let mut demand = Demand::default();
        demand.observe("a", 100);
        assert_eq!(demand.of("a"), None, "no window yet");
        demand.observe("a", 900);
        assert_eq!(demand.of("a"), Some(800));
        demand.observe("a", 910);
        assert_eq!(demand.of("a"), Some(700));
        demand.observe("a", 910);
        assert_eq!(
            demand.of("a"),
            Some(700),
            "a sample of 0 pages contains no window"
        );
        demand.observe("a", 2910);
        assert_eq!(demand.of("a"), Some(2000));
    }

    #[test]
    fn apps_have_separate_demands() {
        let mut demand = Demand::default();
        demand.observe("a", 0);
        demand.observe("a", 500);
        demand.restart();
        demand.observe("b", 90_000);
        demand.observe("b", 90_010);
        assert_eq!((demand.of("a"), demand.of("b")), (Some(500), Some(10)));
    }

    #[test]
    fn saved_demand_is_restored() {
        let mut demand = Demand::default();
        for (app, pages) in [("a", 500), ("b", 300)] {
            demand.restart();
            demand.observe(app, 0);
            demand.observe(app, pages);
        }
        assert_eq!(demand.largest(), Some(500));
        let kept = Demand::from_known(demand.known().to_vec());
        assert_eq!((kept.of("a"), kept.of("b")), (Some(500), Some(300)));
        assert_eq!(Demand::default().largest(), None);
        let many = (0..1000).map(|at| (at.to_string(), at)).collect();
        assert_eq!(Demand::from_known(many).known().len(), APPS_MAX);
    }

    proptest! {
        #[test]
        fn number_of_apps_stays_bounded(names in proptest::collection::vec(0u8..255, 0..600)) {
            let mut demand = Demand::default();
            for (at, name) in names.iter().enumerate() {
                demand.observe(&name.to_string(), at as u64 * 3);
            }
            prop_assert!(demand.apps.len() <= APPS_MAX);
        }
    }
}
