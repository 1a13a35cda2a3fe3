// SPDX-License-Identifier: GPL-2.0-or-later
//! Runs `limelightd` and `limelight` in the guest, for one cell of a [`Plan`](crate::plan::Plan).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{sleep, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Context, Result};
use limelight_proto::{HistoryEntry, Response};

use crate::cgroup::{self, Snapshot};
use crate::process::{children, run, send, Process, Start};
use crate::record::Reporter;

/// Path of the daemon.
pub const LIMELIGHTD: &str = "/bin/limelightd";
/// Path of the command line program.
pub const LIMELIGHT: &str = "/bin/limelight";
/// The daemon's log: its standard output and standard error.
pub const LOG: &str = "/run/limelightd.log";
/// Path of the daemon's configuration.
pub const CONFIG: &str = "/etc/limelight/limelight.toml";
/// The directory in which the daemon keeps what it has learnt.
pub const STATE: &str = "/var/lib/limelight";
/// Path of the daemon's control socket.
pub const SOCKET: &str = "/run/limelight/control.sock";

/// Names of the daemon's and its watcher's processes.
const DAEMONS: [&str; 2] = ["limelightd", "limelight-watch"];

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// The restore record, and a damaged one that was set aside. Neither may exist after the daemon has
/// stopped.
const RESTORE_RECORDS: [&str; 2] = [
    "/run/limelight/private/record/restore.json",
    "/run/limelight/private/record/restore.json.corrupt",
];

/// State before the daemon started: values of all cgroups and of some processes.
pub struct Before {
    pids: Vec<i32>,
    values: Snapshot,
}

impl Before {
    /// Records the values of all cgroups and of the processes in `pids`.
    pub fn now(pids: &[i32]) -> Result<Self> {
        Ok(Before {
            pids: pids.to_vec(),
            values: cgroup::snapshot(pids)?,
        })
    }

    /// The values that differ now, one line each. Ended processes are left out.
    pub fn changes(&self) -> Result<Vec<String>> {
        let now = cgroup::snapshot(&self.pids)?;
        let mut changes = cgroup::differences(&self.values, &now);
        changes.retain(|change| !(change.starts_with("/proc/") && change.ends_with("-> gone")));
        Ok(changes)
    }

    /// Checks that no value differs.
    pub fn check_restored(&self, when: &str, reporter: &Reporter) -> Result<()> {
        let changes = self.changes()?;
        reporter.check(
            format!(
                "{when}, every cgroup and process value is what it was before limelightd started"
            ),
            changes.is_empty(),
            if changes.is_empty() {
                format!("{} values equal", self.values.len())
            } else {
                changes.join("; ")
            },
        )
    }
}

/// Checks that no restore record is left.
fn check_record_gone(reporter: &Reporter) -> Result<()> {
    let left: Vec<String> = RESTORE_RECORDS
        .into_iter()
        .filter_map(|path| Some(format!("{path}: {}", fs::read_to_string(path).ok()?)))
        .collect();
    reporter.check(
        "after limelightd stopped, the restore record is gone",
        left.is_empty(),
        if left.is_empty() {
            "nothing to restore".into()
        } else {
            left.join(", ")
        },
    )
}

/// A running daemon, and the state before it started.
pub struct Daemon {
    process: Process,
    before: Before,
}

impl Daemon {
    /// Starts the daemon and waits until `limelight status` succeeds. [`Daemon::stop`] later checks
    /// that all cgroups and the processes in `pids` have the values that they have now.
    pub fn start(pids: &[i32]) -> Result<Self> {
        Daemon::start_after(Before::now(pids)?)
    }

    /// [`Daemon::start`] with this process's app in the foreground.
    pub fn start_with_topmost(pid: i32) -> Result<Self> {
        let daemon = Daemon::start(&[pid])?;
        focus(pid)?;
        Ok(daemon)
    }

