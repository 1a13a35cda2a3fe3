// SPDX-License-Identifier: GPL-2.0-or-later
//! liblimelight-premap: PREMAP's hint generator for a kernel without PREMAP.
//!
//! When an allocator gets more memory from the kernel, one `madvise(MADV_POPULATE_WRITE)` populates
//! it, instead of one page fault for each page. The library is preloaded (`limelight run --premap`)
//! or linked; C programs include `include/limelight-premap.h`.
//!
//! How it detects growth:
//!
//! * glibc's malloc requests memory by internal calls, which no preloaded symbol can replace. So
//!   `malloc`, `calloc` and `realloc` are wrapped. After each call they compare the program break
//!   with the last one (a load and a comparison), and check the chunk's header for the two other
//!   sources of memory: a mapping of its own, or a thread's arena. glibc commits arenas a page at a
//!   time, so there only chunks of several pages are populated.
//! * Other allocators call `mmap`, `mprotect` and `sbrk`, which are wrapped as well: new writable
//!   memory, and reserved memory that becomes writable.
//!
//! Limits: an extension above 1 MiB is left alone, because no program fills so much at once; so is
//! everything while less than a sixteenth of memory is free; and on a kernel without the advice it
//! is tried once. `calloc`'s own mappings are zero already, and left alone.
//!
//! No hook allocates, locks, or fails: memory that cannot be populated is faulted in as usual.

mod hooks;
mod log;
mod populate;

pub use hooks::limelight_premap;
