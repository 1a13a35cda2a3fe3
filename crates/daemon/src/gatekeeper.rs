// SPDX-License-Identifier: GPL-2.0-or-later
//! Keeps the gate's list of protected processes up to date: before anything is planned, and as soon as
//! another app is topmost.

use std::time::Duration;

use limelight_core::model::protected::PREVIOUS_FOR;
use limelight_core::model::shortage::Level;
use limelight_core::model::{App, Protected};

use crate::daemon::Daemon;
use crate::gate::collect::homes;
use crate::identify;
use crate::sources::services;

impl Daemon {
    /// Brings the list up to date. While memory is short, or an app is stopped, all processes of the
    /// machine are read for it, so that what the topmost app started in other cgroups counts too.
    pub(crate) fn protect_processes(&mut self, at: Duration) -> Protected {
        let front = self.topmost.front().map(|front| front.app.clone());
        let members = front
            .as_ref()
            .map(|app| identify::members(&self.doors, app));
        let previous = self.previous_app(at);
        let short = self.actuators.shortage().level() > Level::Plenty;
        let stopped = !self.actuators.in_force.swapping.frozen.is_empty();
        let tree = (short || stopped).then(|| self.doors.proc.tree().ok());
        let wanted = self.protected.collect(
            &self.doors,
            at,
            front.as_ref().zip(members.as_deref()),
            previous.as_ref(),
            &self.config.settings.boost.helpers,
            tree.flatten().as_ref(),
        );
        let homes = homes(front.as_ref(), previous.as_ref());
        self.actuators.gate.update(&self.doors, wanted, homes)
    }

    /// The app that left the foreground a moment ago.
    fn previous_app(&self, at: Duration) -> Option<App> {
        let (key, left) = self.household.previous()?;
        if at.saturating_sub(left) >= PREVIOUS_FOR {
            return None;
        }
        let app = self.topmost.previous().filter(|app| app.key == key);
        let known = || Some(&self.apps.get(key)?.found.app);
        app.or_else(known).cloned()
    }

    /// Scans for cgroups that are no app and hold much memory; only while memory is short. Those of
    /// the last scan stay listed, because a squeeze of one may still be under way.
    pub(crate) fn find_services(&mut self, protected: &Protected, at: Duration) {
        if self.actuators.shortage().level() < Level::Swap {
            return;
        }
        let homes = self.last.apps.iter();
        let homes = homes.filter_map(|known| known.found.app.home.as_ref());
        let homes = homes.map(|home| home.path.as_str());
        let guarded = protected.0.iter().map(|one| one.cgroup.as_str());
        let occupied: Vec<&str> = homes.chain(guarded).collect();
        let total = self.actuators.shortage().thresholds().total;
        let found = services::find(&self.doors, &occupied, total);
        self.last.services = self.household.follow_services(found, at);
    }
}
