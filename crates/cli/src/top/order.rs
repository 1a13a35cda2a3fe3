// SPDX-License-Identifier: GPL-2.0-or-later
//! Sort orders of apps.

use std::cmp::Reverse;

use limelight_proto::{AppReport, Role};

use super::feed::Picture;

/// Sort order of apps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Class, highest first, then last use.
    Class,
    /// Last use, latest first.
    Used,
    /// Resident memory, largest first.
    Memory,
    /// Swapped memory, largest first.
    Swap,
    /// Response time (95th percentile), longest first.
    Answer,
    /// Name, alphabetically.
    Name,
}

impl Order {
    /// All orders, in the sequence in which a key cycles through them.
    pub const ALL: [Order; 6] = [
        Order::Class,
        Order::Used,
        Order::Memory,
        Order::Swap,
        Order::Answer,
        Order::Name,
    ];

    /// Name for display, and head of its column.
    pub const fn name(self) -> &'static str {
        match self {
            Order::Class => "class",
            Order::Used => "used",
            Order::Memory => "memory",
            Order::Swap => "swap",
            Order::Answer => "p95",
            Order::Name => "app",
        }
    }

    /// The next order.
    pub fn next(self) -> Order {
        let at = Order::ALL.iter().position(|order| *order == self);
        Order::ALL[at.map_or(0, |at| (at + 1) % Order::ALL.len())]
    }

    /// All apps in this order.
    pub fn sorted(self, picture: &Picture) -> Vec<&AppReport> {
        let used = |app: &AppReport| match app.role {
            Role::Topmost => u64::MAX,
            _ => app.last_topmost_ms.unwrap_or(0),
        };
        let answer = |app: &AppReport| picture.answers(&app.app.name).map_or(0, |one| one.p95_us);
        let mut apps: Vec<&AppReport> = picture.apps.iter().collect();
        apps.sort_by_key(|app| {
            let first = match self {
                Order::Class => app.class as u64,
                Order::Used | Order::Name => 0,
                Order::Memory => app.resident,
                Order::Swap => app.swapped,
                Order::Answer => answer(app),
            };
            let name = app.app.name.to_lowercase();
            let by_name = (self == Order::Name).then(|| name.clone());
            (
                by_name,
                Reverse(first),
                Reverse(used(app)),
                name,
                app.app.pid,
            )
        });
        apps
    }
}
