// SPDX-License-Identifier: GPL-2.0-or-later
//! Cold start of a real program: Debian's python3, which imports a large part of its library. The
//! files are on a disk with a fixed time per request, and the page cache is empty.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::cgroup::Cgroup;
use crate::counters::Counters;
use crate::daemon::{self, focus, log_tail, Daemon};
use crate::disk::Disk;
use crate::dispatch::Stage;
use crate::guest_setup::{drop_caches, ROOTFS};
use crate::load::{self, Counter};
use crate::memory::now_ns;
use crate::plan::Arm;
use crate::process::{change_root, run as run_program, Start};
use crate::random::seed;
use crate::scenario::{Access, ColdStart, Load};

/// Root of the program's files, on the slow disk.
const TREE: &str = "/data/root";
/// Path of the app's script inside [`TREE`].
const APP: &str = "/start";
/// Directory of the daemon's records of starts.
const RECORDS: &str = "/var/lib/limelight/coldstart";
/// Timeout for a record to appear.
const RECORD_LIMIT: Duration = Duration::from_secs(120);
/// Length of a recorded start, in seconds.
const RECORD_S: u32 = 8;
/// memory.max of each load.
const LOAD_MEMORY: &str = "16M";
/// Time for the loads to reach their full rate, and for caches to settle.
const SETTLE: Duration = Duration::from_secs(2);

/// The script's imports: as many as a medium-sized tool has, spread over the whole library.
const MODULES: &str = "argparse, ast, asyncio, base64, bz2, calendar, cmd, concurrent.futures, \
    configparser, copy, csv, ctypes, dataclasses, datetime, decimal, difflib, dis, doctest, \
    email.message, email.mime.multipart, email.mime.text, email.policy, fractions, ftplib, \
    getpass, gettext, gzip, hashlib, hmac, html.parser, http.client, http.cookiejar, http.server, \
    imaplib, inspect, ipaddress, json, locale, logging.config, logging.handlers, lzma, mailbox, \
    mimetypes, multiprocessing.pool, netrc, optparse, pathlib, pdb, pickle, pkgutil, platform, \
    plistlib, poplib, pprint, pstats, pydoc, queue, random, sched, secrets, selectors, shelve, \
    shlex, shutil, smtplib, socketserver, sqlite3, ssl, statistics, subprocess, tarfile, \
    telnetlib, tempfile, textwrap, timeit, trace, tracemalloc, typing, unittest.mock, \
    urllib.request, uuid, wave, xml.dom.minidom, xml.etree.ElementTree, xml.sax, xmlrpc.client, \
    zipapp, zipfile, zoneinfo";

/// Name prefixes of the shared libraries that python3 and its modules need.
const LIBRARIES: [&str; 16] = [
    "libc.so",
    "libm.so",
    "libz.so",
    "libexpat.so",
    "libssl.so",
    "libcrypto.so",
    "libsqlite3.so",
    "libffi.so",
    "libbz2.so",
    "liblzma.so",
    "libuuid.so",
    "libtinfo.so",
    "libreadline.so",
    "libncursesw.so",
    "libcrypt.so",
    "libdl.so",
];

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &ColdStart) -> Result<()> {
    if stage.machine.rootfs.is_none() {
        bail!("cold-start needs a root file system, and the plan's machine has none");
    }
    let mut store = stage.store()?;
    if !Path::new(&format!("{TREE}{APP}")).exists() {
        stage
            .reporter
            .progress("copying the program to the slow disk")?;
        copy_program()?;
        // The very first start of the program does one-time work, which must not be measured.
        App::start()?;
    }
    let disk = Disk::of(Path::new(TREE))?;
    let specs: Vec<load::Spec> = loads(work.loads)
        .into_iter()
        .enumerate()
        .map(|(number, load)| {
            let counter = PathBuf::from(format!("/run/load-{number}"));
            let seed = seed(number as u64, stage.repetition);
            load::Spec::new(load, &mut store, counter, seed)
        })
        .collect::<Result<_>>()?;
    let counters: Vec<Counter> = specs
        .iter()
        .map(|spec| Counter::create(&spec.counter))
        .collect::<Result<_>>()?;
    // Created before the daemon starts: cgroups created later would count as left behind by the
    // daemon.
    let cgroups: Vec<Cgroup> = (0..specs.len())
        .map(|number| {
            // With more memory, the loads' files would stay cached and the loads would not use the
            // disk.
            let cgroup = Cgroup::create(&format!("background.slice/load-{number}.scope"))?;
            cgroup.set("memory.max", LOAD_MEMORY)?;
            Ok(cgroup)
        })
        .collect::<Result<_>>()?;

    let daemon = match stage.arm {
        Arm::Stock => None,
        Arm::LimelightOnDebian | Arm::Limelight => {
            configure()?;
            Some(Daemon::start(&[])?)
        }
        arm => bail!("cold-start knows no arm {arm:?}"),
    };
    if daemon.is_some() && work.record {
        stage.reporter.progress("recording a start")?;
        drop_caches()?;
        let app = App::start()?;
        focus(app.0.id() as i32)?;
        wait_for_record()?;
    }
    let running = specs
        .iter()
        .zip(&cgroups)
        .map(|(spec, cgroup)| {
            let start = Start::in_cgroup(cgroup);
            start.part("load", spec)
        })
        .collect::<Result<Vec<_>>>()?;
    sleep(SETTLE);
    drop_caches()?;
    sleep(SETTLE);

    let before = Counters::now()?;
    let kib = |counters: &[Counter]| counters.iter().map(Counter::kib).sum::<u64>();
    let (done, requests) = (kib(&counters), disk.requests()?);
    let start_ns = now_ns();
    let app = App::start()?;
    let took_ns = now_ns() - start_ns;
    let requests = disk.requests()?.since(requests);
    let done = kib(&counters).saturating_sub(done);
    before.report(&mut stage.reporter.values)?;
    let reporter = &mut stage.reporter;
    reporter.value("start_us", took_ns as f64 / 1000.0);
    reporter.value("requests", requests.reads);
    reporter.value("read_kib", requests.read_kib);
    reporter.value("major_faults", app.major_faults()?);
    if !specs.is_empty() {
        reporter.value("load_kib_per_s", done as f64 * 1e9 / took_ns as f64);
    }
    drop((app, running));
    if let Some(daemon) = daemon {
        daemon.stop(&stage.reporter)?;
    }
    stage.reporter.finish()
}

