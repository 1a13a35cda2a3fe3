// SPDX-License-Identifier: GPL-2.0-or-later
//! Footprints of apps: the memory that each app needs. Both threads of the swapper share them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use limelight_core::model::{AppKey, ProcessId};
use limelight_sys::remote_memory::AddressRange;

/// The footprint of one process.
#[derive(Debug, Default)]
pub struct Footprint {
    /// Whether its app has left the foreground since the process was first seen there. Until then,
    /// most of what it maps it needed only in order to start.
    pub left: bool,
    /// File pages that it had mapped a moment after its last return to the foreground.
    pub files: Vec<AddressRange>,
    /// Memory that it touched after its app became topmost.
    pub hot: Vec<AddressRange>,
    /// Memory that was in swap when its app last became topmost.
    pub missed: Vec<AddressRange>,
}

/// The footprints of all apps.
pub type Memory = BTreeMap<AppKey, BTreeMap<ProcessId, Footprint>>;

/// The footprints as both threads share them.
pub type Footprints = Arc<Mutex<Memory>>;

/// Locks the footprints. The lock must not be held during a scan of a process or while
/// waiting for a disk.
pub fn lock(footprints: &Footprints) -> MutexGuard<'_, Memory> {
    footprints.lock().unwrap_or_else(PoisonError::into_inner)
}
