// SPDX-License-Identifier: GPL-2.0-or-later
//! Updates the gate's list of protected processes: before each plan, and at once when another app
//! becomes topmost.

use std::time::Duration;

use limelight_core::model::protected::PREVIOUS_FOR;
use limelight_core::model::shortage::Level;
use limelight_core::model::{App, ProcessId, Protected};

use crate::event_loop::Daemon;
use crate::reconcile::gate::collect::homes;
use crate::sources::services;
use crate::system::identify;

/// Data read when another app became topmost.
#[derive(Debug)]
pub struct Switched {
    /// The processes of the new topmost app.
    pub members: Vec<ProcessId>,
    /// The list of protected processes made from them.
    pub protected: Protected,
}

impl Daemon {
    /// Updates the list as soon as another app is topmost, before any other work, and keeps the
    /// data for the plan that follows.
    pub(crate) fn protect_new_topmost(&mut self, at: Duration) {
        let members = self.topmost_members();
        let protected = self.protect_processes(&members, at);
        self.switched = Some(Switched { members, protected });
    }

    /// The topmost app's processes now.
    pub(crate) fn topmost_members(&self) -> Vec<ProcessId> {
        let front = self.topmost.front();
        front.map_or_else(Vec::new, |front| {
            identify::members(&self.system, &front.app)
        })
    }

    /// Updates the list. `members` are the topmost app's processes now. While memory is short or an
    /// app is frozen, it reads all processes of the machine, so that those that the topmost app
    /// started in other cgroups count too.
    pub(crate) fn protect_processes(&mut self, members: &[ProcessId], at: Duration) -> Protected {
        let front = self.topmost.front().map(|front| front.app.clone());
        let previous = self.previous_app(at);
        let short = self.actuators.shortage().level() > Level::Plenty;
        let stopped = !self.actuators.in_force.swapping.frozen.is_empty();
        let tree = (short || stopped).then(|| self.system.proc.tree().ok());
        let wanted = self.protected.collect(
            &self.system,
            at,
            front.as_ref().map(|app| (app, members)),
            previous.as_ref(),
            &self.config.settings.boost.helpers,
            tree.flatten().as_ref(),
        );
        let homes = homes(front.as_ref(), previous.as_ref());
        self.actuators.gate.update(&self.system, wanted, homes)
    }

    /// The app that left the foreground a moment ago, if any.
    fn previous_app(&self, at: Duration) -> Option<App> {
        let (key, left) = self.app_scan.previous()?;
        if at.saturating_sub(left) >= PREVIOUS_FOR {
            return None;
        }
        let app = self.topmost.previous().filter(|app| app.key == key);
        let known = || Some(&self.apps.get(key)?.found.app);
        app.or_else(known).cloned()
    }

    /// Scans for cgroups that are no apps and hold much memory; only while memory is short. Those
    /// of the last scan stay listed, because one may still be being squeezed.
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
        let found = services::find(&self.system, &occupied, total);
        self.last.services = self.app_scan.follow_services(found, at);
    }
}
