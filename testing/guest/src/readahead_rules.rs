// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks `readahead`'s promises. The files that an app reads at its start are recorded, and
//! prefetched at its next start. Changed files and damaged records are not used. The topmost app's
//! reads, and no others, take fewer requests.

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use limelight_sys::sched::Cpu;
use serde::{Deserialize, Serialize};

use crate::daemon::{self, focus, limelight, log_tail, Daemon};
use crate::disk::Disk;
use crate::dispatch::Stage;
use crate::guest_setup::{drop_caches, wait};
use crate::memory::{cached_pages, MIB, PAGE};
use crate::process::{Process, Start};
use crate::readahead_bounds;
use crate::reading;
use crate::record::Reporter;
use crate::scenario::{Access, Pattern};
use crate::store::{Extent, Store};

const RECORDS: &str = "/var/lib/limelight/coldstart";
/// Pause before a start: the daemon replays a program's start at most once in five seconds.
const AGAIN: Duration = Duration::from_secs(6);
/// Length of a recorded start in seconds: enough for all of its reads, even on a busy host.
const RECORD_S: u32 = 8;
/// Size of each file that the app reads.
const FILE_MIB: u32 = 4;
/// Size of each of the two files that are read sequentially and in clusters.
const STREAM_MIB: u32 = 8;
/// Number of clusters that are read in each of these two files.
const CLUSTERS: u32 = 24;
/// Without Limelight, the same read must take at least this many times the topmost reader's
/// requests.
const FEWER: u64 = 2;

/// The app's reads when it starts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Spec {
    /// The files to read, whole or in part.
    pub parts: Vec<Extent>,
}

/// The app's process: reads the files, reports that it is ready, and waits for input.
pub fn starter(spec: &Spec) -> Result<()> {
    for part in &spec.parts {
        let mut bytes = vec![0u8; part.len as usize];
        part.open()?
            .read_exact_at(&mut bytes, part.offset)
            .context("the app cannot read")?;
    }
    println!("true");
    io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

/// Runs the test.
pub fn run(stage: Stage) -> Result<()> {
    let mut store = stage.store()?;
    let files = ["one", "two", "three"].map(|name| store.file(name, FILE_MIB));
    let [one, two, three] = files;
    let rules = Rules {
        one: one?,
        two: two?,
        three: three?,
        program: program(&store)?,
        reporter: &stage.reporter,
    };
    let front = store.file("front", STREAM_MIB)?;
    let behind = store.file("behind", STREAM_MIB)?;
    let stream = Pattern::Sequential { bytes: 48 };
    let places = Pattern::Clusters {
        access: Access::Read,
        clusters: CLUSTERS,
    };
    let alone = read(&behind, stream, false)?;
    read(&behind, places, false)?;
    let places_alone = pages(&behind)?;

    write_config()?;
    let daemon = Daemon::start(&[])?;
    rules.recorded()?;
    rules.replayed()?;
    rules.changed()?;
    rules.damaged()?;

    let app = read(&front, stream, true)?;
    let background = read(&behind, stream, false)?;
    stage.reporter.check(
        "the foreground app's sequential read takes at most half of the requests of the same read \
         without Limelight",
        app * FEWER <= alone,
        format!("{app} requests, without Limelight {alone}"),
    )?;
    stage.reporter.check(
        "a background process's sequential read takes as many requests as without Limelight",
        background.abs_diff(alone) <= alone / 10 + 2,
        format!("{background} requests, without Limelight {alone}"),
    )?;
    // The number of saved requests depends on the disk; the number of pages read does not.
    read(&front, places, true)?;
    let most = u64::from(CLUSTERS) * (reading::CLUSTER / PAGE as u64) * 3 / 4;
    let done = wait(|| Ok(pages(&front)? >= most))?;
    stage.reporter.check(
        "when the foreground app reads in clusters, the neighbouring pages are read too",
        done,
        format!("{} pages, without Limelight {places_alone}", pages(&front)?),
    )?;
    read(&behind, places, false)?;
    let background = pages(&behind)?;
    stage.reporter.check(
        "when a background process reads in clusters, only the usual pages are read",
        background == places_alone,
        format!("{background} pages, without Limelight {places_alone}"),
    )?;
    readahead_bounds::check(&front, CLUSTERS, &stage.reporter)?;
    daemon.stop(&stage.reporter)?;
    stage.reporter.finish()
}

struct Rules<'a> {
    one: Extent,
    two: Extent,
    three: Extent,
    program: PathBuf,
    reporter: &'a Reporter,
}

