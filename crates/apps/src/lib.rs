// SPDX-License-Identifier: GPL-2.0-or-later
//! The programs that run inside the lab's virtual machines.

pub mod plan;
pub mod scenario;
