// SPDX-License-Identifier: GPL-2.0-or-later
//! `protect`: reclaim takes the topmost app's pages last.
//!
//! There are six means. Each is used where the machine offers it:
//!
//! 1. *The device*: the Limelight kernel recognises the app's pages by itself. The device stays on
//!    while no app is topmost: the kernel records which app reads which page, and so knows the
//!    pages of the next foreground app.
//! 2. *A reservation*: `memory.min` or `memory.low` of the app's own cgroup, as large as the app's
//!    working set and never above the budget. The app is measured repeatedly. The reservation
//!    exceeds the app's present usage, because memory charged beyond the reservation may be
//!    reclaimed immediately ([`reservation`]).
//! 3. *A cgroup of its own* for an app that has none, if that is allowed. Without one there is no
//!    reservation.
//! 4. *A shield*: a lower `oom_score_adj`. Otherwise memory that reclaim may not take would make
//!    the app the OOM killer's most likely victim.
//! 5. *Locks* on mapped pages that are charged to other cgroups ([`shared_pages`]), if there is no
//!    device.
//! 6. *A reservation for the display server*, which draws the app's answer ([`display`]).

mod display;
mod reservation;
mod shared_pages;

pub use reservation::{follow, GRAIN};

use super::plan::Event;
use super::swap::culprit::{self, Culprit};
use crate::model::app::{AppKey, Home, ProcessId};
use crate::model::never::Never;
use crate::model::pressure::STEPS;
use crate::model::shortage::Level;
use crate::model::snapshot::{Knob, Locking, Measured, Reserved, ReservedDisplay, Snapshot};

/// One step of `protect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Switch the kernel's `protect` on with this budget, or off.
    Switch {
        /// Budget in percent of memory; `None`: off.
        budget_percent: Option<u8>,
    },
    /// Move the app into a cgroup of its own.
    Adopt {
        /// The app.
        app: AppKey,
    },
    /// Move the app back. Used only when Limelight stops or `protect` is switched off.
    Release {
        /// The app.
        app: AppKey,
    },
    /// Reserve memory for the app's own cgroup.
    Reserve {
        /// The app, the knob and the size.
        reserve: Reserved,
        /// The reason for this size, for `explain`.
        rule: String,
    },
    /// Reserve memory for the display server's own cgroup, beside the app's reservation.
    ReserveDisplay {
        /// The app, the display server's cgroup, and the size.
        reserve: ReservedDisplay,
        /// The display server's cgroup.
        home: Home,
        /// The knob.
        knob: Knob,
        /// The reason for this size, for `explain`.
        rule: String,
    },
    /// Restore the memory knobs of both reserved cgroups and of their ancestors.
    Unreserve {
        /// The app.
        app: AppKey,
    },
    /// Lower the `oom_score_adj` of these processes of the app, and forget processes that have
    /// ended.
    Shield {
        /// The app.
        app: AppKey,
        /// All of its processes, ascending.
        members: Vec<ProcessId>,
        /// Points to lower by, 1 to 1000.
        points: u16,
    },
    /// Restore every lowered `oom_score_adj`.
    Unshield {
        /// The app.
        app: AppKey,
    },
    /// Lock the file pages that the app maps and that are charged to other cgroups, including pages
    /// that it maps later. Replaces the locks for another app.
    Lock {
        /// The app and the limit.
        locking: Locking,
    },
    /// Unlock all locked pages.
    Unlock {
        /// The app.
        app: AppKey,
    },
}

/// Whether all protection must end.
fn off(event: &Event, snapshot: &Snapshot) -> bool {
    *event == Event::Stop || !snapshot.settings.protect.enabled
}

/// Whether the topmost app itself causes the shortage. The kernel's OOM killer should then judge it
/// by its original `oom_score_adj`.
fn is_culprit(snapshot: &Snapshot) -> bool {
    // Without swap and with fragmented memory, the kernel's OOM killer may act while available
    // memory is still above the kill threshold.
    let least = match snapshot.storage.is_there() {
        true => Level::Kill,
        false => Level::Swap,
    };
    let short = snapshot.shortage.level() >= least;
    short && culprit::find(snapshot) == Some(Culprit::Foreground)
}

/// The app to protect now.
fn wanted<'a>(event: &Event, snapshot: &'a Snapshot) -> Option<&'a Measured> {
    if off(event, snapshot) {
        return None;
    }
    let topmost = snapshot.topmost.as_ref();
    topmost.filter(|topmost| topmost.never(Never::Protect).is_none())
}

