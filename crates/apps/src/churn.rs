// SPDX-License-Identifier: GPL-2.0-or-later
//! PREZERO's task: allocates memory, touches it, computes on it, and frees it.

use std::io::{self, BufRead};

use anyhow::{bail, Result};
use serde::{Deserialize, Serialize};

use crate::cache_model::{take_role, Role};
use crate::memory::{now_ns, Mapping, PAGE};

/// The task as its process gets it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// Pages of one run.
    pub pages: u32,
}

/// What one run came to.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Run {
    /// From before the allocation to after the memory was freed.
    pub elapsed_ns: u64,
}

/// The task's process: says that it is ready, does a run for each line, answers, ends with its input.
pub fn app(spec: &Spec) -> Result<()> {
    take_role(Role::App);
    println!("true");
    for line in io::stdin().lock().lines() {
        line?;
        println!("{}", serde_json::to_string(&run(spec.pages as usize)?)?);
    }
    Ok(())
}

/// One run. Fresh memory is zero, so that the sum over a word of each line is the sum of what was
/// written, or somebody else's data is in it.
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
    fn a_run_takes_time_and_finds_zeroes() {
        assert!(super::run(300).unwrap().elapsed_ns > 0);
    }
}
