// SPDX-License-Identifier: GPL-2.0-or-later
//! `premap` through `/dev/limelight`: the kernel maps the topmost app's heap ahead of its faults.

use limelight_proto::{Change, Outcome};
use limelight_sys::device::{Mechanism, Setting};

use crate::mechanisms::changes::Reach;
use crate::mechanisms::device::UNDONE_BY;
use crate::mechanisms::{outcome, Actuators, Context};

impl Actuators {
    pub(crate) fn switch_premap(&mut self, window_pages: Option<u16>, context: Context<'_>) {
        let Some(device) = self.device.device() else {
            return;
        };
        let outcome = outcome(match window_pages {
            Some(pages) => device.switch_on(Setting::Premap {
                window_pages: u32::from(pages),
            }),
            None => device.switch_off(Mechanism::Premap),
        });
        if self.note_switch(
            window_pages.is_some(),
            change(window_pages, context, outcome),
        ) {
            self.in_force.device_premap = window_pages;
        }
    }

    pub(crate) fn plan_switch_premap(&mut self, window_pages: Option<u16>, context: Context<'_>) {
        let change = change(window_pages, context, Outcome::Planned);
        self.changes.note(Reach::Machine, change);
    }
}

fn knob(context: Context<'_>) -> String {
    format!("{} premap", context.system.roots.device.display())
}

fn change(window_pages: Option<u16>, context: Context<'_>, outcome: Outcome) -> Change {
    Change {
        knob: knob(context),
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
