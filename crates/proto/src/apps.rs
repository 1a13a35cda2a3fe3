// SPDX-License-Identifier: GPL-2.0-or-later
//! The protocol's types for apps and notices.

use serde::{Deserialize, Serialize};

use super::{AppStatus, HistoryEntry, MemoryThen, Role};
use crate::class::Class;
use crate::in_use::Use;
use crate::never::{Avoid, Exception};
use crate::shortage::Level;

/// A known app.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppReport {
    /// The app; `pid` is its main process.
    #[serde(flatten)]
    pub app: AppStatus,
    /// User id of its owner.
    pub uid: u32,
    /// Its role now.
    pub role: Role,
    /// Its class.
    pub class: Class,
    /// The reason for its class, as a clause.
    pub why: String,
    /// User id of the user who set or saved its class (`limelight class set`), if any.
    pub set_by: Option<u32>,
    /// When it was last in the foreground, in milliseconds since boot; `None`: never.
    #[serde(rename = "last_foreground_ms", alias = "last_topmost_ms")]
    pub last_topmost_ms: Option<u64>,
    /// When it was started, in milliseconds since boot.
    pub started_ms: u64,
    /// Why it is in use in the background; empty if it is not.
    pub uses: Vec<Use>,
    /// Why no action may affect it, if so.
    pub untouchable: Option<String>,
    /// What Limelight never does for or to it (`[never]`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub never: Vec<Exception>,
    /// The wish that it be closed after the other apps of its class, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avoid: Option<Avoid>,
    /// Number of its processes.
    pub processes: u32,
    /// Resident memory in bytes. For an app without a cgroup of its own, memory that its processes
    /// share is counted once per process.
    pub resident: u64,
    /// The part of `resident` that reclaim can only move to swap.
    pub anonymous: u64,
    /// Bytes in swap.
    pub swapped: u64,
    /// Whether its processes are frozen.
    pub frozen: bool,
    /// Whether its pages are kept out of swap.
    pub exempt: bool,
    /// Desktop id without `.desktop`.
    pub desktop_id: Option<String>,
    /// Path of its program.
    pub executable: Option<String>,
    /// Name of its Android package.
    pub package: Option<String>,
    /// Categories in its desktop entry and its AppStream data.
    pub categories: Vec<String>,
}

/// A notice to listening clients, sent as one line when the event happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Notice {
    /// The level of shortage. Sent at most every 10 s while memory is short, and once when the
    /// shortage is over. Clients that can spare memory should free it now.
    Memory {
        /// The level.
        level: Level,
        /// The machine's memory.
        memory: MemoryThen,
        /// The app that would be killed next.
        next: Option<AppStatus>,
    },
    /// The foreground app grows without bound. Limelight does not kill it, and kills no healthy app
    /// for it once the app has started.
    Growing {
        /// The foreground app.
        app: AppStatus,
        /// Bytes by which it grew within the last minute.
        grown: u64,
    },
    /// An action of the daemon against a shortage, or a kill by other software.
    Done(HistoryEntry),
    /// Another app is in the foreground. Sent only to clients that asked for it
    /// ([`Request::Listen`](crate::Request::Listen)).
    Foreground {
        /// The app; `None`: none, or an app that the client may not see.
        app: Option<AppStatus>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_tagged_by_event() {
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
