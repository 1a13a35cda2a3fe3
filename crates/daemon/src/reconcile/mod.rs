// SPDX-License-Identifier: GPL-2.0-or-later
//! From an event to the actions: update the model, measure the machine, ask the policy, and execute
//! the plan.

pub mod app_scan;
pub mod apps;
pub mod gate;
mod inference;
pub(crate) mod launch;
pub(crate) mod protected_processes;

use limelight_core::model::boost::{Threads, View};
use limelight_core::model::footprint::Footprint;
use limelight_core::model::snapshot::Measured;
use limelight_core::model::topmost::{Claim, Shift};
use limelight_core::model::{ProcessId, Snapshot};
use limelight_core::policy::protect::Step;
use limelight_core::policy::{plan, Action, Event};
use limelight_sys::device::Mechanism;
use tracing::{debug, info};

use crate::config::Adopt;
use crate::event_loop::reactor::Token;
use crate::event_loop::Daemon;
use crate::mechanisms::boost::competing;
use crate::mechanisms::prezero;
use crate::mechanisms::protect::cgroup_memory::protected_by_others;
use crate::mechanisms::protect::reservation_tracker::ReservationTracker;
use crate::mechanisms::{Context, Effect};
use crate::reconcile::protected_processes::Switched;
use crate::sources::oom_score_adj::Zeroed;
use crate::sources::pressure;
use crate::sources::topmost_exit::TopmostExit;
use crate::system::authorization;
use crate::system::identify;
use crate::system::now;

/// Rounds of planning after one event: an app that was moved into its own cgroup gets its
/// reservation in the next round.
const ROUNDS: usize = 3;

impl Daemon {
    /// Takes the processes with an `oom_score_adj` that became 0, oldest first, as foreground
    /// claims.
    pub(crate) fn infer_by_score(&mut self, fronts: Vec<Zeroed>) {
        for Zeroed { id, by_owner } in fronts {
            match self.top_app.speaks() {
                true => debug!(
                    "pid {} became 0, but {} counts",
                    id.pid,
                    self.top_app.detail()
                ),
                false => self.infer(id, "oom_score_adj", by_owner),
            }
        }
    }

    /// Checks the cpuset of the foreground app for a change.
    pub(crate) fn look_at_top_app(&mut self) {
        const SOURCE: &str = "top-app";
        match self.top_app.look(&self.system) {
            // Only root can put a process there.
            Some(Some(id)) => self.infer(id, SOURCE, false),
            Some(None) if self.topmost.hears_inferred() => {
                let no_app = Claim {
                    app: None,
                    source: SOURCE.to_owned(),
                    uid: 0,
                };
                let shift = self.topmost.claim_inferred(no_app, now());
                self.after(shift);
            }
            Some(None) | None => {}
        }
    }

    /// Claims the foreground for this process on behalf of the system; `by_owner`: its own user may
    /// have caused that.
    fn infer(&mut self, id: ProcessId, source: &str, by_owner: bool) {
        if !self.topmost.hears_inferred() {
            debug!(
                "pid {} is in front by {source}, but a higher claim is in force",
                id.pid
            );
            return;
        }
        if let Some(claim) = self.claim_of(id, source, by_owner) {
            let shift = self.topmost.claim_inferred(claim, now());
            self.after(shift);
        }
    }

    /// The claim that a process is topmost, in the name of its owner. If the owner may have made it
    /// (`by_owner`), the owner needs permission. Otherwise root made it, and only an inactive
    /// session rules it out.
    pub(crate) fn claim_of(&self, id: ProcessId, source: &str, by_owner: bool) -> Option<Claim> {
        let process = self.system.same_process(id)?;
        let uid = process.owner_uid().ok()?;
        let allowed = match by_owner {
            true => {
                let speaker = self.access.speaker_of(&process, uid);
                authorization::may_speak(&self.system, &self.access, speaker)
            }
            false => authorization::may_be_claimed(&self.system, uid),
        };
        let app = allowed.and_then(|()| identify::app_of_pid(&self.system, id.pid));
        match app {
            Ok(app) => Some(Claim {
                app: Some(authorization::confine(&self.system, uid, app)),
                source: source.to_owned(),
                uid,
            }),
            Err(refusal) => {
                let why = refusal.message;
                debug!("pid {} is in front by {source}: {why}", id.pid);
                None
            }
        }
    }

    /// Demotes the topmost app if it has ended, and drops the previous one likewise.
    pub(crate) fn check_front(&mut self) {
        let front = self.topmost.front().map(|front| front.app.clone());
        let previous = self.topmost.previous().cloned();
        for app in front.into_iter().chain(previous) {
            if let Some(moved) = identify::moved(&self.system, &app) {
                debug!("{} lives in another cgroup now", app.name);
                let shift = self.topmost.moved(app.key, moved, now());
                self.after(shift);
                continue;
            }
            if !identify::is_alive(&self.system, &app) {
                debug!("{} has ended", app.name);
                let shift = self.topmost.vanished(app.key, now());
                self.after(shift);
            }
        }
    }

