// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks the safety gate on a real kernel. The foreground app shares a cgroup with background
//! apps, and memory runs short. Limelight must never stop, limit or kill the foreground app, or
//! squeeze it through its cgroup.

use std::fs;
use std::io::{self, BufRead};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use limelight_proto::{HistoryEntry, MemoryAction};
use serde::{Deserialize, Serialize};

use crate::cgroup::{self, Cgroup};
use crate::daemon::{self, focus, history, Daemon, Listener};
use crate::dispatch::Stage;
use crate::load::Counter;
use crate::memory::{Mapping, MIB};
use crate::process::{children, send, Conversation, Process, Start};
use crate::random::Random;
use crate::record::Reporter;
use crate::scenario::{Gate, Sharing};

/// Memory of the app that leaves the foreground, and of the app that enters it, in MiB.
const BACKGROUND_MIB: u32 = 40;
const FOREGROUND_MIB: u32 = 24;
/// The load's memory in MiB: nearly all of the machine's.
const LOAD_MIB: u32 = 150;
/// The load's cgroup. The load is not an app: it has no desktop unit and is never in the
/// foreground.
const LOAD: &str = "bg";

/// Cgroups that are created before the daemon starts, so that all their values are compared at the
/// end.
const GROUPS: [&str; 4] = [LOAD, "other", "c1", "machine.slice/ctr-web.scope/payload"];

/// Duration of the load. The freeze that this scenario guards against came after 3 to 6 s.
const UNDER_LOAD: Duration = Duration::from_secs(14);
/// The foreground app must make progress in this last part of [`UNDER_LOAD`].
const LAST: Duration = Duration::from_secs(4);
const SAMPLE: Duration = Duration::from_millis(20);
/// During a shortage, the daemon may send at most one notice in this interval.
const NOTICE_EVERY: Duration = Duration::from_secs(10);

/// Environment variable that is set for a child. The child may be PID 1 of its own namespace, but
/// it is not the guest's init.
pub const CONTAINED: &str = "LIMELIGHT_GUEST_CONTAINED";

/// Interval at which an app touches a page and counts it.
const BEAT: Duration = Duration::from_millis(10);
/// Timeout; only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Parameters of an app's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The process's memory, in MiB.
    pub mib: u32,
    /// File of the counter of touched pages.
    pub counter: PathBuf,
    /// Whether the process starts its children in their own PID and cgroup namespaces, as a
    /// container runtime does.
    pub contained: bool,
}

/// The app's process, which prints its PID when it has its memory. For each line `start SPEC` on
/// standard input it starts another app as its child, in the same cgroup, and prints the child's
/// PID.
pub fn app(spec: &Spec) -> Result<()> {
    let counter = Counter::open(&spec.counter)?;
    let mut random = Random::new(u64::from(spec.mib));
    let mut heap = Mapping::anonymous(spec.mib as usize * MIB)?;
    for page in 0..heap.pages() {
        heap.fill_page(page, &mut random);
    }
    println!("{}", std::process::id());
    let (tell, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    // After unshare() no thread can be created.
    if spec.contained {
        // SAFETY: the call takes no pointers.
        if unsafe { libc::unshare(libc::CLONE_NEWPID | libc::CLONE_NEWCGROUP) } != 0 {
            return Err(io::Error::last_os_error()).context("cannot create namespaces");
        }
    }
    let mut children = Vec::new();
    loop {
        match lines.recv_timeout(BEAT) {
            Ok(line) => {
                let child = match line.split_once(' ') {
                    Some(("start", spec)) => start_child(spec)?,
                    _ => bail!("the app has no command {line:?}"),
                };
                println!("{}", child.id());
                children.push(child);
            }
            Err(RecvTimeoutError::Timeout) => {}
            // Standard input has ended. A child's standard input is /dev/null; that of an app
            // which the runner started ends when the runner exits.
            Err(RecvTimeoutError::Disconnected) => sleep(BEAT),
        }
        let page = random.below(heap.pages() as u64) as usize;
        heap.dirty_page(page, random.word());
        counter.add(1);
    }
}

fn start_child(spec: &str) -> Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["gate-app", spec])
        .env(CONTAINED, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command.spawn().context("cannot start a child")
}

