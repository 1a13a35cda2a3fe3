// SPDX-License-Identifier: GPL-2.0-or-later
//! `swap` in `status`, and other OOM daemons.

use std::path::Path;
use std::time::Duration;

use limelight_core::model::class::Class;
use limelight_core::model::shortage::Level;
use limelight_core::model::snapshot::Refusal;
use limelight_core::model::AppKey;
use limelight_proto::{MechanismStatus, State};

use crate::event_loop::Daemon;
use crate::mechanisms::swap::oom_daemons::{self, Killer};
use crate::system::access::Speaker;
use crate::system::{now, System};

/// Scan interval: services start with the machine and not with every app.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Other OOM daemons that run, as of the last scan.
#[derive(Debug, Default)]
pub struct OomDaemons {
    looked_at: Option<Duration>,
    found: Vec<Killer>,
}

impl OomDaemons {
    /// Scans again if the last scan is stale.
    pub fn look(&mut self, system: &System, at: Duration) {
        let fresh = |then: Duration| at.saturating_sub(then) < LOOK_EVERY;
        if !self.looked_at.is_some_and(fresh) {
            self.looked_at = Some(at);
            self.found = oom_daemons::find(&system.proc, Path::new("/"));
        }
    }
}

impl Daemon {
    /// Why this app was spared although memory was short. Only users who may know the foreground
    /// app see the name of the process that prevented the action.
    pub(crate) fn refusal_note(&self, speaker: Speaker, app: AppKey) -> Option<String> {
        let mut refused = self.actuators.in_force.swapping.refused.iter();
        let Refusal { at, harm, why, .. } = refused.find(|one| one.app == app)?;
        let why = match self.sees_front(speaker) {
            true => why.as_str(),
            false => "a protected process needs it",
        };
        let ago = now().saturating_sub(*at).as_secs();
        Some(format!("{ago} s ago it was not {harm}: {why}"))
    }

    /// Refreshes the list of OOM daemons before the state is reported.
    pub(crate) fn look_for_oom_daemons(&mut self) {
        self.oom_daemons.look(&self.system, now());
    }

    pub(crate) fn swap_status(&self) -> MechanismStatus {
        let (state, detail) = self.swap_state();
        let mut counters = self.history.counters();
        let (refused, _) = self.actuators.gate.refusals();
        counters.insert("refused".to_owned(), refused);
        MechanismStatus {
            name: "swap".to_owned(),
            state,
            detail,
            counters,
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
                true => "a dry run starts no guard",
                false => "the guard is not running: see limelightd's log",
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
            (settings.kill, "no app is killed ([swap] kill)"),
            (settings.freeze, "no app is stopped ([swap] freeze)"),
        ] {
            if !on {
                parts.push(what.to_owned());
            }
        }
        if let (refused @ 1.., Some((harm, blocked))) = self.actuators.gate.refusals() {
            parts.push(format!(
                "the gate refused {refused} actions, last one target was not {harm}: {blocked}"
            ));
        }
        parts.extend(
            self.oom_daemons
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
