// SPDX-License-Identifier: GPL-2.0-or-later
//! `readahead` through `/dev/limelight`: the kernel reads ahead further for the topmost app.

use limelight_proto::{Change, Outcome};
use limelight_sys::device::{Mechanism, Setting};

use crate::mechanisms::changes::Reach;
use crate::mechanisms::device::UNDONE_BY;
use crate::mechanisms::shared::{outcome, Context, Shared};

pub(super) fn switch(shared: &mut Shared, factor: Option<u8>, context: Context<'_>) {
    let Some(device) = shared.device.device() else {
        return;
    };
    let outcome = outcome(match factor {
        Some(factor) => device.switch_on(Setting::Readahead {
            factor: u32::from(factor),
        }),
        None => device.switch_off(Mechanism::Readahead),
    });
    if shared.note_switch(factor.is_some(), change(factor, context, outcome)) {
        shared.in_force.device_readahead = factor;
    }
}

pub(super) fn plan_switch(shared: &mut Shared, factor: Option<u8>, context: Context<'_>) {
    let change = change(factor, context, Outcome::Planned);
    shared.changes.note(Reach::Machine, change);
}

fn change(factor: Option<u8>, context: Context<'_>, outcome: Outcome) -> Change {
    Change {
        knob: format!("{} readahead", context.system.roots.device.display()),
        from: "off".to_owned(),
        to: factor.map_or("off".to_owned(), |factor| format!("on, factor {factor}")),
        rule: "readahead: the topmost app's reads reach further ahead".to_owned(),
        at_ms: context.now.as_millis() as u64,
        outcome,
        undone_by: UNDONE_BY.to_owned(),
    }
}
