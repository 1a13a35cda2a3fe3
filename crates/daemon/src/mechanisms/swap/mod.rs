// SPDX-License-Identifier: GPL-2.0-or-later
//! `swap`: keeps apps out of swap, squeezes and freezes apps, and brings their memory back.
//!
//! Lasting changes (`memory.swap.max`, `memory.high`, `cgroup.freeze`) are in the restore record. One-time actions
//! are done by the threads of the [`Swapper`](crate::mechanisms::swap::swapper::Swapper), and their
//! results arrive later.

mod done;
pub mod guard;
pub mod kill_targets;
mod limits;
pub mod oom_daemons;
pub mod pending_units;
pub mod swapper;
mod throttle;

use std::time::Duration;

use limelight_core::model::apps::Known;
use limelight_core::model::shortage::{Gauge, Level, Shortage, Thresholds};
use limelight_core::model::snapshot::Refusal;
use limelight_core::model::{AppKey, Harm, Home};
use limelight_core::policy::swap::order::Candidate;
use limelight_core::policy::swap::Step;
use limelight_proto::{Change, MemoryAction, Outcome};
use tracing::{info, warn};

use crate::mechanisms::changes::{Kind, Reach};
use crate::mechanisms::shared::{Context, Effect, Mechanism, Shared, UNDONE_BY_STOP};
use crate::reconcile::gate::dependents::served;
use crate::reconcile::gate::{Blocked, Gate};
use crate::restore::Place;
use crate::system::System;

use guard::{Guard, Victim};
use kill_targets::KillTargets;
use limits::{is_about, put_back};
use oom_daemons::OomDaemons;
use pending_units::PendingUnits;
use swapper::{Errand, Job, Squeeze, Swapper, WriteBack};

/// A notice for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryNotice {
    /// An action was taken on an app.
    Did {
        /// When, since boot.
        at: Duration,
        /// The action.
        action: MemoryAction,
        /// The app.
        app: AppKey,
        /// Bytes that the action moved or freed.
        bytes: u64,
        /// How long it took; `None` if that was not measured.
        took: Option<Duration>,
        /// The reason.
        reason: String,
        /// The gauge at the decision; `None`: the present one.
        gauge: Option<(Level, Gauge)>,
    },
    /// Apps are asked to free memory, or are told that the shortage is over ([`Level::Plenty`]).
    Level {
        /// The level.
        level: Level,
        /// The app that would be killed next.
        next: Option<AppKey>,
    },
    /// The topmost app grows without end.
    Grows {
        /// The app.
        app: AppKey,
        /// Bytes by which it grew recently.
        grown: u64,
    },
}

/// State of the `swap` mechanism.
#[derive(Debug, Default)]
pub struct Swap {
    /// Moves apps' memory to swap and back; `None` if it was not started.
    pub swapper: Option<Swapper>,
    /// Kills apps; `None` if it was not started.
    pub guard: Option<Guard>,
    /// Apps that the guard's reports may be about.
    pub kill_targets: KillTargets,
    /// Units that were created for apps and hold no process yet.
    pub pending_units: PendingUnits,
    /// Other OOM daemons.
    pub oom_daemons: OomDaemons,
    /// Why the app that is being squeezed was chosen.
    squeezing_for: String,
    /// Whether the squeezed target is a service and not an app. Such a squeeze is reported even if
    /// it frees nothing.
    squeezing_service: bool,
    /// Why the app whose pages are being written back was chosen.
    writing_back_for: String,
    /// Returns of memory since [`Swap::take_returns`]: bytes read from swap, and the time that each
    /// took.
    returns: Vec<(u64, Duration)>,
    /// Notices that are not published yet.
    pub notices: Vec<MemoryNotice>,
}

impl Swap {
    /// Notifies the user of an action on an app.
    fn did(&mut self, at: Duration, app: AppKey, action: MemoryAction, reason: &str) {
        self.notices.push(MemoryNotice::Did {
            at,
            action,
            app,
            bytes: 0,
            took: None,
            reason: reason.to_owned(),
            gauge: None,
        });
    }

