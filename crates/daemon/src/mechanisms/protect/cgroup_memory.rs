// SPDX-License-Identifier: GPL-2.0-or-later
//! `memory.min` and `memory.low`: a reservation for the app's cgroup.
//!
//! The protection of a cgroup is capped by that of every ancestor. The kernel divides an ancestor's
//! protection among its children in proportion to the used parts of their reservations. Each
//! ancestor's reservation is therefore raised to the amount that the app needs, plus the amount
//! that the ancestor's other children use of their own reservations. The memory controller is
//! enabled where it is missing.

use limelight_core::model::protected::contains;
use limelight_core::model::snapshot::{Knob, Reserved, ReservedDisplay};
use limelight_core::model::{AppKey, Home};
use limelight_core::policy::protect::GRAIN;
use limelight_proto::Outcome;
use limelight_sys::cgroup::{Cgroup, CgroupPath, Limit, MemoryKnob};

use crate::mechanisms::changes::{Kind, Reach};
use crate::mechanisms::controllers::hand_down;
use crate::mechanisms::shared::{failed, Context, Effect, Shared};
use crate::restore::undo::{open_place, Undone};
use crate::restore::{Entry, Ledger, Place};
use crate::system::{System, MEMORY};

/// Maximum number of times that a reservation is made again after another program has reset the
/// value to the original.
const DISTURBANCES_MAX: u8 = 3;

fn memory_knob(knob: Knob) -> MemoryKnob {
    match knob {
        Knob::Min => MemoryKnob::Min,
        Knob::Low => MemoryKnob::Low,
    }
}

/// The app's cgroup or one of its ancestors below the root, with its target value.
struct Target {
    cgroup: Cgroup,
    /// The present value.
    found: Limit,
    /// The value before Limelight.
    original: Limit,
    /// Values that Limelight has written.
    ours: Vec<String>,
    /// The value to write.
    wanted: Limit,
}

impl Target {
    /// Whether the value now is neither the original nor one that Limelight wrote, so another
    /// program has set it.
    fn is_theirs(&self) -> bool {
        !self.ours.is_empty()
            && self.found != self.original
            && !self.ours.contains(&self.found.to_string())
    }
}

/// The targets of a cgroup and its ancestors below the root, in order from the root down. `bytes`:
/// the cgroup's reservation; `carried`: the ancestors' part of it. `counts`: what counts of the
/// reservations beside the cgroup.
fn targets(
    context: Context<'_>,
    ledger: &Ledger,
    home: &Home,
    knob: Knob,
    [bytes, carried]: [u64; 2],
    counts: Counts,
) -> Result<Vec<Target>, String> {
    let knob = memory_knob(knob);
    let text = |error: limelight_sys::Error| error.to_string();
    let path = CgroupPath::parse(&home.path).ok_or("not a cgroup path")?;
    let chain = context.system.cgroups.open_chain(&path).map_err(text)?;
    if chain.last().map(|leaf| leaf.id().0) != Some(home.inode) {
        return Err(format!("{} is no longer the same cgroup", home.path));
    }
    let mut need = Limit::Bytes(carried);
    let mut below: Option<String> = None;
    let mut targets = Vec::new();
    for cgroup in chain.into_iter().rev() {
        let found = cgroup.limit(knob).map_err(text)?;
        let (original, ours) = match recorded(ledger, cgroup.id().0, knob) {
            Some((original, ours)) => (original, ours),
            None => (found, Vec::new()),
        };
        let own = match &below {
            None => Limit::Bytes(bytes),
            Some(child) => plus(
                need,
                siblings_use(&cgroup, child, knob, counts).map_err(text)?,
            ),
        };
        need = match &below {
            None => need.max(original),
            Some(_) => own.max(original),
        };
        below = Some(cgroup.path().name().to_owned());
        targets.push(Target {
            cgroup,
            found,
            original,
            ours,
            wanted: own.max(original),
        });
    }
    targets.reverse();
    Ok(targets)
}

fn plus(limit: Limit, bytes: u64) -> Limit {
    match limit {
        // Round up to whole grains, so that the kernel reports exactly the value that was written.
        Limit::Bytes(own) if bytes > 0 => Limit::Bytes(
            own.saturating_add(bytes)
                .div_ceil(GRAIN)
                .saturating_mul(GRAIN),
        ),
        limit => limit,
    }
}

/// What counts of another cgroup's reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    /// The part in use.
    Used,
    /// All of it: the topmost app may grow into the rest.
    Whole,
}

