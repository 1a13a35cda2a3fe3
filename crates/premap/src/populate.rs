// SPDX-License-Identifier: GPL-2.0-or-later
//! Populates memory, and counts what was populated.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Page size on every machine for which glibc's malloc has this layout.
pub const PAGE: usize = 4096;
/// `MADV_POPULATE_WRITE`, Linux 5.14.
const POPULATE_WRITE: libc::c_int = 23;
/// Default for the largest extension, in KiB.
const MAX_KIB: usize = 1024;
const MAX_NAME: &core::ffi::CStr = c"LIMELIGHT_PREMAP_MAX_KIB";

/// 0: not read yet; else bytes, plus one.
static MAX: AtomicUsize = AtomicUsize::new(0);
/// Whether the kernel lacks the advice.
static INERT: AtomicBool = AtomicBool::new(false);

/// Extensions that were populated, for the log.
pub static EXTENSIONS: AtomicUsize = AtomicUsize::new(0);
/// Their bytes.
pub static BYTES: AtomicUsize = AtomicUsize::new(0);
/// Extensions that were left alone because memory was short.
pub static SHORT: AtomicUsize = AtomicUsize::new(0);
/// Extensions that the kernel refused.
pub static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// Whether the kernel was found to lack the advice.
pub fn is_inert() -> bool {
    INERT.load(Relaxed)
}

/// Largest extension that is populated, in bytes.
fn max() -> usize {
    match MAX.load(Relaxed) {
        0 => {
            // SAFETY: the name is a string; the environment is not changed by this library.
            let value = unsafe { libc::getenv(MAX_NAME.as_ptr()) };
            let kib = if value.is_null() {
                MAX_KIB
            } else {
                // SAFETY: getenv returned a string.
                unsafe { libc::strtoul(value, core::ptr::null_mut(), 10) as usize }
            };
            let bytes = kib.min(1 << 20) << 10;
            MAX.store(bytes + 1, Relaxed);
            bytes
        }
        known => known - 1,
    }
}

/// Whether too little memory is free to populate any in advance.
fn memory_is_short() -> bool {
    // SAFETY: all-zero is a valid sysinfo, and the call fills it.
    let info = unsafe {
        let mut info: libc::sysinfo = core::mem::zeroed();
        if libc::sysinfo(&mut info) != 0 {
            return false;
        }
        info
    };
    info.freeram < info.totalram / 16
}

/// Populates the whole pages of a range. Returns the number of bytes (0 if the range was left
/// alone), or an errno. Preserves `errno` itself.
pub fn populate(start: usize, length: usize) -> Result<usize, libc::c_int> {
    let first = start.div_ceil(PAGE) * PAGE;
    let end = start.saturating_add(length) / PAGE * PAGE;
    if first >= end || end - first > max() || is_inert() {
        return Ok(0);
    }
    if memory_is_short() {
        SHORT.fetch_add(1, Relaxed);
        return Ok(0);
    }
    // SAFETY: populating changes no contents; a range that is not the caller's is refused by the
    // kernel or populated in vain. errno is this thread's own.
    let errno = unsafe {
        let place = libc::__errno_location();
        let before = *place;
        let failed = libc::madvise(first as *mut libc::c_void, end - first, POPULATE_WRITE) != 0;
        let errno = *place;
        *place = before;
        failed.then_some(errno)
    };
    match errno {
        None => {
            EXTENSIONS.fetch_add(1, Relaxed);
            BYTES.fetch_add(end - first, Relaxed);
            Ok(end - first)
        }
        Some(errno) => {
            REFUSED.fetch_add(1, Relaxed);
            if errno == libc::EINVAL && !kernel_knows_it() {
                INERT.store(true, Relaxed);
                return Ok(0);
            }
            Err(errno)
        }
    }
}

/// EINVAL may also refer to a mapping that cannot be populated; for an empty range it can only
/// refer to the advice.
fn kernel_knows_it() -> bool {
    // SAFETY: an empty range.
    unsafe { libc::madvise(core::ptr::null_mut(), 0, POPULATE_WRITE) == 0 }
}
