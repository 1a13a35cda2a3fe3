// SPDX-License-Identifier: GPL-2.0-or-later
//! `swap` in `status`, and who else kills.

use std::path::Path;
use std::time::Duration;

use limelight_core::control::{MechanismStatus, State};
use limelight_core::model::class::Class;
use limelight_core::model::shortage::Level;

use crate::daemon::Daemon;
use crate::doors::{now, Doors};
use crate::killers::{self, Killer};

/// Services come and go with the machine's start, not with every app: how often they are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Who else kills, as of the last look.
#[derive(Debug, Default)]
pub struct Rivals {
    looked_at: Option<Duration>,
    found: Vec<Killer>,
}

impl Rivals {
    /// Looks, when the last look is too old.
    pub fn look(&mut self, doors: &Doors, at: Duration) {
        let fresh = |then: Duration| at.saturating_sub(then) < LOOK_EVERY;
        if !self.looked_at.is_some_and(fresh) {
            self.looked_at = Some(at);
            self.found = killers::find(&doors.proc, Path::new("/"));
        }
    }
}

impl Daemon {
    /// Somebody asks for the state.
    pub(crate) fn look_for_rivals(&mut self) {
        self.rivals.look(&self.doors, now());
    }

    pub(crate) fn swap_status(&self) -> MechanismStatus {
        let (state, detail) = self.swap_state();
        MechanismStatus {
            name: "swap".to_owned(),
            state,
            detail,
            counters: self.history.counters(),
        }
    }

    fn swap_state(&self) -> (State, String) {
        let settings = &self.config.settings.swap;
        if !settings.enabled {
            let detail = "switched off by the configuration ([swap] enabled)";
            return (State::Off, detail.to_owned());
        }
        let Some(guard) = &self.actuators.guard else {
            let why = match self.options.dry_run {
                true => "a dry run watches nobody",
                false => "nobody watches how short memory is: see limelightd's log",
            };
            return (State::Unavailable, why.to_owned());
        };
        let shortage = guard.shortage();
        let thresholds = shortage.thresholds();
        let mib = |bytes: u64| bytes >> 20;
        let known = self.apps.by_use();
        let of = |class: Class| {
            let all = known.iter();
            all.filter(|one| one.found.class.class == class).count()
        };
        let swapping = &self.actuators.in_force.swapping;
        let mut parts = vec![
            format!(
                "{}; memory: {}, apps are swapped below {} MiB available, killed below {} MiB",
                self.last.storage.describe(),
                shortage.level().name(),
                mib(thresholds.swap),
                mib(thresholds.kill)
            ),
            format!(
                "{} apps ({} keep, {} normal, {} disposable), {} of them kept out of swap, {} stopped, {} may be killed",
                known.len(),
                of(Class::Keep),
                of(Class::Normal),
                of(Class::Disposable),
                swapping.exempt.len(),
                swapping.frozen.len(),
                swapping.armed.len()
            ),
            guard.detail(),
        ];
        for (on, what) in [
            (settings.kill, "nobody is killed ([swap] kill)"),
            (settings.freeze, "nobody is stopped ([swap] freeze)"),
        ] {
            if !on {
                parts.push(what.to_owned());
            }
        }
        parts.extend(
            self.rivals
                .found
                .iter()
                .map(|killer| format!("beside it {killer}")),
        );
        let state = match shortage.level() > Level::Plenty || !swapping.frozen.is_empty() {
            true => State::Active,
            false => State::Idle,
        };
        (state, parts.join("; "))
    }
}
