// SPDX-License-Identifier: GPL-2.0-or-later
//! Builds kernels and images, boots virtual machines, measures Limelight.

pub mod results;
pub mod scenario;
pub mod scenarios;
