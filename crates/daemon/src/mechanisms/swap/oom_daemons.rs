// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds other programs that kill when memory runs short, and describes when they do.
//!
//! Limelight leaves these programs alone. With their default settings, Limelight acts earlier than
//! they do. Limelight reads the gauge again right before a kill, and waits for the memory that
//! another program's kill frees. So Limelight and such a program do not kill for the same shortage.
//! The user should know about these programs all the same.

use std::fs;
use std::path::Path;
use std::time::Duration;

use limelight_sys::proc::Proc;
use limelight_sys::tree::ProcessTree;

use crate::system::{own_memory, System};

/// Another program that acts on memory shortages: it kills, frees or reserves memory, or notifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Killer {
    /// Its name.
    pub name: &'static str,
    /// Its process.
    pub pid: i32,
    /// Whether the program ends processes, or makes the kernel end them.
    pub kills: bool,
    /// What it does and when, as a clause.
    pub does: String,
}

impl std::fmt::Display for Killer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (pid {}) {}", self.name, self.pid, self.does)
    }
}

/// Scan interval. It is long because OOM daemons usually start at boot.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Other OOM daemons that run, as of the last scan.
#[derive(Debug, Default)]
pub struct OomDaemons {
    looked_at: Option<Duration>,
    /// The daemons.
    pub found: Vec<Killer>,
}

impl OomDaemons {
    /// Scans again if the last scan is stale.
    pub fn look(&mut self, system: &System, at: Duration) {
        let fresh = |then: Duration| at.saturating_sub(then) < LOOK_EVERY;
        if !self.looked_at.is_some_and(fresh) {
            self.looked_at = Some(at);
            self.found = find(&system.proc, Path::new("/"));
        }
    }
}

/// Number of daemons that are reported. Any user can give a process any of the names.
const FOUND_MAX: usize = 16;

/// Those of [`KNOWN`] that end no process.
const HARMLESS: [&str; 2] = ["psi-notify", "uresourced"];

/// For each program: its name as the kernel truncates it (15 bytes), its full name, and what it
/// does. The last text is empty if it is built from the program's configuration.
const KNOWN: [(&str, &str, &str); 9] = [
    ("systemd-oomd", "systemd-oomd", ""),
    ("earlyoom", "earlyoom", ""),
    (
        "nohang",
        "nohang",
        "warns and kills single processes by its own rules (/etc/nohang/nohang.conf)",
    ),
    (
        "low-memory-moni",
        "low-memory-monitor",
        "asks apps for memory, and triggers the kernel's OOM killer",
    ),
    ("oomd", "oomd", "kills cgroups by its own rules"),
    (
        "psi-notify",
        "psi-notify",
        "only notifies the user of shortages",
    ),
    (
        "uresourced",
        "uresourced",
        "kills no app, and reserves memory for the active user's session, which counts against \
         protect's budget",
    ),
    ("bustd", "bustd", "kills single processes"),
    (
        "lmkd",
        "lmkd",
        "kills apps by their oom_score_adj (Android)",
    ),
];

/// All programs of `KNOWN` that run. `root` holds `/etc`, `/run` and `/usr`.
pub fn find(proc: &Proc, root: &Path) -> Vec<Killer> {
    of_tree(proc, &proc.tree().unwrap_or_default(), root)
}

fn of_tree(proc: &Proc, tree: &ProcessTree, root: &Path) -> Vec<Killer> {
    let known = |comm: &str| KNOWN.iter().find(|(kept, _, _)| *kept == comm);
    tree.iter()
        .filter_map(|stat| {
            let (_, name, does) = known(&stat.comm)?;
            let does = match *name {
                "systemd-oomd" => oomd(root),
                "earlyoom" => {
                    let process = proc.process(stat.pid).ok();
                    let arguments = process.and_then(|process| own_memory::arguments(&process));
                    earlyoom(&arguments.unwrap_or_default())
                }
                _ => (*does).to_owned(),
            };
            Some(Killer {
                name,
                pid: stat.pid,
                kills: !HARMLESS.contains(name),
                does,
            })
        })
        .take(FOUND_MAX)
        .collect()
}

/// Describes what systemd-oomd does, from its configuration. The units' own settings determine
/// which of them it watches.
fn oomd(root: &Path) -> String {
    let mut swap = "90%".to_owned();
    let mut pressure = "60%".to_owned();
    let mut lasting = "30s".to_owned();
    for text in oomd_files(root) {
        for line in text.lines() {
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            let place = match key.trim() {
                "SwapUsedLimit" => &mut swap,
                "DefaultMemoryPressureLimit" => &mut pressure,
                "DefaultMemoryPressureDurationSec" => &mut lasting,
                _ => continue,
            };
            // An empty value counts as unset.
            if !value.trim().is_empty() {
                *place = value.trim().to_owned();
            }
        }
    }
    format!(
        "kills a whole unit when memory and swap are used beyond {swap}, or when a unit that it watches stalls for more than {pressure} of {lasting}"
    )
}

