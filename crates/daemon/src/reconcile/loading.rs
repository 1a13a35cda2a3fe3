// SPDX-License-Identifier: GPL-2.0-or-later
//! Whether the topmost app is still reading its memory from the disk. Then the user waits for it,
//! even if no source reports a response window, and the disk is left to the app.

use std::time::Duration;

use limelight_core::model::AppKey;

/// Page faults per second that waited for the disk, from which on an app counts as loading. An app
/// that the user works with has a few, an app that returns from swap has hundreds.
const FAULTS_PER_S: u64 = 100;

/// Longest time after a change of the foreground for which an app counts as loading. An app that
/// always reads more than memory holds never ends.
const MOST: Duration = Duration::from_secs(5);

/// The faults of the topmost app (`memory.stat: pgmajfault` of its cgroup) since it came to the
/// foreground.
#[derive(Debug, Default)]
pub(super) struct Loading {
    /// The app, and when it came to the foreground.
    app: Option<(AppKey, Duration)>,
    /// The last sample: when, and the faults until then.
    last: Option<(Duration, u64)>,
    is_loading: bool,
}

impl Loading {
    /// Takes a sample of the topmost app. `faults`: its count; `None`: its cgroup contains other
    /// apps too, or is gone.
    pub fn sample(&mut self, app: AppKey, at: Duration, faults: Option<u64>) {
        if self.app.is_none_or(|(known, _)| known != app) {
            *self = Loading {
                app: Some((app, at)),
                last: None,
                is_loading: false,
            };
        }
        let now = faults.map(|faults| (at, faults));
        let rate = self.last.zip(now).and_then(|(last, now)| {
            let elapsed = u64::try_from(now.0.saturating_sub(last.0).as_millis()).ok()?;
            let faults = now.1.saturating_sub(last.1);
            faults.saturating_mul(1000).checked_div(elapsed)
        });
        self.last = now;
        self.is_loading = rate.is_some_and(|rate| rate >= FAULTS_PER_S);
    }

    /// Whether the app was loading at the last sample.
    pub fn is_loading(&self, app: AppKey, at: Duration) -> bool {
        let known = self.app.filter(|(known, _)| *known == app);
        known.is_some_and(|(_, since)| self.is_loading && at.saturating_sub(since) < MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: AppKey = AppKey::Cgroup { inode: 7 };
    const OTHER: AppKey = AppKey::Cgroup { inode: 8 };
    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn app_that_reads_its_memory_back_is_loading_until_the_reads_end() {
        let mut loading = Loading::default();
        loading.sample(APP, MS(1000), Some(5000));
        assert!(!loading.is_loading(APP, MS(1000)), "nothing is known yet");
        loading.sample(APP, MS(1750), Some(5075));
        assert!(loading.is_loading(APP, MS(1750)));
        assert!(!loading.is_loading(OTHER, MS(1750)));
        loading.sample(APP, MS(2000), Some(5099));
        assert!(!loading.is_loading(APP, MS(2000)));
    }

    #[test]
    fn another_app_and_an_app_that_never_ends_do_not_count() {
        let mut loading = Loading::default();
        loading.sample(APP, MS(1000), Some(0));
        loading.sample(OTHER, MS(2000), Some(9000));
        assert!(!loading.is_loading(OTHER, MS(2000)));
        loading.sample(OTHER, MS(6000), Some(19000));
        assert!(loading.is_loading(OTHER, MS(6000)));
        assert!(!loading.is_loading(OTHER, MS(7000)));
        loading.sample(OTHER, MS(6500), None);
        assert!(!loading.is_loading(OTHER, MS(6500)), "its cgroup is gone");
    }
}
