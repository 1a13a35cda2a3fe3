// SPDX-License-Identifier: GPL-2.0-or-later
//! `swap`: keeps apps out of swap, squeezes and freezes apps, and brings them back.
//!
//! Lasting changes (`memory.swap.max`, `cgroup.freeze`) are in the restore record. One-time actions
//! are done by the threads of the [`Swapper`](crate::mechanisms::swap::swapper::Swapper), and their
//! results arrive later.

mod done;
pub mod guard;
pub mod kill_targets;
mod limits;
pub mod oom_daemons;
pub mod pending_units;
pub mod swapper;

use std::time::Duration;

use limelight_core::model::apps::Known;
use limelight_core::model::shortage::{Gauge, Level, Shortage};
use limelight_core::model::snapshot::Refusal;
use limelight_core::model::{AppKey, Harm, Home};
use limelight_core::policy::swap::order::Candidate;
use limelight_core::policy::swap::Step;
use limelight_proto::{Change, MemoryAction, Outcome};

use crate::mechanisms::changes::Reach;
use crate::mechanisms::swap::guard::{Guard, Victim};
use crate::mechanisms::swap::swapper::{Errand, Squeeze};
use crate::mechanisms::{Actuators, Context};
use crate::reconcile::gate::dependents::served;
use crate::reconcile::gate::Blocked;
use crate::restore::undo::undo;
use crate::restore::Place;
use crate::system::System;
use limits::{is_about, FREEZE, SWAP_MAX};

/// A notice for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryNotice {
    /// An action was done to an app.
    Did {
        /// When, since boot.
        at: Duration,
        /// The action.
        action: MemoryAction,
        /// The app.
        app: AppKey,
        /// Bytes that it moved or freed.
        bytes: u64,
        /// How long it took.
        took: Option<Duration>,
        /// The reason.
        reason: String,
        /// The gauge at the decision; `None`: the present one.
        gauge: Option<(Level, Gauge)>,
    },
    /// How short memory is.
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

fn place(home: &Home) -> Place {
    Place {
        path: home.path.clone(),
        inode: home.inode,
    }
}

impl Actuators {
    /// Carries a step out, unless the gate refuses it.
    pub(crate) fn swap(&mut self, step: &Step, context: Context<'_>) {
        if let Some((app, harm, blocked)) = self.refusal(step) {
            self.refuse(app, harm, blocked, context);
            return;
        }
        let in_force = &mut self.in_force.swapping;
        match step {
            Step::Exempt { app, home, rule } => self.exempt(*app, home, rule, context),
            Step::Admit { app } => {
                self.put_back(*app, SWAP_MAX, context);
                self.in_force.swapping.exempt.retain(|key| key != app);
            }
            Step::Freeze { app, home, rule } => match self.served(*app, context) {
                None => self.freeze(*app, home, rule, context),
                Some(why) => {
                    tracing::info!("an app is not stopped: {why}");
                    self.pass_over(*app, Harm::Freeze, why, context.now);
                }
            },
            Step::Thaw { app, rule } => {
                self.put_back(*app, FREEZE, context);
                self.in_force.swapping.frozen.retain(|(key, _)| key != app);
                let thawed = &mut self.in_force.swapping.thawed;
                thawed.retain(|(key, _)| key != app);
                thawed.push((*app, context.now));
                self.say(*app, MemoryAction::Thaw, 0, rule.clone(), context);
            }
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
                    place: home.as_ref().map(place),
                    members: members.clone(),
                    bytes: *bytes,
                    dry: *dry,
                };
                self.squeeze(job, rule);
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
    }

    /// Why the gate refuses a step, if it does. Kills are not checked here: the guard asks the gate
    /// right before each one.
    fn refusal(&self, step: &Step) -> Option<(AppKey, Harm, Blocked)> {
        let (app, home, members, harm) = match step {
            Step::Exempt { app, home, .. } => (app, Some(home), &[][..], Harm::Limit),
            Step::Freeze { app, home, .. } => (app, Some(home), &[][..], Harm::Freeze),
            Step::Squeeze {
                app, home, members, ..
            } => (app, home.as_ref(), members.as_slice(), Harm::Squeeze),
            _ => return None,
        };
        let in_group = home.and_then(|home| self.gate.group(&home.path, harm, *app));
        let mut members = members.iter();
        let blocked =
            in_group.or_else(|| members.find_map(|id| self.gate.process(*id, None, harm)))?;
        Some((*app, harm, blocked))
    }

    /// Why an app must not be frozen, if another process may be waiting for it.
    fn served(&self, app: AppKey, context: Context<'_>) -> Option<String> {
        let known = context.apps.iter().find(|known| known.key() == app)?;
        let front = self.gate.topmost();
        served(context.system, &known.found.members, &front)
    }

