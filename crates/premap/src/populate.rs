// SPDX-License-Identifier: GPL-2.0-or-later
//! Populates memory and counts the results.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Page size in bytes. glibc's malloc has the layout that [`crate::hooks`] expects only on machines
/// with this page size.
pub const PAGE: usize = 4096;
/// `MADV_POPULATE_WRITE`, Linux 5.14.
const POPULATE_WRITE: libc::c_int = 23;
/// Default of the largest extension that is populated, in KiB.
const MAX_KIB: usize = 1024;
const MAX_NAME: &core::ffi::CStr = c"LIMELIGHT_PREMAP_MAX_KIB";

/// Largest extension that is populated, in bytes, plus one; 0: not read from the environment yet.
static MAX: AtomicUsize = AtomicUsize::new(0);
/// Whether the kernel lacks `MADV_POPULATE_WRITE`.
static INERT: AtomicBool = AtomicBool::new(false);

/// Number of populated extensions, for the log.
pub static EXTENSIONS: AtomicUsize = AtomicUsize::new(0);
/// Number of populated bytes, for the log.
pub static BYTES: AtomicUsize = AtomicUsize::new(0);
/// Number of extensions skipped because memory was short, for the log.
pub static SHORT: AtomicUsize = AtomicUsize::new(0);
/// Number of extensions that the kernel refused, for the log.
pub static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// Whether the kernel is known to lack `MADV_POPULATE_WRITE`.
pub fn is_inert() -> bool {
    INERT.load(Relaxed)
}

/// Largest extension that is populated, in bytes.
fn max() -> usize {
    match MAX.load(Relaxed) {
        0 => {
            // SAFETY: the name is a C string, and this library does not change the environment.
            let value = unsafe { libc::getenv(MAX_NAME.as_ptr()) };
            let kib = if value.is_null() {
                MAX_KIB
            } else {
                // SAFETY: getenv returned a C string.
                unsafe { libc::strtoul(value, core::ptr::null_mut(), 10) as usize }
            };
            let bytes = kib.min(1 << 20) << 10;
            MAX.store(bytes + 1, Relaxed);
            bytes
        }
        known => known - 1,
    }
}

/// Whether too little memory is free to populate memory in advance.
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

/// Populates the whole pages of a range. Returns the number of populated bytes (0 if the range was
/// skipped), or an errno. Preserves the variable `errno`.
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
    // SAFETY: populating changes no contents, even of memory that does not belong to the caller;
    // for unmapped memory the kernel returns an error. errno belongs to this thread.
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
            if errno == libc::EINVAL && !is_supported() {
                INERT.store(true, Relaxed);
                return Ok(0);
            }
            Err(errno)
        }
    }
}

/// Whether the kernel has `MADV_POPULATE_WRITE`. For a range, EINVAL may also mean that a mapping
/// cannot be populated; for an empty range it can only mean that the advice is unknown.
fn is_supported() -> bool {
    // SAFETY: an empty range.
    unsafe { libc::madvise(core::ptr::null_mut(), 0, POPULATE_WRITE) == 0 }
}
