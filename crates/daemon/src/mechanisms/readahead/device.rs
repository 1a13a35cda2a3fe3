// SPDX-License-Identifier: GPL-2.0-or-later
//! `readahead` through `/dev/limelight`: the kernel reads ahead further for the topmost app.

use limelight_core::policy::readahead::Step;
use limelight_proto::Change;
use limelight_sys::device::{Device, Mechanism, Setting};

use crate::mechanisms::shared::{Context, Shared};

pub(super) fn switch(shared: &mut Shared, step: &Step, context: Context<'_>) {
    let Step::Switch { factor } = *step;
    let set = |device: &Device| match factor.map(u32::from) {
        Some(factor) => device.switch_on(Setting::Readahead { factor }),
        None => device.switch_off(Mechanism::Readahead),
    };
    if shared.switch(factor.is_some(), change(step, context), set) {
        shared.in_force.device_readahead = factor;
    }
}

pub(super) fn change(step: &Step, context: Context<'_>) -> Change {
    let Step::Switch { factor } = step;
    let to = factor.map(|factor| format!("on, factor {factor}"));
    let rule = "readahead: the foreground app's reads reach further ahead";
    context.device_change("readahead", to, rule)
}
