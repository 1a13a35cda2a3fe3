// SPDX-License-Identifier: GPL-2.0-or-later
//! `protect`: reclaim takes the topmost app's pages last.
//!
//! Five means, each independent of the others, so that a machine that lacks one still has the rest:
//!
//! 1. *The device*: our kernel recognises the app's pages by itself. Switched on all the time, also
//!    while no app is topmost: the kernel writes down who reads what in, and an app that comes to
//!    the front should find its pages known.
//! 2. *A reservation*: `memory.min` or `memory.low` of the app's own cgroup, as large as what the
//!    app works with and never above the budget. An app that grows is measured again and again;
//!    the reservation runs ahead of it, because what is charged above it is fair game at once
//!    ([`reservation`]).
//! 3. *A cgroup of its own* for an app that has none, where that is allowed; without one there is
//!    no reservation.
//! 4. *A shield*: a lower `oom_score_adj`. Memory that reclaim may not take makes its owner look
//!    like the best victim to the OOM killer.
//! 5. *Locks* on mapped pages that are charged to somebody else ([`shared_pages`]), where there is no
//!    device.

mod reservation;
mod shared_pages;

pub use reservation::{follow, GRAIN};

use super::plan::Event;
use super::swap::culprit::{self, Culprit};
use crate::model::app::{AppKey, ProcessId};
use crate::model::pressure::STEPS;
use crate::model::shortage::Level;
use crate::model::snapshot::{Locking, Measured, Reserved, Snapshot};

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
    /// Move it back. Only when Limelight stops or protect is switched off.
    Release {
        /// The app.
        app: AppKey,
    },
    /// Reserve memory for the app's own cgroup.
    Reserve {
        /// How much, for whom, through what.
        reserve: Reserved,
        /// Why so much, for `explain`.
        rule: String,
    },
    /// Put the reserved cgroup and its ancestors back.
    Unreserve {
        /// The app.
        app: AppKey,
    },
    /// Lower the `oom_score_adj` of these processes of the app (and drop those that ended).
    Shield {
        /// The app.
        app: AppKey,
        /// All of its processes, ascending.
        members: Vec<ProcessId>,
        /// By how many points, 1 to 1000.
        points: u16,
    },
    /// Put every lowered `oom_score_adj` back.
    Unshield {
        /// The app.
        app: AppKey,
    },
    /// Lock what the app maps of files and is charged to others, now and as it maps more.
    Lock {
        /// For whom, and how much.
        locking: Locking,
    },
    /// Unlock all of it.
    Unlock {
        /// The app.
        app: AppKey,
    },
}

/// Whether nothing at all should be in force.
fn off(event: &Event, snapshot: &Snapshot) -> bool {
    *event == Event::Stop || !snapshot.settings.protect.enabled
}

/// Whether the topmost app is what takes the memory, and nothing else can be had: the kernel's OOM
/// killer finds it by its own value of `oom_score_adj` then.
fn is_culprit(snapshot: &Snapshot) -> bool {
    // Without swap the kernel gives up above the kill threshold where memory is fragmented.
    let least = match snapshot.storage.is_there() {
        true => Level::Kill,
        false => Level::Swap,
    };
    let short = snapshot.shortage.level() >= least;
    short && culprit::find(snapshot) == Some(Culprit::Foreground)
}

/// The app that should be protected now.
fn wanted<'a>(event: &Event, snapshot: &'a Snapshot) -> Option<&'a Measured> {
    if off(event, snapshot) {
        return None;
    }
    snapshot.topmost.as_ref()
}

/// What has to be taken back first.
pub fn withdraw(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    let wanted = wanted(event, snapshot);
    let is_wanted = |key: AppKey| wanted.is_some_and(|topmost| topmost.app.key == key);
    let in_force = &snapshot.in_force;
    let mut steps = Vec::new();

    if let Some(reserved) = in_force.reserved {
        // A reservation through the knob of the other LRU is worth nothing and is replaced.
        let acts = reserved.knob == snapshot.lru.knob() && snapshot.memory_controller;
        if !is_wanted(reserved.app) || !acts {
            steps.push(Step::Unreserve { app: reserved.app });
        }
    }
    if let Some((app, _)) = in_force.shielded {
        if !is_wanted(app) || snapshot.settings.protect.oom_points == 0 || is_culprit(snapshot) {
            steps.push(Step::Unshield { app });
        }
    }
    if let Some(locked) = &in_force.locked {
        let stays = wanted.filter(|topmost| topmost.app.key == locked.app);
        if stays
            .and_then(|topmost| shared_pages::wanted(snapshot, topmost))
            .is_none()
        {
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

/// What is given then.
pub fn grant(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    let settings = &snapshot.settings.protect;
    let in_force = &snapshot.in_force;
    let mut steps = Vec::new();

    let budget_percent = Some(settings.budget_percent);
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
        } else if let Some(step) = reservation::reserve(snapshot, app, topmost.footprint.as_ref()) {
            steps.push(step);
        }
    }
    steps.extend(shared_pages::lock(snapshot, topmost));
    steps
}

/// What a person should know about how far protection reaches, one sentence each.
pub fn notes(snapshot: &Snapshot) -> Vec<String> {
    let mut notes = Vec::new();
    if !snapshot.settings.protect.enabled {
        notes.push("protect is switched off by the configuration ([protect] enabled)".to_owned());
        return notes;
    }
    let Some(topmost) = &snapshot.topmost else {
        return notes;
    };
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
    notes
}
