// SPDX-License-Identifier: GPL-2.0-or-later
//! Size of the reservation.
//!
//! The size is a sum of three terms, limited by the budget:
//!
//! - Memory that the app holds ([`Usage::held`]: heap, mappings, kernel memory, and swapped memory)
//!   counts in full.
//! - Page cache that the app has read but not mapped may be needed again (a photo) or not (a film).
//!   It counts up to half of the budget, and only as far as available memory exceeds the swap
//!   threshold. Refaulted bytes, which prove that the app needs the page cache, are added to this
//!   limit.
//! - Headroom for growth until the next measurement. While the app grows, it is measured often
//!   ([`follow`]).
//!
//! Each step of the pressure model removes a quarter.
//!
//! # The ancestors' part
//!
//! A reservation takes effect only as far as every ancestor reserves as much. If the cgroup file
//! system is mounted with `memory_recursiveprot`, as systemd does, the part of an ancestor's
//! reservation that no child uses protects the app's siblings (`effective_protection()` in
//! mm/page_counter.c). While an app returns from swap, most of its reservation is unused, although
//! its siblings must give up memory. The siblings' last pages would be as hard to reclaim as the
//! app's, and the OOM killer would kill a process. So while memory is short, the ancestors reserve
//! only what the app uses plus a little, and this amount is updated as the usage changes.
//!
//! [`Usage::held`]: crate::model::footprint::Usage::held

use super::Step;
use crate::model::app::AppKey;
use crate::model::footprint::Footprint;
use crate::model::pressure::STEPS;
use crate::model::shortage::Level;
use crate::model::snapshot::{Knob, Reserved, Snapshot};

/// Reservations are multiples of this many bytes, so that small changes of the usage cause no
/// write. Every page size divides it, so the kernel reports the written value unchanged.
pub const GRAIN: u64 = 1 << 20;

/// Smallest headroom for growth until the next measurement, in bytes.
const HEADROOM: u64 = 8 << 20;

/// Reciprocal of the share of memory that the ancestors reserve beyond the app's usage, because
/// reclaim may take memory that is charged above their reservation. It is a share and not a fixed
/// size, because apps on a large machine grow faster.
const SPARE_PART: u64 = 64;

/// The reservation for the app, if it differs from the one in force.
pub fn reserve(snapshot: &Snapshot, app: AppKey, footprint: Option<&Footprint>) -> Option<Step> {
    let knob = snapshot.lru.knob();
    let current = snapshot
        .in_force
        .reserved
        .filter(|reserved| reserved.app == app && reserved.knob == knob);
    // The first reservation enables the memory controller; before that there are no counters.
    let unmeasured = Footprint::default();
    let footprint = footprint.unwrap_or(&unmeasured);
    let size = Size::of(footprint, snapshot);
    let bytes = match current {
        // For a shrinking app, the reservation is lowered slowly: by an eighth at a time, and only
        // while the app needs at most three quarters of it. The app may need the memory again. A
        // smaller budget, a step of pressure, and `tight` take effect at once.
        Some(reserved)
            if size.bytes < reserved.bytes && reserved.bytes <= size.limit && !size.tight =>
        {
            match size.bytes > reserved.bytes / 4 * 3 {
                true => reserved.bytes,
                false => size.bytes.max(round(reserved.bytes / 8 * 7)),
            }
        }
        _ => size.bytes,
    };
    let used = footprint.usage.current;
    let reserve = Reserved {
        app,
        knob,
        bytes,
        carried: carried(snapshot, bytes, used, current),
    };
    let none = Reserved {
        bytes: 0,
        carried: 0,
        ..reserve
    };
    (current.unwrap_or(none) != reserve).then(|| Step::Reserve {
        reserve,
        rule: size.rule(knob),
    })
}

