// SPDX-License-Identifier: GPL-2.0-or-later
//! What is known of the memory that apps work with, shared by both threads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use limelight_core::model::{AppKey, ProcessId};
use limelight_sys::remote_memory::AddressRange;

/// What is known of one process.
#[derive(Debug, Default)]
pub struct Footprint {
    /// File pages that it had mapped when it left the foreground.
    pub files: Vec<AddressRange>,
    /// Memory that it touched after it became topmost.
    pub hot: Vec<AddressRange>,
    /// What was in swap when it last became topmost.
    pub missed: Vec<AddressRange>,
}

/// The footprints of all apps.
pub type Memory = BTreeMap<AppKey, BTreeMap<ProcessId, Footprint>>;

/// Shared by the threads.
pub type Footprints = Arc<Mutex<Memory>>;

/// Locks the footprints; not to be held while waiting for a disk.
pub fn lock(footprints: &Footprints) -> MutexGuard<'_, Memory> {
    footprints.lock().unwrap_or_else(PoisonError::into_inner)
}
