// SPDX-License-Identifier: GPL-2.0-or-later
//! Carries out the policy's actions. Each mechanism makes its changes, and reports of each one
//! whether it was applied, is inert (and why), or failed (and why). Changes that would outlive the
//! daemon are written into the restore record first.

pub mod boost;
pub mod changes;
pub mod controllers;
pub mod device;
pub mod premap;
pub mod prezero;
pub mod protect;
pub mod readahead;
pub mod restore_retry;
pub mod shared;
pub mod swap;
pub mod window;

use limelight_core::policy::Action;

use boost::Boost;
use premap::Premap;
use prezero::Prezero;
use protect::Protect;
use readahead::Readahead;
pub use shared::{Context, Effect, Mechanism, Shared, Writer};
use swap::Swap;
use window::Window;

/// All mechanisms, and the state that they share.
#[derive(Debug)]
pub struct Mechanisms {
    /// The shared state: the restore record, the device and the gate.
    pub shared: Shared,
    /// Protects the topmost app's memory from reclaim.
    pub protect: Protect,
    /// Gives the topmost app the processor and the disk first.
    pub boost: Boost,
    /// Maps the topmost app's heap ahead of its page faults.
    pub premap: Premap,
    /// Reads ahead for the topmost app.
    pub readahead: Readahead,
    /// Zeroes pages between response windows.
    pub prezero: Prezero,
    /// Takes memory from the other apps, and brings it back.
    pub swap: Swap,
    /// Tracks response windows and reports them to the kernel.
    pub window: Window,
}

impl Mechanisms {
    /// Carries out one action; in a dry run, only reports it.
    pub fn apply(&mut self, action: &Action, context: Context<'_>) -> Effect {
        let shared = &mut self.shared;
        let effect = match action {
            Action::Mark { app } => {
                shared.mark(app.as_ref(), context);
                Effect::None
            }
            Action::Protect(step) => self.protect.apply(step, shared, context),
            Action::Boost(step) => self.boost.apply(step, shared, context),
            Action::Premap(step) => self.premap.apply(step, shared, context),
            Action::Readahead(step) => self.readahead.apply(step, shared, context),
            Action::Prezero(step) => self.prezero.apply(step, shared, context),
            Action::Swap(step) => self.swap.apply(step, shared, context),
            Action::Window(step) => self.window.apply(step, shared, context),
        };
        shared.settle();
        effect
    }

    /// Bytes that are locked for the topmost app, as of the page pinner's last scan.
    pub fn locked_bytes(&self) -> u64 {
        self.protect.shared_pages.locked_bytes(&self.shared)
    }
}
