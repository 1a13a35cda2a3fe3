// SPDX-License-Identifier: GPL-2.0-or-later
//! Capabilities of this thread: queries them, and runs code without some of them.

use rustix::thread::{capabilities, set_capabilities, CapabilitySet};

use crate::error::{Error, Result};

/// Whether this thread may access raw devices and memory (`CAP_SYS_RAWIO`).
pub fn has_raw_io() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RAWIO))
}

/// Runs `work` with these capabilities removed from this thread's effective set, and then restores
/// the set. Other threads keep their capabilities.
pub(crate) fn without<T>(dropped: CapabilitySet, work: impl FnOnce() -> T) -> Result<T> {
    let failed = |errno| Error::new("change", "this thread's capabilities", errno);
    let before = capabilities(None).map_err(failed)?;
    if !before.effective.intersects(dropped) {
        return Ok(work());
    }
    let mut less = before;
    less.effective.remove(dropped);
    set_capabilities(None, less).map_err(failed)?;
    let done = work();
    set_capabilities(None, before).map_err(failed)?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_io_is_read_from_the_effective_set() {
        let within = without(CapabilitySet::SYS_RAWIO, has_raw_io).unwrap();
        assert!(!within);
        let all = capabilities(None).unwrap().effective;
        assert_eq!(has_raw_io(), all.contains(CapabilitySet::SYS_RAWIO));
    }

    #[test]
    fn capabilities_are_restored_afterwards() {
        let before = capabilities(None).unwrap();
        let within = without(CapabilitySet::SYS_RESOURCE, || capabilities(None).unwrap()).unwrap();
        assert!(!within.effective.contains(CapabilitySet::SYS_RESOURCE));
        assert_eq!(within.permitted, before.permitted);
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