/// A process of the scenario, as the runner observes it.
#[derive(Clone)]
struct Seen {
    pub pid: i32,
    pub counter: Rc<Counter>,
}

impl Seen {
    /// Cgroups with knobs that affect this process: its own cgroup and all ancestors but the root.
    fn chain(&self) -> Result<Vec<PathBuf>> {
        let own = cgroup::of(self.pid)?;
        let below_root = |path: &&Path| *path != Path::new(cgroup::ROOT);
        let chain = own.ancestors().take_while(below_root);
        Ok(chain.map(Path::to_owned).collect())
    }

    /// The knobs that currently freeze this process or limit its swap, one line each.
    pub fn limited(&self) -> Result<Vec<String>> {
        let mut limits = Vec::new();
        for group in self.chain()? {
            for (file, free) in [("cgroup.freeze", "0"), ("memory.swap.max", "max")] {
                let found = fs::read_to_string(group.join(file)).unwrap_or_default();
                let found = found.trim();
                if !found.is_empty() && found != free {
                    limits.push(format!("{}/{file} is {found}", group.display()));
                }
            }
        }
        Ok(limits)
    }

    pub fn is_alive(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
        !state.is_empty() && !state.starts_with(['Z', 'X'])
    }
}

/// A process started by the scenario's runner.
struct Started {
    pub seen: Seen,
    talk: Conversation,
    children: Vec<i32>,
}

impl Started {
    pub fn start(stage: &Counters, mib: u32, cgroup: &Cgroup, contained: bool) -> Result<Started> {
        let (spec, counter) = stage.spec(mib, contained)?;
        let start = Start::in_cgroup(cgroup);
        let mut talk = start.conversation("gate-app", &spec)?;
        let pid: i32 = talk.hear()?;
        Ok(Started {
            seen: Seen { pid, counter },
            talk,
            children: Vec::new(),
        })
    }

    /// Makes this process start a child in the same cgroup.
    pub fn start_child(&mut self, stage: &Counters, mib: u32) -> Result<Seen> {
        let (spec, counter) = stage.spec(mib, false)?;
        let known = children(self.seen.pid)?;
        // The answer is ignored: it is the child's PID in the parent's namespace, not in the
        // runner's.
        let _: i32 = self
            .talk
            .ask(&format!("start {}", serde_json::to_string(&spec)?))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let fresh = children(self.seen.pid)?;
            let fresh = fresh.into_iter().find(|pid| !known.contains(pid));
            if let Some(pid) = fresh.filter(|_| counter.kib() > 0) {
                self.children.push(pid);
                return Ok(Seen { pid, counter });
            }
            if Instant::now() > deadline {
                bail!("the child does not touch its memory");
            }
            sleep(SAMPLE);
        }
    }

    pub fn pid(&self) -> i32 {
        self.seen.pid
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for child in &self.children {
            // A child runs until it is killed.
            let _ = send(*child, libc::SIGKILL);
        }
    }
}

/// Creates counters, each in its own file.
struct Counters {
    index: usize,
    given: std::cell::Cell<usize>,
}

impl Counters {
    pub fn new(index: usize) -> Counters {
        Counters {
            index,
            given: std::cell::Cell::new(0),
        }
    }

    pub fn spec(&self, mib: u32, contained: bool) -> Result<(Spec, Rc<Counter>)> {
        let number = self.given.get();
        self.given.set(number + 1);
        let path = PathBuf::from(format!("/tmp/gate-{}-{number}", self.index));
        let counter = Rc::new(Counter::create(&path)?);
        let spec = Spec {
            mib,
            counter: path,
            contained,
        };
        Ok((spec, counter))
    }
}

/// The foreground process of one situation, and the processes that the runner started for it.
struct Scene {
    front: Seen,
    started: Vec<Started>,
}

