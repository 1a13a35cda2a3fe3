// SPDX-License-Identifier: GPL-2.0-or-later
//! Updates the gate's list of protected processes: before each plan for all mechanisms or for
//! `swap`, and at once when another app becomes topmost.

use std::time::Duration;

use limelight_core::model::protected::PREVIOUS_FOR;
use limelight_core::model::shortage::Level;
use limelight_core::model::{App, ProcessId, Protected};

use crate::reconcile::gate::collect::{homes, Collector, Request};
use crate::reconcile::Reconciler;
use crate::sources::services;

/// Shortest time between two scans for services; the longer one holds while the user waits for the
/// topmost app and no app may have to be killed.
const SERVICES_EVERY: Duration = Duration::from_millis(500);
const SERVICES_WHEN_WAITED_FOR: Duration = Duration::from_secs(2);

/// Data read when another app became topmost.
#[derive(Debug)]
pub(super) struct Switched {
    /// The processes of the new topmost app.
    pub members: Vec<ProcessId>,
    /// The list of protected processes made from them.
    pub protected: Protected,
}

/// State of the list of processes that no action may harm.
#[derive(Debug, Default)]
pub(super) struct ProtectedProcesses {
    pub collector: Collector,
    /// When services were scanned for, since boot.
    services_at: Option<Duration>,
    /// Data read when another app became topmost, for the plan that follows at once.
    pub switched: Option<Switched>,
}

impl Reconciler {
    /// Updates the list as soon as another app is topmost, before any plan is made, and keeps the
    /// data for the plan that follows.
    pub(super) fn protect_new_topmost(&mut self, at: Duration) {
        let members = self.model.topmost_members(&self.system);
        let protected = self.protect_processes(&members, at);
        self.protected.switched = Some(Switched { members, protected });
    }

    /// Updates the list. `members` are the topmost app's processes now. While memory is short or an
    /// app is frozen, processes that the topmost app started in other cgroups count too.
    pub(super) fn protect_processes(&mut self, members: &[ProcessId], at: Duration) -> Protected {
        let front = self.model.front().cloned();
        let previous = self.previous_app(at);
        let short = self.mechanisms.swap.shortage().level() > Level::Plenty;
        let shared = &self.mechanisms.shared;
        let stopped = !shared.in_force.swapping.frozen.is_empty();
        let request = Request {
            front: front.as_ref().map(|app| (app, members)),
            previous: previous.as_ref(),
            helpers: &self.config.settings.boost.helpers,
            descendants: short || stopped,
            settled: self.is_settled(at),
        };
        let collector = &mut self.protected.collector;
        let wanted = collector.collect(&self.system, at, request);
        let homes = homes(front.as_ref(), previous.as_ref());
        shared.gate.update(&self.system, wanted, homes)
    }

    /// The app that left the foreground a moment ago, if any.
    fn previous_app(&self, at: Duration) -> Option<App> {
        let (key, left) = self.scan.previous()?;
        if at.saturating_sub(left) >= PREVIOUS_FOR {
            return None;
        }
        let app = self.model.topmost.previous().filter(|app| app.key == key);
        let known = || Some(&self.model.apps.get(key)?.found.app);
        app.or_else(known).cloned()
    }

    /// While memory is short, scans for cgroups that are not apps and hold much memory, unless the
    /// last scan is recent. After the shortage the last result stays listed, because a squeeze of
    /// one of these cgroups may still be running.
    pub(super) fn find_services(&mut self, protected: &Protected, at: Duration) {
        let shortage = self.mechanisms.swap.shortage();
        if shortage.level() < Level::Swap {
            return;
        }
        let every = match self.is_settled(at) || shortage.level() >= Level::Kill {
            true => SERVICES_EVERY,
            false => SERVICES_WHEN_WAITED_FOR,
        };
        let last = self.protected.services_at;
        if last.is_some_and(|last| at.saturating_sub(last) < every) {
            return;
        }
        self.protected.services_at = Some(at);
        let homes = self.model.last.apps.iter();
        let homes = homes.filter_map(|known| known.found.app.home.as_ref());
        let homes = homes.map(|home| home.path.as_str());
        let guarded = protected.0.iter().map(|one| one.cgroup.as_str());
        let occupied: Vec<&str> = homes.chain(guarded).collect();
        let found = services::find(&self.system, &occupied, shortage.thresholds().total);
        self.model.last.services = self.scan.services.follow(found, at);
    }
}
