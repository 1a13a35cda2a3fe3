// SPDX-License-Identifier: GPL-2.0-or-later
//! What is known of the memory that apps work with. Both threads know the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use limelight_core::model::{AppKey, ProcessId};
use limelight_sys::remote_memory::AddressRange;

/// What is known of one process.
#[derive(Debug, Default)]
pub struct Footprint {
    /// Pages of files that it had mapped when it left the front.
    pub files: Vec<AddressRange>,
    /// Memory that it touched after it came to the front.
    pub hot: Vec<AddressRange>,
    /// What was in swap when it came to the front last.
    pub missed: Vec<AddressRange>,
}

/// Of all apps.
pub type Memory = BTreeMap<AppKey, BTreeMap<ProcessId, Footprint>>;

/// Shared by the threads.
pub type Footprints = Arc<Mutex<Memory>>;

/// The apps, for as long as nobody waits for a disk.
pub fn lock(footprints: &Footprints) -> MutexGuard<'_, Memory> {
    footprints.lock().unwrap_or_else(PoisonError::into_inner)
}
