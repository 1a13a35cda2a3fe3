// SPDX-License-Identifier: GPL-2.0-or-later
//! Which user takes the memory, as of now.
//!
//! A scan is up to seconds old when memory runs out, and a user may have started, or moved to
//! another cgroup, the process that took it. The charges of the users' slices show the growth since
//! the scan, whichever process it is.

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
    uid: u32,
    /// `memory.current` of the user's slice.
    current: PersistentFile,
    /// `memory.swap.current`; `None`: swap is not accounted.
    swapped: Option<PersistentFile>,
    /// The user's growth as of the last scan, in bytes.
    taken: u64,
    /// Bytes that were charged to the slice at that scan, and that are charged now. They include
    /// page cache, of which little is left when memory is short.
    charged: u64,
    charged_now: u64,
}

impl Taker {
    fn open(system: &System, uid: u32) -> Option<Taker> {
        let slice = user_slice(system, uid)?;
        let open = |file| PersistentFile::open(slice.dir(), file).ok();
        Some(Taker {
            uid,
            current: open("memory.current")?,
            swapped: open("memory.swap.current"),
            taken: 0,
            charged: 0,
            charged_now: 0,
        })
    }

    /// Bytes that are charged to the slice; `None` once the slice has been removed.
    fn charge(&self) -> Option<u64> {
        let swapped = self.swapped.as_ref().and_then(first_number);
        Some(first_number(&self.current)?.saturating_add(swapped.unwrap_or(0)))
    }
}

impl Takers {
    /// Follows these users, given their growth in bytes as of a scan that has just ended. One user
    /// alone is not followed: no other user's app needs to be spared.
    pub fn follow(&mut self, system: &System, taken: &[(u32, u64)]) {
        let mut before = std::mem::take(&mut self.0);
        if taken.len() < 2 {
            return;
        }
        for (uid, taken) in taken {
            let place = before.iter().position(|taker| taker.uid == *uid);
            let known = place.map(|place| before.swap_remove(place));
            let known = known.filter(|known| known.charge().is_some());
            let Some(mut taker) = known.or_else(|| Taker::open(system, *uid)) else {
                continue;
            };
            taker.taken = *taken;
            taker.charged = taker.charge().unwrap_or(0);
            taker.charged_now = taker.charged;
            self.0.push(taker);
        }
    }

    /// Reads the charges. Allocates nothing.
    pub fn measure(&mut self) {
        for taker in &mut self.0 {
            taker.charged_now = taker.charge().unwrap_or(0);
        }
    }

    /// The user who takes the memory, as of the last measurement. `total`: the memory that apps can
    /// use, in bytes. Allocates nothing.
    pub fn most(&self, total: u64) -> Option<u32> {
        let grown = |taker: &Taker| {
            let since = taker.charged_now.saturating_sub(taker.charged);
            (taker.uid, taker.taken.saturating_add(since))
        };
        most_taken(self.0.iter().map(grown), total)
    }
}