/// Steps that undo settings which no longer apply; they run before the steps of [`grant`].
pub fn withdraw(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    let wanted = wanted(event, snapshot);
    let is_wanted = |key: AppKey| wanted.is_some_and(|topmost| topmost.app.key == key);
    let in_force = &snapshot.in_force;
    let mut steps = Vec::new();

    if let Some(reserved) = in_force.reserved {
        // A reservation through a knob that this LRU ignores has no effect and is replaced.
        let acts = reserved.knob == snapshot.lru.knob() && snapshot.memory_controller;
        if !is_wanted(reserved.app) || !acts {
            steps.push(Step::Unreserve { app: reserved.app });
        }
    }
    // Without a reservation for its app, nothing else ends the display server's.
    let lone = in_force
        .reserved_display
        .filter(|display| in_force.reserved.is_none() && !is_wanted(display.app));
    steps.extend(lone.map(|display| Step::Unreserve { app: display.app }));
    if let Some((app, _)) = in_force.shielded {
        if !is_wanted(app) || snapshot.settings.protect.oom_points == 0 || is_culprit(snapshot) {
            steps.push(Step::Unshield { app });
        }
    }
    if let Some(locked) = &in_force.locked {
        // Locks for another app replace these without an unlock between, because apps share most of
        // their libraries.
        let locks = wanted.and_then(|topmost| shared_pages::wanted(snapshot, topmost));
        if locks.is_none() {
            steps.push(Step::Unlock { app: locked.app });
        }
    }
    if off(event, snapshot) {
        steps.extend(in_force.adopted.iter().map(|&app| Step::Release { app }));
    }
    if off(event, snapshot) && in_force.device_protect.is_some() && snapshot.device {
        steps.push(Step::Switch {
            budget_percent: None,
        });
    }
    steps
}

/// Steps that put protection in force; they run after the steps of [`withdraw`].
pub fn grant(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    let settings = &snapshot.settings.protect;
    let in_force = &snapshot.in_force;
    let mut steps = Vec::new();

    let budget_percent = Some(snapshot.budget_percent());
    let switched = in_force.device_protect == budget_percent;
    if !off(event, snapshot) && snapshot.device && !switched {
        steps.push(Step::Switch { budget_percent });
    }
    let Some(topmost) = wanted(event, snapshot) else {
        return steps;
    };
    let app = topmost.app.key;

    let points = settings.oom_points;
    let shielded = matches!(&in_force.shielded, Some((key, members))
        if *key == app && *members == topmost.members);
    let shields = points > 0 && !is_culprit(snapshot);
    if shields && !shielded && !topmost.members.is_empty() {
        steps.push(Step::Shield {
            app,
            members: topmost.members.clone(),
            points,
        });
    }

    if snapshot.memory_controller {
        if topmost.app.own_home().is_none() {
            if snapshot.may_adopt {
                steps.push(Step::Adopt { app });
            }
        } else {
            let step = reservation::reserve(snapshot, app, topmost.protected().as_ref());
            let reserved = match &step {
                Some(Step::Reserve { reserve, .. }) => Some(*reserve),
                _ => in_force.reserved.filter(|reserved| reserved.app == app),
            };
            steps.extend(step);
            let display = reserved.map(|reserved| display::reserve(snapshot, &reserved));
            steps.extend(display.flatten());
        }
    }
    steps.extend(shared_pages::lock(snapshot, topmost));
    steps
}

/// Notes for the user on what is protected and what is not, one sentence each.
pub fn notes(snapshot: &Snapshot) -> Vec<String> {
    let mut notes = Vec::new();
    if !snapshot.settings.protect.enabled {
        notes.push("protect is switched off by the configuration ([protect] enabled)".to_owned());
        return notes;
    }
    let Some(topmost) = &snapshot.topmost else {
        return notes;
    };
    if let Some(rule) = topmost.never(Never::Protect) {
        let device = match snapshot.device {
            true => {
                "; premap and readahead of /dev/limelight do not act for it either, because the \
                 kernel is not told its processes"
            }
            false => "",
        };
        let why = &rule.why;
        return vec![format!(
            "protect: this app is never protected: {why}{device}"
        )];
    }
    if !snapshot.memory_controller {
        notes.push("the memory controller is not available on cgroup v2, so no memory can be reserved for the app's cgroup".to_owned());
    }
    let locks = snapshot.locked_bytes > 0;
    match &topmost.app.home {
        Some(home) if home.adopted => notes.push(format!(
            "the app was moved into {}: pages charged before the move stay with its old cgroup and are not reserved",
            home.path
        )),
        Some(home) if home.own && !snapshot.device && !locks => notes.push(
            "pages that another process brought in (shared libraries) are charged to that process's cgroup and are not reserved".to_owned(),
        ),
        Some(home) if !home.own && snapshot.device => notes.push(format!(
            "the app shares {} with other processes, so no memory is reserved through a cgroup; /dev/limelight protects it without one",
            home.path
        )),
        Some(home) if !home.own && !snapshot.may_adopt => notes.push(format!(
            "the app shares {} with other processes and may not be moved ([protect] adopt), so no memory is reserved for it",
            home.path
        )),
        _ => {}
    }
    if snapshot.lowered_steps > 0 {
        notes.push(format!(
            "protection is lowered by {}/{STEPS}: the machine has no other memory and no swap left",
            snapshot.lowered_steps
        ));
    }
    let (whole, aged) = (
        snapshot.settings.protect.budget_percent,
        snapshot.budget_percent(),
    );
    if aged < whole {
        notes.push(format!(
            "the budget is {aged} % of memory instead of {whole} %: the app was not used for a \
             while, and other programs wait for memory ([expert] protect_ageing)"
        ));
    }
    notes
}
