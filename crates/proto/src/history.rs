// SPDX-License-Identifier: GPL-2.0-or-later
//! The protocol's types for the history of actions against shortages of memory.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::AppStatus;
use crate::class::Class;

/// Maximum number of entries that the daemon keeps in memory; beyond it the oldest are dropped.
pub const HISTORY_MAX: u16 = 256;

/// An action of the daemon, or a kill by other software that the daemon detected; also the beginning
/// and the end of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MemoryAction {
    /// Apps were asked to free memory.
    Ask,
    /// The app's pages were moved to swap or dropped.
    Squeeze,
    /// The app's pages were written from compressed memory to a disk.
    WriteBack,
    /// The app leaks, and may grow only slowly.
    Throttle,
    /// The app was frozen, so that it does not fault its pages in again.
    Freeze,
    /// The app was thawed.
    Thaw,
    /// The app's swapped memory was read back when it came to the foreground.
    Return,
    /// The app was killed.
    Kill,
    /// The kernel's OOM killer or another daemon killed a process.
    ForeignKill,
    /// The daemon was told to undo its changes and to make none for a while.
    Pause,
    /// The pause ended.
    Resume,
}

impl MemoryAction {
    /// All actions against a shortage.
    pub const ALL: [MemoryAction; 9] = [
        MemoryAction::Ask,
        MemoryAction::Squeeze,
        MemoryAction::WriteBack,
        MemoryAction::Throttle,
        MemoryAction::Freeze,
        MemoryAction::Thaw,
        MemoryAction::Return,
        MemoryAction::Kill,
        MemoryAction::ForeignKill,
    ];

    /// Name of its counter.
    pub const fn counter(self) -> &'static str {
        match self {
            MemoryAction::Ask => "asked",
            MemoryAction::Squeeze => "squeezed",
            MemoryAction::WriteBack => "written_back",
            MemoryAction::Throttle => "throttled",
            MemoryAction::Freeze => "frozen",
            MemoryAction::Thaw => "thawed",
            MemoryAction::Return => "returned",
            MemoryAction::Kill => "killed",
            MemoryAction::ForeignKill => "killed_by_others",
            MemoryAction::Pause => "paused",
            MemoryAction::Resume => "resumed",
        }
    }

    /// Past participle, for display.
    pub const fn word(self) -> &'static str {
        match self {
            MemoryAction::Ask => "asked",
            MemoryAction::Squeeze => "squeezed",
            MemoryAction::WriteBack => "written back",
            MemoryAction::Throttle => "throttled",
            MemoryAction::Freeze => "frozen",
            MemoryAction::Thaw => "thawed",
            MemoryAction::Return => "brought back",
            MemoryAction::Kill => "killed",
            MemoryAction::ForeignKill => "killed by another program",
            MemoryAction::Pause => "paused",
            MemoryAction::Resume => "resumed",
        }
    }
}

impl fmt::Display for MemoryAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// The machine's memory at the time of a decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryThen {
    /// `MemAvailable` in bytes; in readings of the guard, without the page cache that is kept for
    /// the foreground app.
    pub available: u64,
    /// `MemFree` in bytes.
    pub free: u64,
    /// `SwapTotal` in bytes.
    pub swap_total: u64,
    /// `SwapFree` in bytes.
    pub swap_free: u64,
    /// Time since boot in which some task waited for memory (PSI `some`), in milliseconds.
    pub some_ms: u64,
    /// Time since boot in which all non-idle tasks waited for memory (PSI `full`), in milliseconds.
    pub full_ms: u64,
}

/// One action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HistoryEntry {
    /// Time in milliseconds since 1970.
    pub unix_ms: u64,
    /// Time in milliseconds since boot.
    pub at_ms: u64,
    /// Id of the boot (`/proc/sys/kernel/random/boot_id`); empty if it could not be read.
    pub boot: String,
    /// The action.
    pub action: MemoryAction,
    /// The app; `None` if the action was not about one app.
    pub app: Option<AppStatus>,
    /// User id of the app's owner. The entry is shown to the owner, to root and to the group of
    /// `[access]`.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The app's class.
    pub class: Option<Class>,
    /// Bytes freed, moved to swap or read back. For `Ask`: bytes by which available memory falls
    /// short. For `ForeignKill`: anonymous and swapped memory of the victim, 0 if unknown.
    pub bytes: u64,
    /// Time from the decision to its effect, in microseconds, if known.
    pub took_us: Option<u64>,
    /// Number of actions that are folded into this entry, the first one included.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub times: u32,
    /// Time from the first of the folded actions to the last one, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub for_ms: u64,
    /// The reason for the action.
    pub reason: String,
    /// The machine's memory at the time of the decision.
    pub memory: MemoryThen,
}

