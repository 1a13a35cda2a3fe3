// SPDX-License-Identifier: GPL-2.0-or-later
//! Builds and configures the cache model, a TCG plugin for QEMU (`testing/lab/plugins/`, compiled
//! with gcc). The plugin gets the addresses at which the kernel zeroes pages and switches tasks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};
use serde::Deserialize;

use super::command::comma_safe;
use crate::cache::Inputs;
use crate::kernel::Bootable;
use crate::paths::{self, Paths};
use crate::shell;

/// A cache level: size in bytes, and ways.
type Level = (u64, u32);

/// The caches of PREZERO's machine, an i7-6700K: 32 KiB in 8 ways and 256 KiB in 4 ways per core,
/// and 8 MiB in 16 ways for all cores, inclusive of the others; lines of 64 bytes (Intel 64 and
/// IA-32 Architectures Optimization Reference Manual, "Cache Parameters of the Skylake
/// Microarchitecture"). The CPU's replacement policy is not documented; the model uses LRU.
const CACHES: [(&str, Level); 3] = [
    ("l1", (32 << 10, 8)),
    ("l2", (256 << 10, 4)),
    ("llc", (8 << 20, 16)),
];

/// Latencies in nanoseconds: hits in L2, hits in the last level, memory. Skylake at 4 GHz: 12
/// cycles, 42 cycles, 42 cycles + 51 ns (7-cpu.com, Skylake). A real CPU overlaps such waits and
/// prefetches lines. It can do neither for a pointer chaser, which waits for the sum over all its
/// misses.
const WAITS_NS: [f64; 3] = [3.0, 10.5, 61.5];

/// Functions whose loads and stores all belong to the zeroing of a page.
const ZEROING: [&str; 5] = [
    "clear_page_rep",
    "clear_page_orig",
    "clear_page_erms",
    "__clear_pages_unrolled",
    "clear_nontemporal",
];
/// Functions that only the kernel's zeroing thread executes. Kernels without prezero do not have
/// them.
const PREZERO_THREAD: [&str; 1] = ["zeroer_main"];
/// The function that switches to the next task's stack, and the function where a new task starts.
const SWITCH: &str = "__switch_to_asm";
const FORK: &str = "ret_from_fork_asm";

const SOURCES: [&str; 2] = ["cache_model.c", "cache.h"];
const FLAGS: [&str; 6] = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"];

/// The counters of one measured section, as written by the plugin.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Report {
    /// The section's number, which the guest assigns.
    pub report: u32,
    /// Counters by name.
    pub values: BTreeMap<String, f64>,
}

/// The argument of QEMU's `-plugin` for a guest with `kernel` and `memory_mib` MiB. The plugin
/// writes its reports to `out`.
pub fn cache_model(
    paths: &Paths,
    kernel: &Bootable,
    memory_mib: u32,
    out: &Path,
) -> Result<String> {
    let map = kernel.dir.join("System.map");
    if !map.is_file() {
        bail!(
            "the cache model needs the kernel's symbols, and kernel {} has no System.map: use a \
             kernel that the lab builds",
            kernel.kernel
        );
    }
    let symbols = Symbols::parse(&paths::read_lossy(&map)?);
    let plugin = build(paths)?;
    let mut argument = format!(
        "{},out={},memory={}",
        comma_safe(&plugin),
        comma_safe(out),
        u64::from(memory_mib) << 20
    );
    for (name, (bytes, ways)) in CACHES {
        argument.push_str(&format!(",{name}={bytes}:{ways}"));
    }
    for (name, symbol) in [("switch", SWITCH), ("fork", FORK)] {
        let range = symbols.get(symbol);
        let (from, _) = range.with_context(|| format!("{} has no {symbol}", map.display()))?;
        argument.push_str(&format!(",{name}={from:x}"));
    }
    for (name, group) in [("zeroing", &ZEROING[..]), ("prezero", &PREZERO_THREAD[..])] {
        for (from, to) in group.iter().filter_map(|symbol| symbols.get(symbol)) {
            argument.push_str(&format!(",{name}={from:x}-{to:x}"));
        }
    }
    Ok(argument)
}

/// Reads the reports in `file`. If two reports have the same number, the last one counts. A machine
/// that failed to start has no reports.
pub fn reports(file: &Path) -> Result<BTreeMap<u32, Report>> {
    if !file.exists() {
        return Ok(BTreeMap::new());
    }
    let text = paths::read_lossy(file)?;
    text.lines()
        .map(|line| {
            let mut report: Report = serde_json::from_str(line)
                .with_context(|| format!("cannot parse a line of {}: {line:?}", file.display()))?;
            add_waits(&mut report.values);
            Ok((report.report, report))
        })
        .collect()
}

