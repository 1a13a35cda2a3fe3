// SPDX-License-Identifier: GPL-2.0-or-later
//! Stores results, and computes the figures that tables, report and verdicts share.

pub mod aggregate;
pub mod clock;
pub mod record;
pub mod row;
pub mod stats;
pub mod store;
pub mod table;

pub use aggregate::Aggregates;
pub use record::{Record, Recorded};
pub use row::{Context, Outcome, Row};
pub use stats::{Percentiles, Summary};
