// SPDX-License-Identifier: GPL-2.0-or-later
//! The C library's functions through which heaps grow, and the one call for allocators.

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

/// In the word before a chunk: it is a mapping of its own.
const IS_MMAPPED: usize = 2;
/// It belongs to a thread's arena.
const IN_ARENA: usize = 4;
const FLAGS: usize = 7;
/// Arenas begin at multiples of this (HEAP_MAX_SIZE on 64-bit machines).
const ARENA: usize = 64 << 20;
/// Bytes for which a system call costs less than the faults.
const WORTH_A_CALL: usize = 4 * PAGE;
/// Arenas and reservations that are remembered.
const REMEMBERED: usize = 64;

/// The break when it was looked at last; 0: never.
static LAST_BREAK: AtomicUsize = AtomicUsize::new(0);

/// Where the memory of an arena that was populated ends, by the arena's number.
static FRONTIERS: [AtomicUsize; REMEMBERED] = [const { AtomicUsize::new(0) }; REMEMBERED];

/// Address space that was reserved without access: first and last address.
static RESERVED: [[AtomicUsize; 2]; REMEMBERED] =
    [const { [const { AtomicUsize::new(0) }; 2] }; REMEMBERED];
static NEXT_RESERVED: AtomicUsize = AtomicUsize::new(0);

/// Populates what came to the heap since last time.
fn look_at_break() {
    // SAFETY: a word that glibc writes under its own lock; an old value is found out next time.
    let now = unsafe { core::ptr::read_volatile(&raw const __curbrk) } as usize;
    let last = LAST_BREAK.load(Relaxed);
    if now == last {
        return;
    }
    let mine = LAST_BREAK
        .compare_exchange(last, now, Relaxed, Relaxed)
        .is_ok();
    if mine && last != 0 && now > last {
        // What cannot be populated faults as ever.
        let _ = populate(last, now - last);
    }
}

/// Populates the memory that a new chunk came with, if it is not the main heap's. `zeroed`: it is
/// calloc's, which leaves fresh mappings untouched.
fn look_at_chunk(memory: *mut c_void, zeroed: bool) {
    if memory.is_null() {
        return;
    }
    // SAFETY: the word before a chunk is its size and flags; malloc has just written it.
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
    // glibc commits whole pages, so this much can be written to.
    let end = (start + size).div_ceil(PAGE) * PAGE;
    let before = frontier.load(Relaxed);
    let same = before / ARENA == arena;
    if same && end <= before {
        return;
    }
    frontier.store(end, Relaxed);
    // glibc commits arenas a page at a time, which a call for each would make no cheaper.
    if same && end - before >= WORTH_A_CALL {
        let _ = populate(before, end - before);
    }
}

fn grown(memory: *mut c_void) -> *mut c_void {
    look_at_break();
    look_at_chunk(memory, false);
    memory
}

/// `malloc`, watched.
///
/// # Safety
///
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    // SAFETY: as the caller promises.
    grown(unsafe { __libc_malloc(size) })
}

/// `calloc`, watched.
///
/// # Safety
///
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    // SAFETY: as the caller promises.
    let memory = unsafe { __libc_calloc(count, size) };
    look_at_break();
    look_at_chunk(memory, true);
    memory
}

/// `realloc`, watched.
///
/// # Safety
///
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn realloc(memory: *mut c_void, size: size_t) -> *mut c_void {
    // SAFETY: as the caller promises.
    grown(unsafe { __libc_realloc(memory, size) })
}

/// `sbrk`, watched.
///
/// # Safety
///
/// As the C library's.
#[no_mangle]
pub unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    // SAFETY: as the caller promises.
    let before = unsafe { __sbrk(increment) };
    look_at_break();
    before
}

/// `mmap`, watched.
///
/// # Safety
///
/// As the C library's.
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

/// `mmap64`, which is the same here.
///
/// # Safety
///
/// As the C library's.
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

/// `mprotect`, watched.
///
/// # Safety
///
/// As the C library's.
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
        // Between the two stores the range is empty.
        last.store(0, Relaxed);
        first.store(start, Relaxed);
        last.store(start + length.saturating_sub(1), Relaxed);
    }
}

/// Whether the range is part of a reservation: other memory that becomes writable may be a file's.
fn is_reserved(start: usize, length: usize) -> bool {
    let end = start + length.saturating_sub(1);
    RESERVED
        .iter()
        .any(|[first, last]| first.load(Relaxed) <= start && end <= last.load(Relaxed))
}

/// The call for allocators; see `include/limelight-premap.h`.
#[no_mangle]
pub extern "C" fn limelight_premap(start: *mut c_void, length: size_t) -> c_long {
    match populate(start as usize, length) {
        Ok(bytes) => bytes as c_long,
        Err(errno) => {
            // SAFETY: errno is this thread's own.
            unsafe { *libc::__errno_location() = errno };
            -1
        }
    }
}