    /// Freezes an app, unless another process may be waiting for it.
    fn freeze(
        &mut self,
        shared: &mut Shared,
        (app, home): (AppKey, &Home),
        rule: &str,
        context: Context<'_>,
    ) {
        if let Some(why) = refusal_to_stop(shared, app, Harm::Freeze, context) {
            info!("an app is not frozen: {why}");
            pass_over(shared, app, Harm::Freeze, why, context.now);
        } else if limits::freeze(shared, app, home, rule, context) {
            self.did(context.now, app, MemoryAction::Freeze, rule);
        }
    }

    /// Limits an app's growth, or raises its limit, unless someone may be waiting for the app.
    fn throttle(
        &mut self,
        shared: &mut Shared,
        (app, home): (AppKey, &Home),
        limit: u64,
        rule: &str,
        context: Context<'_>,
    ) {
        let mut throttled = shared.in_force.swapping.throttled.iter();
        let first = !throttled.any(|one| one.app == app);
        let refusal = first
            .then(|| refusal_to_stop(shared, app, Harm::Throttle, context))
            .flatten();
        if let Some(why) = refusal {
            info!("an app is not throttled: {why}");
            return pass_over(shared, app, Harm::Throttle, why, context.now);
        }
        match throttle::throttle(shared, app, home, limit, rule, context) {
            Outcome::Inert { why } | Outcome::Failed { why } => {
                pass_over(shared, app, Harm::Throttle, why, context.now);
            }
            Outcome::Applied if first => {
                self.did(context.now, app, MemoryAction::Throttle, rule);
            }
            Outcome::Applied | Outcome::Planned => {}
        }
    }

    fn squeeze(&mut self, shared: &mut Shared, job: Squeeze, rule: &str, context: Context<'_>) {
        if let (true, Some(place)) = (shared.is_dry_run(), &job.place) {
            let knob = context.system.cgroup_file(&place.path, "memory.reclaim");
            let rule = format!("{rule}: {} MiB", job.bytes >> 20);
            let planned = change(context, knob, String::new(), "", &rule, Outcome::Planned);
            shared
                .changes
                .note(Reach::App(job.app), Kind::Reclaim, planned);
        }
        let Some(swapper) = &self.swapper else {
            return;
        };
        let app = job.app;
        let service = job.members.is_empty();
        if swapper.queue(Job::Squeeze(job)) {
            self.squeezing_service = service;
            shared.in_force.swapping.squeezing = Some(app);
            self.squeezing_for = rule.to_owned();
        }
    }

    fn write_back(&mut self, shared: &mut Shared, job: WriteBack, rule: &str) {
        let app = job.app;
        let swapper = self.swapper.as_ref().filter(|_| !shared.is_dry_run());
        if swapper.is_some_and(|swapper| swapper.queue(Job::WriteBack(job))) {
            shared.in_force.swapping.writing_back = Some(app);
            self.writing_back_for = rule.to_owned();
        }
    }

    fn arm(&mut self, order: &[Candidate], context: Context<'_>) {
        let Some(guard) = &mut self.guard else {
            return;
        };
        let victims = order.iter().filter_map(|candidate| {
            let mut apps = context.apps.iter();
            Some((candidate, apps.find(|known| known.key() == candidate.app)?))
        });
        let victims: Vec<(&Candidate, &Known)> = victims.collect();
        let armed = victims.iter().map(|(_, known)| *known);
        self.kill_targets.renew(armed, context.now);
        let victims = victims.into_iter().map(|(candidate, known)| Victim {
            candidate: *candidate,
            app: &known.found.app,
            members: &known.found.members,
        });
        guard.arm(context.system, victims);
    }

    /// Starts the threads that kill apps and that move memory. If a thread cannot be started, its
    /// part of `swap` does nothing, and the log says so.
    pub fn start(&mut self, system: &System, gate: &Gate, thresholds: Thresholds) {
        let mount_point = system.cgroups.mount_point();
        match Swapper::start(
            mount_point,
            &system.roots.proc,
            &system.roots.sys,
            gate.clone(),
        ) {
            Ok(swapper) => self.swapper = Some(swapper),
            Err(error) => {
                warn!("cannot start the page movers: {error}; no memory is moved to swap or back")
            }
        }
        match Guard::start(system, thresholds, gate.clone()) {
            Ok(guard) => self.guard = Some(guard),
            Err(error) => warn!("cannot start the guard: {error}; limelightd kills no app"),
        }
    }

