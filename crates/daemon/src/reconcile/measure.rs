// SPDX-License-Identifier: GPL-2.0-or-later
//! Measures the machine for a plan.

use std::time::Duration;

use limelight_core::model::boost::View;
use limelight_core::model::footprint::Kept;
use limelight_core::model::shortage::Level;
use limelight_core::model::snapshot::{DisplayServer, Measured};
use limelight_core::model::{ProcessId, Snapshot};
use limelight_sys::cgroup::CgroupPath;
use limelight_sys::device::Mechanism;
use limelight_sys::meminfo::MemInfo;

use crate::config::Adopt;
use crate::mechanisms::prezero;
use crate::mechanisms::protect::cgroup_memory::protected_by_others;
use crate::reconcile::protected_processes::Switched;
use crate::reconcile::Reconciler;
use crate::sources::pressure;
use crate::system::{identify, now};

/// Shortest time between two measurements of what others reserve. Reservations change rarely, and
/// many cgroups must be opened to find them.
const OTHERS_EVERY: Duration = Duration::from_secs(10);

/// The memory that others reserve ([`protected_by_others`]).
#[derive(Debug, Default)]
pub(super) struct Others {
    /// Bytes at the last measurement.
    bytes: u64,
    /// When it was, since boot.
    at: Option<Duration>,
}

impl Others {
    /// Measures anew, unless the last measurement is recent.
    fn look(&mut self, at: Duration, measure: impl FnOnce() -> u64) {
        if self
            .at
            .is_some_and(|last| at.saturating_sub(last) < OTHERS_EVERY)
        {
            return;
        }
        *self = Others {
            bytes: measure(),
            at: Some(at),
        };
    }
}

impl Reconciler {
    /// Measures everything that a full plan needs.
    pub(super) fn measure(&mut self) -> Snapshot {
        let counters = pressure::counters(&self.system);
        let meminfo = pressure::meminfo(&self.system);
        let memory = pressure::memory(&meminfo, &counters);
        let lru = pressure::lru(&self.system);
        let (members, protected) = match self.protected.switched.take() {
            Some(Switched { members, protected }) => (Some(members), Some(protected)),
            None => (None, None),
        };
        let topmost = self.measure_topmost(members);
        let starting = self.measure_starting(topmost.as_ref());
        let boost = self.view_for_boost(topmost.as_ref(), starting.as_ref());
        let kept = self.measure_kept_memory(topmost.as_ref());
        let reading = pressure::reading(&self.system, &counters, now(), memory, kept);
        self.model.pressure.observe(reading);
        self.model.ageing.observe(reading.at, reading.waited);
        self.note_oom_kills(reading.oom_kills);
        let protected = protected.unwrap_or_else(|| {
            let members = topmost.as_ref().map(|topmost| topmost.members.as_slice());
            self.protect_processes(members.unwrap_or_default(), now())
        });
        self.find_services(&protected, now());
        let front = topmost.as_ref().map(|topmost| &topmost.app);
        let of_front = |is: &dyn Fn(_) -> bool| front.is_some_and(|app| is(app.key));
        let not_adoptable = of_front(&|key| self.mechanisms.protect.is_not_adoptable(key));
        let not_weighable = of_front(&|key| self.mechanisms.boost.is_not_weighable(key));
        let info = self.mechanisms.shared.device_info(now());
        let has = |mechanism| info.is_some_and(|info| info.has(mechanism));
        let device_prezero = has(Mechanism::Prezero);
        let window = self.mechanisms.window.is_open();
        let prezero = &mut self.mechanisms.prezero;
        let demand = match device_prezero {
            true => prezero.observe(&self.system, front, window, now()),
            false => None,
        };
        let shared = &self.mechanisms.shared;
        self.others.look(now(), || {
            protected_by_others(&self.system, &shared.ledger, lru.knob())
        });
        Snapshot {
            at: now(),
            settings: self.config.settings.clone(),
            memory,
            lru,
            memory_controller: self.system.has_memory_controller(),
            recursive_protection: self.system.cgroups.has_recursive_protection(),
            device: shared.device.device().is_some(),
            device_premap: has(Mechanism::Premap),
            device_readahead: has(Mechanism::Readahead),
            device_prezero,
            // Without a topmost app and without a demand, no zeroed page is needed.
            engines: match device_prezero && (front.is_some() || demand.is_some()) {
                true => prezero::engines(&self.system),
                false => Vec::new(),
            },
            demand,
            device_members: match front {
                Some(_) => info.map_or(0, |info| info.members),
                None => 0,
            },
            ceiling: front.and_then(|app| identify::ceiling(&self.system, app)),
            may_adopt: self.may_adopt() && !not_adoptable,
            may_hand_down: self.system.owns_tree() && !not_weighable,
            display: topmost.as_ref().and_then(|top| self.measure_display(top)),
            topmost,
            starting,
            closing: self.closing(),
            boost,
            lowered_steps: self.model.pressure.steps(),
            age: self.model.ageing.steps(),
            protected_by_others: self.others.bytes,
            locked_bytes: self.mechanisms.protect.shared_pages.locked_bytes(shared),
            in_force: shared.in_force.clone(),
            apps: self.model.apps.by_use().into_iter().cloned().collect(),
            users_taken: self.model.apps.users.taken(),
            kept_cache: kept.cache,
            unmapped_swap_cache: self.measure_swap_cache(&meminfo, now()),
            settled: self.is_settled(now()),
            previous: self.scan.previous(),
            protected,
            services: std::mem::take(&mut self.model.last.services),
            shortage: self.mechanisms.swap.shortage(),
            storage: self.scan.storage.look(&self.system, &counters, now()),
        }
    }

