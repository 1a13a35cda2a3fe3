// SPDX-License-Identifier: GPL-2.0-or-later
//! `premap` through `/dev/limelight`: the kernel maps the topmost app's heap ahead of its faults.

use limelight_core::policy::premap::Step;
use limelight_proto::{Change, Outcome};
use limelight_sys::device::{self, Setting};

use crate::mechanisms::changes::Reach;
use crate::mechanisms::device::UNDONE_BY;
use crate::mechanisms::shared::{outcome, Context, Effect, Mechanism, Shared};

/// `premap`. All its state is in the kernel.
#[derive(Debug)]
pub struct Premap;

impl Mechanism for Premap {
    type Step = Step;

    fn apply(&mut self, step: &Step, shared: &mut Shared, context: Context<'_>) -> Effect {
        let Step::Switch { window_pages } = *step;
        let Some(device) = shared.device.device() else {
            return Effect::None;
        };
        let outcome = outcome(match window_pages {
            Some(pages) => device.switch_on(Setting::Premap {
                window_pages: u32::from(pages),
            }),
            None => device.switch_off(device::Mechanism::Premap),
        });
        let change = change(window_pages, context, outcome);
        if shared.note_switch(window_pages.is_some(), change) {
            shared.in_force.device_premap = window_pages;
        }
        Effect::None
    }

    fn plan_only(&mut self, step: &Step, shared: &mut Shared, context: Context<'_>) {
        let Step::Switch { window_pages } = *step;
        let change = change(window_pages, context, Outcome::Planned);
        shared.changes.note(Reach::Machine, change);
    }
}

fn change(window_pages: Option<u16>, context: Context<'_>, outcome: Outcome) -> Change {
    Change {
        knob: format!("{} premap", context.system.roots.device.display()),
        from: "off".to_owned(),
        to: window_pages.map_or("off".to_owned(), |pages| {
            format!("on, at most {pages} pages with one fault")
        }),
        rule: "premap: the topmost app's fresh heap is mapped ahead of its faults".to_owned(),
        at_ms: context.now.as_millis() as u64,
        outcome,
        undone_by: UNDONE_BY.to_owned(),
    }
}
