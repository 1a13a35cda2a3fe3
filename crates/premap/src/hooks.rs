// SPDX-License-Identifier: GPL-2.0-or-later
//! Wrappers of the C library's functions that grow heaps, and the function for other allocators.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use libc::{c_int, c_long, c_void, off_t, size_t};

use crate::populate::{populate, PAGE};

extern "C" {
    fn __libc_malloc(size: size_t) -> *mut c_void;
    fn __libc_calloc(count: size_t, size: size_t) -> *mut c_void;
    fn __libc_realloc(memory: *mut c_void, size: size_t) -> *mut c_void;
    fn __sbrk(increment: isize) -> *mut c_void;
    /// glibc's program break; null before its first use.
    static __curbrk: *mut c_void;
}

/// Flag in the word before a chunk: the chunk has a mapping of its own.
const IS_MMAPPED: usize = 2;
/// Flag in the word before a chunk: the chunk belongs to a thread's arena.
const IN_ARENA: usize = 4;
/// All flags in that word; the other bits are the chunk's size.
const FLAGS: usize = 7;
/// Alignment of arenas in bytes (HEAP_MAX_SIZE on 64-bit machines).
const ARENA: usize = 64 << 20;
/// Minimum number of bytes for which one system call costs less than the faults.
const WORTH_A_CALL: usize = 4 * PAGE;
/// Maximum number of tracked arenas, and maximum number of tracked reservations.
const REMEMBERED: usize = 64;

/// The program break at the last check; 0 before the first check.
static LAST_BREAK: AtomicUsize = AtomicUsize::new(0);

/// End of the highest chunk seen in each arena, rounded up to a page. The index is the arena's
/// number modulo [`REMEMBERED`].
static FRONTIERS: [AtomicUsize; REMEMBERED] = [const { AtomicUsize::new(0) }; REMEMBERED];

/// First and last address of each range that was reserved without access (`PROT_NONE`).
static RESERVED: [[AtomicUsize; 2]; REMEMBERED] =
    [const { [const { AtomicUsize::new(0) }; 2] }; REMEMBERED];
static NEXT_RESERVED: AtomicUsize = AtomicUsize::new(0);

/// Populates the growth of the heap since the last check.
fn check_break() {
    // SAFETY: reads one word that glibc writes under its own lock. A stale value is corrected by
    // the next check.
    let now = unsafe { core::ptr::read_volatile(&raw const __curbrk) } as usize;
    let last = LAST_BREAK.load(Relaxed);
    if now == last {
        return;
    }
    let mine = LAST_BREAK
        .compare_exchange(last, now, Relaxed, Relaxed)
        .is_ok();
    if mine && last != 0 && now > last {
        // Memory that cannot be populated is faulted in as usual.
        let _ = populate(last, now - last);
    }
}

/// Populates the memory of a new chunk outside the main heap. `zeroed`: the chunk comes from
/// `calloc`, which does not touch fresh mappings.
fn check_chunk(memory: *mut c_void, zeroed: bool) {
    if memory.is_null() {
        return;
    }
    // SAFETY: the word before a chunk contains its size and flags; malloc has just written it.
    let header = unsafe { *memory.cast::<usize>().sub(1) };
    if header & (IS_MMAPPED | IN_ARENA) == 0 {
        return;
    }
    let start = memory as usize;
    let size = header & !FLAGS;
    if header & IS_MMAPPED != 0 {
        if !zeroed {
            let _ = populate(start / PAGE * PAGE, size);
        }
        return;
    }
    let arena = start / ARENA;
    let Some(frontier) = FRONTIERS.get(arena % REMEMBERED) else {
        return;
    };
    // glibc commits whole pages, so the memory is writable up to here.
    let end = (start + size).div_ceil(PAGE) * PAGE;
    let before = frontier.load(Relaxed);
    let same = before / ARENA == arena;
    if same && end <= before {
        return;
    }
    frontier.store(end, Relaxed);
    // glibc commits arenas page by page, and one call per page would be no cheaper than the faults.
    if same && end - before >= WORTH_A_CALL {
        let _ = populate(before, end - before);
    }
}