    /// Like [`Daemon::start`], but [`Daemon::stop`] compares with `before`, for example the state
    /// before a predecessor that was killed had started.
    pub fn start_after(before: Before) -> Result<Self> {
        let log = open_log().with_context(|| format!("cannot create {LOG}"))?;
        let mut command = Command::new(LIMELIGHTD);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut daemon = Daemon {
            process: Start::PLAIN.program(command, "limelightd")?,
            before,
        };
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let (code, text) = run(LIMELIGHT, &["status"])?;
            if code == 0 {
                return Ok(daemon);
            }
            if let Some(status) = daemon.process.ended()? {
                bail!(
                    "limelightd ended at once with {status}; it wrote:\n{}",
                    log_tail()
                );
            }
            if Instant::now() > deadline {
                bail!(
                    "limelight status still exited with {code} after {START_LIMIT:?}:\n{text}\n\
                     limelightd wrote:\n{}",
                    log_tail()
                );
            }
            sleep(Duration::from_millis(50));
        }
    }

    /// The daemon's current resource usage.
    pub fn footprint(&self) -> Result<Footprint> {
        let pid = self.process.pid();
        let status = format!("/proc/{pid}/status");
        let text = fs::read_to_string(&status).with_context(|| format!("cannot read {status}"))?;
        let value = |name: &str| -> Result<u64> {
            text.lines()
                .find_map(|line| {
                    line.strip_prefix(name)?
                        .split_whitespace()
                        .next()?
                        .parse()
                        .ok()
                })
                .with_context(|| format!("{status} has no {name}"))
        };
        Ok(Footprint {
            rss_kib: value("VmRSS:")?,
            threads: value("Threads:")?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
        })
    }

    /// Whether the daemon is running.
    pub fn alive(&mut self) -> bool {
        self.process.alive()
    }

    /// CPU time of each of the daemon's threads, in nanoseconds, by thread name.
    pub fn cpu_by_thread(&self) -> Result<BTreeMap<String, u64>> {
        cpu_by_thread(self.process.pid())
    }

    /// CPU time of all the daemon's threads, in nanoseconds.
    pub fn cpu_ns(&self) -> Result<u64> {
        Ok(self.cpu_by_thread()?.values().sum())
    }

    /// The daemon's PID.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// The state before the daemon started.
    pub fn before(&self) -> &Before {
        &self.before
    }

    /// Ends the daemon with SIGTERM. Returns its exit code and the state before it started.
    pub fn end(mut self) -> Result<(i32, Before)> {
        self.process.signal(libc::SIGTERM)?;
        let code = self
            .process
            .wait(STOP_LIMIT)
            .with_context(|| format!("limelightd wrote:\n{}", log_tail()))?;
        Ok((code, self.before))
    }

    /// Ends the daemon with SIGTERM. Checks that its exit code is 0, that every value is restored,
    /// and that no restore record is left.
    pub fn stop(self, reporter: &Reporter) -> Result<()> {
        let (code, before) = self.end()?;
        reporter.check(
            "limelightd ends with exit code 0 on SIGTERM",
            code == 0,
            if code == 0 {
                "exit code 0".into()
            } else {
                format!("exit code {code}; it wrote:\n{}", log_tail())
            },
        )?;
        before.check_restored("after limelightd stopped", reporter)?;
        check_record_gone(reporter)
    }

    /// Sends the daemon a signal.
    pub fn signal(&self, signal: i32) -> Result<()> {
        self.process.signal(signal)
    }

    /// PID of the daemon's watcher process; `None` if no watcher is running.
    pub fn watcher(&self) -> Result<Option<i32>> {
        Ok(children(self.pid())?.into_iter().next())
    }

    /// Kills the daemon and its watcher process, so that nothing is restored. Returns the state
    /// before the daemon started.
    pub fn kill(self) -> Result<Before> {
        let watcher = self.watcher()?;
        // The watcher is first suspended, and killed only after the daemon: a running daemon would
        // replace a killed watcher.
        watcher.map_or(Ok(()), |pid| send(pid, libc::SIGSTOP))?;
        let before = self.kill_alone()?;
        watcher.map_or(Ok(()), |pid| send(pid, libc::SIGKILL))?;
        Ok(before)
    }

    /// Kills only the daemon: its watcher restores everything. Returns the state before the daemon
    /// started.
    pub fn kill_alone(mut self) -> Result<Before> {
        self.process.signal(libc::SIGKILL)?;
        self.process.wait(STOP_LIMIT)?;
        Ok(self.before)
    }

    /// Kills the daemon with SIGKILL and starts a successor, which must remove the killed daemon's
    /// trace instance, the directory `instance`.
    pub fn replace_killed(self, instance: &Path, reporter: &Reporter) -> Result<Daemon> {
        let before = self.kill()?;
        let left = instance.exists();
        let daemon = Daemon::start_after(before)?;
        let gone = !instance.exists();
        reporter.check(
            "a successor removes the trace instance that a killed daemon left",
            left && gone,
            format!("existed after the kill: {left}; gone after the successor started: {gone}"),
        )?;
        Ok(daemon)
    }
}