impl Rules<'_> {
    fn recorded(&self) -> Result<()> {
        let part = |offset: usize, len: usize| Extent {
            offset: offset as u64,
            len: len as u64,
            ..self.one.clone()
        };
        drop_caches()?;
        let app = self.start(&Spec {
            parts: vec![
                part(0, MIB),
                part(3 * MIB, MIB / 2),
                self.two.clone(),
                self.three.clone(),
            ],
        })?;
        focus(app.pid())?;
        wait(|| Ok(records().len() == 1))?;
        // The executable alone would yield a record; this check looks for the files that were read.
        let text = records().pop().map(fs::read_to_string).transpose()?;
        let text = text.unwrap_or_default();
        let files = [&self.one, &self.two, &self.three];
        let names = files.map(|file| file.path.to_string_lossy());
        let complete = names.iter().all(|name| text.contains(&**name));
        self.reporter.check(
            "the start of the foreground app is recorded with all files that it read",
            complete,
            match complete {
                true => format!("{:?}", records()),
                false => format!("{text}\n{}", log_tail()),
            },
        )
    }

    fn replayed(&self) -> Result<()> {
        let app = self.start_cold()?;
        let boosted = wait(|| Ok(nice(&app)? == -20))?;
        self.reporter.check(
            "a program with a recorded start is boosted before it is in the foreground",
            boosted,
            format!("nice {}", nice(&app)?),
        )?;
        // The daemon requests the files in this order; the disk may complete them in another one.
        let read = (3 * MIB / 2 / PAGE) as u64;
        let done = wait(|| {
            Ok(pages(&self.one)? >= read
                && pages(&self.two)? == whole(&self.two)
                && pages(&self.three)? == whole(&self.three))
        })?;
        let one = pages(&self.one)?;
        self.reporter.check(
            "pages read at the last start are prefetched at the next one",
            done,
            match done {
                true => format!("{one} pages of the first file"),
                false => log_tail(),
            },
        )?;
        self.reporter.check(
            "pages that were not read are not prefetched",
            one < whole(&self.one),
            format!(
                "{one} of {} pages of a file that is read in part",
                whole(&self.one)
            ),
        )?;
        let back = wait(|| Ok(nice(&app)? == 0))?;
        self.reporter.check(
            "a program that is not in the foreground after its start loses the boost",
            back,
            format!("nice {}", nice(&app)?),
        )
    }

    fn changed(&self) -> Result<()> {
        OpenOptions::new()
            .write(true)
            .open(&self.three.path)?
            .write_all(b"changed")?;
        let _app = self.start_cold()?;
        let done = wait(|| Ok(pages(&self.two)? == whole(&self.two)))?;
        let three = pages(&self.three)?;
        self.reporter.check(
            "a file that has changed since the recorded start is not prefetched, unlike the others",
            done && three == 0,
            format!(
                "{} pages of an unchanged file, {three} of the changed file",
                pages(&self.two)?
            ),
        )
    }

    fn damaged(&self) -> Result<()> {
        let path = records().pop().context("there is no record")?;
        let text = fs::read(&path)?;
        fs::write(&path, text.get(..text.len() / 2).unwrap_or_default())?;
        let _app = self.start_cold()?;
        let name = path.to_string_lossy().into_owned();
        let is_warning = |line: &str| line.contains(&name) && line.contains("wrong checksum");
        let warned = wait(|| Ok(log_tail().lines().any(is_warning)))?;
        let cached = pages(&self.two)?;
        self.reporter.check(
            "a damaged record is named in the log, and its files are not prefetched",
            warned && cached == 0,
            if warned {
                format!("{cached} pages of a file in the record")
            } else {
                log_tail()
            },
        )?;
        let answers = limelight(&["status"]);
        self.reporter.check(
            "limelightd still answers after a damaged record",
            answers.is_ok(),
            format!("result of limelight status: {answers:?}"),
        )
    }

    /// Starts the app with an empty page cache; it reads no files itself.
    fn start_cold(&self) -> Result<Process> {
        sleep(AGAIN);
        drop_caches()?;
        self.start(&Spec::default())
    }

    fn start(&self, spec: &Spec) -> Result<Process> {
        let mut command = Command::new(&self.program);
        command
            .arg("starter")
            .arg(serde_json::to_string(spec)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        Start::PLAIN.program(command, "starter")
    }
}

/// Copies this program to the disk: executables in the initramfs are not recorded.
fn program(store: &Store) -> Result<PathBuf> {
    let Store::Directory(directory) = store else {
        bail!("this test needs a data disk with a file system");
    };
    let program = directory.join("starter");
    fs::copy("/proc/self/exe", &program)
        .with_context(|| format!("cannot write {}", program.display()))?;
    Ok(program)
}

fn write_config() -> Result<()> {
    daemon::write_config(&format!("[expert]\nreadahead_record_s = {RECORD_S}\n"))
}

fn records() -> Vec<PathBuf> {
    let entries = fs::read_dir(RECORDS).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .filter(|path| !path.to_string_lossy().contains("/."))
        .collect()
}

/// Reads a file in a new process, which has the focus if `front`. Returns the number of disk
/// requests.
pub fn read(file: &Extent, pattern: Pattern, front: bool) -> Result<u64> {
    drop_caches()?;
    let spec = reading::Spec {
        file: file.clone(),
        pattern,
        seed: 0,
    };
    let mut reader = Start::PLAIN.conversation("reader", &spec)?;
    let _ready: bool = reader.hear()?;
    if front {
        focus(reader.process.pid())?;
    }
    let disk = Disk::of(&file.path)?;
    let before = disk.requests()?;
    let _done: reading::Finished = reader.ask("read")?;
    Ok(disk.requests()?.since(before).reads)
}

fn nice(process: &Process) -> Result<i32> {
    Ok(Cpu::of(process.pid())?.nice())
}

fn pages(file: &Extent) -> Result<u64> {
    cached_pages(&file.open()?, file.offset, file.len)
}

fn whole(file: &Extent) -> u64 {
    file.len / PAGE as u64
}
