// SPDX-License-Identifier: GPL-2.0-or-later
//! In which order apps are shown.

use std::cmp::Reverse;

use limelight_core::control::{AppReport, Role};

use super::feed::Picture;

/// What apps are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Class, those that are kept first, and last use within.
    Class,
    /// Last use.
    Used,
    /// What they have in memory.
    Memory,
    /// What they have in swap.
    Swap,
    /// How long they take to answer.
    Answer,
    /// Name.
    Name,
}

impl Order {
    /// All of them, in the order in which a key goes through them.
    pub const ALL: [Order; 6] = [
        Order::Class,
        Order::Used,
        Order::Memory,
        Order::Swap,
        Order::Answer,
        Order::Name,
    ];

    /// For people, and the head of its column.
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

    /// The one that comes after it.
    pub fn next(self) -> Order {
        let at = Order::ALL.iter().position(|order| *order == self);
        Order::ALL[at.map_or(0, |at| (at + 1) % Order::ALL.len())]
    }

    /// All apps, in this order.
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
