// SPDX-License-Identifier: GPL-2.0-or-later
//! `day`: what else happens on a computer during a day, and how long its user waits.
//!
//! A day has parts. In the first one the user opens each app; in each other one the user visits
//! each app once, in a new order, while a chore runs in the background. Each chore starts over
//! until its part of the day is over, and reports how much it has read and written.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};

use crate::cgroup::Cgroup;
use crate::gallery_real::{graphical, load_script, COPY_MIB};
use crate::process::{run, Process, Start};
use crate::random::Random;
use crate::record::Reporter;
use crate::response::quantile;
use crate::scenario::RealLoad;
use crate::store::Store;
use crate::systemd;

use super::launcher::Visit;
use super::tally::mean;

/// The parts of a day, by their chore. In the first two no chore runs.
const PARTS: [&str; 5] = ["first", "alone", "upgrade", "backup", "index"];

/// The files of the package that is upgraded, and the bytes of each.
const FILES: u32 = 200;
const FILE_BYTES: usize = 64 << 10;

/// A process that runs in the background.
struct Chore {
    name: &'static str,
    cgroup: Cgroup,
    /// A shell's script.
    script: String,
}

/// A chore at work.
struct Running {
    /// Its place in [`Chores::all`].
    place: usize,
    process: Process,
    begun: Instant,
    kib_before: u64,
}

/// All chores of a day.
pub struct Chores {
    all: Vec<Chore>,
    running: Option<Running>,
}

impl Chores {
    /// Prepares the chores' files and cgroups. The cgroups must exist before limelightd starts,
    /// because the state after its end is compared with the one before its start.
    pub fn prepare(store: &mut Store) -> Result<Chores> {
        store.file("background", COPY_MIB)?;
        let Store::Directory(directory) = store else {
            bail!("a day needs a data disk with a file system");
        };
        let data = directory.to_string_lossy();
        let chore = |name, script| -> Result<Chore> {
            // Below the user's slice, because systemd removes empty cgroups of its own that it does
            // not know.
            let cgroup = format!("{}/app-{name}-1.scope", systemd::APPS);
            Ok(Chore {
                name,
                cgroup: Cgroup::create(&cgroup)?,
                script,
            })
        };
        let versions = [1, 2]
            .map(|version| package(directory, version))
            .into_iter()
            .collect::<Result<Vec<_>>>()?;
        let upgrade = format!(
            "while true; do for package in {}; do dpkg -i $package || exit 1; done; done",
            versions.join(" ")
        );
        Ok(Chores {
            all: vec![
                chore("upgrade", upgrade)?,
                chore("backup", load_script(RealLoad::Copy, &data, "")?)?,
                chore("index", load_script(RealLoad::Index, &data, "")?)?,
            ],
            running: None,
        })
    }

    /// Number of parts of the day.
    pub fn parts(&self) -> u32 {
        PARTS.len() as u32
    }

    /// Name of a part of the day.
    pub fn name(&self, part: u32) -> &'static str {
        PARTS[part as usize]
    }

    /// Starts the chore of a part of the day, if it has one.
    pub fn begin(&mut self, part: u32) -> Result<()> {
        let name = self.name(part);
        let Some(place) = self.all.iter().position(|chore| chore.name == name) else {
            return Ok(());
        };
        let chore = &self.all[place];
        let command = graphical("sh", &["-c", &chore.script], name)?;
        self.running = Some(Running {
            place,
            kib_before: transferred_kib(chore.cgroup.path())?,
            process: Start::in_cgroup(&chore.cgroup).program(command, name)?,
            begun: Instant::now(),
        });
        Ok(())
    }

    /// Ends the chore that runs, if one does, and reports what it has done.
    pub fn end(&mut self, reporter: &mut Reporter) -> Result<()> {
        let Some(mut running) = self.running.take() else {
            return Ok(());
        };
        let Chore { name, cgroup, .. } = &self.all[running.place];
        let seconds = running.begun.elapsed().as_secs_f64();
        let kib = transferred_kib(cgroup.path())?.saturating_sub(running.kib_before);
        reporter.value(format!("{name}_s"), seconds);
        reporter.value(format!("{name}_kib"), kib);
        reporter.value(format!("{name}_alive"), running.process.alive());
        cgroup.set("cgroup.kill", "1")?;
        running.process.wait(Duration::from_secs(30)).map(drop)
    }
}

/// Notes the chores that are among the `closed` apps, also those that were closed just as their part
/// of the day ended: [`Chores::end`] may have seen them alive.
pub fn note_closed(closed: &[String], reporter: &mut Reporter) {
    for name in PARTS {
        if closed.iter().any(|app| app == name) {
            reporter.value(format!("{name}_alive"), false);
        }
    }
}

/// Builds a version of the package, unless it exists. Returns its path.
fn package(directory: &Path, version: u32) -> Result<String> {
    let file = directory.join(format!("upgrade-{version}.deb"));
    let path = file.to_string_lossy().into_owned();
    if file.exists() {
        return Ok(path);
    }
    let tree = directory.join("upgrade");
    let content = tree.join("usr/share/upgrade");
    fs::create_dir_all(tree.join("DEBIAN"))?;
    fs::create_dir_all(&content)?;
    let control = format!(
        "Package: upgrade\nVersion: {version}\nArchitecture: all\nMaintainer: The lab \
         <lab@example.org>\nDescription: files that an upgrade replaces\n"
    );
    fs::write(tree.join("DEBIAN/control"), control)?;
    let mut random = Random::new(version.into());
    for number in 0..FILES {
        // Half of the bytes can be compressed, as in programs.
        let mut bytes = vec![0; FILE_BYTES];
        for piece in bytes.chunks_mut(16) {
            for byte in piece.iter_mut().take(8) {
                *byte = random.below(256) as u8;
            }
        }
        fs::write(content.join(number.to_string()), bytes)?;
    }
    let (code, text) = run(
        "/usr/bin/dpkg-deb",
        &["-Zgzip", "-z1", "--build", &tree.to_string_lossy(), &path],
    )?;
    ensure!(code == 0, "dpkg-deb cannot build {path}: {}", text.trim());
    fs::remove_dir_all(&tree)?;
    Ok(path)
}

