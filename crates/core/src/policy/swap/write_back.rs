// SPDX-License-Identifier: GPL-2.0-or-later
//! Two tiers of swap: pages of a background app in zram are written back to zram's backing device,
//! so that the compressed pages take no memory, before any app is closed.
//!
//! One app's pages at a time, least recently used app first. The kernel's own rules choose pages of
//! all apps by age (`idle`, `huge`), so an app that the user is about to open could lose its pages
//! to the disk, too.

use std::time::Duration;

use crate::model::apps::Known;
use crate::model::shortage::Level;
use crate::model::snapshot::Snapshot;

use super::{is_squeezable, Step};

/// Minimum time between two write-backs of one app. After that time, more of its pages may be in
/// zram.
const AGAIN: Duration = Duration::from_secs(60);
/// Smallest and largest write-back in bytes. The kernel writes one page at a time, which takes
/// about a second for the largest write-back on an eMMC.
const LEAST: u64 = 1 << 20;
const MOST: u64 = 16 << 20;

/// Whether memory is so short that zram should take less of it. Without a shortage, reading pages
/// back from the disk would only make the next launch slower.
fn is_wanted(snapshot: &Snapshot) -> bool {
    let settings = &snapshot.settings.swap;
    let level = snapshot.shortage.level();
    let room = snapshot.storage.back_room(settings.write_budget);
    settings.write_back && room >= LEAST && level >= Level::Low
}

/// The app whose pages are written back next, with the number of bytes.
fn target(snapshot: &Snapshot) -> Option<(&Known, u64)> {
    if !is_wanted(snapshot) {
        return None;
    }
    let in_force = &snapshot.in_force.swapping;
    let now = snapshot.now();
    let lately = |known: &Known| {
        let mut all = in_force.written_back.iter();
        all.any(|(app, at)| *app == known.key() && now.saturating_sub(*at) < AGAIN)
    };
    let budget = snapshot.settings.swap.write_budget;
    let most = MOST.min(snapshot.storage.back_room(budget));
    let mut apps = snapshot.apps.iter();
    let known = apps.find(|known| {
        let enough = known.found.memory.swapped >= LEAST;
        enough && !lately(known) && is_squeezable(known, snapshot)
    })?;
    Some((known, known.found.memory.swapped.min(most)))
}

/// Whether pages are being written back or will be, so that no app needs to be closed yet.
pub(super) fn is_pending(snapshot: &Snapshot) -> bool {
    let under_way = snapshot.in_force.swapping.writing_back.is_some();
    (is_wanted(snapshot) && under_way) || target(snapshot).is_some()
}

/// Plans a write-back. While the user waits, the disk is left to the foreground app, unless apps
/// would have to be killed.
pub(super) fn step(snapshot: &Snapshot) -> Option<Step> {
    let in_force = &snapshot.in_force.swapping;
    let busy = in_force.writing_back.is_some() || in_force.squeezing.is_some();
    let level = snapshot.shortage.level();
    if busy || (!snapshot.settled && level < Level::Kill) {
        return None;
    }
    let (known, bytes) = target(snapshot)?;
    Some(Step::WriteBack {
        app: known.key(),
        members: known.found.members.clone(),
        bytes,
        rule: format!(
            "memory is short ({} MiB available), and zram takes {} MiB of it; it was used longest \
             ago",
            snapshot.memory.available >> 20,
            snapshot.storage.compressed.taken >> 20
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::order::{candidates, pick};
    use super::super::tests::{key, one, snapshot, with_topmost, MIB, S};
    use super::super::{grant, Event};
    use super::*;
    use crate::model::app::AppKey;
    use crate::model::class::Class;
    use crate::model::storage::{Area, Medium};

    /// Bytes of each app that are in zram.
    const SWAPPED: u64 = 10 * MIB;

    /// A machine at level *kill*, with two apps in zram, a disposable app and the foreground app.
    fn machine() -> Snapshot {
        let apps = [
            one(Class::Disposable, 1),
            one(Class::Normal, 2),
            one(Class::Keep, 3),
            one(Class::Normal, 4),
        ];
        let mut machine = with_topmost(snapshot(&apps, 5, 100), 3);
        machine.settled = true;
        machine.storage.areas = vec![Area {
            medium: Medium::Zram,
            size: 128 * MIB,
            used: 28 * MIB,
        }];
        machine.storage.backed = true;
        for known in &mut machine.apps {
            // Apps that seemed to have grown would be closed as leaks.
            known.found.memory.anonymous -= SWAPPED;
            known.found.memory.swapped += SWAPPED;
        }
        assert_eq!(machine.shortage.level(), Level::Kill);
        machine
    }

    fn written(machine: &Snapshot) -> Option<(AppKey, u64)> {
        let steps = grant(&Event::Tick, machine);
        steps.iter().find_map(|step| match step {
            Step::WriteBack { app, bytes, .. } => Some((*app, *bytes)),
            _ => None,
        })
    }

    fn kills(machine: &Snapshot) -> bool {
        let all = candidates(machine);
        let held: Vec<u64> = all.iter().map(|one| one.held).collect();
        pick(&all, &held, &machine.shortage.situation()).is_some()
    }

    #[test]
    fn apps_are_written_back_in_turn_before_any_app_is_closed() {
        let mut machine = machine();
        assert_eq!(written(&machine), Some((key(1), SWAPPED)));
        assert!(!kills(&machine));
        machine.in_force.swapping.writing_back = Some(key(1));
        assert_eq!(written(&machine), None);
        assert!(!kills(&machine));
        machine.in_force.swapping.writing_back = None;
        machine.in_force.swapping.written_back = vec![(key(1), S(999))];
        assert_eq!(written(&machine), Some((key(2), SWAPPED)));
        machine
            .in_force
            .swapping
            .written_back
            .push((key(2), S(999)));
        assert_eq!(written(&machine), None);
        assert!(kills(&machine), "no more pages can be written back");
    }

    #[test]
    fn nothing_is_written_back_without_need_or_permission() {
        let edits: [fn(&mut Snapshot); 5] = [
            |machine| machine.storage.backed = false,
            |machine| machine.settings.swap.write_back = false,
            |machine| machine.storage.written = machine.settings.swap.write_budget,
            |machine| machine.in_force.swapping.squeezing = Some(key(1)),
            |machine| {
                for known in &mut machine.apps {
                    known.found.memory.swapped = 0;
                }
            },
        ];
        for (number, edit) in edits.iter().enumerate() {
            let mut machine = machine();
            edit(&mut machine);
            assert_eq!(written(&machine), None, "{number}");
        }
        let mut plenty = snapshot(&[one(Class::Normal, 1)], 100, 100);
        plenty.storage.backed = true;
        plenty.settled = true;
        plenty.apps[0].found.memory.swapped = 30 * MIB;
        assert_eq!(written(&plenty), None);
    }

    #[test]
    fn exhausted_memory_does_not_wait_for_the_disk() {
        let machine = machine();
        let all = candidates(&machine);
        let held: Vec<u64> = all.iter().map(|one| one.held).collect();
        let mut now = machine.shortage.situation();
        now.level = Level::Exhausted;
        assert!(pick(&all, &held, &now).is_some());
    }
}
