// SPDX-License-Identifier: GPL-2.0-or-later
//! Carries out actions. Each actuator notes in the restore record what it is about to change,
//! changes it, and reports the outcome: applied, inert and why, failed and why.

pub mod boost;
pub mod changes;
pub mod controllers;
pub mod device;
pub mod premap;
pub mod prezero;
pub mod protect;
pub mod readahead;
pub mod restore_retry;
pub mod swap;
pub mod window;

use std::time::Duration;

use limelight_core::model::apps::Known;
use limelight_core::model::{App, InForce};
use limelight_core::policy::protect::Step;
use limelight_core::policy::{self, Action};
use limelight_proto::Outcome;

use crate::mechanisms::protect::page_pinner::PagePinner;
use crate::mechanisms::swap::guard::Guard;
use crate::mechanisms::swap::swapper::Swapper;
use crate::reconcile::gate::Gate;
use crate::restore::undo::lineage;
use crate::restore::{Entry, Ledger};
use crate::system::System;

use changes::Changes;
use device::DeviceDoor;
use restore_retry::Attempts;
use swap::kill_targets::KillTargets;
use swap::MemoryNotice;
use window::device::Told;

/// All actuators and what they have in force.
#[derive(Debug)]
pub struct Actuators {
    /// What was changed, on disk.
    pub ledger: Ledger,
    /// What was changed, as shown to the user.
    pub changes: Changes,
    /// What was changed, for the policy.
    pub in_force: InForce,
    /// `/dev/limelight`.
    pub device: DeviceDoor,
    /// How long the topmost set lasts without a call on the device.
    pub lease: device::Lease,
    /// Response windows that were reported to the device.
    told: Told,
    /// Cgroup values that another program has overwritten; left alone until the reservation ends.
    conflicts: Vec<(u64, &'static str)>,
    /// How often another program took the reservation away.
    disturbances: u8,
    /// Locks shared pages; started for the first app that needs it.
    page_pinner: Option<PagePinner>,
    /// The disk that `prezero` reads zeroes from.
    zeroes: Option<prezero::Open>,
    /// What must never be done to which processes.
    pub gate: Gate,
    /// Moves apps' memory out and back; `None` where nothing is applied.
    pub swapper: Option<Swapper>,
    /// Kills; `None` where nothing is applied.
    pub guard: Option<Guard>,
    /// Apps that the guard's reports may be about.
    pub kill_targets: KillTargets,
    /// Why the app that is being squeezed was chosen.
    squeezing_for: String,
    /// The target of the squeeze is no app: the squeeze is noted whatever it yields.
    squeezing_service: bool,
    /// Recent returns of memory: bytes, and the time that each took.
    returns: Vec<(u64, Duration)>,
    /// Notices for the user.
    pub notices: Vec<MemoryNotice>,
    /// Retries of failed restores.
    attempts: Attempts,
}

/// The context in which an action is carried out.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The system.
    pub system: &'a System,
    /// Time since boot.
    pub now: Duration,
    /// The topmost app.
    pub front: Option<&'a App>,
    /// The known apps.
    pub apps: &'a [Known],
}

/// Side effect of an action.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that the model must know.
    None,
    /// The app lives in another cgroup now.
    Moved(App),
    /// The app's memory is counted from now on.
    Measurable,
    /// The app cannot be given a cgroup of its own; do not try again.
    NotAdopted,
    /// The app's cgroups have weights from now on.
    Weighable,
    /// The app's cgroups cannot be given weights; do not try again.
    NotWeighable,
}

impl Actuators {
    /// Starts with nothing in force.
    pub fn new(ledger: Ledger, device: DeviceDoor) -> Actuators {
        Actuators {
            ledger,
            changes: Changes::default(),
            in_force: InForce::default(),
            told: Told::new(&device),
            device,
            conflicts: Vec::new(),
            disturbances: 0,
            page_pinner: None,
            zeroes: None,
            lease: device::Lease::default(),
            gate: Gate::default(),
            swapper: None,
            guard: None,
            kill_targets: KillTargets::default(),
            squeezing_for: String::new(),
            squeezing_service: false,
            returns: Vec::new(),
            notices: Vec::new(),
            attempts: Attempts::default(),
        }
    }

    /// Entries to record, with the lineages of `given` that are new.
    fn with_lineages(&mut self, entries: Vec<Entry>, given: Vec<Entry>) -> Vec<Entry> {
        // Entries that are still to be restored are in force again: keep them.
        given.iter().for_each(|entry| self.ledger.keep(entry));
        // First: without the lineages, a child that is forked right after the change could not be
        // recognised.
        let mut all = lineage::unrecorded(self.ledger.entries(), given);
        all.extend(entries);
        all
    }