    /// Measures the inputs of a plan for the apps that are not topmost.
    pub(super) fn measure_swap(&mut self, at: Duration) {
        let counters = pressure::counters(&self.system);
        let meminfo = pressure::meminfo(&self.system);
        let last = &mut self.model.last;
        last.memory = pressure::memory(&meminfo, &counters);
        last.at = at;
        last.shortage = self.mechanisms.swap.shortage();
        last.storage = self.scan.storage.look(&self.system, &counters, at);
        last.apps = self.model.apps.by_use().into_iter().cloned().collect();
        last.users_taken = self.model.apps.users.taken();
        last.previous = self.scan.previous();
        self.model.last.settled = self.is_settled(at);
        self.model.last.unmapped_swap_cache = self.measure_swap_cache(&meminfo, at);
        let members = self.model.topmost_members(&self.system);
        let protected = self.protect_processes(&members, at);
        self.find_services(&protected, at);
        self.model.last.protected = protected;
    }

    /// Measures the unmapped swap cache, unless the user waits and no app may be squeezed.
    fn measure_swap_cache(&self, meminfo: &MemInfo, at: Duration) -> u64 {
        let squeezes =
            self.is_settled(at) || self.mechanisms.swap.shortage().level() >= Level::Kill;
        match squeezes {
            true => pressure::unmapped_swap_cache(&self.system, meminfo),
            false => 0,
        }
    }

    fn measure_topmost(&mut self, members: Option<Vec<ProcessId>>) -> Option<Measured> {
        let app = self.model.front()?.clone();
        let members = match members {
            Some(members) => members,
            None => self.model.topmost_members(&self.system),
        };
        let exceptions = self.scan.source.exceptions_of(&self.system, &app, &members);
        let divides = self.config.settings.boost.terminal;
        let terminal = &mut self.terminal;
        Some(Measured {
            terminal: divides
                .then(|| terminal.look(&self.system, &app, &members, now()))
                .flatten(),
            footprint: self.mechanisms.protect.measure(&self.system, &app),
            app,
            members,
            exceptions,
        })
    }

    /// The display server of root or of the app's user, in a cgroup of its own. Of several, such as a
    /// compositor and its Xwayland, the largest.
    fn measure_display(&self, topmost: &Measured) -> Option<DisplayServer> {
        let system = &self.system;
        let owner = |id: ProcessId| system.same_process(id)?.owner_uid().ok();
        let user = topmost.members.first().and_then(|id| owner(*id))?;
        let servers = self.protected.collector.display_servers().iter();
        let found = servers.filter_map(|id| {
            owner(*id).filter(|uid| *uid == 0 || *uid == user)?;
            let home = identify::home_of_helper(system, *id).filter(|home| home.own)?;
            let cgroup = system.cgroups.open(&CgroupPath::parse(&home.path)?).ok()?;
            let usage = identify::charged_to(&cgroup)?;
            Some(DisplayServer { home, usage })
        });
        found.max_by_key(|server| server.usage.held())
    }

    fn view_for_boost(&mut self, topmost: Option<&Measured>, starting: Option<&Measured>) -> View {
        if !self.config.settings.boost.enabled {
            return View::default();
        }
        let gate = &self.mechanisms.shared.gate;
        let boost = &mut self.mechanisms.boost;
        boost.view(&self.system, gate, topmost, starting, now())
    }

    /// Memory that is kept for the topmost app. Also passes the page cache to the guard, which does
    /// not count it as available.
    fn measure_kept_memory(&self, topmost: Option<&Measured>) -> Kept {
        let kept = topmost.and_then(|topmost| {
            let usage = topmost.footprint?.usage;
            Some(identify::kept_memory(&self.system, &topmost.app, &usage))
        });
        let kept = kept.unwrap_or_default();
        if let Some(guard) = &self.mechanisms.swap.guard {
            guard.set_kept(kept.cache);
        }
        kept
    }

    fn may_adopt(&self) -> bool {
        match self.config.adopt {
            Adopt::Never => false,
            Adopt::Always => true,
            // The device protects an app without a cgroup of its own; boost's weights need one.
            Adopt::Auto => {
                let boost = self.config.settings.boost.enabled;
                let device = self.mechanisms.shared.device.device();
                (boost || device.is_none()) && self.system.owns_tree()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_of_others_are_measured_every_ten_seconds() {
        let mut others = Others::default();
        let mut look = |ms, bytes| {
            others.look(Duration::from_millis(ms), || bytes);
            others.bytes
        };
        assert_eq!(look(0, 1), 1);
        assert_eq!(look(9_999, 2), 1);
        assert_eq!(look(10_000, 3), 3);
        assert_eq!(look(19_999, 4), 3);
    }
}