    /// How short memory is; without a guard, memory counts as plenty.
    pub fn shortage(&self) -> Shortage {
        self.guard.as_ref().map(Guard::shortage).unwrap_or_default()
    }

    /// Notes that an app is no longer topmost: stops reading its memory back, and interrupts a
    /// running squeeze, because the next app may need the disk.
    pub fn left_front(&mut self, shared: &mut Shared, app: AppKey) {
        shared.in_force.swapping.returned = None;
        if let Some(swapper) = &self.swapper {
            swapper.ask(Errand::Left { app });
            swapper.interrupt();
        }
    }

    /// Gives the swapper an errand.
    pub fn ask(&self, errand: Errand) {
        if let Some(swapper) = &self.swapper {
            swapper.ask(errand);
        }
    }

    /// Forgets apps that are gone.
    pub fn forget_apps(&mut self, shared: &mut Shared, system: &System, gone: Vec<AppKey>) {
        let swapping = &mut shared.in_force.swapping;
        swapping.exempt.retain(|one| !gone.contains(&one.app));
        swapping.lifted = swapping.lifted.filter(|app| !gone.contains(app));
        swapping.frozen.retain(|(app, _)| !gone.contains(app));
        swapping.thawed.retain(|(app, _)| !gone.contains(app));
        swapping.throttled.retain(|one| !gone.contains(&one.app));
        swapping.squeezed.retain(|(app, _)| !gone.contains(app));
        swapping.written_back.retain(|(app, _)| !gone.contains(app));
        swapping.lean.retain(|app| !gone.contains(app));
        swapping.refused.retain(|one| !gone.contains(&one.app));
        swapping.working_sets.retain(|(app, _)| !gone.contains(app));
        // Undo the limits of these apps: a cgroup may outlive its app and get another process.
        let inodes: Vec<u64> = gone.iter().filter_map(own_group).collect();
        shared.undo(system, |entry| {
            let about = |kind| inodes.iter().any(|inode| is_about(entry, kind, *inode));
            about(Kind::SwapMax) || about(Kind::High) || about(Kind::Freeze)
        });
        shared
            .changes
            .drop_where(|reach, _| matches!(reach, Reach::App(app) if gone.contains(&app)));
        if let Some(swapper) = &self.swapper {
            swapper.ask(Errand::Forget { apps: gone });
        }
    }
}

impl Mechanism for Swap {
    type Step = Step;

    /// Carries out a step, unless the gate refuses it.
    fn apply(&mut self, step: &Step, shared: &mut Shared, context: Context<'_>) -> Effect {
        if let Some((app, harm, blocked)) = refusal(shared, step) {
            report_refusal(shared, app, harm, blocked, context);
            return Effect::None;
        }
        let dry = shared.is_dry_run();
        let in_force = &mut shared.in_force.swapping;
        match step {
            Step::Exempt { app, home, rule } => limits::exempt(shared, *app, home, rule, context),
            Step::Admit { app } => {
                put_back(shared, *app, Kind::SwapMax, context);
                let in_force = &mut shared.in_force.swapping;
                in_force.exempt.retain(|one| one.app != *app);
                if context.front.is_some_and(|front| front.key == *app) {
                    in_force.lifted = Some(*app);
                }
            }
            Step::Throttle {
                app,
                home,
                limit,
                rule,
            } => self.throttle(shared, (*app, home), *limit, rule, context),
            Step::Unthrottle { app } => throttle::lift(shared, *app, context),
            Step::Freeze { app, home, rule } => self.freeze(shared, (*app, home), rule, context),
            Step::Thaw { app, rule } => {
                limits::thaw(shared, *app, context);
                self.did(context.now, *app, MemoryAction::Thaw, rule);
            }
            // A dry run neither asks nor warns the user.
            Step::Ask { .. } | Step::Warn { .. } if dry => {}
            Step::Ask { level, next } => {
                in_force.asked = Some((*level, context.now));
                self.notices.push(MemoryNotice::Level {
                    level: *level,
                    next: *next,
                });
            }
            Step::Warn { app, grown } => {
                in_force.warned = Some((*app, context.now));
                self.notices.push(MemoryNotice::Grows {
                    app: *app,
                    grown: *grown,
                });
            }
            Step::Squeeze {
                app,
                home,
                members,
                bytes,
                dry,
                rule,
            } => {
                let job = Squeeze {
                    app: *app,
                    place: home.as_ref().map(Place::from),
                    members: members.clone(),
                    bytes: *bytes,
                    dry: *dry,
                };
                self.squeeze(shared, job, rule, context);
            }
            Step::WriteBack {
                app,
                members,
                bytes,
                rule,
            } => {
                let job = WriteBack {
                    app: *app,
                    members: members.clone(),
                    bytes: *bytes,
                };
                self.write_back(shared, job, rule);
            }
            Step::Return { app, members, most } => {
                in_force.returned = Some(*app);
                in_force.lean.retain(|lean| lean != app);
                if let Some(swapper) = &self.swapper {
                    swapper.ask(Errand::Return {
                        app: *app,
                        members: members.clone(),
                        most: *most,
                    });
                }
            }
            Step::Arm { order } => {
                in_force.armed = order.iter().map(|one| one.app).collect();
                self.arm(order, context);
            }
        }
        Effect::None
    }
}