fn once() -> u32 {
    1
}

fn is_once(times: &u32) -> bool {
    *times == 1
}

fn is_zero(ms: &u64) -> bool {
    *ms == 0
}

/// Repeats of an action for the same app are folded if they come within this many milliseconds of
/// the first.
const FOLDED_MS: u64 = 60_000;

/// Folds repeats of an action into one entry. `entries` are sorted, oldest first. The entry of the
/// first action keeps its reason and counts the repeats. Kills and pauses are never folded.
pub fn fold<'a>(entries: impl IntoIterator<Item = &'a HistoryEntry>) -> Vec<HistoryEntry> {
    let mut folded: Vec<HistoryEntry> = Vec::new();
    for entry in entries {
        let is_single = matches!(
            entry.action,
            MemoryAction::Kill
                | MemoryAction::ForeignKill
                | MemoryAction::Pause
                | MemoryAction::Resume
        );
        let same = |one: &&mut HistoryEntry| {
            one.action == entry.action && one.app == entry.app && one.boot == entry.boot
        };
        let known = folded.iter_mut().rev().find(same).filter(|_| !is_single);
        match known {
            Some(one) if entry.at_ms.saturating_sub(one.at_ms) <= FOLDED_MS => {
                one.times = one.times.saturating_add(entry.times);
                one.for_ms = one.for_ms.max(entry.at_ms.saturating_sub(one.at_ms));
                one.bytes = one.bytes.saturating_add(entry.bytes);
            }
            _ => folded.push(entry.clone()),
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_within_a_minute_are_folded_and_kills_are_not() {
        let entry = |at_s: u64, action| HistoryEntry {
            unix_ms: at_s * 1000,
            at_ms: at_s * 1000,
            boot: String::new(),
            action,
            app: None,
            uid: None,
            class: None,
            bytes: 10,
            took_us: None,
            times: 1,
            for_ms: 0,
            reason: format!("at {at_s}"),
            memory: MemoryThen::default(),
        };
        let all = [
            entry(1, MemoryAction::Ask),
            entry(2, MemoryAction::Kill),
            entry(11, MemoryAction::Ask),
            entry(12, MemoryAction::Kill),
            entry(61, MemoryAction::Ask),
            entry(62, MemoryAction::Ask),
        ];
        let folded = fold(&all);
        let shape: Vec<_> = folded
            .iter()
            .map(|one| (one.action, one.times, one.for_ms))
            .collect();
        let kill = (MemoryAction::Kill, 1, 0);
        assert_eq!(
            shape,
            [
                (MemoryAction::Ask, 3, 60_000),
                kill,
                kill,
                (MemoryAction::Ask, 1, 0)
            ]
        );
        assert_eq!((folded[0].bytes, folded[0].reason.as_str()), (30, "at 1"));
    }

    #[test]
    fn entry_is_one_line_and_parses_back() {
        let entry = HistoryEntry {
            unix_ms: 1_795_000_000_000,
            at_ms: 5000,
            boot: "b".to_owned(),
            action: MemoryAction::ForeignKill,
            app: Some(AppStatus {
                name: "news\n".to_owned(),
                pid: Some(7),
                cgroup: Some("/app.slice/app-news-1.scope".to_owned()),
                own_cgroup: true,
            }),
            uid: Some(1000),
            class: Some(Class::Disposable),
            bytes: 34 << 20,
            took_us: None,
            times: 1,
            for_ms: 0,
            reason: "why".to_owned(),
            memory: MemoryThen::default(),
        };
        let line = serde_json::to_string(&entry).unwrap();
        assert!(!line.contains('\n') && line.contains(r#""action":"foreign-kill""#));
        assert_eq!(serde_json::from_str::<HistoryEntry>(&line).unwrap(), entry);
    }
}
