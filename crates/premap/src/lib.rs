// SPDX-License-Identifier: GPL-2.0-or-later
//! liblimelight-premap: PREMAP's hint generator for a kernel without PREMAP.
//!
//! When an allocator gets more memory from the kernel, one `madvise(MADV_POPULATE_WRITE)` populates
//! that memory, instead of one page fault for each page. The library is preloaded (`limelight run
//! --premap`) or linked; C programs include `include/limelight-premap.h`.
//!
//! How it detects growth:
//!
//! * glibc's malloc requests memory by internal calls, which no preloaded symbol can replace. So
//!   `malloc`, `calloc` and `realloc` are wrapped. After each call, the wrapper compares the
//!   program break with the last known one (a load and a comparison). It also checks the chunk's
//!   header for the two other sources of memory: a mapping for this chunk alone, or a thread's
//!   arena. glibc commits arenas page by page, so in an arena only chunks of several pages are
//!   populated.
//! * Other allocators call `mmap`, `mprotect` and `sbrk`, which are wrapped as well. New writable
//!   memory is populated, and reserved memory when it becomes writable.
//!
//! Not populated are:
//!
//! * an extension above 1 MiB (by default), because few programs fill so much at once;
//! * any memory while less than a sixteenth of memory is free;
//! * any memory on a kernel without `MADV_POPULATE_WRITE`, after one attempt;
//! * mappings for single `calloc` chunks, which `calloc` does not touch because they are zero
//!   already.
//!
//! No wrapper allocates, locks or fails: memory that cannot be populated is faulted in as usual.

mod hooks;
mod log;
mod populate;

pub use hooks::limelight_premap;
