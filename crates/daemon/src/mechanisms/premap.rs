// SPDX-License-Identifier: GPL-2.0-or-later
//! `premap` through `/dev/limelight`: the kernel maps the topmost app's heap before its page
//! faults.

use limelight_core::policy::premap::Step;
use limelight_proto::Change;
use limelight_sys::device::{self, Device, Setting};

use crate::mechanisms::shared::{Context, Effect, Mechanism, Shared};

/// The `premap` mechanism. All its state is in the kernel.
#[derive(Debug)]
pub struct Premap;

impl Mechanism for Premap {
    type Step = Step;

    fn apply(&mut self, step: &Step, shared: &mut Shared, context: Context<'_>) -> Effect {
        let Step::Switch { window_pages } = *step;
        let set = |device: &Device| match window_pages.map(u32::from) {
            Some(window_pages) => device.switch_on(Setting::Premap { window_pages }),
            None => device.switch_off(device::Mechanism::Premap),
        };
        if shared.switch(window_pages.is_some(), change(step, context), set) {
            shared.in_force.device_premap = window_pages;
        }
        Effect::None
    }
}

fn change(step: &Step, context: Context<'_>) -> Change {
    let Step::Switch { window_pages } = step;
    let to = window_pages.map(|pages| format!("on, at most {pages} pages per fault"));
    let rule = "premap: the foreground app's new heap is mapped ahead of its faults";
    context.device_change("premap", to, rule)
}
