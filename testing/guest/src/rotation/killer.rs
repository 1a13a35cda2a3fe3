// SPDX-License-Identifier: GPL-2.0-or-later
//! A simple model of a phone's low-memory killer, with which SWAP is compared: when memory is
//! short, it kills the least recently used app of any class.
//!
//! Android's driver checked free memory and the page cache, and killed a cached app when both were
//! below a threshold. Its successor lmkd, on machines with swap, first waits until swap is nearly
//! full (`ro.lmk.swap_free_low_percentage`). The thresholds of phones with up to 2 GB are used, at
//! the guest's scale.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::counters::keyed;
use crate::guest_setup::meminfo_kib;

use super::table::SCALE;

/// The highest threshold in `minfree` as vendors set it for phones with up to 2 GB (55,000 pages),
/// at the guest's scale. Cached apps are killed below it.
const MIN_FREE_KIB: u64 = 55_000 * 4 / SCALE as u64;
/// Free swap, in percent, at or below which swap counts as nearly full: lmkd's default.
const SWAP_LOW_PERCENT: u64 = 10;
/// Sampling interval while the machine is in use. The driver was called in each round of reclaim.
const INTERVAL: Duration = Duration::from_millis(5);
/// Longest wait for a victim's processes to exit before the next sample.
const DEATH_LIMIT: Duration = Duration::from_secs(2);

/// State shared by the killer and the launcher.
#[derive(Default)]
struct Shared {
    /// Cgroups of the apps that may be killed, least recently used first.
    order: Mutex<Vec<PathBuf>>,
    /// Whether the machine is in use; otherwise the killer does not sample.
    active: AtomicBool,
    over: AtomicBool,
}

/// The running killer.
pub struct Killer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Killer {
    /// Starts the killer thread.
    pub fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        Killer {
            shared,
            thread: Some(thread::spawn(move || watch(&for_thread))),
        }
    }

    /// Sets the apps that may be killed, least recently used first; the foreground app is not among
    /// them.
    pub fn set_order(&self, order: Vec<PathBuf>) {
        *lock(&self.shared.order) = order;
    }

    /// Sets whether the machine is in use. An idle machine does not run short of memory, so the
    /// killer samples only while it is in use.
    pub fn set_active(&self, active: bool) {
        self.shared.active.store(active, Ordering::Relaxed);
        if let Some(thread) = self.thread.as_ref().filter(|_| active) {
            thread.thread().unpark();
        }
    }

    /// Stops the killer thread.
    pub fn stop(mut self) -> Result<()> {
        self.end();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => anyhow::bail!("the killer's thread panicked"),
            None => Ok(()),
        }
    }

    fn end(&self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch(shared: &Shared) -> Result<()> {
    while !shared.over.load(Ordering::Relaxed) {
        if !shared.active.load(Ordering::Relaxed) {
            thread::park();
            continue;
        }
        if Memory::now()?.short() {
            let mut order = lock(&shared.order);
            if !order.is_empty() {
                let victim = order.remove(0);
                drop(order);
                kill(&victim)?;
                continue;
            }
        }
        thread::sleep(INTERVAL);
    }
    Ok(())
}

/// Kills everything in a cgroup, and waits until it is empty or [`DEATH_LIMIT`] has passed.
fn kill(cgroup: &std::path::Path) -> Result<()> {
    let file = cgroup.join("cgroup.kill");
    match fs::write(&file, "1") {
        // The app is already dead, and the launcher has removed its cgroup.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        done => done.with_context(|| format!("cannot write 1 to {}", file.display()))?,
    }
    let deadline = Instant::now() + DEATH_LIMIT;
    while keyed(&cgroup.join("cgroup.events"), "populated").is_ok_and(|alive| alive == 1) {
        if Instant::now() > deadline {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The memory state that the killer checks.
#[derive(Debug, Clone, Copy)]
struct Memory {
    free_kib: u64,
    cache_kib: u64,
    swap_kib: u64,
    swap_free_kib: u64,
}

impl Memory {
    fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
        let kib = |name| meminfo_kib(&text, name);
        Ok(Memory {
            free_kib: kib("MemFree")?,
            // Shared memory is in the page cache, but is not reclaimable.
            cache_kib: kib("Cached")?.saturating_sub(kib("Shmem")?),
            swap_kib: kib("SwapTotal")?,
            swap_free_kib: kib("SwapFree")?,
        })
    }

    fn short(self) -> bool {
        let swap_low = self.swap_free_kib * 100 <= self.swap_kib * SWAP_LOW_PERCENT;
        swap_low && self.free_kib < MIN_FREE_KIB && self.cache_kib < MIN_FREE_KIB
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_short_when_free_cache_and_swap_are_low() {
        let memory = |free_kib, cache_kib, swap_kib, swap_free_kib| Memory {
            free_kib,
            cache_kib,
            swap_kib,
            swap_free_kib,
        };
        let (low, high) = (MIN_FREE_KIB - 1, MIN_FREE_KIB);
        assert!(memory(low, low, 0, 0).short());
        assert!(!memory(high, low, 0, 0).short());
        assert!(!memory(low, high, 0, 0).short());
        assert!(!memory(low, low, 1000, 101).short());
        assert!(memory(low, low, 1000, 100).short());
    }
}