/// CPU time of each thread of a process, in nanoseconds, by thread name.
pub fn cpu_by_thread(pid: i32) -> Result<BTreeMap<String, u64>> {
    let tasks = format!("/proc/{pid}/task");
    let mut times = BTreeMap::new();
    for task in fs::read_dir(&tasks).with_context(|| format!("cannot list {tasks}"))? {
        let task = task?.path();
        let read = |file| {
            let path = task.join(file);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let text = read("schedstat")?;
        let time: Option<u64> = text.split(' ').next().and_then(|word| word.parse().ok());
        let time = time.with_context(|| {
            format!(
                "{}/schedstat does not start with a number: {text:?}",
                task.display()
            )
        })?;
        *times.entry(read("comm")?.trim().to_owned()).or_default() += time;
    }
    Ok(times)
}

/// Voluntary context switches of each thread of a process, by TID, with its name.
pub fn wakeups(pid: i32) -> Result<BTreeMap<String, (String, u64)>> {
    let tasks = format!("/proc/{pid}/task");
    let mut all = BTreeMap::new();
    for task in fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))? {
        let path = task?.path().join("status");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name));
            value.map(|value| value.trim().to_owned())
        };
        let count = field("voluntary_ctxt_switches:").and_then(|count| count.parse().ok());
        let count = count.with_context(|| format!("{} has no switch count", path.display()))?;
        let thread = field("Pid:").unwrap_or_default();
        all.insert(thread, (field("Name:").unwrap_or_default(), count));
    }
    Ok(all)
}

/// Voluntary context switches of a process's main thread.
pub fn main_wakeups(pid: i32) -> Result<u64> {
    let main = wakeups(pid)?.remove(&pid.to_string());
    main.map(|(_, count)| count)
        .with_context(|| format!("the main thread of process {pid} no longer exists"))
}

/// Gives the focus to an app.
pub fn focus(pid: i32) -> Result<()> {
    limelight(&["focus", &pid.to_string()])
}

/// Runs `limelight`, which must succeed. The timeout is long: a debug kernel under memory pressure,
/// emulated on a busy host, is slow.
pub fn limelight(arguments: &[&str]) -> Result<()> {
    let patient: Vec<&str> = ["--timeout", "120"]
        .iter()
        .chain(arguments)
        .copied()
        .collect();
    let (code, text) = run(LIMELIGHT, &patient)?;
    if code != 0 {
        bail!(
            "limelight {} exited with {code}:\n{text}\nlimelightd wrote:\n{}",
            arguments.join(" "),
            log_tail()
        );
    }
    Ok(())
}

/// Writes the daemon's configuration, which it reads at its start.
pub fn write_config(text: &str) -> Result<()> {
    let directory = Path::new(CONFIG).parent().context("no directory")?;
    fs::create_dir_all(directory)?;
    fs::write(CONFIG, text).with_context(|| format!("cannot write {CONFIG}"))
}

/// A persistent connection to the daemon's control socket, like a compositor's.
pub struct Line {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Line {
    /// Connects to the daemon.
    pub fn connect() -> Result<Line> {
        let stream =
            UnixStream::connect(SOCKET).with_context(|| format!("cannot connect to {SOCKET}"))?;
        let answers = BufReader::new(stream.try_clone()?);
        Ok(Line { stream, answers })
    }

    /// Sends a request and waits for the answer, which must be a success.
    pub fn tell(&mut self, request: &str) -> Result<()> {
        self.send(request)?;
        self.hear(request)
    }

