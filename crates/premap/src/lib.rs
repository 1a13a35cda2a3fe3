// SPDX-License-Identifier: GPL-2.0-or-later
//! liblimelight-premap: PREMAP's hint generator for a kernel that knows nothing of it.
//!
//! The moment an allocator gets more memory from the kernel, that memory is populated with one
//! `madvise(MADV_POPULATE_WRITE)` instead of one page fault for each page. The library is preloaded
//! (`limelight run --premap`) or linked; C sees `include/limelight-premap.h`.
//!
//! How growth is noticed:
//!
//! * glibc's malloc asks for memory by internal calls, which no preloaded symbol can replace. So
//!   `malloc`, `calloc` and `realloc` are wrapped, and afterwards compare the program break with
//!   the one of last time (a load and a comparison), and look at the chunk's header for the two
//!   other places that memory comes from: a mapping of its own, or a thread's arena. glibc commits
//!   arenas a page at a time, so there only chunks of several pages are populated.
//! * Other allocators call `mmap`, `mprotect` and `sbrk`, which are wrapped as well: new writable
//!   memory, and reserved memory that becomes writable.
//!
//! What bounds it: an extension above 1 MiB is left alone, because nobody fills so much
//! at once; so is everything while less than a sixteenth of memory is free; and a kernel that does
//! not know the advice is asked once. `calloc`'s own mappings are zero already, and left alone.
//!
//! No hook allocates, locks, or fails: what cannot be populated faults as ever.

mod hooks;
mod log;
mod populate;

pub use hooks::limelight_premap;
