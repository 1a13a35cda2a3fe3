// SPDX-License-Identifier: GPL-2.0-or-later
//! `swap` in `status` and `explain`.

use limelight_core::model::class::Class;
use limelight_core::model::shortage::Level;
use limelight_core::model::snapshot::Refusal;
use limelight_core::model::AppKey;
use limelight_proto::{MechanismId, MechanismStatus, State};

use crate::control::report::{mechanism, off, View};
use crate::control::visibility::Viewer;
use crate::reconcile::Reconciler;
use crate::system::now;

/// Why this app was spared although memory was short. Only users who may know the foreground
/// app see the name of the process that prevented the action.
pub(super) fn refusal_note(viewer: Viewer<'_>, app: AppKey) -> Option<String> {
    let mechanisms = &viewer.reconciler.mechanisms;
    let mut refused = mechanisms.shared.in_force.swapping.refused.iter();
    let Refusal { at, harm, why, .. } = refused.find(|one| one.app == app)?;
    let why = match viewer.sees_front() {
        true => why.as_str(),
        false => "a protected process needs it",
    };
    let ago = now().saturating_sub(*at).as_secs();
    Some(format!("{ago} s ago the app was not {harm}: {why}"))
}

/// `swap` in `status`.
pub(super) fn status(view: &View<'_>) -> MechanismStatus {
    let daemon = view.viewer.reconciler;
    let (state, detail, short) = state(view.viewer.reconciler);
    let mut counters = daemon.history.counters();
    let (refused, _) = daemon.mechanisms.shared.gate.refusals();
    counters.insert("refused".to_owned(), refused);
    MechanismStatus {
        counters,
        ..mechanism(MechanismId::Swap, state, detail, short)
    }
}

fn state(reconciler: &Reconciler) -> (State, String, String) {
    let settings = &reconciler.config.settings.swap;
    if !settings.enabled {
        return (State::Off, off("swap"), String::new());
    }
    let Some(guard) = &reconciler.mechanisms.swap.guard else {
        let why = match reconciler.dry_run {
            true => "a dry run starts no guard",
            false => "the guard is not running: see limelightd's log",
        };
        return (State::Unavailable, why.to_owned(), String::new());
    };
    let shortage = guard.shortage();
    let thresholds = shortage.thresholds();
    let mib = |bytes: u64| bytes >> 20;
    let known = reconciler.model.apps.by_use();
    let of = |class: Class| {
        let all = known.iter();
        all.filter(|one| one.found.class.class == class).count()
    };
    let swapping = &reconciler.mechanisms.shared.in_force.swapping;
    let storage = reconciler.model.last.storage.describe();
    let mut parts = vec![
            format!(
                "{storage}; memory: {}, apps are swapped below {} MiB available, killed below {} MiB",
                shortage.level().name(),
                mib(thresholds.swap),
                mib(thresholds.kill)
            ),
            format!(
                "{} apps ({} keep, {} normal, {} disposable), {} of them kept out of swap, {} throttled, {} frozen, {} may be killed",
                known.len(),
                of(Class::Keep),
                of(Class::Normal),
                of(Class::Disposable),
                swapping.exempt.len(),
                swapping.throttled.len(),
                swapping.frozen.len(),
                swapping.armed.len()
            ),
            guard.detail(),
        ];
    for (on, what) in [
        (settings.kill, "no app is killed ([swap] kill)"),
        (settings.freeze, "no app is frozen ([swap] freeze)"),
    ] {
        if !on {
            parts.push(what.to_owned());
        }
    }
    if let (refused @ 1.., Some((harm, blocked))) = reconciler.mechanisms.shared.gate.refusals() {
        parts.push(format!(
            "the gate refused {refused} actions; the last target was not {harm}: {blocked}"
        ));
    }
    parts.extend(
        reconciler
            .mechanisms
            .swap
            .oom_daemons
            .found
            .iter()
            .map(|killer| format!("also running: {killer}")),
    );
    let state = match shortage.level() > Level::Plenty || !swapping.frozen.is_empty() {
        true => State::Active,
        false => State::Idle,
    };
    (state, parts.join("; "), storage)
}
