// SPDX-License-Identifier: GPL-2.0-or-later
//! A stock kernel's knobs for protecting an app's memory, set by hand.

use std::fs;
use std::path::Path;

use anyhow::{ensure, Context, Result};

use crate::cgroup::Cgroup;
use crate::guest_setup;
use crate::plan::Arm;

/// Reservation as a percentage of the app's charge. The value is generous: MGLRU spares a cgroup
/// whose charge is below `memory.min`, but reclaims from all of a cgroup whose charge is above it.
const RESERVE_PERCENT: u64 = 160;
/// Largest reservation as a percentage of all memory. With a larger one, reclaim may find nothing to
/// take, and the OOM killer kills processes until the machine stops.
const MOST_PERCENT: u64 = 60;

/// Sets the arm's knob on the app's cgroup and its ancestors, for an app with a charge of
/// `charge_bytes`. A no-op in arms without a knob.
pub fn set(arm: Arm, app: Option<&Cgroup>, charge_bytes: u64) -> Result<()> {
    let Some(file) = file(arm, guest_setup::mglru()) else {
        return Ok(());
    };
    let memory = guest_setup::memory_kib("MemTotal")? * 1024;
    let bytes = (charge_bytes * RESERVE_PERCENT / 100).min(memory / 100 * MOST_PERCENT);
    app.context("hand-set knobs need a cgroup for the app")?
        .set_chain(file, &bytes.to_string())
}

/// Checks that the DAMON module of the arm works: the lab enables it by kernel parameters, and a
/// module that is missing or rests would give the figures of an unmodified kernel. A no-op in arms
/// without DAMON.
pub fn check_damon(arm: Arm) -> Result<()> {
    damon_module(arm).map_or(Ok(()), |module| {
        damon_at_work(Path::new("/sys/module"), module)
    })
}

fn damon_module(arm: Arm) -> Option<&'static str> {
    match arm {
        Arm::DamonLruSort => Some("damon_lru_sort"),
        Arm::DamonReclaim => Some("damon_reclaim"),
        _ => None,
    }
}

/// Checks that the thread of `module` runs.
fn damon_at_work(modules: &Path, module: &str) -> Result<()> {
    let file = modules.join(module).join("parameters/kdamond_pid");
    let text = fs::read_to_string(&file).with_context(|| {
        format!(
            "this kernel has no {module}: cannot read {}",
            file.display()
        )
    })?;
    ensure!(
        text.trim().parse::<i32>().is_ok_and(|pid| pid > 0),
        "{module} is off: its thread's PID is {}",
        text.trim()
    );
    Ok(())
}

/// What the arm's DAMON module has done so far, by the names of its parameters: `damon_nr_...` and
/// `damon_bytes_...`. Empty in arms without DAMON.
pub fn damon_counts(arm: Arm) -> Vec<(String, u64)> {
    damon_module(arm).map_or_else(Vec::new, |module| {
        counts_below(&Path::new("/sys/module").join(module).join("parameters"))
    })
}

fn counts_below(parameters: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(parameters).into_iter().flatten().flatten();
    let mut counts: Vec<(String, u64)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let counts = name.starts_with("nr_") || name.starts_with("bytes_");
            let text = counts.then(|| fs::read_to_string(entry.path()).ok())??;
            Some((format!("damon_{name}"), text.trim().parse().ok()?))
        })
        .collect();
    counts.sort();
    counts
}

/// The knob of an arm. MGLRU does not honour memory.low in global reclaim.
fn file(arm: Arm, mglru: bool) -> Option<&'static str> {
    match arm {
        Arm::MemoryLow => Some("memory.low"),
        Arm::MemoryMin => Some("memory.min"),
        Arm::BestStock if mglru => Some("memory.min"),
        Arm::BestStock => Some("memory.low"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{counts_below, damon_at_work, file};
    use crate::plan::Arm;

    #[test]
    fn damon_must_have_a_thread() {
        let dir = tempfile::tempdir().unwrap();
        let error = damon_at_work(dir.path(), "damon_reclaim").unwrap_err();
        assert!(error.to_string().contains("no damon_reclaim"), "{error}");
        let parameters = dir.path().join("damon_reclaim/parameters");
        fs::create_dir_all(&parameters).unwrap();
        for (pid, works) in [("-1\n", false), ("0\n", false), ("93\n", true)] {
            fs::write(parameters.join("kdamond_pid"), pid).unwrap();
            assert_eq!(damon_at_work(dir.path(), "damon_reclaim").is_ok(), works);
        }
    }

    #[test]
    fn damon_counts_are_read_by_name() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("nr_reclaimed_regions", "7\n"),
            ("bytes_reclaimed_regions", "28672\n"),
            ("min_age", "1000000\n"),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let expected = [
            ("damon_bytes_reclaimed_regions", 28672),
            ("damon_nr_reclaimed_regions", 7),
        ];
        assert_eq!(
            counts_below(dir.path()),
            expected.map(|(name, count)| (name.to_owned(), count))
        );
    }

    #[test]
    fn best_knob_depends_on_page_replacement() {
        assert_eq!(file(Arm::BestStock, true), Some("memory.min"));
        assert_eq!(file(Arm::BestStock, false), Some("memory.low"));
        assert_eq!(file(Arm::MemoryLow, true), Some("memory.low"));
        assert_eq!(file(Arm::Limelight, true), None);
    }
}