    /// Acts on the effect of a claim.
    pub(crate) fn after(&mut self, shift: Shift) {
        if shift == Shift::Unchanged {
            return;
        }
        self.note_topmost(now());
        // The guard may be about to act.
        self.note_front();
        self.protect_new_topmost(now());
        match self.topmost.front() {
            Some(front) => info!("topmost: {} (by {})", front.app.name, front.source),
            None => info!("topmost: none"),
        }
        let front = self.topmost.front().map(|front| &front.app);
        let owner = front.and_then(|app| self.owner_of(app));
        self.windows.topmost(front, owner);
        self.tell_kernel(now());
        self.watch_front();
        self.refresh(Event::Topmost);
        self.reservation_tracker = ReservationTracker::default();
        self.begin_following(now());
        self.next_tick = now() + self.config.settings.protect.interval;
    }

    fn watch_front(&mut self) {
        self.forget_front_end();
        let front = self.topmost.front();
        let Some(end) = front.and_then(|front| TopmostExit::of(&front.app, &self.system)) else {
            return;
        };
        if self.reactor.add(&end, Token::Front, end.flags()).is_ok() {
            self.topmost_exit = Some(end);
        }
    }

    fn forget_front_end(&mut self) {
        if let Some(end) = self.topmost_exit.take() {
            self.reactor.remove(&end);
        }
    }

    /// Handles an exit notification for the topmost app.
    pub(crate) fn front_told(&mut self) {
        if self.topmost_exit.as_ref().is_some_and(|end| !end.settle()) {
            self.forget_front_end();
        }
        self.check_front();
    }

    /// Measures, plans, and executes the plan.
    pub(crate) fn refresh(&mut self, event: Event) {
        self.actuators.check_reservation(&self.system);
        // Not while an app starts or becomes topmost, because that delays it, unless there is no
        // reading yet.
        let waited_for = matches!(event, Event::Topmost | Event::Starting);
        if !waited_for || !self.surroundings.is_known() {
            let boost = &self.config.settings.boost;
            self.surroundings.look(&self.system, boost, now());
        }
        for _ in 0..ROUNDS {
            let snapshot = self.snapshot();
            let actions = plan(&event, &snapshot);
            let contended = self.competitors.is_contended();
            let quiet = actions.is_empty() && event == Event::Tick && !contended;
            self.quiet_ticks = match quiet {
                true => self.quiet_ticks.saturating_add(1),
                false => 0,
            };
            let front = snapshot.topmost.as_ref().map(|topmost| topmost.app.clone());
            self.readahead.observe(&snapshot, &self.system, now());
            self.decisions.note_plan(&snapshot, &actions);
            self.last = snapshot;
            if self.options.dry_run && front.is_none() {
                self.actuators.changes.drop_where(|_, _| true);
            }
            let mut again = false;
            for action in &actions {
                let context = Context {
                    system: &self.system,
                    now: now(),
                    front: front.as_ref(),
                    apps: &self.last.apps,
                };
                if self.options.dry_run {
                    self.actuators.plan_only(action, context);
                    continue;
                }
                match self.actuators.apply(action, context) {
                    Effect::None => {}
                    Effect::Measurable => again = true,
                    Effect::Moved(app) => {
                        self.topmost.update_app(&app);
                        again = true;
                    }
                    Effect::NotAdopted => {
                        self.not_adoptable.extend(front.as_ref().map(|app| app.key));
                    }
                    Effect::Weighable => again = true,
                    Effect::NotWeighable => {
                        self.not_weighable.extend(front.as_ref().map(|app| app.key));
                    }
                }
            }
            self.actuators.report_locks(Context {
                system: &self.system,
                now: now(),
                front: front.as_ref(),
                apps: &self.last.apps,
            });
            self.tell_own_writes(&actions);
            self.tell_people();
            self.last.in_force = self.actuators.in_force.clone();
            self.schedule_thaw(now());
            self.tell_guard();
            if !again {
                return;
            }
        }
    }

