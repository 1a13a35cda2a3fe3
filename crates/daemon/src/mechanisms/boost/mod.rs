// SPDX-License-Identifier: GPL-2.0-or-later
//! `boost`: the topmost app's threads get the processor and the disk first.

pub mod competitors;
pub mod groups;
mod role_changes;
mod surroundings;
pub mod threads;
pub mod weights;

use std::collections::BTreeSet;
use std::time::Duration;

use limelight_core::model::boost::{Threads, View};
use limelight_core::model::snapshot::Measured;
use limelight_core::model::AppKey;
use limelight_core::policy::boost::Step;

use crate::mechanisms::controllers::hand_weights_down;
use crate::mechanisms::shared::{Context, Effect, Mechanism, Shared};
use crate::reconcile::gate::Gate;
use crate::system::System;

use competitors::Competitors;
use surroundings::{competing, Surroundings};

/// State of the `boost` mechanism.
#[derive(Debug, Default)]
pub struct Boost {
    /// The schedulers and the helper programs.
    pub surroundings: Surroundings,
    /// Programs that compete with the topmost app for a CPU.
    pub competitors: Competitors,
    /// Apps that cannot be given weights: their cgroup lacks the controllers, and these could not
    /// be enabled.
    not_weighable: BTreeSet<AppKey>,
}

impl Boost {
    /// What the policy needs to know about the topmost app and the app that is starting.
    pub fn view(
        &mut self,
        system: &System,
        gate: &Gate,
        topmost: Option<&Measured>,
        starting: Option<&Measured>,
        now: Duration,
    ) -> View {
        let Some(first) = topmost.or(starting) else {
            return View::default();
        };
        let more = starting.filter(|_| topmost.is_some());
        let view = self.surroundings.view(system, first, more);
        View {
            competitors: self.competing_with(system, gate, topmost, now),
            ..view
        }
    }

    /// Threads of the programs that compete with the topmost app. Empty if the app has a cgroup of
    /// its own that Limelight did not create: that cgroup's weight isolates the app.
    fn competing_with(
        &mut self,
        system: &System,
        gate: &Gate,
        topmost: Option<&Measured>,
        now: Duration,
    ) -> Vec<Threads> {
        let Some(topmost) = topmost else {
            return Vec::new();
        };
        let isolated = topmost.app.own_home().is_some_and(|home| !home.adopted);
        let first = topmost.members.first().copied().or(topmost.app.process);
        let owner = first.and_then(|id| system.same_process(id)?.owner_uid().ok());
        let Some(owner) = owner.filter(|_| !isolated) else {
            return Vec::new();
        };
        let app = &topmost.app;
        competing(
            system,
            self.competitors.sample(system, gate, app, owner, now),
        )
    }

    /// Whether this app's cgroup cannot be given weights.
    pub fn is_not_weighable(&self, app: AppKey) -> bool {
        self.not_weighable.contains(&app)
    }

    /// Discards failures and the last scan after a change of the configuration, so that every app
    /// is tried again.
    pub fn forget(&mut self) {
        self.not_weighable.clear();
        self.surroundings.forget();
    }
}

impl Mechanism for Boost {
    type Step = Step;

    fn apply(&mut self, step: &Step, shared: &mut Shared, context: Context<'_>) -> Effect {
        match step {
            Step::HandDown { controllers, .. } => {
                match hand_weights_down(shared, controllers, context) {
                    Some(true) => return Effect::Again,
                    Some(false) => self.not_weighable.extend(context.front.map(|app| app.key)),
                    None => {}
                }
            }
            Step::Weigh { app, weights } => weights::weigh(shared, *app, weights, context),
            Step::Unweigh { app } => weights::unweigh(shared, *app, context),
            Step::Tune {
                app,
                tuning,
                threads,
            } => threads::tune(shared, *app, *tuning, threads, context),
            Step::Untune { .. } => threads::untune(shared, context),
            Step::Regroup {
                app,
                nice_points,
                groups,
            } => groups::regroup(shared, *app, *nice_points, groups, context),
            Step::Ungroup { app } => groups::ungroup(shared, *app, context),
        }
        Effect::None
    }
}