/// Starts a situation's processes and focuses them in turn, the foreground process last.
fn arrange(sharing: Sharing, counters: &Counters) -> Result<Scene> {
    let (front, started) = match sharing {
        Sharing::Child | Sharing::Container => {
            let contained = sharing == Sharing::Container;
            let path = match contained {
                true => "machine.slice/ctr-web.scope/payload",
                false => "fg",
            };
            let mut parent =
                Started::start(counters, BACKGROUND_MIB, &Cgroup::create(path)?, contained)?;
            focus(parent.pid())?;
            let front = parent.start_child(counters, FOREGROUND_MIB)?;
            focus(front.pid)?;
            (front, vec![parent])
        }
        Sharing::Nested => {
            let outer = Cgroup::create("fg")?;
            let inner = outer.child("sub")?;
            let background = Started::start(counters, BACKGROUND_MIB, &outer, false)?;
            focus(background.pid())?;
            let front = Started::start(counters, FOREGROUND_MIB, &inner, false)?;
            focus(front.pid())?;
            let seen = front.seen.clone();
            (seen, vec![background, front])
        }
        Sharing::Windows => {
            let shared = Cgroup::create("fg")?;
            let mut main = Started::start(counters, BACKGROUND_MIB / 2, &shared, false)?;
            let first = main.start_child(counters, BACKGROUND_MIB / 2)?;
            let second = main.start_child(counters, FOREGROUND_MIB)?;
            for pid in [main.pid(), first.pid, second.pid, first.pid, second.pid] {
                focus(pid)?;
            }
            (second, vec![main])
        }
        Sharing::Session => {
            let session = Cgroup::create("c1")?;
            let mut shell = Started::start(counters, 4, &session, false)?;
            let first = shell.start_child(counters, BACKGROUND_MIB / 2)?;
            let second = Started::start(counters, BACKGROUND_MIB / 2, &session, false)?;
            let front = shell.start_child(counters, FOREGROUND_MIB)?;
            for pid in [shell.pid(), first.pid, second.pid(), front.pid] {
                focus(pid)?;
            }
            (front, vec![shell, second])
        }
        Sharing::Moved => {
            let (home, other) = (Cgroup::create("fg")?, Cgroup::create("other")?);
            let background = Started::start(counters, BACKGROUND_MIB, &other, false)?;
            focus(background.pid())?;
            let front = Started::start(counters, FOREGROUND_MIB, &home, false)?;
            focus(front.pid())?;
            other.set("cgroup.procs", &front.pid().to_string())?;
            let seen = front.seen.clone();
            (seen, vec![background, front])
        }
    };
    Ok(Scene { front, started })
}

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &Gate) -> Result<()> {
    let counters = Counters::new(stage.index);
    let started = Instant::now();
    for path in GROUPS {
        Cgroup::create(path)?;
    }
    Cgroup::create("fg")?.child("sub")?;
    let daemon = Daemon::start(&[])?;
    let scene = arrange(work.sharing, &counters)?;
    let listener = Listener::start()?;
    let (spec, load_counter) = counters.spec(LOAD_MIB, false)?;
    let load = start_load(&spec)?;
    let begun = Instant::now();

    let mut limited = Vec::new();
    let mut last = 0;
    let mut lived = true;
    while begun.elapsed() < UNDER_LOAD {
        if begun.elapsed() < UNDER_LOAD - LAST {
            last = scene.front.counter.kib();
        }
        lived &= scene.front.is_alive();
        for line in scene.front.limited().unwrap_or_default() {
            if !limited.contains(&line) {
                limited.push(line);
            }
        }
        sleep(SAMPLE);
    }
    let beats = scene.front.counter.kib() - last;
    let status = daemon::json(&["status"])?.1;
    let entries = history()?;
    drop(load);
    let notices = listener.stop()?;
    let reporter = &mut stage.reporter;
    reporter.value("beats", beats as f64);
    reporter.value("load_kib", load_counter.kib() as f64);
    reporter.value("notices", notices.len());
    check_front(reporter, &scene, &limited, lived, beats)?;
    check_targets(reporter, &entries, &scene, started)?;
    reporter.check(
        "status names the foreground process",
        status["foreground"]["pid"] == scene.front.pid,
        status["foreground"].to_string(),
    )?;
    check_load_first(reporter, &entries)?;
    check_notices(reporter, &notices, begun.elapsed())?;
    drop(scene);
    daemon.stop(&stage.reporter)?;
    stage.reporter.finish()
}

/// Starts the load, a program that is not an app and writes to nearly all of memory repeatedly.
fn start_load(spec: &Spec) -> Result<Process> {
    let background = Cgroup::create(LOAD)?;
    let start = Start::in_cgroup(&background);
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["gate-load", &serde_json::to_string(spec)?])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0);
    start.program(command, "gate-load")
}

