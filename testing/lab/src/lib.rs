// SPDX-License-Identifier: GPL-2.0-or-later
//! Builds kernels and images, boots virtual machines, measures Limelight.

pub mod cache;
pub mod cli;
pub mod image;
pub mod kernel;
pub mod paths;
pub mod progress;
pub mod qemu;
pub mod report;
pub mod results;
pub mod run;
pub mod scenario;
pub mod scenarios;
pub mod shell;

pub use limelight_apps::ktap;
