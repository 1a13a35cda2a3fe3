// SPDX-License-Identifier: GPL-2.0-or-later
//! Keeps the last decisions about memory with all their inputs, so that they can be explained
//! afterwards.

use std::time::Duration;

use limelight_core::model::shortage::{Gauge, Level};
use limelight_core::model::{AppKey, Snapshot};
use limelight_core::policy::swap::account::{of_kill, of_squeeze, Account};
use limelight_core::policy::swap::Step;
use limelight_core::policy::Action;
use limelight_proto::{Decision, MemoryAction, MemoryThen, Weighed};

/// The last decision of each kind; the most recent one is at the end.
#[derive(Debug, Default)]
pub struct Decisions(Vec<Decision>);

impl Decisions {
    /// The last decision of a kind, or of all kinds.
    pub fn last(&self, action: Option<MemoryAction>) -> Option<&Decision> {
        let mut all = self.0.iter().rev();
        all.find(|decision| action.is_none_or(|action| decision.action == action))
    }

    fn keep(&mut self, decision: Decision) {
        self.0.retain(|known| known.action != decision.action);
        self.0.push(decision);
    }

    /// Records a kill; `snapshot` is the one on which the kill order is based.
    pub fn note_kill(
        &mut self,
        snapshot: &Snapshot,
        app: AppKey,
        level: Level,
        gauge: &Gauge,
        why: &str,
    ) {
        let accounts = of_kill(snapshot, app, level, why);
        let made = decision(snapshot, MemoryAction::Kill, gauge.at, accounts);
        self.keep(Decision {
            level,
            memory: MemoryThen::from(gauge),
            ..made
        });
    }

    /// Records the decisions of a plan made from this snapshot.
    pub fn note_plan(&mut self, snapshot: &Snapshot, actions: &[Action]) {
        for action in actions {
            let (taken, app, rule) = match action {
                Action::Swap(Step::Squeeze { app, rule, .. }) => (MemoryAction::Squeeze, app, rule),
                Action::Swap(Step::WriteBack { app, rule, .. }) => {
                    (MemoryAction::WriteBack, app, rule)
                }
                Action::Swap(Step::Freeze { app, rule, .. }) => (MemoryAction::Freeze, app, rule),
                _ => continue,
            };
            let accounts = of_squeeze(snapshot, *app, rule);
            let at = snapshot.now();
            self.keep(decision(snapshot, taken, at, accounts));
        }
    }
}

fn decision(
    snapshot: &Snapshot,
    action: MemoryAction,
    at: Duration,
    accounts: Vec<Account>,
) -> Decision {
    let thresholds = snapshot.shortage.thresholds();
    let weighed = accounts.into_iter().filter_map(|account| {
        let mut apps = snapshot.apps.iter();
        let known = apps.find(|known| known.key() == account.app)?;
        Some(Weighed {
            app: (&known.found.app).into(),
            uid: Some(known.found.uid),
            chosen: account.chosen,
            reason: account.reason,
            class: known.found.class.class,
            used_ms: known.used().as_millis() as u64,
            uses: known.found.uses.clone(),
            allocated: known.found.memory.allocated(),
        })
    });
    Decision {
        at_ms: at.as_millis() as u64,
        action,
        level: snapshot.shortage.level(),
        memory: MemoryThen::from(&snapshot.shortage.gauge()),
        kill_threshold: thresholds.kill,
        swap_threshold: thresholds.swap,
        weighed: weighed.collect(),
    }
}