/// How many bytes of their own reservations the other children of `parent` use, or may use. Most
/// have none, and there may be many, so only the file of the reservation is opened.
fn siblings_use(
    parent: &Cgroup,
    child: &str,
    knob: MemoryKnob,
    counts: Counts,
) -> limelight_sys::Result<u64> {
    let mut sum = 0;
    for name in parent.dir().directories()? {
        if name == child {
            continue;
        }
        let text = match parent.dir().read_text(format!("{name}/{}", knob.file())) {
            Err(error) if error.is_exhausted() => return Err(error),
            text => text.ok(),
        };
        let limit = text.and_then(|text| text.parse().ok());
        let Some(limit) = limit.filter(|limit| *limit != Limit::ZERO) else {
            continue;
        };
        if let Ok(sibling) = parent.open_child(&name) {
            sum += match (counts, limit) {
                (Counts::Whole, Limit::Bytes(bytes)) => bytes,
                _ => in_use(&sibling, limit),
            };
        }
    }
    Ok(sum)
}

/// Bytes of a reservation that are in use.
fn in_use(cgroup: &Cgroup, limit: Limit) -> u64 {
    match limit {
        Limit::Bytes(0) => 0,
        Limit::Bytes(bytes) => bytes.min(cgroup.memory_current().unwrap_or(0)),
        Limit::Max => cgroup.memory_current().unwrap_or(0),
    }
}

/// The original value of a knob and the values that Limelight has written; `None` if the knob is
/// not in the restore record.
fn recorded(ledger: &Ledger, inode: u64, knob: MemoryKnob) -> Option<(Limit, Vec<String>)> {
    ledger.entries().iter().find_map(|entry| match entry {
        Entry::Limit {
            cgroup,
            knob: file,
            original,
            ours,
        } if cgroup.inode == inode && file == knob.file() => {
            Some((original.parse().ok()?, ours.clone()))
        }
        _ => None,
    })
}

/// Bytes in use of reservations that Limelight did not make, summed over the top-level cgroups.
/// `knob` is the file that is effective under the kernel's LRU: with [`Knob::Min`] only
/// `memory.min` counts, with [`Knob::Low`] the larger of both.
pub fn protected_by_others(system: &System, ledger: &Ledger, knob: Knob) -> u64 {
    let Ok(root) = system.cgroups.open(&CgroupPath::root()) else {
        return 0;
    };
    let original = |cgroup: &Cgroup, knob| match recorded(ledger, cgroup.id().0, knob) {
        Some((original, _)) => original,
        None => cgroup.limit(knob).unwrap_or(Limit::ZERO),
    };
    let top = root.children().into_iter().flatten();
    top.filter_map(Result::ok)
        .map(|cgroup| {
            let min = original(&cgroup, MemoryKnob::Min);
            let limit = match knob {
                Knob::Min => min,
                Knob::Low => min.max(original(&cgroup, MemoryKnob::Low)),
            };
            in_use(&cgroup, limit)
        })
        .sum()
}

/// The entry of this knob in the restore record.
fn limit_entry(ledger: &Ledger, cgroup: &Cgroup, knob: Knob) -> Option<Entry> {
    let mut entries = ledger.entries().iter();
    let same = |entry: &&Entry| {
        matches!(entry, Entry::Limit { cgroup: known, knob: file, .. }
            if known.inode == cgroup.id().0 && file == knob.file())
    };
    entries.find(same).cloned()
}

