// SPDX-License-Identifier: GPL-2.0-or-later
//! A stock kernel's knobs for protecting an app's memory, set by hand.

use anyhow::{Context, Result};

use crate::cgroup::Cgroup;
use crate::guest_setup;
use crate::plan::Arm;

/// Reservation as a percentage of the app's charge. The value is generous: MGLRU spares a cgroup
/// whose charge is below `memory.min`, but reclaims from all of a cgroup whose charge is above it.
const RESERVE_PERCENT: u64 = 160;

/// Sets the arm's knob on the app's cgroup and its ancestors, for an app with a charge of
/// `charge_bytes`. A no-op in arms without a knob.
pub fn set(arm: Arm, app: Option<&Cgroup>, charge_bytes: u64) -> Result<()> {
    let Some(file) = file(arm, guest_setup::mglru()) else {
        return Ok(());
    };
    let bytes = charge_bytes * RESERVE_PERCENT / 100;
    app.context("hand-set knobs need a cgroup for the app")?
        .set_chain(file, &bytes.to_string())
}

/// The knob of an arm. MGLRU does not honour memory.low in global reclaim.
fn file(arm: Arm, mglru: bool) -> Option<&'static str> {
    match arm {
        Arm::MemoryLow => Some("memory.low"),
        Arm::MemoryMin => Some("memory.min"),
        Arm::BestStock if mglru => Some("memory.min"),
        Arm::BestStock => Some("memory.low"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::file;
    use crate::plan::Arm;

    #[test]
    fn best_knob_depends_on_page_replacement() {
        assert_eq!(file(Arm::BestStock, true), Some("memory.min"));
        assert_eq!(file(Arm::BestStock, false), Some("memory.low"));
        assert_eq!(file(Arm::MemoryLow, true), Some("memory.low"));
        assert_eq!(file(Arm::Limelight, true), None);
    }
}
