// SPDX-License-Identifier: GPL-2.0-or-later
//! `protect`: the topmost app's memory is reserved in its cgroup, locked where it is charged to
//! others, and kept from the OOM killer.

pub mod adopt;
pub mod cgroup_memory;
pub mod oom_score_adj;
pub mod page_pinner;
pub mod reservation_tracker;
pub mod shared_pages;
