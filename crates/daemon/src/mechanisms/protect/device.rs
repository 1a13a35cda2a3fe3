// SPDX-License-Identifier: GPL-2.0-or-later
//! `protect` through `/dev/limelight`: reclaim takes the topmost app's pages last.

use limelight_proto::Change;
use limelight_sys::device::{Device, Mechanism, Setting};

use crate::mechanisms::shared::{Context, Shared};

pub(super) fn switch(shared: &mut Shared, budget: Option<u8>, context: Context<'_>) {
    let set = |device: &Device| match budget.map(u32::from) {
        Some(budget_percent) => device.switch_on(Setting::Protect { budget_percent }),
        None => device.switch_off(Mechanism::Protect),
    };
    if shared.switch(budget.is_some(), change(budget, context), set) {
        shared.in_force.device_protect = budget;
    }
}

pub(super) fn change(budget: Option<u8>, context: Context<'_>) -> Change {
    let to = budget.map(|percent| format!("on, budget {percent} % of memory"));
    let rule = "protect: reclaim takes the foreground app's pages last";
    context.device_change("protect", to, rule)
}