/// The step for a topmost app whose footprint alone was measured again: raises the reservation, and
/// updates the ancestors' part. `None` if neither need change. The reservation is not lowered here,
/// because that depends on the memory of the whole machine.
pub fn follow(snapshot: &Snapshot) -> Option<Step> {
    let topmost = snapshot.topmost.as_ref()?;
    let of_topmost = |reserved: &Reserved| reserved.app == topmost.app.key;
    let current = snapshot.in_force.reserved.filter(of_topmost)?;
    let footprint = topmost.protected()?;
    let size = Size::of(&footprint, snapshot);
    let bytes = size.bytes.max(current.bytes);
    let reserve = Reserved {
        bytes,
        carried: carried(snapshot, bytes, footprint.usage.current, Some(current)),
        ..current
    };
    (reserve != current).then(|| Step::Reserve {
        reserve,
        rule: size.rule(current.knob),
    })
}

/// The ancestors' part of a reservation of `bytes` for an app that uses `used` bytes.
fn carried(snapshot: &Snapshot, bytes: u64, used: u64, current: Option<Reserved>) -> u64 {
    if !is_tight(snapshot) {
        return bytes;
    }
    let spare = spare(snapshot);
    let fits = |carried: u64| {
        let least = used.saturating_add(spare / 2).min(bytes);
        let most = used.saturating_add(spare * 2).min(bytes);
        (least..=most).contains(&carried)
    };
    let current = current.map(|reserved| reserved.carried);
    current.filter(|carried| fits(*carried)).unwrap_or_else(|| {
        let wanted = used.saturating_add(spare);
        wanted.next_multiple_of(GRAIN).min(bytes)
    })
}

/// Whether the ancestors must not reserve more than the app needs: memory is short, and the unused
/// part would protect siblings.
fn is_tight(snapshot: &Snapshot) -> bool {
    snapshot.recursive_protection && snapshot.shortage.level() > Level::Plenty
}

fn spare(snapshot: &Snapshot) -> u64 {
    (snapshot.shortage.thresholds().total / SPARE_PART).max(HEADROOM)
}

/// Rounds down to whole grains.
pub fn round(bytes: u64) -> u64 {
    bytes / GRAIN * GRAIN
}

/// Terms of a reservation's size, in bytes.
struct Size {
    held: u64,
    reads: u64,
    headroom: u64,
    /// Budget, reduced by the steps of pressure.
    limit: u64,
    /// Whether other apps would be swapped for the page cache that the app keeps.
    tight: bool,
    steps: u8,
    bytes: u64,
}

impl Size {
    fn of(footprint: &Footprint, snapshot: &Snapshot) -> Size {
        let usage = &footprint.usage;
        let budget = snapshot.budget();
        let steps = snapshot.lowered_steps.min(STEPS);
        let left = u64::from(STEPS - steps);
        let held = usage.held();
        let available = snapshot.memory.available;
        let short = snapshot.shortage.thresholds().swap;
        // Cached reads that never refaulted may come from a file copy and never be needed again. No
        // other app is swapped or closed for them.
        let unproven = (budget / 2).min(available.saturating_sub(short));
        let reads = usage
            .cached_reads()
            .min(unproven.saturating_add(footprint.refaulted));
        let headroom = (held / 4)
            .max(footprint.growth.saturating_mul(2))
            .max(HEADROOM);
        let full = held
            .saturating_add(reads)
            .saturating_add(headroom)
            .min(budget);
        let steps_of = |bytes: u64| round(bytes / u64::from(STEPS) * left);
        Size {
            held,
            reads,
            headroom,
            limit: steps_of(budget),
            tight: available.saturating_sub(snapshot.kept_cache) < short,
            steps,
            bytes: steps_of(full),
        }
    }

    fn rule(&self, knob: Knob) -> String {
        let mib = |bytes: u64| bytes >> 20;
        let mut rule = format!(
            "protect: {} of the foreground app = {} MiB held + {} MiB of cached reads + {} MiB \
             headroom, at most {} MiB",
            knob.file(),
            mib(self.held),
            mib(self.reads),
            mib(self.headroom),
            mib(self.limit),
        );
        if self.steps > 0 {
            rule.push_str(&format!(
                "; lowered by {}/{STEPS} because the machine has no other memory left",
                self.steps
            ));
        }
        rule
    }
}
