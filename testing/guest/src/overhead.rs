// SPDX-License-Identifier: GPL-2.0-or-later
//! The cost of a page fault and of reclaiming a page while Limelight is inactive. In exact mode
//! guest nanoseconds are instructions, so the figures of two kernels are comparable.

use std::fs;
use std::io::{self, BufRead};

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::dispatch::Stage;

use crate::memory::{now_ns, Mapping, MIB};
use crate::process::{Conversation, Start};
use crate::response::median;
use crate::scenario::Overhead;
use crate::store::Extent;

/// Parameters of the probe's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// The file to map.
    pub file: Extent,
    /// Size of the anonymous memory, in MiB.
    pub mib: u32,
}

/// The probe's process. It answers the commands `anonymous` and `file` with nanoseconds per page.
/// The mapping of the last `file` command stays, so that its pages can be reclaimed.
pub fn probe(spec: &Spec) -> Result<()> {
    let file = spec.file.open()?;
    let mut mapped = None;
    for line in io::stdin().lock().lines() {
        let ns_per_page = match line?.as_str() {
            "anonymous" => {
                let mut memory = Mapping::anonymous(spec.mib as usize * MIB)?;
                let start = now_ns();
                for page in 0..memory.pages() {
                    memory.dirty_page(page, 1);
                }
                per_page(start, memory.pages())
            }
            "file" => {
                drop(mapped.take());
                let mapping = Mapping::file(&file, spec.file.offset, spec.file.len as usize)?;
                // The first pass reads the file from the disk, the second one measures the faults.
                touch_all(&mapping);
                drop(mapping);
                let mapping = Mapping::file(&file, spec.file.offset, spec.file.len as usize)?;
                let start = now_ns();
                touch_all(&mapping);
                let ns = per_page(start, mapping.pages());
                mapped = Some(mapping);
                ns
            }
            other => bail!("the probe does not expect {other:?}"),
        };
        println!("{ns_per_page}");
    }
    Ok(())
}

fn touch_all(mapping: &Mapping) {
    for page in 0..mapping.pages() {
        mapping.touch_page(page);
    }
}

fn per_page(start_ns: u64, pages: usize) -> f64 {
    (now_ns() - start_ns) as f64 / pages as f64
}

/// Runs the benchmark.
pub fn run(mut stage: Stage, work: &Overhead) -> Result<()> {
    let file = stage.store()?.file("overhead", work.mib)?;
    let spec = Spec {
        file,
        mib: work.mib,
    };
    // The first round warms up slabs and page tables, and is not reported.
    for round in 0..=work.rounds {
        // The cost of reclaim depends on the pages that earlier rounds left on the LRU lists, so
        // every round starts with empty lists.
        crate::guest_setup::drop_caches()?;
        let cgroup = Cgroup::create(&format!("app.slice/app-limelight-probe-{round}.scope"))?;
        let mut probe = Start::in_cgroup(&cgroup).conversation("probe", &spec)?;
        let figures = [
            ("anon_fault_ns_per_page", probe.ask("anonymous")?),
            ("file_fault_ns_per_page", probe.ask("file")?),
            ("reclaim_ns_per_page", reclaim(&cgroup, &mut probe)?),
        ];
        for (name, ns) in figures {
            if round > 0 {
                stage.reporter.sample(name, ns);
            }
        }
    }
    for (name, samples) in stage.reporter.series.clone() {
        stage.reporter.value(name, median(&mut samples.clone()));
    }
    stage.reporter.finish()
}

/// Reclaims half of the cgroup's charge; returns nanoseconds per reclaimed page.
fn reclaim(cgroup: &Cgroup, probe: &mut Conversation) -> Result<f64> {
    if !probe.process.alive() {
        bail!("the probe has ended");
    }
    let before = cgroup.number("memory.current")?;
    let path = cgroup.path().join("memory.reclaim");
    let start = now_ns();
    // EAGAIN means that less was reclaimed than requested; the actual amount is determined below.
    let asked = fs::write(&path, (before / 2).to_string());
    let elapsed = now_ns() - start;
    let after = cgroup.number("memory.current")?;
    let pages = before.saturating_sub(after) / crate::memory::PAGE as u64;
    if pages == 0 {
        asked.with_context(|| format!("cannot write to {}", path.display()))?;
        bail!("{} reclaimed nothing", path.display());
    }
    Ok(elapsed as f64 / pages as f64)
}
