// SPDX-License-Identifier: GPL-2.0-or-later
//! Messages from a guest program to the lab's cache model (`testing/lab/plugins/cache_model.c`),
//! and access patterns with known numbers of cache misses, which test the model.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;

use anyhow::{bail, Context, Result};

use crate::dispatch::Stage;
use crate::memory::{Mapping, MIB, PAGE};
use crate::scenario::CachePattern;

/// Displacement by which the model recognises a load as a message.
#[cfg(target_arch = "x86_64")]
const MARK: usize = 0x6c69_6d65;
/// Operations of a message. The argument of an operation is at most 255.
const ROLE: usize = 1;
const BEGIN: usize = 2;
const END: usize = 3;

/// A process's role in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The foreground app.
    App = 1,
    /// A background program.
    Background = 2,
}

/// One page, page-aligned. A load from it is a message; the low 12 bits of its address encode it.
#[repr(align(4096))]
struct Page([u8; PAGE]);
static PAGE_OF_WORDS: Page = Page([1; PAGE]);

/// Sends a message to the model. If no model runs, this only loads one byte.
#[cfg(target_arch = "x86_64")]
fn say(operation: usize, argument: usize) {
    let word = operation << 8 | argument & 0xff;
    let address = std::ptr::addr_of!(PAGE_OF_WORDS.0[word]) as usize;
    // SAFETY: the load's address, including the displacement, is a byte of our page. Its encoding
    // is fixed because the model recognises it by its bytes.
    unsafe {
        asm!(
            ".byte 0x8a, 0x80, 0x65, 0x6d, 0x69, 0x6c", // mov al, [rax + 0x6c696d65]
            inout("rax") address - MARK => _,
            options(nostack, readonly, preserves_flags)
        );
    }
}

/// A no-op: there is no model for other architectures.
#[cfg(not(target_arch = "x86_64"))]
fn say(operation: usize, argument: usize) {
    let word = operation << 8 | argument & 0xff;
    std::hint::black_box(PAGE_OF_WORDS.0[word]);
}

/// Attributes the calling thread's memory accesses to `role` from now on. Threads that it creates
/// later have no role. Async-signal-safe, so it may be called between fork and exec.
pub fn take_role(role: Role) {
    say(ROLE, role as usize);
}

/// Starts modelling with empty caches. If the model is already running, only resets its counters.
pub fn begin() {
    say(BEGIN, 0);
}

/// Ends modelling, and has the model report its counters for cell `index` of the plan. Returns the
/// number to report as the cell's value `cache_report`.
pub fn end(index: usize) -> Result<f64> {
    if index > 0xff {
        bail!("the cache model has reports for cells 0 to 255, and this is cell {index}");
    }
    say(END, index);
    Ok(index as f64)
}

/// Runs the scenario.
pub fn run(mut stage: Stage, pattern: CachePattern) -> Result<()> {
    take_role(Role::App);
    match pattern {
        CachePattern::InsideL1 => walk(16 << 10, 100)?,
        CachePattern::InsideLlc => walk(4 * MIB, 8)?,
        CachePattern::BeyondLlc => walk(32 * MIB, 3)?,
        CachePattern::Zeroing { pages } => {
            begin();
            touch(pages)?;
        }
        CachePattern::Displaced { pages } => {
            take_role(Role::Background);
            let mut memory = Mapping::anonymous(6 * MIB)?;
            fill(&mut memory);
            begin();
            read(&memory);
            take_role(Role::App);
            touch(pages)?;
            take_role(Role::Background);
            begin();
            read(&memory);
        }
    }
    let report = end(stage.index)?;
    stage.reporter.value("cache_report", report);
    stage.reporter.finish()
}

/// Reads one word of each cache line of `bytes` bytes, `rounds` times, starting with empty caches.
fn walk(bytes: usize, rounds: usize) -> Result<()> {
    let mut memory = Mapping::anonymous(bytes)?;
    fill(&mut memory);
    begin();
    for _ in 0..rounds {
        read(&memory);
    }
    Ok(())
}

fn fill(memory: &mut Mapping) {
    for page in 0..memory.pages() {
        memory.dirty_page(page, 1);
    }
}

fn read(memory: &Mapping) {
    let mut sum = 0u64;
    for page in 0..memory.pages() {
        sum = sum.wrapping_add(memory.read_page(page));
    }
    std::hint::black_box(sum);
}

/// Makes the kernel zero `pages` pages, by writing to fresh memory.
fn touch(pages: u32) -> Result<()> {
    let mut memory = Mapping::anonymous(pages as usize * PAGE)
        .with_context(|| format!("cannot map {pages} pages"))?;
    fill(&mut memory);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_without_a_model_are_no_ops() {
        take_role(Role::Background);
        begin();
        assert_eq!(end(255).unwrap(), 255.0);
        assert!(end(256).is_err());
    }
}
