// SPDX-License-Identifier: GPL-2.0-or-later
//! The last decisions about memory, each with all that was weighed, so that they can be explained
//! afterwards.

use std::time::Duration;

use limelight_core::control::{Decision, Deed, MemoryThen, Weighed};
use limelight_core::model::shortage::{Gauge, Level};
use limelight_core::model::{AppKey, Snapshot};
use limelight_core::policy::swap::account::{of_kill, of_squeeze, Account};
use limelight_core::policy::swap::Step;
use limelight_core::policy::Action;

use crate::report::app_status;

/// The last one of each kind, the last of all at the end.
#[derive(Debug, Default)]
pub struct Decisions(Vec<Decision>);

impl Decisions {
    /// The last one of a kind, or of all.
    pub fn last(&self, deed: Option<Deed>) -> Option<&Decision> {
        let mut all = self.0.iter().rev();
        all.find(|decision| deed.is_none_or(|deed| decision.deed == deed))
    }

    fn keep(&mut self, decision: Decision) {
        self.0.retain(|known| known.deed != decision.deed);
        self.0.push(decision);
    }

    /// An app was killed; `snapshot` is what the order was made from.
    pub fn note_kill(
        &mut self,
        snapshot: &Snapshot,
        app: AppKey,
        level: Level,
        gauge: &Gauge,
        why: &str,
    ) {
        let accounts = of_kill(snapshot, app, level, why);
        let made = decision(snapshot, Deed::Kill, gauge.at, accounts);
        self.keep(Decision {
            level,
            memory: MemoryThen::from(gauge),
            ..made
        });
    }

    /// A plan was made from this snapshot.
    pub fn note_plan(&mut self, snapshot: &Snapshot, actions: &[Action]) {
        for action in actions {
            let (deed, app, rule) = match action {
                Action::Swap(Step::Squeeze { app, rule, .. }) => (Deed::Squeeze, app, rule),
                Action::Swap(Step::Freeze { app, rule, .. }) => (Deed::Freeze, app, rule),
                _ => continue,
            };
            let accounts = of_squeeze(snapshot, *app, rule);
            let at = snapshot.shortage.gauge().at;
            self.keep(decision(snapshot, deed, at, accounts));
        }
    }
}

fn decision(snapshot: &Snapshot, deed: Deed, at: Duration, accounts: Vec<Account>) -> Decision {
    let thresholds = snapshot.shortage.thresholds();
    let weighed = accounts.into_iter().filter_map(|account| {
        let mut apps = snapshot.apps.iter();
        let known = apps.find(|known| known.key() == account.app)?;
        Some(Weighed {
            app: app_status(&known.found.app),
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
        deed,
        level: snapshot.shortage.level(),
        memory: MemoryThen::from(&snapshot.shortage.gauge()),
        kill_threshold: thresholds.kill,
        swap_threshold: thresholds.swap,
        weighed: weighed.collect(),
    }
}
