// SPDX-License-Identifier: GPL-2.0-or-later
//! `premap` through `/dev/limelight`: the kernel maps the topmost app's heap ahead of its page
//! faults.

use limelight_core::policy::premap::Step;
use limelight_sys::device::{self, Setting};

use crate::mechanisms::shared::{Context, Effect, Mechanism, Shared};

/// The `premap` mechanism. All its state is in the kernel.
#[derive(Debug)]
pub struct Premap;

impl Mechanism for Premap {
    type Step = Step;

    fn apply(&mut self, step: &Step, shared: &mut Shared, context: Context<'_>) -> Effect {
        let Step::Switch { window_pages } = *step;
        let setting = window_pages.map(|pages| {
            let window_pages = u32::from(pages);
            let to = format!("on, at most {pages} pages per fault");
            (Setting::Premap { window_pages }, to)
        });
        let rule = "premap: the foreground app's fresh heap is mapped ahead of its faults";
        if shared.set_up(device::Mechanism::Premap, setting, rule, context) {
            shared.in_force.device_premap = window_pages;
        }
        Effect::None
    }
}
