// SPDX-License-Identifier: GPL-2.0-or-later
//! The only module that makes plans and has them carried out. The scope selects the mechanisms to
//! plan, so that a key press or a new unit does not cause a measurement of the whole machine.

use std::time::Duration;

use limelight_core::model::class::Class;
use limelight_core::model::shortage::Level;
use limelight_core::model::snapshot::Reserved;
use limelight_core::model::{AppKey, Home};
use limelight_core::policy::protect::Step;
use limelight_core::policy::{boost, plan, protect, swap, window, Action, Event};
use limelight_sys::cgroup::CgroupPath;

use crate::mechanisms::{Context, Effect};
use crate::reconcile::{notices, Reconciler};
use crate::system::{now, System};

/// Maximum number of planning rounds after one event: an app that was moved into its own cgroup
/// gets its reservation in the next round.
const ROUNDS: usize = 3;

/// The mechanisms to plan, with their input.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope<'a> {
    /// All mechanisms, with everything measured.
    All(Event),
    /// The apps that are not topmost.
    Swap(Event),
    /// The limits of new app units with these paths, which hold no process yet.
    Units(&'a [String]),
    /// The reservation, which follows the topmost app's growth.
    Reservation,
    /// The processor weight of an app that the guard is closing, until it has exited.
    Closing,
    /// The response window in the kernel, at this time.
    Window(Duration),
}

impl Reconciler {
    /// Measures, plans, and executes the plan. During a pause, plans only undo changes.
    pub(super) fn reconcile(&mut self, scope: Scope<'_>) {
        let scope = match (self.pause, scope) {
            (Some(_), Scope::All(_)) => Scope::All(Event::Stop),
            (Some(_), Scope::Swap(_)) => Scope::Swap(Event::Stop),
            (Some(_), Scope::Units(_) | Scope::Reservation | Scope::Closing) => return,
            (_, scope) => scope,
        };
        if let Scope::All(event) = scope {
            self.look_around(event);
        }
        for _ in 0..ROUNDS {
            let before = self.mechanisms.shared.in_force.reserved;
            let actions = self.plan(scope);
            let again = self.carry_out(&actions);
            self.settle(scope, &actions);
            self.follow_growth(before);
            if !again || !matches!(scope, Scope::All(_)) {
                return;
            }
        }
    }

    /// Refreshes data that is read less often than once per plan.
    fn look_around(&mut self, event: Event) {
        let protect = &mut self.mechanisms.protect;
        protect
            .reservation
            .check(&mut self.mechanisms.shared, &self.system);
        // Reading the surroundings delays an app that the user waits for. So they are read then
        // only if there is no reading yet.
        let waited_for =
            matches!(event, Event::Topmost | Event::Starting) || !self.is_settled(now());
        let surroundings = &mut self.mechanisms.boost.surroundings;
        if !waited_for || !surroundings.is_known() {
            surroundings.look(&self.system, &self.config.settings.boost, now());
        }
    }

    fn plan(&mut self, scope: Scope<'_>) -> Vec<Action> {
        match scope {
            Scope::All(event) => self.plan_all(event),
            Scope::Swap(event) => {
                self.measure_swap(now());
                let last = &self.model.last;
                let steps = swap::withdraw(&event, last).into_iter();
                let steps = steps.chain(swap::receive(&event, last));
                let steps = steps.chain(swap::grant(&event, last));
                steps.map(Action::Swap).collect()
            }
            Scope::Units(paths) => self.plan_units(paths),
            Scope::Reservation => {
                let last = &mut self.model.last;
                last.shortage = self.mechanisms.swap.shortage();
                last.in_force.reserved = self.mechanisms.shared.in_force.reserved;
                if let Some(topmost) = &mut last.topmost {
                    let protect = &mut self.mechanisms.protect;
                    topmost.footprint = protect.measure(&self.system, &topmost.app);
                }
                let step = protect::follow(last);
                step.map(Action::Protect).into_iter().collect()
            }
            Scope::Closing => {
                let closing = self.closing();
                let last = &mut self.model.last;
                last.closing = closing;
                last.in_force.weighed = self.mechanisms.shared.in_force.weighed.clone();
                let step = boost::follow_closing(last);
                step.map(Action::Boost).into_iter().collect()
            }
            Scope::Window(at) => {
                let open = self.mechanisms.window.model.open();
                let open = open.filter(|_| self.pause.is_none());
                let told = self.mechanisms.shared.in_force.device_window;
                let step = window::step(open.map(|window| window.ends), told, at);
                step.map(Action::Window).into_iter().collect()
            }
        }
    }

    fn plan_all(&mut self, event: Event) -> Vec<Action> {
        let snapshot = self.measure();
        let actions = plan(&event, &snapshot);
        let contended = self.mechanisms.boost.competitors.is_contended();
        let is_tick = event == Event::Tick || self.pause.is_some();
        // While memory is short, each plan arms the guard with the last scan's sizes, again.
        let idle = |action: &Action| matches!(action, Action::Swap(swap::Step::Arm { .. }));
        let quiet = actions.iter().all(idle) && is_tick && !contended;
        self.ticks.count(quiet);
        let readahead = &mut self.mechanisms.readahead;
        readahead.observe(&snapshot, &self.system, now());
        self.decisions.note_plan(&snapshot, &actions);
        if self.dry_run && snapshot.topmost.is_none() {
            self.mechanisms.shared.changes.drop_where(|_, _| true);
        }
        self.model.last = snapshot;
        actions
    }

