// SPDX-License-Identifier: GPL-2.0-or-later
//! Resolves kill reports to apps. A report comes when the memory is free: at most `[swap] grace_ms`
//! and a second after the choice of the victim. Scans during that time may no longer find the app,
//! so it is remembered here.

use std::collections::BTreeMap;
use std::time::Duration;

use limelight_core::model::apps::Known;
use limelight_core::model::AppKey;

/// How long a disarmed app is remembered: much longer than a report takes.
const REPORTED: Duration = Duration::from_secs(30);

/// Apps that are armed, and apps that were armed recently with the time when they were disarmed.
#[derive(Debug, Default)]
pub struct KillTargets(BTreeMap<AppKey, (Option<Duration>, Known)>);

impl KillTargets {
    /// Replaces the armed apps.
    pub fn renew<'a>(&mut self, armed: impl Iterator<Item = &'a Known>, now: Duration) {
        for (left, _) in self.0.values_mut() {
            left.get_or_insert(now);
        }
        self.0
            .extend(armed.map(|known| (known.key(), (None, known.clone()))));
        let lately = |left: Duration| now.saturating_sub(left) < REPORTED;
        self.0.retain(|_, (left, _)| left.is_none_or(lately));
    }

    /// An app that is armed or was armed recently, in its state at that time.
    pub fn get(&self, app: AppKey) -> Option<&Known> {
        self.0.get(&app).map(|(_, known)| known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limelight_core::model::apps::{Apps, Found};
    use limelight_core::model::App;

    const APP: AppKey = AppKey::Cgroup { inode: 7 };
    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn disarmed_app_is_remembered_for_thirty_seconds() {
        let mut apps = Apps::default();
        let app = App {
            key: APP,
            name: "app".to_owned(),
            process: None,
            home: None,
        };
        apps.observe(vec![Found::new(app, 1000)], S(1));
        let known = apps.get(APP).unwrap();
        let mut armed = KillTargets::default();
        armed.renew([known].into_iter(), S(1));
        // The app is remembered regardless of how long it was armed, and of how often other apps
        // are armed afterwards.
        for second in [100, 101, 129] {
            armed.renew([].into_iter(), S(second));
            assert!(armed.get(APP).is_some(), "forgotten at {second} s");
        }
        armed.renew([].into_iter(), S(130));
        assert!(armed.get(APP).is_none());
    }
}