    /// Carries one action out.
    pub fn apply(&mut self, action: &Action, context: Context<'_>) -> Effect {
        match action {
            Action::Mark { app } => self.mark(app.as_ref(), context),
            Action::Protect(step) => match step {
                Step::Switch { budget_percent } => self.switch_protect(*budget_percent, context),
                Step::Adopt { app } => return self.adopt(*app, context),
                Step::Release { app } => self.release(*app, context),
                Step::Reserve { reserve, rule } => return self.reserve(*reserve, rule, context),
                Step::Unreserve { app } => self.unreserve(*app, context),
                Step::Shield {
                    app,
                    members,
                    points,
                } => {
                    self.shield(*app, members, *points, context);
                }
                Step::Unshield { app } => self.unshield(*app, context),
                Step::Lock { locking } => self.lock(locking, context),
                Step::Unlock { .. } => self.unlock(),
            },
            Action::Boost(step) => match step {
                policy::boost::Step::HandDown { controllers, .. } => {
                    return self.hand_weights_down(controllers, context)
                }
                policy::boost::Step::Weigh { app, weights } => self.weigh(*app, weights, context),
                policy::boost::Step::Unweigh { app } => self.unweigh(*app, context),
                policy::boost::Step::Tune {
                    app,
                    tuning,
                    threads,
                } => self.tune(*app, *tuning, threads, context),
                policy::boost::Step::Untune { app } => self.untune(*app, context),
                policy::boost::Step::Regroup {
                    app,
                    nice_points,
                    groups,
                } => self.regroup(*app, *nice_points, groups, context),
                policy::boost::Step::Ungroup { app } => self.ungroup(*app, context),
            },
            Action::Premap(policy::premap::Step::Switch { window_pages }) => {
                self.switch_premap(*window_pages, context);
            }
            Action::Readahead(policy::readahead::Step::Switch { factor }) => {
                self.switch_readahead(*factor, context);
            }
            Action::Prezero(policy::prezero::Step::Switch { pool }) => {
                self.switch_prezero(pool.as_ref(), context);
            }
            Action::Swap(step) => self.swap(step, context),
            Action::Window(step) => self.tell_window(*step, context),
        }
        Effect::None
    }

    /// Reports what an action would do, without doing it.
    pub fn plan_only(&mut self, action: &Action, context: Context<'_>) {
        match action {
            Action::Mark { app } => self.plan_mark(app.as_ref(), context),
            Action::Protect(step) => match step {
                Step::Switch { budget_percent } => self.plan_switch(*budget_percent, context),
                Step::Adopt { app } => self.plan_adopt(*app, context),
                Step::Reserve { reserve, rule } => self.plan_reserve(*reserve, rule, context),
                Step::Shield {
                    app,
                    members,
                    points,
                } => {
                    self.plan_shield(*app, members, *points, context);
                }
                Step::Lock { locking } => self.plan_lock(locking, context),
                // Nothing is in force in a dry run, so nothing is ever undone.
                Step::Release { .. }
                | Step::Unreserve { .. }
                | Step::Unshield { .. }
                | Step::Unlock { .. } => {}
            },
            Action::Boost(step) => match step {
                policy::boost::Step::Weigh { app, weights } => {
                    self.plan_weigh(*app, weights, context)
                }
                policy::boost::Step::Tune {
                    tuning, threads, ..
                } => self.plan_tune(*tuning, threads, context),
                policy::boost::Step::Regroup {
                    nice_points,
                    groups,
                    ..
                } => self.plan_regroup(*nice_points, groups, context),
                // No app is adopted in a dry run either.
                policy::boost::Step::HandDown { .. }
                | policy::boost::Step::Unweigh { .. }
                | policy::boost::Step::Untune { .. }
                | policy::boost::Step::Ungroup { .. } => {}
            },
            Action::Premap(policy::premap::Step::Switch { window_pages }) => {
                self.plan_switch_premap(*window_pages, context);
            }
            Action::Readahead(policy::readahead::Step::Switch { factor }) => {
                self.plan_switch_readahead(*factor, context);
            }
            Action::Prezero(policy::prezero::Step::Switch { pool }) => {
                self.plan_switch_prezero(pool.as_ref(), context);
            }
            Action::Swap(step) => self.plan_swap(step, context),
            // The device is not opened in a dry run, and a window sets no lasting knob.
            Action::Window(_) => {}
        }
    }
}

/// Turns the result of an attempt into its outcome.
pub fn outcome<E: std::fmt::Display>(result: Result<(), E>) -> Outcome {
    match result {
        Ok(()) => Outcome::Applied,
        Err(error) => Outcome::Failed {
            why: error.to_string(),
        },
    }
}