/// What a cgroup has read from and written to disks other than zram so far, in KiB.
fn transferred_kib(cgroup: &Path) -> Result<u64> {
    let file = cgroup.join("io.stat");
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let is_disk = |number: &str| {
        let target = fs::read_link(Path::new("/sys/dev/block").join(number));
        let name = target.unwrap_or_default().file_name().map(PathBuf::from);
        name.is_some_and(|name| !name.to_string_lossy().starts_with("zram"))
    };
    Ok(bytes_of(&text, is_disk) / 1024)
}

/// Sum of the bytes read and written in a text of `io.stat`, on the devices that `counts` accepts.
fn bytes_of(text: &str, counts: impl Fn(&str) -> bool) -> u64 {
    let bytes = |word: &str| -> Option<u64> {
        let (key, number) = word.split_once('=')?;
        ["rbytes", "wbytes"].contains(&key).then_some(())?;
        number.parse().ok()
    };
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(device, _)| counts(device))
        .flat_map(|(_, rest)| rest.split_ascii_whitespace())
        .filter_map(bytes)
        .sum()
}

/// How long the user waited in each part of the day, in microseconds.
#[derive(Debug, Default)]
pub struct Answers {
    parts: Vec<Part>,
}

/// The waits in one part of the day.
#[derive(Debug)]
struct Part {
    name: &'static str,
    launches_us: Vec<f64>,
    answers_us: Vec<f64>,
}

impl Answers {
    /// Begins a part of the day.
    pub fn begin(&mut self, name: &'static str) {
        self.parts.push(Part {
            name,
            launches_us: Vec::new(),
            answers_us: Vec::new(),
        });
    }

    /// Adds a visit to an app in the present part; without effect if none has begun.
    pub fn add(&mut self, visit: &Visit) {
        let us = |ns: u64| ns as f64 / 1000.0;
        if let Some(part) = self.parts.last_mut() {
            part.launches_us.push(us(visit.launch_ns));
            part.answers_us
                .extend(visit.answers_ns.iter().map(|&ns| us(ns)));
        }
    }

    /// Reports the waits of each part but the first, in which every app is new, and of all of them.
    pub fn report(&self, reporter: &mut Reporter) {
        let (mut launches, mut answers) = (Vec::new(), Vec::new());
        for part in self.parts.iter().skip(1) {
            for (what, samples) in [("launch", &part.launches_us), ("answer", &part.answers_us)] {
                reporter.value(format!("{}_{what}_mean_us", part.name), mean(samples));
            }
            launches.extend(&part.launches_us);
            answers.extend(&part.answers_us);
        }
        reporter.value("launch_p99_us", quantile(&launches, 0.99));
        reporter.value("answer_mean_us", mean(&answers));
        for (name, q) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
            reporter.value(format!("answer_{name}_us"), quantile(&answers, q));
        }
        for answer in answers {
            reporter.sample("answer_us", answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_accepted_devices_are_added() {
        let text = "8:0 rbytes=1024 wbytes=2048 rios=5 wios=6 dbytes=9 dios=0\n\
                    252:0 rbytes=7 wbytes=8 rios=1 wios=1 dbytes=0 dios=0\n8:16\n";
        assert_eq!(bytes_of(text, |device| device == "8:0"), 3072);
        assert_eq!(bytes_of(text, |_| true), 3087);
        assert_eq!(bytes_of("", |_| true), 0);
    }

    #[test]
    fn chore_that_was_closed_as_its_part_ended_did_not_live() {
        let mut reporter = Reporter::new("cell");
        reporter.value("backup_alive", true);
        reporter.value("index_alive", true);
        note_closed(&["gimp", "index"].map(str::to_owned), &mut reporter);
        assert_eq!(reporter.values["backup_alive"], 1.0);
        assert_eq!(reporter.values["index_alive"], 0.0);
        assert!(!reporter.values.contains_key("gimp_alive"));
    }

    #[test]
    fn first_part_is_left_out_of_the_waits() {
        let visit = |launch, answers: &[u64]| Visit {
            launch_ns: launch,
            answers_ns: answers.to_vec(),
        };
        let mut answers = Answers::default();
        answers.begin("first");
        answers.add(&visit(900_000, &[900_000]));
        answers.begin("alone");
        answers.add(&visit(10_000, &[1_000, 3_000]));
        answers.begin("backup");
        answers.add(&visit(30_000, &[8_000]));
        let mut reporter = Reporter::new("cell");
        answers.report(&mut reporter);
        let value = |name: &str| reporter.values[name];
        assert_eq!(value("alone_launch_mean_us"), 10.0);
        assert_eq!(value("alone_answer_mean_us"), 2.0);
        assert_eq!(value("answer_mean_us"), 4.0);
        assert_eq!(value("answer_p99_us"), 8.0);
        assert_eq!(value("launch_p99_us"), 30.0);
        assert_eq!(reporter.series["answer_us"], [1.0, 3.0, 8.0]);
        assert!(!reporter.values.contains_key("first_launch_mean_us"));
    }
}