/// The load's process.
pub fn load(spec: &Spec) -> Result<()> {
    let counter = Counter::open(&spec.counter)?;
    let mut random = Random::new(7);
    let mut memory = Mapping::anonymous(spec.mib as usize * MIB)?;
    loop {
        for page in 0..memory.pages() {
            memory.fill_words(page, 8, &mut random);
            counter.add(4);
        }
    }
}

fn check_front(
    reporter: &Reporter,
    scene: &Scene,
    limited: &[String],
    lived: bool,
    beats: u64,
) -> Result<()> {
    reporter.check(
        "the foreground process is never frozen, and its swap is never limited",
        limited.is_empty(),
        limited.join("; "),
    )?;
    reporter.check(
        "the foreground process lives and makes progress until the end",
        lived && scene.front.is_alive() && beats > 0,
        format!(
            "{beats} pages touched in the last {LAST:?}; {}",
            daemon::log_tail()
        ),
    )
}

/// Checks that the history holds no freeze of a cgroup with the foreground process, and no freeze,
/// kill or squeeze of the process itself. Also checks that every started process still exists.
fn check_targets(
    reporter: &Reporter,
    entries: &[HistoryEntry],
    scene: &Scene,
    started: Instant,
) -> Result<()> {
    let chain = scene.front.chain()?;
    let harmful = |entry: &&HistoryEntry| {
        let cgroup = entry.app.as_ref().and_then(|app| app.cgroup.as_deref());
        let path = cgroup.map(|path| Path::new(cgroup::ROOT).join(path.trim_start_matches('/')));
        let own = entry.app.as_ref().and_then(|app| app.pid) == Some(scene.front.pid);
        let shared = path.is_some_and(|path| chain.contains(&path));
        match entry.action {
            MemoryAction::Freeze => own || shared,
            MemoryAction::Kill | MemoryAction::Squeeze => own,
            _ => false,
        }
    };
    let found: Vec<&HistoryEntry> = entries.iter().filter(harmful).collect();
    reporter.check(
        "history holds no action whose target is the foreground process",
        found.is_empty(),
        format!("such actions in {:?}: {found:?}", started.elapsed()),
    )?;
    let started = &scene.started;
    let gone: Vec<i32> = started
        .iter()
        .map(Started::pid)
        .filter(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        .collect();
    reporter.check(
        "no app is killed because of a load that is not an app",
        gone.is_empty(),
        format!("PIDs that are gone: {gone:?}; history: {entries:?}"),
    )
}

/// Checks that a load that is not an app is squeezed before any app is frozen or killed.
fn check_load_first(reporter: &Reporter, entries: &[HistoryEntry]) -> Result<()> {
    let of_load = |entry: &HistoryEntry| {
        let cgroup = entry.app.as_ref().and_then(|app| app.cgroup.as_deref());
        entry.action == MemoryAction::Squeeze && cgroup == Some(&format!("/{LOAD}"))
    };
    // A squeeze enters the history when it ends, but its entry has the time at which it began.
    let begun = |which: &dyn Fn(&HistoryEntry) -> bool| {
        let all = entries.iter().filter(|entry| which(entry));
        all.map(|entry| entry.at_ms).min()
    };
    let first = begun(&of_load);
    let harm =
        |entry: &HistoryEntry| matches!(entry.action, MemoryAction::Freeze | MemoryAction::Kill);
    let harmed = begun(&harm);
    let ordered = match (first, harmed) {
        (Some(first), Some(harmed)) => first <= harmed,
        (Some(_), None) => true,
        (None, harmed) => harmed.is_none(),
    };
    reporter.check(
        "the load, which is not an app, is squeezed before any app is frozen or killed",
        ordered,
        format!("history: {entries:?}"),
    )
}

fn check_notices(reporter: &Reporter, notices: &[String], within: Duration) -> Result<()> {
    let about_memory = |line: &&String| line.contains(r#""event":"memory""#);
    let count = notices.iter().filter(about_memory).count();
    let most = 1 + within.as_secs() / NOTICE_EVERY.as_secs();
    reporter.check(
        "during a shortage, limelightd sends at most one notice every 10 s",
        count as u64 <= most,
        format!("{count} notices in {within:?}: {}", notices.join("\n")),
    )
}