    /// Measures the topmost app again soon if its reservation has been raised from `before`.
    fn follow_growth(&mut self, before: Option<Reserved>) {
        let after = self.mechanisms.shared.in_force.reserved;
        let raised = before
            .zip(after)
            .is_some_and(|(before, after)| before.app == after.app && before.bytes < after.bytes);
        if raised && self.is_contested() {
            self.mechanisms.protect.tracker.follow_growth(now());
        }
    }

    /// Whether reclaim may take what the topmost app grows by: memory is short, or pages of the app
    /// were evicted and read again.
    pub(super) fn is_contested(&self) -> bool {
        let topmost = self.model.last.topmost.as_ref();
        let footprint = topmost.and_then(|topmost| topmost.footprint);
        let refaults = footprint.is_some_and(|footprint| footprint.refaulted > 0);
        refaults || self.mechanisms.swap.shortage().level() > Level::Plenty
    }

    /// The cgroup of the app that the guard is closing and that has not exited yet.
    pub(super) fn closing(&self) -> Option<Home> {
        let app = self.mechanisms.swap.guard.as_ref()?.closing()?;
        self.model.apps.get(app)?.found.app.own_home().cloned()
    }

    /// Plans limits for new units of disposable apps.
    fn plan_units(&mut self, paths: &[String]) -> Vec<Action> {
        let acts = self.config.settings.swap.enabled && !self.dry_run;
        if !acts || !self.model.last.storage.is_there() {
            return Vec::new();
        }
        let mut actions = Vec::new();
        for path in paths {
            let pending = &mut self.mechanisms.swap.pending_units;
            if !pending.count() {
                break;
            }
            let given = self.scan.source.class_of_unit(path);
            if given.class != Class::Disposable {
                continue;
            }
            let Some(inode) = inode(&self.system, path) else {
                continue;
            };
            let app = AppKey::Cgroup { inode };
            if self.model.apps.get(app).is_some() {
                continue;
            }
            let dropped = pending.add(app, path.clone(), now());
            self.scan.look_by(dropped);
            let home = Home {
                path: path.clone(),
                inode,
                own: true,
                adopted: false,
            };
            let rule = swap::DISPOSABLE.to_owned();
            actions.push(Action::Swap(swap::Step::Exempt { app, home, rule }));
        }
        actions
    }

    /// Executes a plan. Returns whether to plan again.
    fn carry_out(&mut self, actions: &[Action]) -> bool {
        let last = &self.model.last;
        let front = last.topmost.as_ref().map(|topmost| &topmost.app);
        let mut again = false;
        for action in actions {
            let context = Context {
                system: &self.system,
                now: now(),
                front,
                apps: &last.apps,
            };
            match self.mechanisms.apply(action, context) {
                Effect::None => {}
                Effect::Again => again = true,
                Effect::Moved(app) => {
                    self.model.topmost.update_app(&app);
                    again = true;
                }
            }
        }
        again
    }

    /// Updates the snapshot after a plan was executed, and publishes the actions.
    fn settle(&mut self, scope: Scope<'_>, actions: &[Action]) {
        match scope {
            Scope::All(_) => {
                let last = &self.model.last;
                let context = Context {
                    system: &self.system,
                    now: now(),
                    front: last.topmost.as_ref().map(|topmost| &topmost.app),
                    apps: &last.apps,
                };
                let shared = &mut self.mechanisms.shared;
                self.mechanisms.protect.shared_pages.report(shared, context);
                self.outbox.wrote_scores |= actions.iter().any(|action| {
                    matches!(
                        action,
                        Action::Protect(Step::Shield { .. } | Step::Unshield { .. })
                    )
                });
                self.settle_swap();
            }
            Scope::Swap(_) => self.settle_swap(),
            Scope::Units(_) if actions.is_empty() => {}
            Scope::Units(_) => {
                self.model.last.in_force = self.mechanisms.shared.in_force.clone();
            }
            Scope::Reservation => {
                self.model.last.in_force.reserved = self.mechanisms.shared.in_force.reserved;
            }
            Scope::Closing => {
                self.model.last.in_force.weighed = self.mechanisms.shared.in_force.weighed.clone();
            }
            Scope::Window(at) => self.note_use(at),
        }
    }

    fn settle_swap(&mut self) {
        notices::publish(
            std::mem::take(&mut self.mechanisms.swap.notices),
            &self.model.last,
            &self.mechanisms.swap.kill_targets,
            &mut self.history,
            &mut self.outbox.messages,
        );
        self.model.last.in_force = self.mechanisms.shared.in_force.clone();
        self.schedule_thaw(now());
        self.tell_guard();
    }

    /// Updates the pending units after a scan of all apps.
    pub(super) fn look_at_pending_units(&mut self, at: Duration) {
        let there = |key: AppKey, path: &str| {
            let inode = inode(&self.system, path);
            inode.is_some_and(|inode| key == AppKey::Cgroup { inode })
        };
        let came = |key: AppKey| self.model.apps.get(key).is_some();
        let swap = &mut self.mechanisms.swap;
        let late = swap.pending_units.looked(at, came, there);
        if !late.is_empty() {
            swap.forget_apps(&mut self.mechanisms.shared, &self.system, late);
        }
    }
}

fn inode(system: &System, path: &str) -> Option<u64> {
    let group = system.cgroups.open(&CgroupPath::parse(path)?).ok()?;
    Some(group.id().0)
}