fn grown(memory: *mut c_void) -> *mut c_void {
    check_break();
    check_chunk(memory, false);
    memory
}

/// Wraps `malloc`.
///
/// # Safety
///
/// The same as for the C library's `malloc`.
#[no_mangle]
pub unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    // SAFETY: as the caller promises.
    grown(unsafe { __libc_malloc(size) })
}

/// Wraps `calloc`.
///
/// # Safety
///
/// The same as for the C library's `calloc`.
#[no_mangle]
pub unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    // SAFETY: as the caller promises.
    let memory = unsafe { __libc_calloc(count, size) };
    check_break();
    check_chunk(memory, true);
    memory
}

/// Wraps `realloc`.
///
/// # Safety
///
/// The same as for the C library's `realloc`.
#[no_mangle]
pub unsafe extern "C" fn realloc(memory: *mut c_void, size: size_t) -> *mut c_void {
    // SAFETY: as the caller promises.
    grown(unsafe { __libc_realloc(memory, size) })
}

/// Wraps `sbrk`.
///
/// # Safety
///
/// The same as for the C library's `sbrk`.
#[no_mangle]
pub unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    // SAFETY: as the caller promises.
    let before = unsafe { __sbrk(increment) };
    check_break();
    before
}

/// Wraps `mmap`.
///
/// # Safety
///
/// The same as for the C library's `mmap`.
#[no_mangle]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: as the caller promises.
    let start = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            address,
            length,
            protection,
            flags,
            file,
            offset,
        )
    } as *mut c_void;
    let ours = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let not_heap = libc::MAP_GROWSDOWN
        | libc::MAP_STACK
        | libc::MAP_HUGETLB
        | libc::MAP_POPULATE
        | libc::MAP_LOCKED;
    if start != libc::MAP_FAILED && flags & (ours | not_heap) == ours {
        if protection == libc::PROT_NONE {
            reserve(start as usize, length);
        } else if protection & libc::PROT_WRITE != 0 && flags & libc::MAP_NORESERVE == 0 {
            let _ = populate(start as usize, length);
        }
    }
    start
}

/// Wraps `mmap64`, which equals `mmap` on 64-bit machines.
///
/// # Safety
///
/// The same as for the C library's `mmap64`.
#[no_mangle]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: as the caller promises.
    unsafe { mmap(address, length, protection, flags, file, offset) }
}

/// Wraps `mprotect`.
///
/// # Safety
///
/// The same as for the C library's `mprotect`.
#[no_mangle]
pub unsafe extern "C" fn mprotect(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    let result = unsafe { libc::syscall(libc::SYS_mprotect, address, length, protection) };
    if result == 0 && protection & libc::PROT_WRITE != 0 && is_reserved(address as usize, length) {
        let _ = populate(address as usize, length);
    }
    result as c_int
}

fn reserve(start: usize, length: usize) {
    let slot = NEXT_RESERVED.fetch_add(1, Relaxed) % REMEMBERED;
    if let Some([first, last]) = RESERVED.get(slot) {
        // The range is empty between the stores, so no reader sees a mix of two ranges.
        last.store(0, Relaxed);
        first.store(start, Relaxed);
        last.store(start + length.saturating_sub(1), Relaxed);
    }
}

/// Whether the range is part of a recorded reservation. Any other memory that becomes writable is
/// not populated, because it may map a file.
fn is_reserved(start: usize, length: usize) -> bool {
    let end = start + length.saturating_sub(1);
    RESERVED
        .iter()
        .any(|[first, last]| first.load(Relaxed) <= start && end <= last.load(Relaxed))
}

/// The function for allocators, as declared in `include/limelight-premap.h`.
#[no_mangle]
pub extern "C" fn limelight_premap(start: *mut c_void, length: size_t) -> c_long {
    match populate(start as usize, length) {
        Ok(bytes) => bytes as c_long,
        Err(errno) => {
            // SAFETY: errno belongs to this thread.
            unsafe { *libc::__errno_location() = errno };
            -1
        }
    }
}
