// SPDX-License-Identifier: GPL-2.0-or-later
//! Stored results, and the arithmetic shared by tables, report and promises.

pub mod aggregate;
pub mod clock;
pub mod row;
pub mod stats;
pub mod store;
pub mod table;

pub use aggregate::Aggregates;
pub use row::{Context, Outcome, Row};
pub use stats::Summary;