/// Adds `cache_<cause>_wait_us`: the total latency of each cause's misses, as if none overlapped.
fn add_waits(values: &mut BTreeMap<String, f64>) {
    let causes: Vec<String> = values
        .keys()
        .filter_map(|name| Some(name.strip_suffix("_l1_misses")?.to_owned()))
        .collect();
    for cause in causes {
        let misses = |level: &str| values.get(&format!("{cause}_{level}_misses")).copied();
        let (Some(l1), Some(l2), Some(llc)) = (misses("l1"), misses("l2"), misses("llc")) else {
            continue;
        };
        let [l2_ns, llc_ns, memory_ns] = WAITS_NS;
        let wait_ns = (l1 - l2) * l2_ns + (l2 - llc) * llc_ns + llc * memory_ns;
        values.insert(format!("{cause}_wait_us"), wait_ns / 1000.0);
    }
}

/// Compiles the plugin unless it is up to date.
fn build(paths: &Paths) -> Result<PathBuf> {
    let sources = paths.root.join("testing/lab/plugins");
    let mut inputs = Inputs::new();
    for source in SOURCES {
        inputs.file(source, &sources.join(source))?;
    }
    let compiler = shell::output(Command::new("gcc").arg("--version"))?;
    let key = inputs
        .text("compiler", compiler.lines().next().unwrap_or_default())
        .text("flags", FLAGS.join(" "))
        .key();
    let dir = paths.lab.join("plugins");
    let plugin = dir.join(format!("cache_model-{key}.so"));
    if !plugin.exists() {
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let part = dir.join(format!("cache_model-{}.part", std::process::id()));
        let mut gcc = Command::new("gcc");
        gcc.args(FLAGS)
            .arg("-fvisibility=hidden")
            .arg("-o")
            .arg(&part);
        shell::run(gcc.arg(sources.join(SOURCES[0])))?;
        paths::publish(&part, &plugin)?;
    }
    Ok(plugin)
}

/// Addresses of the kernel's functions.
struct Symbols(Vec<(u64, String)>);

impl Symbols {
    /// Parses a `System.map`: address, type, name.
    fn parse(text: &str) -> Self {
        let mut symbols: Vec<(u64, String)> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                let address = u64::from_str_radix(words.next()?, 16).ok()?;
                let kind = words.next()?;
                let function = matches!(kind, "T" | "t" | "W" | "w");
                function.then_some((address, words.next()?.to_owned()))
            })
            .collect();
        symbols.sort();
        Symbols(symbols)
    }

    /// The function's address range; its end is where the next function begins.
    fn get(&self, name: &str) -> Option<(u64, u64)> {
        let (from, _) = self.0.iter().find(|(_, symbol)| symbol == name)?;
        let next = self.0.iter().find(|(address, _)| address > from)?;
        Some((*from, next.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins")
    }

    #[test]
    fn cache_model_counts_known_accesses() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("check");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program)
            .arg(sources().join("cache_check.c"));
        shell::run(&mut gcc).unwrap();
        shell::run(&mut Command::new(program)).unwrap();
    }

    #[test]
    fn function_ends_where_the_next_begins() {
        let symbols = Symbols::parse(
            "0000000000001000 D cpu_debug_store\n\
             ffffffff8176a820 T clear_page_orig\n\
             ffffffff8176a810 T clear_page_rep\n\
             ffffffff8176a818 d clear_page_table\n\
             ffffffff8176a860 T clear_page_erms\n",
        );
        let rep = (0xffff_ffff_8176_a810, 0xffff_ffff_8176_a820);
        assert_eq!(symbols.get("clear_page_rep"), Some(rep));
        assert_eq!(symbols.get("zeroer_main"), None);
    }

    #[test]
    fn reports_are_keyed_by_number() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cache.jsonl");
        fs::write(
            &file,
            "{\"report\":3,\"values\":{\"cache_tasks\":1}}\n{\"report\":3,\"values\":{\"cache_tasks\":2}}\n",
        )
        .unwrap();
        let reports = reports(&file).unwrap();
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[&3].values["cache_tasks"], 2.0);
    }

    #[test]
    fn miss_latency_depends_on_the_serving_level() {
        let mut values: BTreeMap<String, f64> = [
            ("cache_app_l1_misses".into(), 1110.0),
            ("cache_app_l2_misses".into(), 110.0),
            ("cache_app_llc_misses".into(), 10.0),
        ]
        .into();
        add_waits(&mut values);
        assert_eq!(values["cache_app_wait_us"], 3.0 + 1.05 + 0.615);
    }
}