    /// Reports that an action was refused, and skips the app for a while.
    fn refuse(&mut self, app: AppKey, harm: Harm, blocked: Blocked, context: Context<'_>) {
        let known = context.apps.iter().find(|known| known.key() == app);
        let name = known.map_or("a cgroup", |known| known.found.app.name.as_str());
        tracing::info!("{name} is not {harm}: {blocked}");
        self.pass_over(app, harm, blocked.to_string(), context.now);
    }

    /// Skips the app for a while after a refused action: another target comes first.
    fn pass_over(&mut self, app: AppKey, harm: Harm, why: String, at: Duration) {
        let refused = &mut self.in_force.swapping.refused;
        refused.retain(|one| one.app != app);
        refused.push(Refusal { app, at, harm, why });
    }

    /// Reports what a step would do.
    pub(crate) fn plan_swap(&mut self, step: &Step, context: Context<'_>) {
        let (app, home, file, to, rule) = match step {
            Step::Exempt { app, home, rule } => (app, home, SWAP_MAX, "0", rule.clone()),
            Step::Freeze { app, home, rule } => (app, home, FREEZE, "1", rule.clone()),
            Step::Squeeze {
                app,
                home,
                bytes,
                rule,
                ..
            } => {
                let rule = format!("{rule}: {} MiB", bytes >> 20);
                let Some(home) = home else {
                    return;
                };
                (app, home, "memory.reclaim", "", rule)
            }
            // A dry run has nothing in force to restore, and a notice sets no knob.
            _ => return,
        };
        let knob = context.system.cgroup_file(&home.path, file);
        let change = change(context, knob, String::new(), to, &rule, Outcome::Planned);
        self.changes.note(Reach::App(*app), change);
    }

    fn say(
        &mut self,
        app: AppKey,
        action: MemoryAction,
        bytes: u64,
        reason: String,
        context: Context<'_>,
    ) {
        self.notices.push(MemoryNotice::Did {
            at: context.now,
            action,
            app,
            bytes,
            took: None,
            reason,
            gauge: None,
        });
    }

    fn squeeze(&mut self, job: Squeeze, rule: &str) {
        let Some(swapper) = &self.swapper else {
            return;
        };
        let app = job.app;
        let service = job.members.is_empty();
        if swapper.squeeze(job) {
            self.squeezing_service = service;
            self.in_force.swapping.squeezing = Some(app);
            self.squeezing_for = rule.to_owned();
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

    /// How short memory is; plenty if no guard runs.
    pub fn shortage(&self) -> Shortage {
        self.guard.as_ref().map(Guard::shortage).unwrap_or_default()
    }

    /// Notes that an app is no longer topmost, so that it can be brought back.
    pub fn left_front(&mut self, errand: Errand) {
        self.in_force.swapping.returned = None;
        if let Some(swapper) = &self.swapper {
            swapper.interrupt();
            swapper.ask(errand);
        }
    }

    /// Notes that the topmost app has responded.
    pub fn answered(&mut self, app: AppKey) {
        if let Some(swapper) = &self.swapper {
            swapper.ask(Errand::Learn { app });
        }
    }

    /// Forgets apps that are gone.
    pub fn forget_apps(&mut self, system: &System, gone: Vec<AppKey>) {
        let swapping = &mut self.in_force.swapping;
        swapping.exempt.retain(|app| !gone.contains(app));
        swapping.frozen.retain(|(app, _)| !gone.contains(app));
        swapping.thawed.retain(|(app, _)| !gone.contains(app));
        swapping.squeezed.retain(|(app, _)| !gone.contains(app));
        swapping.lean.retain(|app| !gone.contains(app));
        swapping.refused.retain(|one| !gone.contains(&one.app));
        swapping.working_sets.retain(|(app, _)| !gone.contains(app));
        // An app may be gone while its cgroup still exists and gets another process.
        let inodes: Vec<u64> = gone.iter().filter_map(own_group).collect();
        undo(&mut self.ledger, system, |entry| {
            let about = |file| inodes.iter().any(|inode| is_about(entry, file, *inode));
            about(SWAP_MAX) || about(FREEZE)
        });
        self.changes
            .drop_where(|reach, _| matches!(reach, Reach::App(app) if gone.contains(&app)));
        if let Some(swapper) = &self.swapper {
            swapper.ask(Errand::Forget { apps: gone });
        }
    }
}

/// The cgroup inode of an app that is a cgroup.
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
        knob,
        from,
        to: to.to_owned(),
        rule: format!("swap: {rule}"),
        at_ms: context.now.as_millis() as u64,
        outcome,
        undone_by: "limelightd stopping".to_owned(),
    }
}
