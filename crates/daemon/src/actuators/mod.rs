// SPDX-License-Identifier: GPL-2.0-or-later
//! What carries actions out. Each actuator notes in the restore record what it is about to change,
//! changes it, and reports what really happened: applied, inert and why, failed and why.

pub mod adopt;
pub mod armed;
pub mod boost_groups;
pub mod boost_threads;
pub mod boost_weights;
pub mod cgroup_memory;
pub mod changes;
pub mod controllers;
pub mod device;
pub mod oom_score_adj;
pub mod owed;
pub mod premap;
pub mod prezero;
pub mod readahead;
pub mod shared_pages;
pub mod swap;
pub mod window;

use std::time::Duration;

use limelight_core::control::Outcome;
use limelight_core::model::apps::Known;
use limelight_core::model::{App, InForce};
use limelight_core::policy::protect::Step;
use limelight_core::policy::{
    boost, premap as heap, prezero as zeroes, readahead as ahead, Action,
};

use crate::doors::Doors;
use crate::gate::Gate;
use crate::guard::Guard;
use crate::locker::Locker;
use crate::restore::{Entry, Ledger};
use crate::swapper::Swapper;
use crate::undo::lineage;

use armed::Armed;
use changes::Changes;
use device::DeviceDoor;
use owed::Attempts;
use swap::Said;
use window::Told;

/// All actuators and what they have in force.
#[derive(Debug)]
pub struct Actuators {
    /// What was changed, on disk.
    pub ledger: Ledger,
    /// What was changed, for people.
    pub changes: Changes,
    /// What was changed, for the policy.
    pub in_force: InForce,
    /// `/dev/limelight`.
    pub device: DeviceDoor,
    /// What the device was told of response windows.
    told: Told,
    /// Cgroup values that somebody else changed under us; left alone until the reservation ends.
    conflicts: Vec<(u64, &'static str)>,
    /// Times that somebody took the reservation away.
    disturbances: u8,
    /// Holds shared pages, once there was somebody to hold them for.
    locker: Option<Locker>,
    /// The disk that `prezero` reads zeroes from.
    zeroes: Option<prezero::Open>,
    /// What may never be done to which processes.
    pub gate: Gate,
    /// Moves apps' memory out and back; `None` where nothing is applied.
    pub swapper: Option<Swapper>,
    /// Kills; `None` where nothing is applied.
    pub guard: Option<Guard>,
    /// Whom the guard's reports may be about.
    pub armed: Armed,
    /// Why the app that is being squeezed is.
    squeezing_for: String,
    /// What is being squeezed is no app: that is noted whatever it gives.
    squeezing_service: bool,
    /// How fast memory came back: bytes, and the time that it took.
    returns: Vec<(u64, Duration)>,
    /// What people should hear of.
    pub said: Vec<Said>,
    /// At putting back what could not be.
    attempts: Attempts,
}

/// What an action is carried out with.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The system.
    pub doors: &'a Doors,
    /// Time since boot.
    pub now: Duration,
    /// The app in front.
    pub front: Option<&'a App>,
    /// The apps that are known.
    pub apps: &'a [Known],
}

/// What an action did beyond its purpose.
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
    /// They cannot be given weights; do not try again.
    NotWeighable,
}

impl Actuators {
    /// Nothing is in force.
    pub fn new(ledger: Ledger, device: DeviceDoor) -> Actuators {
        Actuators {
            ledger,
            changes: Changes::default(),
            in_force: InForce::default(),
            told: Told::new(&device),
            device,
            conflicts: Vec::new(),
            disturbances: 0,
            locker: None,
            zeroes: None,
            gate: Gate::default(),
            swapper: None,
            guard: None,
            armed: Armed::default(),
            squeezing_for: String::new(),
            squeezing_service: false,
            returns: Vec::new(),
            said: Vec::new(),
            attempts: Attempts::default(),
        }
    }

    /// Entries to write down, with the lineages of `given` that are new.
    fn with_lineages(&mut self, entries: Vec<Entry>, given: Vec<Entry>) -> Vec<Entry> {
        // Not to be put back meanwhile, if that is owed: it is in force again.
        given.iter().for_each(|entry| self.ledger.keep(entry));
        // First: without them, nothing tells of a child that is forked right after the change.
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
                boost::Step::HandDown { controllers, .. } => {
                    return self.hand_weights_down(controllers, context)
                }
                boost::Step::Weigh { app, weights } => self.weigh(*app, weights, context),
                boost::Step::Unweigh { app } => self.unweigh(*app, context),
                boost::Step::Tune {
                    app,
                    tuning,
                    threads,
                } => self.tune(*app, *tuning, threads, context),
                boost::Step::Untune { app } => self.untune(*app, context),
                boost::Step::Regroup {
                    app,
                    nice_points,
                    groups,
                } => self.regroup(*app, *nice_points, groups, context),
                boost::Step::Ungroup { app } => self.ungroup(*app, context),
            },
            Action::Premap(heap::Step::Switch { window_pages }) => {
                self.switch_premap(*window_pages, context);
            }
            Action::Readahead(ahead::Step::Switch { factor }) => {
                self.switch_readahead(*factor, context);
            }
            Action::Prezero(zeroes::Step::Switch { pool }) => {
                self.switch_prezero(pool.as_ref(), context);
            }
            Action::Swap(step) => self.swap(step, context),
            Action::Window(step) => self.tell_window(*step, context),
        }
        Effect::None
    }

    /// Says what an action would do, without doing it.
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
                // Nothing is in force in a dry run, so nothing is ever taken back.
                Step::Release { .. }
                | Step::Unreserve { .. }
                | Step::Unshield { .. }
                | Step::Unlock { .. } => {}
            },
            Action::Boost(step) => match step {
                boost::Step::Weigh { app, weights } => self.plan_weigh(*app, weights, context),
                boost::Step::Tune {
                    tuning, threads, ..
                } => self.plan_tune(*tuning, threads, context),
                boost::Step::Regroup {
                    nice_points,
                    groups,
                    ..
                } => self.plan_regroup(*nice_points, groups, context),
                // Nobody is adopted in a dry run either.
                boost::Step::HandDown { .. }
                | boost::Step::Unweigh { .. }
                | boost::Step::Untune { .. }
                | boost::Step::Ungroup { .. } => {}
            },
            Action::Premap(heap::Step::Switch { window_pages }) => {
                self.plan_switch_premap(*window_pages, context);
            }
            Action::Readahead(ahead::Step::Switch { factor }) => {
                self.plan_switch_readahead(*factor, context);
            }
            Action::Prezero(zeroes::Step::Switch { pool }) => {
                self.plan_switch_prezero(pool.as_ref(), context);
            }
            Action::Swap(step) => self.plan_swap(step, context),
            // The device is not opened in a dry run, and a window is no knob that stays turned.
            Action::Window(_) => {}
        }
    }
}

/// The outcome of a call on a door.
pub fn outcome<E: std::fmt::Display>(result: Result<(), E>) -> Outcome {
    match result {
        Ok(()) => Outcome::Applied,
        Err(error) => Outcome::Failed {
            why: error.to_string(),
        },
    }
}
