// SPDX-License-Identifier: GPL-2.0-or-later
//! Which user takes the memory, as of now.
//!
//! A scan is up to seconds old when memory runs out, and a user may have started, or moved to
//! another cgroup, the process that took it. The charges of the users' slices show the growth since
//! the scan, whichever process it is.

use std::sync::Arc;

use limelight_core::policy::swap::culprit::most_taken;
use limelight_sys::persistent_file::PersistentFile;

use crate::mechanisms::swap::guard::target::first_number;
use crate::sources::services::user_slice;
use crate::system::System;

/// The growth of each user.
#[derive(Debug, Default)]
pub struct Takers(Vec<Taker>);

#[derive(Debug)]
struct Taker {
    slice: Arc<Slice>,
    /// The user's growth as of the last scan, in bytes.
    taken: u64,
    /// Bytes that were charged to the slice at that scan, and that are charged now. They include
    /// page cache, of which little is left when memory is short.
    charged: u64,
    charged_now: u64,
}

/// The open files of a user's slice.
#[derive(Debug)]
pub struct Slice {
    uid: u32,
    /// `memory.current`.
    current: PersistentFile,
    /// `memory.swap.current`; `None`: swap is not accounted.
    swapped: Option<PersistentFile>,
}

impl Slice {
    fn open(system: &System, uid: u32) -> Option<Slice> {
        let slice = user_slice(system, uid)?;
        let open = |file| PersistentFile::open(slice.dir(), file).ok();
        Some(Slice {
            uid,
            current: open("memory.current")?,
            swapped: open("memory.swap.current"),
        })
    }

    /// Bytes that are charged to the slice; `None` once the slice has been removed.
    fn charge(&self) -> Option<u64> {
        let swapped = self.swapped.as_ref().and_then(first_number);
        Some(first_number(&self.current)?.saturating_add(swapped.unwrap_or(0)))
    }
}

/// Opens the slices of these users, unless they are open already. One user alone needs none: no
/// other user's app needs to be spared.
pub fn open_slices(system: &System, open: &mut Vec<Arc<Slice>>, taken: &[(u32, u64)]) {
    let users = if taken.len() < 2 { &[][..] } else { taken };
    open.retain(|slice| {
        let followed = users.iter().any(|(uid, _)| *uid == slice.uid);
        followed && slice.charge().is_some()
    });
    for (uid, _) in users {
        if !open.iter().any(|slice| slice.uid == *uid) {
            open.extend(Slice::open(system, *uid).map(Arc::new));
        }
    }
}

impl Takers {
    /// The growth of the users with these slices. `taken`: each user's growth in bytes as of a scan
    /// that has just ended.
    pub fn new(slices: &[Arc<Slice>], taken: &[(u32, u64)]) -> Takers {
        let takers = slices.iter().filter_map(|slice| {
            let (_, taken) = taken.iter().find(|(uid, _)| *uid == slice.uid)?;
            let charged = slice.charge()?;
            Some(Taker {
                slice: Arc::clone(slice),
                taken: *taken,
                charged,
                charged_now: charged,
            })
        });
        Takers(takers.collect())
    }

    /// Reads the charges. Allocates nothing.
    pub fn measure(&mut self) {
        for taker in &mut self.0 {
            taker.charged_now = taker.slice.charge().unwrap_or(0);
        }
    }

    /// The user who takes the memory, as of the last measurement. `total`: the memory that apps can
    /// use, in bytes. Allocates nothing.
    pub fn most(&self, total: u64) -> Option<u32> {
        let grown = |taker: &Taker| {
            let since = taker.charged_now.saturating_sub(taker.charged);
            (taker.slice.uid, taker.taken.saturating_add(since))
        };
        most_taken(self.0.iter().map(grown), total)
    }
}
