// SPDX-License-Identifier: GPL-2.0-or-later
//! From an event to what is done about it: the model is brought up to date, the machine measured,
//! the policy asked, and the plan carried out.

use limelight_core::model::boost::{Threads, View};
use limelight_core::model::footprint::Footprint;
use limelight_core::model::snapshot::Measured;
use limelight_core::model::topmost::{Claim, Shift};
use limelight_core::model::{ProcessId, Snapshot};
use limelight_core::policy::protect::Step;
use limelight_core::policy::{plan, Action, Event};
use limelight_sys::device::Mechanism;
use tracing::{debug, info};

use crate::actuators::cgroup_memory::protected_by_others;
use crate::actuators::{Context, Effect};
use crate::boost::competing;
use crate::config::Adopt;
use crate::daemon::Daemon;
use crate::doors::now;
use crate::following::Following;
use crate::front_end::FrontEnd;
use crate::identify;
use crate::prezero;
use crate::reactor::Token;
use crate::sources::oom_score_adj::Zeroed;
use crate::sources::pressure;
use crate::trust;

/// Rounds of planning after one event: an app that was moved into a cgroup of its own gets its
/// reservation in the next round.
const ROUNDS: usize = 3;

impl Daemon {
    /// Processes whose `oom_score_adj` became 0, oldest first.
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

    /// Looks who is in the cpuset of the app in front.
    pub(crate) fn look_at_top_app(&mut self) {
        const SOURCE: &str = "top-app";
        match self.top_app.look(&self.doors) {
            // Root alone can put a process there.
            Some(Some(id)) => self.infer(id, SOURCE, false),
            Some(None) if self.topmost.hears_inferred() => {
                let nobody = Claim {
                    app: None,
                    source: SOURCE.to_owned(),
                    uid: 0,
                };
                let shift = self.topmost.claim_inferred(nobody, now());
                self.after(shift);
            }
            Some(None) | None => {}
        }
    }

    /// The system has this process for the one in front; `by_owner`: its own user may have said so.
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