/// The reservations of the topmost app and of its display server.
#[derive(Debug, Default)]
pub struct Reservation {
    /// Cgroups (by inode) and files whose value another program has overwritten. They are left
    /// alone until the reservation ends.
    conflicts: Vec<(u64, &'static str)>,
    /// How often another program has overwritten the reservation.
    disturbances: u8,
}

impl Reservation {
    pub(super) fn reserve(
        &mut self,
        shared: &mut Shared,
        reserve: Reserved,
        rule: &str,
        context: Context<'_>,
    ) -> Effect {
        let Some(home) = context.front.and_then(|app| app.own_home()).cloned() else {
            return Effect::None;
        };
        let reach = Reach::App(reserve.app);
        let knob = |path: &str| context.system.cgroup_file(path, reserve.knob.file());
        let bytes = Limit::Bytes(reserve.bytes);
        let fail = |outcome| context.change(knob(&home.path), ("0", bytes), rule, outcome);
        let effect = match hand_down(shared, &home.path, MEMORY, context) {
            Ok(true) => Effect::Again,
            Ok(false) => Effect::None,
            Err(error) => {
                let why = error.to_string();
                let change = fail(Outcome::Inert { why });
                shared.changes.note(reach, Kind::Reservation, change);
                // Note the reservation as made: the next attempt comes when the app's size changes,
                // not at every tick.
                shared.in_force.reserved = Some(reserve);
                return Effect::None;
            }
        };
        let sizes = [reserve.bytes, reserve.carried];
        let targets = match targets(
            context,
            &shared.ledger,
            &home,
            reserve.knob,
            sizes,
            Counts::Used,
        ) {
            Ok(targets) => targets,
            Err(why) => {
                let change = fail(failed(why));
                shared.changes.note(reach, Kind::Reservation, change);
                return effect;
            }
        };
        // An ancestor that could not be raised caps the app's own cgroup.
        let mut capped: Option<String> = None;
        let last = targets.len().saturating_sub(1);
        let mut reserved = false;
        for (at, target) in targets.iter().enumerate() {
            let mut outcome = self.write(shared, target, reserve.knob);
            let path = target.cgroup.path();
            if at == last {
                reserved = !matches!(outcome, Outcome::Failed { .. });
                if let (Outcome::Applied, Some(why)) = (&outcome, capped.take()) {
                    outcome = Outcome::Inert { why };
                }
            } else if let Outcome::Failed { why } | Outcome::Inert { why } = &outcome {
                if target.found < target.wanted {
                    capped.get_or_insert_with(|| {
                        format!("{path} reserves only {}: {why}", target.found)
                    });
                }
            }
            let untouched = target.wanted == target.original && target.ours.is_empty();
            if untouched && at != last {
                continue;
            }
            let values = (target.original, target.wanted);
            let change = context.change(knob(path.as_str()), values, rule, outcome);
            shared.changes.note(reach, Kind::Reservation, change);
        }
        if !reserved {
            // With no reservation in force, no later step restores the values that Limelight has
            // already written. So their restores are scheduled now.
            for target in &targets {
                let entry = limit_entry(&shared.ledger, &target.cgroup, reserve.knob);
                shared.ledger.owe(entry);
            }
        }
        shared.in_force.reserved = reserved.then_some(reserve);
        effect
    }

    /// Makes the reservation for the display server's cgroup `home`. The app's ancestors are only
    /// raised: they follow the app's next reservation.
    pub(super) fn reserve_display(
        &mut self,
        shared: &mut Shared,
        home: &Home,
        (reserve, knob): (ReservedDisplay, Knob),
        rule: &str,
        context: Context<'_>,
    ) {
        // Noted in any case: the next attempt comes when the size changes, not at every tick.
        shared.in_force.reserved_display = Some(reserve);
        let note = |shared: &mut Shared, path: &str, values: (Limit, Limit), outcome| {
            let file = context.system.cgroup_file(path, knob.file());
            let change = context.change(file, values, rule, outcome);
            shared
                .changes
                .note(Reach::App(reserve.app), Kind::Reservation, change);
        };
        let sizes = [reserve.bytes, reserve.bytes];
        let handed = hand_down(shared, &home.path, MEMORY, context);
        let found = handed
            .map_err(|error| error.to_string())
            .and_then(|_| targets(context, &shared.ledger, home, knob, sizes, Counts::Whole));
        let targets = match found {
            Ok(targets) => targets,
            Err(why) => {
                let values = (Limit::ZERO, Limit::Bytes(reserve.bytes));
                return note(shared, &home.path, values, Outcome::Inert { why });
            }
        };
        let app = context.front.and_then(|app| app.own_home());
        let app = app.map_or("", |home| &home.path);
        for target in &targets {
            let above_app = contains(target.cgroup.path().as_str(), app);
            if above_app && target.found >= target.wanted {
                continue;
            }
            let outcome = self.write(shared, target, knob);
            let values = (target.original, target.wanted);
            note(shared, target.cgroup.path().as_str(), values, outcome);
        }
    }

    /// Checks whether another program has overwritten a value of the reservation. If so, the next
    /// plan makes the reservation again. A value that was reset to the original, as a service
    /// manager does when it reloads its units, is written again up to `DISTURBANCES_MAX` times.
    pub fn check(&mut self, shared: &mut Shared, system: &System) {
        if shared.in_force.reserved.is_none() {
            return;
        }
        let disturbed = shared.ledger.entries().iter().any(|entry| match entry {
            Entry::Limit {
                cgroup, knob, ours, ..
            } => {
                let knob = match knob.as_str() {
                    "memory.low" => MemoryKnob::Low,
                    _ => MemoryKnob::Min,
                };
                let found = open_place(system, cgroup).and_then(|cgroup| cgroup.limit(knob).ok());
                found.is_some_and(|found| !ours.contains(&found.to_string()))
            }
            _ => false,
        });
        if disturbed {
            self.disturbances = self.disturbances.saturating_add(1);
            // Nothing is certain to be reserved. The app stays known, so that a plan for another
            // app takes back what is left of its reservation.
            if let Some(reserved) = &mut shared.in_force.reserved {
                (reserved.bytes, reserved.carried) = (0, 0);
            }
            if let Some(display) = &mut shared.in_force.reserved_display {
                display.bytes = 0;
            }
        }
    }

