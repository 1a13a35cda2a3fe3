// SPDX-License-Identifier: GPL-2.0-or-later
//! What was done about shortages of memory, and to whom, in the protocol's words.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::AppStatus;
use crate::model::class::Class;
use crate::model::shortage::Gauge;

/// Most entries that the daemon keeps in memory; the oldest go.
pub const HISTORY_MAX: u16 = 256;

/// What was done, or seen to be done by others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deed {
    /// Apps were asked to give memory back.
    Ask,
    /// Pages of the app were put into swap, or dropped.
    Squeeze,
    /// The app was stopped, so that it does not ask for its pages again.
    Freeze,
    /// It was let run again.
    Thaw,
    /// What it had in swap was brought back when it came to the front.
    Return,
    /// It was killed.
    Kill,
    /// Somebody else killed: the kernel's OOM killer, or another daemon.
    ForeignKill,
}

impl Deed {
    /// All of them.
    pub const ALL: [Deed; 7] = [
        Deed::Ask,
        Deed::Squeeze,
        Deed::Freeze,
        Deed::Thaw,
        Deed::Return,
        Deed::Kill,
        Deed::ForeignKill,
    ];

    /// What its counter is called.
    pub const fn counter(self) -> &'static str {
        match self {
            Deed::Ask => "asked",
            Deed::Squeeze => "squeezed",
            Deed::Freeze => "frozen",
            Deed::Thaw => "thawed",
            Deed::Return => "returned",
            Deed::Kill => "killed",
            Deed::ForeignKill => "killed_by_others",
        }
    }

    /// Past participle, for people.
    pub const fn word(self) -> &'static str {
        match self {
            Deed::Ask => "asked",
            Deed::Squeeze => "squeezed",
            Deed::Freeze => "frozen",
            Deed::Thaw => "thawed",
            Deed::Return => "brought back",
            Deed::Kill => "killed",
            Deed::ForeignKill => "killed by others",
        }
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// The machine's memory when something was decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryThen {
    /// `MemAvailable` in bytes.
    pub available: u64,
    /// `MemFree` in bytes.
    pub free: u64,
    /// `SwapTotal` in bytes.
    pub swap_total: u64,
    /// `SwapFree` in bytes.
    pub swap_free: u64,
    /// Time since boot in which some task waited for memory (PSI `some`), in milliseconds.
    pub some_ms: u64,
    /// Time since boot in which all that could run did (PSI `full`), in milliseconds.
    pub full_ms: u64,
}

impl From<&Gauge> for MemoryThen {
    fn from(gauge: &Gauge) -> MemoryThen {
        MemoryThen {
            available: gauge.available,
            free: gauge.free,
            swap_total: gauge.swap_total,
            swap_free: gauge.swap_free,
            some_ms: gauge.some.as_millis() as u64,
            full_ms: gauge.full.as_millis() as u64,
        }
    }
}

/// One thing that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// When, in milliseconds since boot.
    pub at_ms: u64,
    /// Which boot that was (`/proc/sys/kernel/random/boot_id`); empty when the kernel did not tell.
    pub boot: String,
    /// What was done.
    pub deed: Deed,
    /// To whom; `None` when no app was meant.
    pub app: Option<AppStatus>,
    /// Its owner. Others hear of it only when they are root.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The app's class.
    pub class: Option<Class>,
    /// What it came to, in bytes: freed, put into swap, brought back, or shown to be missing.
    pub bytes: u64,
    /// How long it took from the decision until it had its effect, in microseconds, if that is known.
    pub took_us: Option<u64>,
    /// How often it was done within `for_ms`: repeats are folded into one entry.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub times: u32,
    /// From the first time to the last one, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub for_ms: u64,
    /// Why.
    pub reason: String,
    /// The machine's memory when it was decided.
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

/// Repeats of the same deed for the same app within this time are one entry.
const FOLDED_MS: u64 = 60_000;

/// Folds repeats, oldest first: the first entry stays with its reason, and counts the others. A kill
/// is never folded.
pub fn fold<'a>(entries: impl IntoIterator<Item = &'a HistoryEntry>) -> Vec<HistoryEntry> {
    let mut folded: Vec<HistoryEntry> = Vec::new();
    for entry in entries {
        let kill = matches!(entry.deed, Deed::Kill | Deed::ForeignKill);
        let same = |one: &&mut HistoryEntry| {
            one.deed == entry.deed && one.app == entry.app && one.boot == entry.boot
        };
        let known = folded.iter_mut().rev().find(same).filter(|_| !kill);
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
    fn repeats_within_a_minute_are_one_entry_and_kills_are_not_folded() {
        let entry = |at_s: u64, deed| HistoryEntry {
            unix_ms: at_s * 1000,
            at_ms: at_s * 1000,
            boot: String::new(),
            deed,
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
            entry(1, Deed::Ask),
            entry(2, Deed::Kill),
            entry(11, Deed::Ask),
            entry(12, Deed::Kill),
            entry(61, Deed::Ask),
            entry(62, Deed::Ask),
        ];
        let folded = fold(&all);
        let shape: Vec<_> = folded
            .iter()
            .map(|one| (one.deed, one.times, one.for_ms))
            .collect();
        let kill = (Deed::Kill, 1, 0);
        assert_eq!(
            shape,
            [(Deed::Ask, 3, 60_000), kill, kill, (Deed::Ask, 1, 0)]
        );
        assert_eq!((folded[0].bytes, folded[0].reason.as_str()), (30, "at 1"));
    }

    #[test]
    fn an_entry_is_one_line_that_can_be_read_again() {
        let entry = HistoryEntry {
            unix_ms: 1_795_000_000_000,
            at_ms: 5000,
            boot: "b".to_owned(),
            deed: Deed::ForeignKill,
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
        assert!(!line.contains('\n') && line.contains(r#""deed":"foreign-kill""#));
        assert_eq!(serde_json::from_str::<HistoryEntry>(&line).unwrap(), entry);
    }
}
