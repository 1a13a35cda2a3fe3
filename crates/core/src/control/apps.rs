// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps, their classes and their use, in the protocol's words.

use serde::{Deserialize, Serialize};

use super::{AppStatus, HistoryEntry, MemoryThen, Role};
use crate::model::apps::Use;
use crate::model::class::Class;
use crate::model::shortage::Level;

/// An app that the daemon knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppReport {
    /// The app; `pid` is its main process.
    #[serde(flatten)]
    pub app: AppStatus,
    /// Its owner.
    pub uid: u32,
    /// Its place now.
    pub role: Role,
    /// Its class.
    pub class: Class,
    /// Why it is of that class, as a clause.
    pub why: String,
    /// Who set its class while it runs (`limelight class set`).
    pub set_by: Option<u32>,
    /// When it was in front last, in milliseconds since boot; `None`: never.
    pub last_topmost_ms: Option<u64>,
    /// When it was started, in milliseconds since boot.
    pub started_ms: u64,
    /// Why it is in use although it is not in front, if it is.
    pub uses: Vec<Use>,
    /// Why it is never touched, if it is not.
    pub untouchable: Option<String>,
    /// Its processes.
    pub processes: u32,
    /// What it has in memory, in bytes. Without a cgroup of its own, what its processes share with
    /// each other is counted once for each.
    pub resident: u64,
    /// The part of it that can only go to swap.
    pub anonymous: u64,
    /// What it has in swap.
    pub swapped: u64,
    /// Its processes are stopped.
    pub frozen: bool,
    /// Its pages are kept out of swap.
    pub exempt: bool,
    /// Desktop id without `.desktop`.
    pub desktop_id: Option<String>,
    /// Path of its program.
    pub executable: Option<String>,
    /// Name of its Android package.
    pub package: Option<String>,
    /// Categories that its desktop entry and its AppStream data name.
    pub categories: Vec<String>,
}

/// What those who listen are told, a line each, as it happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Notice {
    /// How short memory is: told when it changes, and again while it is short. Whoever can do
    /// without some memory gives it back now.
    Memory {
        /// How short.
        level: Level,
        /// The machine's memory.
        memory: MemoryThen,
        /// The app that would be killed next.
        next: Option<AppStatus>,
    },
    /// The app in front takes memory without end: it will not be killed, the others will.
    Growing {
        /// The app.
        app: AppStatus,
        /// Bytes by which it grew lately.
        grown: u64,
    },
    /// Something was done, kills and foreign ones among it.
    Done(HistoryEntry),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_told_apart_by_their_event() {
        let notice = Notice::Memory {
            level: Level::Kill,
            memory: MemoryThen::default(),
            next: None,
        };
        let line = serde_json::to_string(&notice).unwrap();
        assert!(
            line.starts_with(r#"{"event":"memory","level":"kill","#),
            "{line}"
        );
        assert_eq!(serde_json::from_str::<Notice>(&line).unwrap(), notice);
    }
}