    fn write(&mut self, shared: &mut Shared, target: &Target, knob: Knob) -> Outcome {
        if shared.is_dry_run() {
            return Outcome::Planned;
        }
        let conflict = (target.cgroup.id().0, knob.file());
        let reset = !target.ours.is_empty() && !target.ours.contains(&target.found.to_string());
        if target.is_theirs() || (reset && self.disturbances > DISTURBANCES_MAX) {
            // Leave the value to the other program: neither overwrite nor restore it.
            if let Some(entry) = limit_entry(&shared.ledger, &target.cgroup, knob) {
                shared.ledger.forget(&entry);
            }
            self.conflicts.push(conflict);
        }
        if self.conflicts.contains(&conflict) {
            return Outcome::Inert {
                why: format!(
                    "another program set it to {}; it is left alone until another app is in the foreground",
                    target.found
                ),
            };
        }
        if let Some(entry) = limit_entry(&shared.ledger, &target.cgroup, knob) {
            shared.ledger.keep(&entry);
        }
        if target.found == target.wanted {
            return Outcome::Applied;
        }
        let entry = |ours: Vec<String>| Entry::Limit {
            cgroup: Place::from(&target.cgroup),
            knob: knob.file().to_owned(),
            original: target.original.to_string(),
            ours,
        };
        // Record both the value in force and the new one: a crash during the write may leave
        // either.
        let in_force = target
            .ours
            .iter()
            .filter(|ours| **ours == target.found.to_string());
        let mut ours: Vec<String> = in_force.cloned().collect();
        let before = ours.clone();
        ours.push(target.wanted.to_string());
        if let Err(error) = shared.ledger.intend([entry(ours)]) {
            return failed(error);
        }
        match target.cgroup.set_limit(memory_knob(knob), target.wanted) {
            Ok(()) => Outcome::Applied,
            Err(error) => {
                if before.is_empty() {
                    shared.ledger.forget(&entry(before));
                } else if let Err(unrecorded) = shared.ledger.intend([entry(before)]) {
                    tracing::warn!("{unrecorded}");
                }
                failed(error)
            }
        }
    }

    pub(super) fn unreserve(&mut self, shared: &mut Shared, app: AppKey, context: Context<'_>) {
        let results = shared.undo(context.system, |entry| matches!(entry, Entry::Limit { .. }));
        for (entry, undone) in results {
            if let (Entry::Limit { cgroup, knob, .. }, Undone::Failed { why }) = (&entry, &undone) {
                tracing::error!("{}/{knob} cannot be put back: {why}", cgroup.path);
            }
        }
        self.conflicts.clear();
        self.disturbances = 0;
        shared.in_force.reserved = None;
        shared.in_force.reserved_display = None;
        shared
            .changes
            .drop_where(|reach, kind| (reach, kind) == (Reach::App(app), Kind::Reservation));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Roots;
    use limelight_sys::inotify::Inotify;
    use rustix::fs::inotify::WatchFlags;
    use std::fs;

    #[test]
    fn siblings_without_a_reservation_are_not_opened() {
        let temp = tempfile::tempdir().unwrap();
        for directory in ["proc", "sys"] {
            fs::create_dir(temp.path().join(directory)).unwrap();
        }
        let opened = Inotify::new().unwrap();
        let mut watches = Vec::new();
        for (name, reservation, used) in [("app", 7, 7), ("idle", 0, 9), ("kept", 30, 20)] {
            let group = temp.path().join("cgroup/apps").join(name);
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join("memory.min"), format!("{reservation}\n")).unwrap();
            fs::write(group.join("memory.current"), format!("{used}\n")).unwrap();
            watches.push(opened.watch(&group, WatchFlags::OPEN | WatchFlags::ONLYDIR));
        }
        let system = System::open(Roots::below(temp.path())).unwrap();
        let parent = CgroupPath::parse("/apps").unwrap();
        let parent = system.cgroups.open(&parent).unwrap();
        let used = |counts| siblings_use(&parent, "app", MemoryKnob::Min, counts).unwrap();
        assert_eq!((used(Counts::Used), used(Counts::Whole)), (20, 30));
        let events = opened.events().unwrap();
        let itself = |event: &&limelight_sys::inotify::Event| event.name.is_none();
        let opened: Vec<_> = events
            .iter()
            .filter(itself)
            .map(|event| event.watch)
            .collect();
        let kept = watches.pop().map(|watch| watch.unwrap());
        assert!(!opened.is_empty() && opened.iter().all(|watch| *watch == kept));
    }
}