    /// Sends a request without waiting; [`Line::hear`] must follow.
    pub fn send(&mut self, request: &str) -> Result<()> {
        self.stream
            .write_all(format!("{request}\n").as_bytes())
            .with_context(|| format!("cannot send to limelightd; it wrote:\n{}", log_tail()))
    }

    /// Waits for the answer to a request and returns it unchecked.
    pub fn answer(&mut self) -> Result<String> {
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer)
    }

    /// Waits for the answer to a request, which must be a success.
    pub fn hear(&mut self, request: &str) -> Result<()> {
        let answer = self.answer()?;
        if !answer.contains(r#""result":"ok""#) {
            bail!("limelightd answered {answer:?} to {request}");
        }
        Ok(())
    }
}

/// The daemon's history of memory actions, oldest first.
pub fn history() -> Result<Vec<HistoryEntry>> {
    let mut line = Line::connect()?;
    line.stream.write_all(b"{\"op\":\"history\"}\n")?;
    let answer = line.answer()?;
    match serde_json::from_str(&answer) {
        Ok(Response::History { entries, .. }) => Ok(entries),
        _ => bail!("limelightd answered {answer:?} to a request for its history"),
    }
}

/// Exit code and JSON output of `limelight`.
pub fn json(arguments: &[&str]) -> Result<(i32, serde_json::Value)> {
    let all: Vec<&str> = ["--json", "--timeout", "120"]
        .iter()
        .chain(arguments)
        .copied()
        .collect();
    let (code, text) = run(LIMELIGHT, &all)?;
    let value = serde_json::from_str(&text).with_context(|| {
        format!(
            "limelight {arguments:?} exited with {code}, but did not print JSON: {text:?}\n\
             limelightd wrote:\n{}",
            log_tail()
        )
    })?;
    Ok((code, value))
}

/// A client that collects the daemon's notices about memory.
pub struct Listener {
    stream: UnixStream,
    notices: JoinHandle<Vec<String>>,
}

impl Listener {
    /// Starts listening.
    pub fn start() -> Result<Listener> {
        let mut line = Line::connect()?;
        line.tell("{\"op\":\"listen\"}")?;
        let Line { stream, answers } = line;
        let notices = std::thread::spawn(move || answers.lines().map_while(Result::ok).collect());
        Ok(Listener { stream, notices })
    }

    /// Stops, and returns the notices, one line each.
    pub fn stop(self) -> Result<Vec<String>> {
        self.stream.shutdown(Shutdown::Both)?;
        let notices = self.notices.join();
        notices.map_err(|_| anyhow!("the listener's thread has panicked"))
    }
}

/// A running daemon's resource usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Resident memory, in KiB.
    pub rss_kib: u64,
    /// Open file descriptors.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
}

/// The end of the log, then what each thread of each running limelightd and watcher waits for (its
/// system call with arguments, its kernel stack), and the memory that is left: to explain a daemon
/// that hangs.
pub fn state() -> String {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let directories = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let daemons = directories(Path::new("/proc"))
        .map(|entry| entry.path())
        .filter(|process| DAEMONS.contains(&read(process.join("comm")).trim()));
    let threads = daemons.flat_map(|process| directories(&process.join("task")));
    let waits = threads.map(|thread| {
        let of = |name| read(thread.path().join(name)).trim().to_owned();
        let [name, call, stack] = ["comm", "syscall", "stack"].map(of);
        let stack: Vec<&str> = stack.lines().map(str::trim).collect();
        format!(
            "thread {name}: system call {call}; stack {}\n",
            stack.join(" ")
        )
    });
    let waits: String = waits.collect();
    let memory = read(PathBuf::from("/proc/meminfo"));
    let memory: Vec<&str> = memory.lines().take(3).collect();
    format!("{}\n{waits}{}", log_tail(), memory.join("\n"))
}

/// Empties the log and opens it for appending: a killed predecessor's watcher may still write to
/// it, too.
fn open_log() -> std::io::Result<File> {
    File::create(LOG)?;
    File::options().append(true).open(LOG)
}

/// The last lines of the daemon's log.
pub fn log_tail() -> String {
    let text = fs::read_to_string(LOG).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
