// SPDX-License-Identifier: GPL-2.0-or-later
//! Whether closing a disposable app costs the user more than swapping it.
//!
//! SWAP never swaps a disposable app, because it restores itself from a few bytes. But a program on
//! a desktop may take a second to start, and its memory can be read back in a fifth of that.
//! Closing costs the processor time of a start, which the first scans after the app's last start
//! have measured. Swapping costs the time to read back the memory that the app will need, and the
//! same disk time again for other apps: writing the pages out, and the pages of others that stay
//! swapped out because this app still holds memory. So swapping must be [`DEAR_TIMES`] cheaper.
//! SWAP's reason was the wear of flash; the daily write budget limits that.

use std::time::Duration;

use crate::model::apps::Known;
use crate::model::class::Class;
use crate::model::snapshot::Snapshot;

/// An app is swapped only if its start takes at least this many times as long as reading it back.
/// Chosen by measurement: at 1, the lab's `rotation` took 154 ms a launch, at 3, 145 ms.
const DEAR_TIMES: u32 = 3;

/// Hysteresis: an app that may be swapped stays so until closing it costs less than
/// 1/`STAYS_PART` of that. Without it, a small change of size would exempt the app and admit
/// it again.
const STAYS_PART: u32 = 2;

/// Whether the app is disposable, and closing it costs at least [`DEAR_TIMES`] as much as swapping
/// it. An app whose start no scan has seen is not dear.
pub fn is_dear(known: &Known, snapshot: &Snapshot) -> bool {
    let storage = &snapshot.storage;
    let disposable = known.found.class.class == Class::Disposable;
    if !disposable || !snapshot.settings.swap.by_cost || !storage.is_there() {
        return false;
    }
    let in_force = &snapshot.in_force.swapping;
    let back = storage.read_time(needed(known, snapshot));
    let back = back.saturating_mul(DEAR_TIMES);
    let is_exempt = in_force.is_exempt(known.key());
    let back = if is_exempt { back } else { back / STAYS_PART };
    let worth = |start: Duration| start > Duration::ZERO && start >= back;
    known.start().is_some_and(worth)
}

/// Bytes of its allocated memory that the app needs when it comes to the foreground. The working
/// set of an app that was never swapped is unknown. It then counts as the share that the known
/// working sets have of their apps' memory. If none is known, the app counts as needing all of it.
fn needed(known: &Known, snapshot: &Snapshot) -> u64 {
    let allocated = known.found.memory.allocated();
    let in_force = &snapshot.in_force.swapping;
    if let Some(set) = in_force.working_set(known.key()) {
        return set.min(allocated);
    }
    let others = snapshot.apps.iter().filter_map(|other| {
        let set = in_force.working_set(other.key())?;
        let all = other.found.memory.allocated();
        Some((set.min(all), all))
    });
    let (sets, all) = others.fold((0u64, 0u64), |(sets, all), (set, other)| {
        (sets.saturating_add(set), all.saturating_add(other))
    });
    match all {
        0 => allocated,
        _ => (allocated / 1024).saturating_mul(sets / 1024) / (all / 1024).max(1) * 1024,
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::{candidates, pick};
    use super::super::tests::{exempted, key, one, snapshot, with_topmost, S};
    use super::super::*;
    use super::*;
    use crate::model::storage::Storage;

    /// A disposable app of 20 MiB, which flash reads back in a second; a normal app; and the
    /// foreground app.
    fn machine(available: u64, swap: u64, start: Option<Duration>) -> Snapshot {
        let apps = [
            one(Class::Disposable, 1),
            one(Class::Normal, 2),
            one(Class::Normal, 3),
        ];
        let mut machine = with_topmost(snapshot(&apps, available, swap), 2);
        let disposable = machine.apps.remove(0);
        machine.apps.insert(
            0,
            match start {
                Some(start) => disposable.with_start(start),
                None => disposable,
            },
        );
        machine.settled = true;
        machine.settings.swap.by_cost = true;
        machine
    }

    fn exempt(machine: &Snapshot) -> bool {
        let steps = grant(&Event::Tick, machine);
        let mut exempt = steps.iter();
        exempt.any(|step| matches!(step, Step::Exempt { app, .. } if *app == key(0)))
    }

    fn squeezed(machine: &Snapshot) -> Option<AppKey> {
        let steps = grant(&Event::Tick, machine);
        steps.iter().find_map(|step| match step {
            Step::Squeeze { app, .. } => Some(*app),
            _ => None,
        })
    }

    fn killed(machine: &Snapshot) -> Option<AppKey> {
        let all = candidates(machine);
        let held: Vec<u64> = all.iter().map(|one| one.held).collect();
        let place = pick(&all, &held, &machine.shortage.situation())?;
        Some(all[place].app)
    }

    #[test]
    fn app_that_starts_fast_is_closed_and_not_swapped() {
        for start in [None, Some(Duration::ZERO), Some(S(1))] {
            let machine = machine(5, 100, start);
            assert!(exempt(&machine), "{start:?}");
            assert_eq!(squeezed(&machine), Some(key(1)), "{start:?}");
            assert_eq!(killed(&machine), Some(key(0)), "{start:?}");
        }
    }

    #[test]
    fn app_that_starts_slowly_is_swapped_and_not_closed() {
        let machine = machine(5, 100, Some(S(4)));
        assert!(!exempt(&machine));
        assert_eq!(squeezed(&machine), Some(key(0)));
        assert_eq!(killed(&machine), None);
    }

    #[test]
    fn app_that_starts_slowly_is_still_closed_before_a_normal_app() {
        let machine = machine(2, 0, Some(S(4)));
        assert_eq!(killed(&machine), Some(key(0)));
    }

    #[test]
    fn without_swap_the_start_does_not_matter() {
        let mut machine = machine(5, 0, Some(S(4)));
        machine.storage = Storage::default();
        assert!(!is_dear(&machine.apps[0], &machine));
        assert_eq!(killed(&machine), Some(key(0)));
    }

    #[test]
    fn setting_keeps_disposable_apps_out_of_swap() {
        let mut machine = machine(5, 100, Some(S(4)));
        machine.settings.swap.by_cost = false;
        assert!(exempt(&machine));
        assert_eq!(killed(&machine), Some(key(0)));
    }

    #[test]
    fn swapped_app_stays_swapped_until_closing_it_costs_half_as_much() {
        let mut machine = machine(5, 100, Some(S(2)));
        assert!(is_dear(&machine.apps[0], &machine));
        machine.in_force.swapping.exempt = exempted(&[0]);
        assert!(!is_dear(&machine.apps[0], &machine));
    }

    #[test]
    fn only_the_working_set_counts_where_it_is_known() {
        let mut machine = machine(5, 100, Some(S(1)));
        assert!(!is_dear(&machine.apps[0], &machine));
        machine.in_force.swapping.working_sets = vec![(key(0), 4 << 20)];
        assert!(is_dear(&machine.apps[0], &machine));
    }

    #[test]
    fn unknown_working_set_is_estimated_from_the_known_ones() {
        let mut machine = machine(5, 100, Some(S(1)));
        let disposable = &machine.apps[0];
        assert_eq!(needed(disposable, &machine), 20 << 20);
        // Two other apps of 20 MiB each, which need 4 and 8 MiB.
        let sets = vec![(key(1), 4 << 20), (key(2), 8 << 20)];
        machine.in_force.swapping.working_sets = sets;
        assert_eq!(needed(&machine.apps[0], &machine), 6 << 20);
        assert!(is_dear(&machine.apps[0], &machine));
    }
}
