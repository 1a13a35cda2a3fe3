// SPDX-License-Identifier: GPL-2.0-or-later
//! The control socket: permissions of requests, visibility of answers, and the daemon's reports.

pub(crate) mod agents;
mod client;
pub(crate) mod rate_limit;
pub(crate) mod report;
pub(crate) mod requests;
pub mod socket;
pub(crate) mod visibility;
