// SPDX-License-Identifier: GPL-2.0-or-later
//! Counters of mechanisms: the kernel's and limelightd's.

use std::collections::BTreeMap;

use limelight_proto::Status;
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

/// Counters of one mechanism, without its name: the kernel's first, then limelightd's.
pub fn of(status: &Status, kernel: &BTreeMap<String, u64>, mechanism: &str) -> Vec<(String, u64)> {
    let prefix = format!("{PREFIX}{mechanism}_");
    let in_kernel = kernel
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(&prefix)?.to_owned(), *value)));
    let own = status
        .mechanisms
        .iter()
        .filter(|one| one.name == mechanism)
        .flat_map(|one| one.counters.clone());
    in_kernel.chain(own).collect()
}
