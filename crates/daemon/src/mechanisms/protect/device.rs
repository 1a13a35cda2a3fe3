// SPDX-License-Identifier: GPL-2.0-or-later
//! `protect` through `/dev/limelight`: reclaim takes the topmost app's pages last.

use limelight_proto::{Change, Outcome};
use limelight_sys::device::{Mechanism, Setting};

use crate::mechanisms::changes::Reach;
use crate::mechanisms::device::UNDONE_BY;
use crate::mechanisms::shared::{outcome, Context, Shared};

pub(super) fn switch(shared: &mut Shared, budget: Option<u8>, context: Context<'_>) {
    let Some(device) = shared.device.device() else {
        return;
    };
    let outcome = outcome(match budget {
        Some(percent) => device.switch_on(Setting::Protect {
            budget_percent: u32::from(percent),
        }),
        None => device.switch_off(Mechanism::Protect),
    });
    if shared.note_switch(budget.is_some(), change(budget, context, outcome)) {
        shared.in_force.device_protect = budget;
    }
}

pub(super) fn plan_switch(shared: &mut Shared, budget: Option<u8>, context: Context<'_>) {
    let change = change(budget, context, Outcome::Planned);
    shared.changes.note(Reach::Machine, change);
}

fn change(budget: Option<u8>, context: Context<'_>, outcome: Outcome) -> Change {
    Change {
        knob: format!("{} protect", context.system.roots.device.display()),
        from: "off".to_owned(),
        to: budget.map_or("off".to_owned(), |percent| {
            format!("on, budget {percent} % of memory")
        }),
        rule: "protect: reclaim takes the topmost app's pages last".to_owned(),
        at_ms: context.now.as_millis() as u64,
        outcome,
        undone_by: UNDONE_BY.to_owned(),
    }
}