/// The first `count` of five loads: three random readers and two copies.
fn loads(count: u32) -> Vec<Load> {
    let index = Load::Index {
        access: Access::Read,
        mib: 64,
    };
    let copy = Load::Copy { mib: 32 };
    let five = [index, copy, index, copy, index];
    five.into_iter().take(count as usize).collect()
}

fn configure() -> Result<()> {
    daemon::write_config(&format!("[readahead]\nrecord_s = {RECORD_S}\n"))
}

/// Waits until the daemon has written a record.
fn wait_for_record() -> Result<()> {
    let deadline = Instant::now() + RECORD_LIMIT;
    loop {
        let records = fs::read_dir(RECORDS).map_or(0, |entries| entries.count());
        if records > 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "no record in {RECORDS} after {RECORD_LIMIT:?}; limelightd wrote:\n{}",
                log_tail()
            );
        }
        sleep(Duration::from_millis(100));
    }
}

/// Copies the program's files from the root file system, with its layout.
fn copy_program() -> Result<()> {
    let libraries = "usr/lib/x86_64-linux-gnu";
    let names = fs::read_dir(Path::new(ROOTFS).join(libraries))
        .context("the root file system has no libraries")?;
    let mut files: Vec<String> = names
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| LIBRARIES.iter().any(|library| name.starts_with(library)))
        .map(|name| format!("{libraries}/{name}"))
        .collect();
    files.extend(["usr/bin/python3.11", "usr/lib/python3.11"].map(String::from));
    for file in files {
        let to = Path::new(TREE).join(&file);
        copy(
            &Path::new(ROOTFS).join(&file),
            to.parent().context("a file has no parent directory")?,
        )?;
    }
    let loader = "ld-linux-x86-64.so.2";
    copy(
        &Path::new(ROOTFS).join(libraries).join(loader),
        &Path::new(TREE).join("lib64"),
    )?;
    fs::create_dir_all(Path::new(TREE).join("lib"))?;
    std::os::unix::fs::symlink(
        "../usr/lib/x86_64-linux-gnu",
        Path::new(TREE).join("lib/x86_64-linux-gnu"),
    )?;
    let app = format!("{TREE}{APP}");
    fs::write(
        &app,
        format!("#!/usr/bin/python3.11\nimport {MODULES}\nprint('ready', flush=True)\ninput()\n"),
    )?;
    fs::set_permissions(&app, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Copies a file or a directory into a directory.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let arguments = ["cp", "-a", &from.to_string_lossy(), &to.to_string_lossy()];
    let (code, text) = run_program("/bin/busybox", &arguments)?;
    if code != 0 {
        bail!("cannot copy {}: {}", from.display(), text.trim());
    }
    Ok(())
}

/// The running program.
struct App(Child);

impl App {
    /// Starts the program and waits until it prints that it is ready.
    fn start() -> Result<Self> {
        let mut command = Command::new(APP);
        command
            .env_clear()
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Start::PLAIN.prepare(&mut command)?;
        change_root(&mut command, TREE)?;
        let mut app = App(command.spawn().context("cannot start python3")?);
        let stdout = app
            .0
            .stdout
            .take()
            .context("the program has no output pipe")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        if line != "ready\n" {
            bail!("the program printed {line:?} instead of \"ready\"");
        }
        Ok(app)
    }

    /// Number of the program's major page faults, which wait for the disk.
    fn major_faults(&self) -> Result<u64> {
        crate::gallery_real::major_faults(self.0.id() as i32)
    }
}

impl Drop for App {
    fn drop(&mut self) {
        if let Some(stdin) = &mut self.0.stdin {
            // The write fails if the program has exited already.
            let _ = stdin.write_all(b"\n");
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
