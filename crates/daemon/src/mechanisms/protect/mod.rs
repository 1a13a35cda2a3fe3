// SPDX-License-Identifier: GPL-2.0-or-later
//! `protect`: reserves the topmost app's memory in its cgroup, locks pages that are charged to
//! other cgroups, and makes the OOM killer prefer other victims.

pub mod adopt;
pub mod cgroup_memory;
pub mod oom_score_adj;
pub mod page_pinner;
pub mod reservation_tracker;
pub mod shared_pages;

use std::collections::BTreeSet;

use limelight_core::model::footprint::Footprint;
use limelight_core::model::{App, AppKey};
use limelight_core::policy::protect::Step;
use limelight_sys::device::{self, Setting};

use crate::mechanisms::shared::{Context, Effect, Mechanism, Shared};
use crate::system::{identify, System};

use cgroup_memory::Reservation;
use reservation_tracker::ReservationTracker;
use shared_pages::SharedPages;

/// State of the `protect` mechanism.
#[derive(Debug, Default)]
pub struct Protect {
    /// The reservation in the app's cgroup.
    pub reservation: Reservation,
    /// Updates of the reservation while memory is short.
    pub tracker: ReservationTracker,
    /// The locks on pages that are charged to other cgroups.
    pub shared_pages: SharedPages,
    /// The memory use of the app that was measured last.
    footprint: Option<(AppKey, Footprint)>,
    /// Apps that could not be moved into a cgroup of their own.
    not_adoptable: BTreeSet<AppKey>,
}

impl Protect {
    /// Measures the topmost app's memory; `None` if the app has no cgroup of its own with the
    /// memory controller.
    pub fn measure(&mut self, system: &System, app: &App) -> Option<Footprint> {
        match (&mut self.footprint, identify::usage(system, app)) {
            (Some((key, footprint)), Some(usage)) if *key == app.key => footprint.observe(usage),
            (slot, usage) => *slot = usage.map(|usage| (app.key, Footprint::new(usage))),
        }
        self.footprint.as_ref().map(|(_, footprint)| *footprint)
    }

    /// Whether this app could not be moved into a cgroup of its own.
    pub fn is_not_adoptable(&self, app: AppKey) -> bool {
        self.not_adoptable.contains(&app)
    }

    /// Discards failed adoptions after a change of the configuration, so that every app is tried
    /// again.
    pub fn forget(&mut self) {
        self.not_adoptable.clear();
    }
}

impl Mechanism for Protect {
    type Step = Step;

    fn apply(&mut self, step: &Step, shared: &mut Shared, context: Context<'_>) -> Effect {
        match step {
            Step::Switch { budget_percent } => {
                let setting = budget_percent.map(|percent| {
                    let budget_percent = u32::from(percent);
                    let to = format!("on, budget {percent} % of memory");
                    (Setting::Protect { budget_percent }, to)
                });
                let rule = "protect: reclaim takes the foreground app's pages last";
                if shared.set_up(device::Mechanism::Protect, setting, rule, context) {
                    shared.in_force.device_protect = *budget_percent;
                }
            }
            Step::Adopt { app } => match adopt::adopt(shared, *app, context) {
                Some(app) => return Effect::Moved(app),
                None if shared.is_dry_run() => {}
                None => self.not_adoptable.extend(context.front.map(|app| app.key)),
            },
            Step::Release { app } => {
                adopt::release(shared, *app, context);
                return adopt::back_home(*app, context).map_or(Effect::None, Effect::Moved);
            }
            Step::Reserve { reserve, rule } => {
                return self.reservation.reserve(shared, *reserve, rule, context)
            }
            Step::ReserveDisplay {
                reserve,
                home,
                knob,
                rule,
            } => {
                let to = (*reserve, *knob);
                self.reservation
                    .reserve_display(shared, home, to, rule, context);
            }
            Step::Unreserve { app } => self.reservation.unreserve(shared, *app, context),
            Step::Shield {
                app,
                members,
                points,
            } => oom_score_adj::shield(shared, *app, members, *points, context),
            Step::Unshield { .. } => oom_score_adj::unshield(shared, context),
            Step::Lock { locking } => self.shared_pages.lock(shared, locking, context),
            Step::Unlock { .. } => self.shared_pages.unlock(shared),
        }
        Effect::None
    }
}