    /// The claim that a process is in front, as its owner's. Unless the owner may have made it
    /// (`by_owner`), root did, and only a session that is not on the screen speaks against it.
    pub(crate) fn claim_of(&self, id: ProcessId, source: &str, by_owner: bool) -> Option<Claim> {
        let process = self.doors.same_process(id)?;
        let uid = process.owner_uid().ok()?;
        let allowed = match by_owner {
            true => {
                let speaker = self.access.speaker_of(&process, uid);
                trust::may_speak(&self.doors, &self.access, speaker)
            }
            false => trust::may_be_claimed(&self.doors, uid),
        };
        let app = allowed.and_then(|()| identify::app_of_pid(&self.doors, id.pid));
        match app {
            Ok(app) => Some(Claim {
                app: Some(trust::confine(&self.doors, uid, app)),
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

    /// Demotes the app in front if it has ended, and forgets the one before it likewise.
    pub(crate) fn check_front(&mut self) {
        let front = self.topmost.front().map(|front| front.app.clone());
        let previous = self.topmost.previous().cloned();
        for app in front.into_iter().chain(previous) {
            if let Some(moved) = identify::moved(&self.doors, &app) {
                debug!("{} lives in another cgroup now", app.name);
                let shift = self.topmost.moved(app.key, moved, now());
                self.after(shift);
                continue;
            }
            if !identify::is_alive(&self.doors, &app) {
                debug!("{} has ended", app.name);
                let shift = self.topmost.vanished(app.key, now());
                self.after(shift);
            }
        }
    }

    /// Acts on what a claim came to.
    pub(crate) fn after(&mut self, shift: Shift) {
        if shift == Shift::Unchanged {
            return;
        }
        self.note_topmost(now());
        // The guard may be about to act.
        self.note_front();
        self.protect_processes(now());
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
        self.following = Following::default();
        self.begin_following(now());
        self.next_tick = now() + self.config.settings.protect.interval;
    }

    fn watch_front(&mut self) {
        self.forget_front_end();
        let front = self.topmost.front();
        let Some(end) = front.and_then(|front| FrontEnd::of(&front.app, &self.doors)) else {
            return;
        };
        if self.reactor.add(&end, Token::Front, end.flags()).is_ok() {
            self.front_end = Some(end);
        }
    }

    fn forget_front_end(&mut self) {
        if let Some(end) = self.front_end.take() {
            self.reactor.remove(&end);
        }
    }

    /// The app in front may have ended.
    pub(crate) fn front_told(&mut self) {
        if self.front_end.as_ref().is_some_and(|end| !end.settle()) {
            self.forget_front_end();
        }
        self.check_front();
    }

    /// Measures, plans, and carries the plan out.
    pub(crate) fn refresh(&mut self, event: Event) {
        self.actuators.check_reservation(&self.doors);
        // Not when somebody waits for the new app to be quick, unless nobody ever looked.
        let waited_for = matches!(event, Event::Topmost | Event::Starting);
        if !waited_for || !self.surroundings.is_known() {
            let boost = &self.config.settings.boost;
            self.surroundings.look(&self.doors, boost, now());
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
            self.readahead.observe(&snapshot, &self.doors, now());
            self.decisions.note_plan(&snapshot, &actions);
            self.last = snapshot;
            if self.options.dry_run && front.is_none() {
                self.actuators.changes.drop_where(|_, _| true);
            }
            let mut again = false;
            for action in &actions {
                let context = Context {
                    doors: &self.doors,
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
                doors: &self.doors,
                now: now(),
                front: front.as_ref(),
                apps: &self.last.apps,
            });
            self.tell_own_writes(&actions);
            self.tell_people();
            self.last.in_force = self.actuators.in_force.clone();
            self.tell_guard();
            if !again {
                return;
            }
        }
    }

    /// A scan would take our own writes for somebody else's.
    fn tell_own_writes(&mut self, actions: &[Action]) {
        let wrote = actions.iter().any(|action| {
            matches!(
                action,
                Action::Protect(Step::Shield { .. } | Step::Unshield { .. })
            )
        });
        if wrote && self.oom_score_adj.sees_own_writes() {
            let lowered: Vec<_> = self.actuators.lowered_scores().collect();
            self.oom_score_adj.resync(&self.doors, &lowered);
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let counters = pressure::counters(&self.doors);
        let memory = pressure::memory(&self.doors, &counters);
        let lru = pressure::lru(&self.doors);
        let topmost = self
            .topmost
            .front()
            .map(|front| front.app.clone())
            .map(|app| {
                let members = identify::members(&self.doors, &app);
                let usage = identify::usage(&self.doors, &app);
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
                let view = self.surroundings.view(&self.doors, first, more);
                View {
                    competitors: self.competing_with(topmost.as_ref()),
                    ..view
                }
            }
            _ => View::default(),
        };
        let cache = topmost.as_ref().and_then(|topmost| {
            let usage = topmost.footprint?.usage;
            Some(identify::protected_cache(&self.doors, &topmost.app, &usage))
        });
        if let Some(guard) = &self.actuators.guard {
            guard.set_kept(cache.unwrap_or(0));
        }
        let reading = pressure::reading(&self.doors, &counters, now(), memory, cache.unwrap_or(0));
        self.pressure.observe(reading);
        self.note_oom_kills(reading.oom_kills);
        let protected = self.protect_processes(now());
        self.find_services(&protected, now());
        let not_adoptable = topmost
            .as_ref()
            .is_some_and(|topmost| self.not_adoptable.contains(&topmost.app.key));
        let not_weighable = topmost
            .as_ref()
            .is_some_and(|topmost| self.not_weighable.contains(&topmost.app.key));
        let device = self.actuators.device.device().is_some();
        let info = self.actuators.device.info();
        let has = |mechanism| info.is_some_and(|info| info.has(mechanism));
        let device_prezero = has(Mechanism::Prezero);
        let front = topmost.as_ref().map(|topmost| &topmost.app);
        let window = self.windows.is_open();
        let demand = match device_prezero {
            true => self.zeroing.observe(&self.doors, front, window, now()),
            false => None,
        };
        Snapshot {
            settings: self.config.settings.clone(),
            memory,
            lru,
            memory_controller: self.doors.has_memory_controller(),
            recursive_protection: self.doors.cgroups.has_recursive_protection(),
            device,
            device_premap: has(Mechanism::Premap),
            device_readahead: has(Mechanism::Readahead),
            device_prezero,
            // Asking costs the kernel a look at every DMA controller; nobody is served without an app.
            engines: match device_prezero && (topmost.is_some() || demand.is_some()) {
                true => prezero::engines(&self.doors),
                false => Vec::new(),
            },
            demand,
            device_members: match topmost {
                Some(_) => info.map_or(0, |info| info.members),
                None => 0,
            },
            ceiling: topmost
                .as_ref()
                .and_then(|topmost| identify::ceiling(&self.doors, &topmost.app)),
            may_adopt: self.may_adopt() && !not_adoptable,
            may_hand_down: self.doors.owns_tree() && !not_weighable,
            topmost,
            starting,
            boost,
            lowered_steps: self.pressure.steps(),
            protected_by_others: protected_by_others(
                &self.doors,
                &self.actuators.ledger,
                lru.knob(),
            ),
            locked_bytes: self.actuators.locked_bytes(),
            in_force: self.actuators.in_force.clone(),
            apps: self.apps.by_use().into_iter().cloned().collect(),
            kept_cache: cache.unwrap_or(0),
            settled: self.is_settled(now()),
            previous: self.household.previous(),
            protected,
            services: std::mem::take(&mut self.last.services),
            shortage: self.actuators.shortage(),
            storage: self.household.storage.look(&self.doors, &counters, now()),
        }
    }

    /// Threads of the programs that compete with the topmost app, where each of them stands beside its
    /// cgroup or its threads on its own.
    fn competing_with(&mut self, topmost: Option<&Measured>) -> Vec<Threads> {
        let Some(topmost) = topmost else {
            return Vec::new();
        };
        let isolated = topmost.app.own_home().is_some_and(|home| !home.adopted);
        let first = topmost.members.first().copied().or(topmost.app.process);
        let owner = first.and_then(|id| self.doors.same_process(id)?.owner_uid().ok());
        let Some(owner) = owner.filter(|_| !isolated) else {
            return Vec::new();
        };
        let gate = &self.actuators.gate;
        let found = self
            .competitors
            .sample(&self.doors, gate, &topmost.app, owner, now());
        competing(&self.doors, found)
    }

    fn may_adopt(&self) -> bool {
        match self.config.adopt {
            Adopt::Never => false,
            Adopt::Always => true,
            // The device protects an app without a cgroup of its own; boost needs one everywhere.
            Adopt::Auto => {
                let boost = self.config.settings.boost.enabled;
                (boost || self.actuators.device.device().is_none()) && self.doors.owns_tree()
            }
        }
    }
}