    /// Resyncs the scan of scores after this daemon's own writes, which would otherwise count as
    /// another writer's.
    fn tell_own_writes(&mut self, actions: &[Action]) {
        let wrote = actions.iter().any(|action| {
            matches!(
                action,
                Action::Protect(Step::Shield { .. } | Step::Unshield { .. })
            )
        });
        if wrote && self.oom_score_adj.sees_own_writes() {
            let lowered: Vec<_> = self.actuators.lowered_scores().collect();
            self.oom_score_adj.resync(&self.system, &lowered);
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let counters = pressure::counters(&self.system);
        let memory = pressure::memory(&self.system, &counters);
        let lru = pressure::lru(&self.system);
        let (members, protected) = match self.switched.take() {
            Some(Switched { members, protected }) => (Some(members), Some(protected)),
            None => (None, None),
        };
        let topmost = self
            .topmost
            .front()
            .map(|front| front.app.clone())
            .map(|app| {
                let read = || identify::members(&self.system, &app);
                let members = members.unwrap_or_else(read);
                let usage = identify::usage(&self.system, &app);
                match (&mut self.footprint, usage) {
                    (Some((key, footprint)), Some(usage)) if *key == app.key => {
                        footprint.observe(usage);
                    }
                    (slot, usage) => *slot = usage.map(|usage| (app.key, Footprint::new(usage))),
                }
                let footprint = self.footprint.as_ref().map(|(_, footprint)| *footprint);
                Measured {
                    app,
                    members,
                    footprint,
                }
            });
        let starting = self.measure_starting(topmost.as_ref());
        let boost = match topmost.as_ref().or(starting.as_ref()) {
            Some(first) if self.config.settings.boost.enabled => {
                let more = starting.as_ref().filter(|_| topmost.is_some());
                let view = self.surroundings.view(&self.system, first, more);
                View {
                    competitors: self.competing_with(topmost.as_ref()),
                    ..view
                }
            }
            _ => View::default(),
        };
        let cache = topmost.as_ref().and_then(|topmost| {
            let usage = topmost.footprint?.usage;
            Some(identify::protected_cache(
                &self.system,
                &topmost.app,
                &usage,
            ))
        });
        if let Some(guard) = &self.actuators.guard {
            guard.set_kept(cache.unwrap_or(0));
        }
        let reading = pressure::reading(&self.system, &counters, now(), memory, cache.unwrap_or(0));
        self.pressure.observe(reading);
        self.note_oom_kills(reading.oom_kills);
        let protected = protected.unwrap_or_else(|| {
            let members = topmost.as_ref().map(|topmost| topmost.members.as_slice());
            self.protect_processes(members.unwrap_or_default(), now())
        });
        self.find_services(&protected, now());
        let not_adoptable = topmost
            .as_ref()
            .is_some_and(|topmost| self.not_adoptable.contains(&topmost.app.key));
        let not_weighable = topmost
            .as_ref()
            .is_some_and(|topmost| self.not_weighable.contains(&topmost.app.key));
        let device = self.actuators.device.device().is_some();
        let info = self.actuators.device_info(now());
        let has = |mechanism| info.is_some_and(|info| info.has(mechanism));
        let device_prezero = has(Mechanism::Prezero);
        let front = topmost.as_ref().map(|topmost| &topmost.app);
        let window = self.windows.is_open();
        let demand = match device_prezero {
            true => self.zeroing.observe(&self.system, front, window, now()),
            false => None,
        };
        Snapshot {
            at: now(),
            settings: self.config.settings.clone(),
            memory,
            lru,
            memory_controller: self.system.has_memory_controller(),
            recursive_protection: self.system.cgroups.has_recursive_protection(),
            device,
            device_premap: has(Mechanism::Premap),
            device_readahead: has(Mechanism::Readahead),
            device_prezero,
            // Without an app no page is served.
            engines: match device_prezero && (topmost.is_some() || demand.is_some()) {
                true => prezero::engines(&self.system),
                false => Vec::new(),
            },
            demand,
            device_members: match topmost {
                Some(_) => info.map_or(0, |info| info.members),
                None => 0,
            },
            ceiling: topmost
                .as_ref()
                .and_then(|topmost| identify::ceiling(&self.system, &topmost.app)),
            may_adopt: self.may_adopt() && !not_adoptable,
            may_hand_down: self.system.owns_tree() && !not_weighable,
            topmost,
            starting,
            boost,
            lowered_steps: self.pressure.steps(),
            protected_by_others: protected_by_others(
                &self.system,
                &self.actuators.ledger,
                lru.knob(),
            ),
            locked_bytes: self.actuators.locked_bytes(),
            in_force: self.actuators.in_force.clone(),
            apps: self.apps.by_use().into_iter().cloned().collect(),
            users_taken: self.apps.users.taken(),
            kept_cache: cache.unwrap_or(0),
            settled: self.is_settled(now()),
            previous: self.app_scan.previous(),
            protected,
            services: std::mem::take(&mut self.last.services),
            shortage: self.actuators.shortage(),
            storage: self.app_scan.storage.look(&self.system, &counters, now()),
        }
    }

    /// Threads of the programs that compete with the topmost app, if each of them is scheduled by
    /// itself, on the level of the app's cgroup or threads.
    fn competing_with(&mut self, topmost: Option<&Measured>) -> Vec<Threads> {
        let Some(topmost) = topmost else {
            return Vec::new();
        };
        let isolated = topmost.app.own_home().is_some_and(|home| !home.adopted);
        let first = topmost.members.first().copied().or(topmost.app.process);
        let owner = first.and_then(|id| self.system.same_process(id)?.owner_uid().ok());
        let Some(owner) = owner.filter(|_| !isolated) else {
            return Vec::new();
        };
        let gate = &self.actuators.gate;
        let found = self
            .competitors
            .sample(&self.system, gate, &topmost.app, owner, now());
        competing(&self.system, found)
    }

    fn may_adopt(&self) -> bool {
        match self.config.adopt {
            Adopt::Never => false,
            Adopt::Always => true,
            // The device protects an app without a cgroup of its own; boost always needs one.
            Adopt::Auto => {
                let boost = self.config.settings.boost.enabled;
                (boost || self.actuators.device.device().is_none()) && self.system.owns_tree()
            }
        }
    }
}
