// SPDX-License-Identifier: GPL-2.0-or-later
//! `bench`: runs the benchmarks one variant at a time, and resumes after an interruption.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{measure, of_kind, How};
use crate::paths::{self, Paths};
use crate::results::store;
use crate::run::{judge, Finished, Options, Runner};
use crate::scenario::{Kind, Spec};
use crate::shell;

/// A part of a scenario for `--quick`, with one repetition: the scenario's name, and the variants,
/// arms and tasks as on the command line. An empty list stands for all.
type Quick = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);

/// The benchmarks of `--quick`: for each mechanism, the case behind its headline figure.
const QUICK: [Quick; 6] = [
    (
        "gallery-exact",
        &["two-list/zram/index-read", "mglru/zram/index-mapping"],
        &[
            "idle@debian",
            "stock",
            "best-stock@debian",
            "limelight-on-debian",
            "limelight",
        ],
        &[],
    ),
    (
        "boost-exact",
        &["own-cgroup"],
        &[],
        &["add-loads", "frames-loads"],
    ),
    (
        "small-reads",
        &[],
        &["stock", "best-stock", "limelight"],
        &[],
    ),
    ("premap-time", &["plain"], &[], &[]),
    ("prezero-exact", &[], &["stock", "limelight"], &[]),
    ("overhead", &["mglru"], &[], &[]),
];

/// One call of the runner.
#[derive(Debug, Clone)]
struct Part {
    spec: &'static Spec,
    /// The variant's name.
    variant: String,
    options: Options,
}

impl Part {
    /// Its name in the progress file.
    fn name(&self) -> String {
        format!("{} {}", self.spec.name, self.variant)
    }
}

/// What an interrupted benchmark has done.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Progress {
    /// The commit, the version of Linux and the options: only an equal benchmark is resumed.
    what: String,
    /// The finished parts.
    done: BTreeSet<String>,
}

impl Progress {
    fn file(paths: &Paths) -> PathBuf {
        paths.lab.join("bench.json")
    }

    /// The progress of an interrupted benchmark if it was the same as `what`, else none.
    fn load(file: &Path, what: &str) -> Self {
        let text = fs::read_to_string(file).unwrap_or_default();
        let found: Option<Progress> = serde_json::from_str(&text).ok();
        found
            .filter(|progress| progress.what == what)
            .unwrap_or_else(|| Progress {
                what: what.to_owned(),
                done: BTreeSet::new(),
            })
    }