/// Why the gate refuses a step, if it does. Kills are not checked here: the guard checks the gate
/// right before each kill.
fn refusal(shared: &Shared, step: &Step) -> Option<(AppKey, Harm, Blocked)> {
    let (app, home, members, harm) = match step {
        Step::Exempt { app, home, .. } => (app, Some(home), &[][..], Harm::Limit),
        Step::Throttle { app, home, .. } => (app, Some(home), &[][..], Harm::Throttle),
        Step::Freeze { app, home, .. } => (app, Some(home), &[][..], Harm::Freeze),
        Step::Squeeze {
            app, home, members, ..
        } => (app, home.as_ref(), members.as_slice(), Harm::Squeeze),
        Step::WriteBack { app, members, .. } => (app, None, members.as_slice(), Harm::Squeeze),
        _ => return None,
    };
    let in_group = home.and_then(|home| shared.gate.group(&home.path, harm, *app));
    let mut members = members.iter();
    let blocked =
        in_group.or_else(|| members.find_map(|id| shared.gate.process(*id, None, harm)))?;
    Some((*app, harm, blocked))
}

/// Why an app must not be frozen or throttled, if a process or a person may be waiting for it.
fn refusal_to_stop(
    shared: &Shared,
    app: AppKey,
    harm: Harm,
    context: Context<'_>,
) -> Option<String> {
    let known = context.apps.iter().find(|known| known.key() == app)?;
    let front = shared.gate.topmost();
    served(context.system, &known.found.members, &front, harm)
}

/// Reports that an action was refused, and skips the app for a while.
fn report_refusal(
    shared: &mut Shared,
    app: AppKey,
    harm: Harm,
    blocked: Blocked,
    context: Context<'_>,
) {
    let known = context.apps.iter().find(|known| known.key() == app);
    let name = known.map_or("a cgroup", |known| known.found.app.name.as_str());
    info!("{name} is not {harm}: {blocked}");
    pass_over(shared, app, harm, blocked.to_string(), context.now);
}

/// Skips the app for a while after a refused action, so that another target comes first.
fn pass_over(shared: &mut Shared, app: AppKey, harm: Harm, why: String, at: Duration) {
    let refused = &mut shared.in_force.swapping.refused;
    // Drop old refusals, because nothing reports the end of a service.
    refused.retain(|one| one.app != app && at.saturating_sub(one.at) < done::REMEMBERED);
    refused.push(Refusal { app, at, harm, why });
}

/// The inode of the app's cgroup, if a cgroup identifies the app.
fn own_group(app: &AppKey) -> Option<u64> {
    match app {
        AppKey::Cgroup { inode } => Some(*inode),
        AppKey::Tree(_) => None,
    }
}

fn change(
    context: Context<'_>,
    knob: String,
    from: String,
    to: &str,
    rule: &str,
    outcome: Outcome,
) -> Change {
    Change {
        undone_by: UNDONE_BY_STOP.to_owned(),
        ..context.change(knob, (from, to), format!("swap: {rule}"), outcome)
    }
}