/// The texts of the configuration files in reading order; later ones take precedence.
fn oomd_files(root: &Path) -> Vec<String> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let mut texts: Vec<String> = ["usr/lib", "run", "etc"]
        .iter()
        .rev()
        .find_map(|place| read(&root.join(place).join("systemd/oomd.conf")))
        .into_iter()
        .collect();
    let mut drop_ins = Vec::new();
    for place in ["usr/lib", "run", "etc"] {
        let directory = root.join(place).join("systemd/oomd.conf.d");
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        drop_ins.extend(entries.map(|entry| entry.path()));
    }
    drop_ins.retain(|path| path.extension().is_some_and(|ext| ext == "conf"));
    // Sorted by file name, regardless of the directory.
    drop_ins.sort_by_key(|path| path.file_name().map(std::ffi::OsStr::to_owned));
    texts.extend(drop_ins.iter().filter_map(|path| read(path)));
    texts
}

/// Describes what earlyoom does, from its command line: `-m` and `-s` set the minimum of available
/// memory and swap, in percent.
fn earlyoom(arguments: &[String]) -> String {
    let percent = |option: &str| {
        let at = arguments.iter().position(|word| word == option);
        let value = at.and_then(|at| arguments.get(at + 1));
        let value = value.or_else(|| arguments.iter().find(|word| word.starts_with(option)));
        let value = value.map(|value| value.trim_start_matches(option));
        let value = value.and_then(|value| value.split(',').next());
        // The arguments may be any user's.
        let value = value.and_then(|value| value.parse().ok());
        value
            .filter(|percent: &f32| (0.0..=100.0).contains(percent))
            .unwrap_or(10.0)
    };
    format!(
        "kills the process with the largest oom_score when less than {} % of memory and {} % of swap are available",
        percent("-m"),
        percent("-s")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture(tempfile::TempDir);

    impl Fixture {
        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn process(&self, pid: i32, comm: &str, arguments: &str) {
            let stat = format!("{pid} ({comm}) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n");
            self.write(&format!("proc/{pid}/stat"), &stat);
            self.write(&format!("proc/{pid}/cmdline"), arguments);
        }

        fn found(&self) -> Vec<Killer> {
            let proc = self.0.path().join("proc");
            find(&Proc::open(proc.to_str().unwrap()).unwrap(), self.0.path())
        }
    }

    #[test]
    fn each_oom_daemon_is_named_with_what_it_does() {
        let system = Fixture(tempfile::tempdir().unwrap());
        system.process(5, "bash", "bash\0");
        assert!(system.found().is_empty());
        system.process(6, "earlyoom", "earlyoom\x00-m\x005,2\x00-s30\x00");
        system.process(7, "low-memory-moni", "x\0");
        let found = system.found();
        assert_eq!(found.len(), 2);
        assert!(
            found[0]
                .does
                .contains("less than 5 % of memory and 30 % of swap"),
            "{found:?}"
        );
        assert_eq!(found[1].name, "low-memory-monitor");
        assert!(found.iter().all(|killer| killer.kills));
        system.process(8, "uresourced", "x\0");
        system.process(9, "psi-notify", "x\0");
        let harmless = system.found().split_off(2);
        assert!(harmless.iter().all(|other| !other.kills), "{harmless:?}");
    }

    /// Any user can start processes with this name and any arguments.
    #[test]
    fn forged_daemons_add_little_text() {
        let system = Fixture(tempfile::tempdir().unwrap());
        let long = format!("x\0-m\0{}\0-s\0nan\0", "9".repeat(100_000));
        for pid in 10..110 {
            system.process(pid, "earlyoom", &long);
        }
        let found = system.found();
        assert_eq!(found.len(), FOUND_MAX);
        let does = &found[0].does;
        assert!(does.contains("10 % of memory and 10 % of swap"), "{does}");
    }

    #[test]
    fn effective_limits_of_oomd_are_found() {
        let system = Fixture(tempfile::tempdir().unwrap());
        system.process(8, "systemd-oomd", "x\0");
        let does = |system: &Fixture| system.found().remove(0).does;
        assert!(does(&system).contains("beyond 90%"), "{}", does(&system));
        system.write("usr/lib/systemd/oomd.conf", "[OOM]\nSwapUsedLimit=70%\n");
        system.write(
            "etc/systemd/oomd.conf",
            "[OOM]\n#SwapUsedLimit=90%\nDefaultMemoryPressureDurationSec=20s\n",
        );
        system.write(
            "etc/systemd/oomd.conf.d/10.conf",
            "[OOM]\nSwapUsedLimit = 50%\n",
        );
        system.write(
            "run/systemd/oomd.conf.d/20.conf",
            "[OOM]\nSwapUsedLimit=40%\n",
        );
        system.write(
            "etc/systemd/oomd.conf.d/30.bak",
            "[OOM]\nSwapUsedLimit=1%\n",
        );
        let text = does(&system);
        assert!(
            text.contains("beyond 40%") && text.contains("60% of 20s"),
            "{text}"
        );
    }
}
