// SPDX-License-Identifier: GPL-2.0-or-later
//! What the kernel counted.

use std::collections::BTreeMap;

use limelight_sys::proc::Proc;

const PREFIX: &str = "limelight_";

/// `limelight_*` of `/proc/vmstat`; empty on a kernel without them.
pub fn kernel() -> BTreeMap<String, u64> {
    let vmstat = Proc::open("/proc")
        .and_then(|proc| proc.vmstat())
        .unwrap_or_default();
    vmstat
        .with_prefix(PREFIX)
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
