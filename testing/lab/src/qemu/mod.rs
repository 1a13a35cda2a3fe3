// SPDX-License-Identifier: GPL-2.0-or-later
//! Runs virtual machines in QEMU.

pub mod command;
pub mod console;
pub mod guest;
pub mod plugin;
pub mod probe;
mod tsc;

pub use command::{Accelerator, Machine, QEMU_AARCH64};
pub use guest::{Ended, Guest};