    fn save(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string(self).context("cannot format the progress")?;
        // Renamed, so that an interruption leaves either the old file or the new one.
        let new = file.with_extension("new");
        paths::write(&new, text)?;
        fs::rename(&new, file).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// Runs every benchmark, or the parts of `--quick`, and prints the results. A benchmark that was
/// interrupted continues where it stopped, unless `restart` is set. Returns whether everything
/// passed.
pub fn run(paths: &Paths, how: &How, quick: bool, restart: bool) -> Result<bool> {
    let parts = if quick {
        quick_parts(how)
    } else {
        all_parts(how)
    };
    let what = format!(
        "{} {} {} {how:?}",
        shell::commit(&paths.root),
        paths.linux.series(),
        if quick { "quick" } else { "all" },
    );
    let file = Progress::file(paths);
    if restart {
        let _absent = fs::remove_file(&file);
    }
    let mut progress = Progress::load(&file, &what);
    if !progress.done.is_empty() {
        println!(
            "resuming: {} of {} variants are done; to start anew, use --restart (make bench \
             RESTART=1)",
            progress.done.len(),
            parts.len()
        );
    }
    let mut runner = Runner::new(paths, how.accelerator())?;
    let mut all_held = true;
    let specs: Vec<&'static Spec> = distinct(&parts);
    for spec in specs {
        let mut finished = Finished::default();
        for part in parts.iter().filter(|part| part.spec.name == spec.name) {
            if progress.done.contains(&part.name()) {
                continue;
            }
            let run = runner.run(spec, &part.options)?;
            finished.failures.extend(run.failures);
            finished.file = run.file.or(finished.file);
            progress.done.insert(part.name());
            progress.save(&file)?;
        }
        // The earlier variants' rows, too: a verdict may compare variants.
        let selected = |row: &crate::results::Row| {
            let name = format!("{} {}", row.scenario, row.variant);
            parts.iter().any(|part| part.name() == name)
        };
        finished.rows = store::newest(store::load(&paths.results(), spec.name)?);
        finished.rows.retain(selected);
        finished.verdicts = judge::judge(spec, &finished.rows);
        measure::show(paths, spec, &finished);
        all_held &= !finished.failed();
    }
    fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    Ok(all_held)
}

/// The scenarios of `parts`, each once, in order.
fn distinct(parts: &[Part]) -> Vec<&'static Spec> {
    let mut specs: Vec<&'static Spec> = Vec::new();
    for part in parts {
        if specs.iter().all(|spec| spec.name != part.spec.name) {
            specs.push(part.spec);
        }
    }
    specs
}

/// Every variant of every benchmark that `how` selects.
fn all_parts(how: &How) -> Vec<Part> {
    let benchmarks = of_kind(Kind::Benchmark).into_iter();
    benchmarks
        .flat_map(|spec| variants_of(spec, &how.options(spec.kind, spec.mode)))
        .collect()
}

/// The parts of `--quick` that `how` selects.
fn quick_parts(how: &How) -> Vec<Part> {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let mut parts = Vec::new();
    for (scenario, variants, arms, tasks) in QUICK {
        for spec in of_kind(Kind::Benchmark) {
            if spec.name != scenario {
                continue;
            }
            let mut options = how.options(spec.kind, spec.mode);
            let selection = &mut options.selection;
            selection.repetitions.get_or_insert(1);
            for (chosen, default) in [
                (&mut selection.variants, variants),
                (&mut selection.arms, arms),
                (&mut selection.tasks, tasks),
            ] {
                if chosen.is_empty() {
                    *chosen = owned(default);
                }
            }
            parts.extend(variants_of(spec, &options));
        }
    }
    parts
}

/// One part for each variant of `spec` that `options` select and that can run.
fn variants_of(spec: &'static Spec, options: &Options) -> Vec<Part> {
    let boots = crate::run::schedule::boots(spec, &options.selection);
    let mut names: Vec<String> = Vec::new();
    for boot in &boots {
        let name = boot.variant.to_string();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let part = |variant: String| {
        let mut options = options.clone();
        options.selection.variants = vec![format!("={variant}")];
        Part {
            spec,
            variant,
            options,
        }
    };
    names.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Arguments, Command};

    fn how(words: &[&str]) -> How {
        let words = ["limelight-lab", "bench"].iter().chain(words);
        match Arguments::parse_from(words).command {
            Command::Bench { how, .. } => how,
            _ => unreachable!(),
        }
    }

    #[test]
    fn interrupted_benchmark_is_resumed_only_if_it_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("bench.json");
        let mut progress = Progress::load(&file, "commit 1");
        assert!(progress.done.is_empty());
        progress.done.insert("gallery-exact mglru/zram/grow".into());
        progress.save(&file).unwrap();
        assert_eq!(Progress::load(&file, "commit 1"), progress);
        assert!(Progress::load(&file, "commit 2").done.is_empty());
        fs::write(&file, "{").unwrap();
        assert!(Progress::load(&file, "commit 1").done.is_empty());
    }

    #[test]
    fn each_part_is_one_variant() {
        let parts = all_parts(&how(&[]));
        for part in &parts {
            let boots = crate::run::schedule::boots(part.spec, &part.options.selection);
            assert!(
                boots
                    .iter()
                    .all(|boot| boot.variant.to_string() == part.variant),
                "{} selects other variants, too",
                part.name()
            );
        }
        let names: BTreeSet<String> = parts.iter().map(Part::name).collect();
        assert_eq!(names.len(), parts.len());
        assert_eq!(distinct(&parts).len(), of_kind(Kind::Benchmark).len());
    }

    #[test]
    fn quick_parts_exist_and_run_once() {
        let parts = quick_parts(&how(&[]));
        assert_eq!(distinct(&parts).len(), QUICK.len());
        for part in &parts {
            let boots = crate::run::schedule::boots(part.spec, &part.options.selection);
            let cells: usize = boots.iter().map(|boot| boot.cells.len()).sum();
            assert!(cells > 0, "{} has no cells", part.name());
            assert_eq!(part.options.selection.repetitions, Some(1));
        }
        let chosen = quick_parts(&how(&["--reps", "3", "--variant", "two-list"]));
        assert!(chosen
            .iter()
            .all(|part| part.variant.starts_with("two-list")));
        assert!(!chosen.is_empty());
    }
}
