// SPDX-License-Identifier: GPL-2.0-or-later
//! Results: what is kept of a run, and the arithmetic that tables, report and promises share.

pub mod aggregate;
pub mod clock;
pub mod row;
pub mod stats;
pub mod store;
pub mod table;

pub use aggregate::Aggregates;
pub use row::{Context, Outcome, Row};
pub use stats::Summary;
