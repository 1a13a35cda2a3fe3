// SPDX-License-Identifier: GPL-2.0-or-later
//! Explains, for display, why one app was chosen and the other apps were not.

use std::fmt;

use super::culprit::Culprits;
use super::eligible;
use super::order::{self, Candidate};
use crate::model::app::AppKey;
use crate::model::apps::{Known, Use};
use crate::model::protected::{Guarded, Harm};
use crate::model::shortage::Level;
use crate::model::snapshot::Snapshot;

/// Why an app's memory must not be pushed into swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsqueezed<'a> {
    /// It is the foreground app.
    Topmost,
    /// It contains a process that no action may affect.
    Untouchable(&'a str),
    /// It is disposable, and not one that costs less to swap than to close.
    Disposable,
    /// It is in use.
    InUse(Use),
    /// It is exempt: the storage can hold no more, or only its working set is left in memory.
    Exempt,
    /// The squeeze would affect a protected process.
    Protected(&'a Guarded),
}

impl fmt::Display for Unsqueezed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsqueezed::Topmost => f.write_str("it is in the foreground"),
            Unsqueezed::Untouchable(why) => f.write_str(why),
            Unsqueezed::Disposable => f.write_str("limelightd swaps out no disposable app"),
            Unsqueezed::InUse(what) => write!(f, "it {}", what.clause()),
            Unsqueezed::Exempt => f.write_str("it is kept out of swap"),
            Unsqueezed::Protected(guarded) => guarded.fmt(f),
        }
    }
}

/// Why this app's memory may not be pushed into swap now; `None` if it may.
pub fn unsqueezed<'a>(known: &'a Known, snapshot: &'a Snapshot) -> Option<Unsqueezed<'a>> {
    let key = known.key();
    let front = snapshot.topmost.as_ref();
    if front.is_some_and(|top| top.app.key == key || Some(top.app.key) == known.found.part_of) {
        return Some(Unsqueezed::Topmost);
    }
    if let Some(why) = &known.found.untouchable {
        return Some(Unsqueezed::Untouchable(why));
    }
    if eligible::is_disposable(known, snapshot) {
        return Some(Unsqueezed::Disposable);
    }
    if let Some(what) = known.found.uses.first() {
        return Some(Unsqueezed::InUse(*what));
    }
    if snapshot.in_force.swapping.is_exempt(key) {
        return Some(Unsqueezed::Exempt);
    }
    let guarded = snapshot.protected.within(known, Harm::Squeeze);
    guarded.map(Unsqueezed::Protected)
}

/// The verdict on one app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The app.
    pub app: AppKey,
    /// Whether it was chosen.
    pub chosen: bool,
    /// Why it was chosen or not.
    pub reason: String,
}

/// Verdicts on all apps for a kill of `chosen` at this level: first the candidates in their order,
/// then the apps that may not be killed.
pub fn of_kill(snapshot: &Snapshot, chosen: AppKey, level: Level, why: &str) -> Vec<Account> {
    let order = order::candidates(snapshot);
    let place = order.iter().position(|one| one.app == chosen);
    let candidates = order.iter().enumerate().map(|(at, one)| Account {
        app: one.app,
        chosen: one.app == chosen,
        reason: match place {
            Some(place) if at == place => why.to_owned(),
            Some(place) if at < place => {
                "the chosen app grew so fast that it was killed out of turn".to_owned()
            }
            _ => after(one, level),
        },
    });
    let culprits = Culprits::of(snapshot);
    let spared = snapshot.apps.iter().filter_map(|known| {
        let reason = order::spared(known, snapshot, &culprits)?;
        Some(Account {
            app: known.key(),
            chosen: false,
            reason: reason.to_string(),
        })
    });
    candidates.chain(spared).collect()
}

/// Why a candidate was not chosen.
fn after(candidate: &Candidate, level: Level) -> String {
    let cheap = candidate.is_cheap();
    if level == Level::Low && !candidate.leaks {
        return "not killed while swap is free and reclaim keeps up".to_owned();
    }
    if level < Level::Exhausted && !candidate.leaks && !cheap {
        let last = if candidate.avoid {
            ", closed last of its class by wish of its unit"
        } else {
            ""
        };
        return format!(
            "{}{}{last}: killed only when nothing else is left",
            candidate.class,
            if candidate.in_use { " and in use" } else { "" }
        );
    }
    "later in the order: higher class, in use, avoided, or used more recently".to_owned()
}

/// Verdicts on all apps for a squeeze or freeze of `chosen`, least recently used app first.
pub fn of_squeeze(snapshot: &Snapshot, chosen: AppKey, why: &str) -> Vec<Account> {
    let mut seen = false;
    let accounts = snapshot.apps.iter().map(|known| {
        let app = known.key();
        let reason = match unsqueezed(known, snapshot) {
            _ if app == chosen => why.to_owned(),
            Some(unsqueezed) => unsqueezed.to_string(),
            None if seen => "it was used more recently".to_owned(),
            None => {
                "it was squeezed recently, has too little memory, or is already frozen".to_owned()
            }
        };
        seen |= app == chosen;
        Account {
            app,
            chosen: app == chosen,
            reason,
        }
    });
    accounts.collect()
}
