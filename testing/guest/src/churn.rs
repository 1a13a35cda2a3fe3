// SPDX-License-Identifier: GPL-2.0-or-later
//! The task with which PREZERO is measured: it allocates memory, writes to it, reads it, and frees
//! it.

use std::io::{self, BufRead};

use anyhow::{bail, Result};
use serde::{Deserialize, Serialize};

use crate::cache_model::{take_role, Role};
use crate::memory::{now_ns, Mapping, PAGE};

/// Parameters of the task's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// Pages per run.
    pub pages: u32,
}

/// Result of a run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Run {
    /// Time from before the allocation until after the memory was freed, in nanoseconds.
    pub elapsed_ns: u64,
}

/// The task's process: prints a line when it is ready, does a run for each line of input and prints
/// its result, and exits at the end of its input.
pub fn app(spec: &Spec) -> Result<()> {
    take_role(Role::App);
    println!("true");
    for line in io::stdin().lock().lines() {
        line?;
        println!("{}", serde_json::to_string(&run(spec.pages as usize)?)?);
    }
    Ok(())
}

/// Does one run, which writes one word per page and reads one word of each cache line. Fresh memory
/// is zero, so the sum of the words read must equal the sum of the words written. Any other sum
/// means that the memory held another process's data.
fn run(pages: usize) -> Result<Run> {
    let start = now_ns();
    let mut memory = Mapping::anonymous(pages * PAGE)?;
    for page in 0..pages {
        memory.dirty_page(page, page as u64 + 1);
    }
    let mut sum = 0u64;
    for page in 0..pages {
        sum = sum.wrapping_add(memory.read_page(page));
    }
    drop(memory);
    let elapsed_ns = now_ns() - start;
    let expected = pages as u64 * (pages as u64 + 1) / 2;
    if sum != expected {
        bail!("fresh memory was not zero: {pages} pages have the sum {sum}, not {expected}");
    }
    Ok(Run { elapsed_ns })
}

#[cfg(test)]
mod tests {
    #[test]
    fn run_takes_time_and_finds_zeroes() {
        assert!(super::run(300).unwrap().elapsed_ns > 0);
    }
}
