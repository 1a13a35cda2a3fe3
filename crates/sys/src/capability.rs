// SPDX-License-Identifier: GPL-2.0-or-later
//! Doing something with less privilege than this thread has.

use rustix::thread::{capabilities, set_capabilities, CapabilitySet};

use crate::error::{Error, Result};

/// Runs `work` while this thread does not have these capabilities in effect. Other threads keep
/// theirs.
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
    fn capabilities_are_back_afterwards() {
        let before = capabilities(None).unwrap();
        let within = without(CapabilitySet::SYS_RESOURCE, || capabilities(None).unwrap()).unwrap();
        assert!(!within.effective.contains(CapabilitySet::SYS_RESOURCE));
        assert_eq!(within.permitted, before.permitted);
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
