// SPDX-License-Identifier: GPL-2.0-or-later
//! The 24 apps of SWAP's experiment, as synthetic programs.
//!
//! SWAP's machine is a phone with 2 GB of memory and 2 GB of swap, on which 24 real apps are
//! launched in turn: video players, social networks, games, news, mail, maps, a browser, a camera,
//! notes. The lab models that phone at 1/[`SCALE`]. Memory, swap and every app have an eighth of
//! their size, and every app does an eighth of its work. As many apps fit as on the phone, and the
//! parts of a launch keep their proportions. The time of one disk request is not scaled, because
//! there are an eighth as many requests.
//!
//! The columns of [`APPS`], at the phone's scale:
//!
//! - class: one of SWAP's three. SWAP keeps finance, office and location; social, streaming and
//!   browsers come next; news, advertising and players that restore themselves are killed first.
//! - heap: private anonymous memory, in MB. 60 to 250 MB, chosen by kind of app, not measured. The
//!   sum of all 24 is 1.36 times the phone's memory: SWAP's premise is that the apps do not fit.
//! - files: mapped code, resources and databases of the app, in MB. About half of the heap, chosen
//!   by kind of app.
//! - cold: CPU time of a cold launch, in ms. Less than the 1-2 s of a whole cold launch. A
//!   disposable app has only a few bytes to restore.
//! - warm: CPU time of coming to the foreground (a hot start, in the terms of Android's vitals), in
//!   ms. About a tenth of a cold launch, and a fifth to a quarter for disposable apps.
//! - hot: percentage of heap and files that coming to the foreground touches. A fifth to a half:
//!   ASAP (Son et al., USENIX ATC 2021) prepages such "switch footprints".

use serde::{Deserialize, Serialize};

/// Size ratio of the phone to the guest.
pub const SCALE: u32 = 8;

/// SWAP's classes: what may be done to an app when memory is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Never killed; may be swapped.
    Keep,
    /// May be swapped. May be killed when no disposable app is left.
    Normal,
    /// Killed first, never swapped.
    Disposable,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 3] = [Class::Keep, Class::Normal, Class::Disposable];

    /// The class's name in configurations and in names of values.
    pub fn name(self) -> &'static str {
        match self {
            Class::Keep => "keep",
            Class::Normal => "normal",
            Class::Disposable => "disposable",
        }
    }
}

/// One of the apps, at the phone's scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct App {
    /// Name of the app's cgroup and files.
    pub name: &'static str,
    /// The app's class.
    pub class: Class,
    /// Private anonymous memory, in MB.
    pub heap_mb: u32,
    /// The app's own mapped files, in MB.
    pub files_mb: u32,
    /// CPU time of a cold launch, in ms.
    pub cold_ms: u32,
    /// CPU time of a warm launch, in ms.
    pub warm_ms: u32,
    /// Percentage of heap and files that a warm launch touches.
    pub hot_percent: u32,
}

const fn app(
    name: &'static str,
    class: Class,
    [heap_mb, files_mb]: [u32; 2],
    [cold_ms, warm_ms]: [u32; 2],
    hot_percent: u32,
) -> App {
    App {
        name,
        class,
        heap_mb,
        files_mb,
        cold_ms,
        warm_ms,
        hot_percent,
    }
}

use Class::{Disposable, Keep, Normal};

/// All apps, in the order of the app list.
pub const APPS: [App; 24] = [
    app("bank", Keep, [90, 50], [700, 70], 35),
    app("wallet", Keep, [70, 40], [500, 50], 35),
    app("office", Keep, [140, 80], [900, 90], 30),
    app("notes", Keep, [60, 30], [400, 40], 40),
    app("mail", Keep, [100, 50], [600, 60], 35),
    app("calendar", Keep, [60, 40], [450, 50], 40),
    app("maps", Keep, [170, 80], [1000, 120], 30),
    app("transit", Keep, [90, 50], [600, 60], 35),
    app("social", Normal, [180, 90], [1000, 120], 30),
    app("pictures", Normal, [160, 80], [900, 100], 30),
    app("chat", Normal, [100, 50], [600, 60], 40),
    app("browser", Normal, [220, 90], [800, 100], 25),
    app("camera", Normal, [120, 50], [600, 80], 45),
    app("shop", Normal, [130, 60], [800, 90], 30),
    app("puzzle", Normal, [200, 80], [1200, 120], 40),
    app("racing", Normal, [250, 100], [1500, 150], 40),
    app("news", Disposable, [80, 40], [250, 60], 40),
    app("magazine", Disposable, [90, 50], [300, 60], 40),
    app("weather", Disposable, [60, 30], [200, 40], 45),
    app("feeds", Disposable, [70, 40], [200, 50], 40),
    app("coupons", Disposable, [70, 40], [250, 50], 40),
    app("video", Disposable, [120, 60], [300, 80], 35),
    app("music", Disposable, [80, 40], [250, 50], 35),
    app("podcast", Disposable, [70, 30], [200, 40], 40),
];

/// Code and resources that every app maps (the runtime and the framework), in MB.
pub const FRAMEWORK_MB: u32 = 80;
/// Percentage of [`FRAMEWORK_MB`] that every launch touches.
pub const FRAMEWORK_HOT_PERCENT: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apps_exceed_the_phones_memory_but_their_heaps_fit_with_swap() {
        let heap: u32 = APPS.iter().map(|app| app.heap_mb).sum();
        let files: u32 = APPS.iter().map(|app| app.files_mb).sum();
        assert!(
            heap + files > 2048 + 2048 / 2,
            "{heap} MB of heaps, {files} MB of files"
        );
        assert!(heap < 2048 + 2048, "{heap} MB of heaps");
    }

    #[test]
    fn each_class_has_eight_apps_and_names_are_unique() {
        for class in Class::ALL {
            assert_eq!(APPS.iter().filter(|app| app.class == class).count(), 8);
        }
        let mut names: Vec<&str> = APPS.iter().map(|app| app.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), APPS.len());
    }
}
