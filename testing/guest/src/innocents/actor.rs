// SPDX-License-Identifier: GPL-2.0-or-later
//! The process that plays an app in a situation.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use super::situations::Act;
use crate::load::Counter;
use crate::memory::{Mapping, MIB};
use crate::random::Random;

/// Polling interval of a process that waits for its next phase.
const POLL: Duration = Duration::from_millis(100);
/// Pause after each write to memory of [`Act::Use`], and after each step of [`Act::Copy`].
const BEAT: Duration = Duration::from_millis(10);
/// Pause between two requests, and the interval at which the time of a pending request is recorded.
const ASK_EVERY: Duration = Duration::from_millis(100);
const LATE_EVERY_MS: i32 = 100;
/// Time recorded for an answer that never comes, in milliseconds.
const NEVER_MS: u64 = 60_000;
/// Bytes that an app takes, or reads or writes in a file, in one step.
const STEP: usize = MIB / 2;
/// Pages of its own memory that an app reads for an answer.
const ANSWER_PAGES: usize = 64;

/// Parameters of an app's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// Memory that the app takes before it acts, in MiB.
    pub mib: u32,
    /// UID of the app's user.
    pub uid: u32,
    /// What the app does once it has its memory.
    pub act: Act,
    /// Path of the files of the app's [`Words`], without their extensions.
    pub words: PathBuf,
    /// Socket to which the app sends requests.
    pub asks: Option<PathBuf>,
    /// Children that the app starts first.
    pub children: Vec<Nested>,
}

/// An app that another app starts as its child.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Nested {
    /// Path of the child's program: this program or a link to it.
    pub program: PathBuf,
    /// Parameters of the child's process.
    pub spec: Spec,
    /// Whether pipes connect the child's standard input and output to its parent.
    pub piped: bool,
}

/// Counters that an app's process shares with the runner, one file each.
pub struct Words {
    /// Set by the runner: at 1 the app takes its memory, at 2 it acts.
    pub phase: Counter,
    /// The app's progress: 1 once it has its memory, and 1 more for each step of its act, such as a
    /// page used or a request answered.
    pub beats: Counter,
    /// The app's longest wait for an answer, or the delay of its timer, in milliseconds.
    pub late: Counter,
    /// 1 once the app has finished its act.
    pub done: Counter,
}

impl Words {
    fn each(base: &Path, open: fn(&Path) -> Result<Counter>) -> Result<Words> {
        let word = |name: &str| open(&base.with_extension(name));
        Ok(Words {
            phase: word("phase")?,
            beats: word("beats")?,
            late: word("late")?,
            done: word("done")?,
        })
    }

    /// Creates the counters, which processes of any user may write.
    pub fn create(base: &Path) -> Result<Words> {
        Words::each(base, |path| {
            let word = Counter::create(path)?;
            fs::set_permissions(path, Permissions::from_mode(0o666))?;
            Ok(word)
        })
    }
}

/// Path of the file to which an app's process writes its PID.
pub fn pid_file(words: &Path) -> PathBuf {
    words.with_extension("pid")
}

/// Path of the socket of an app with [`Act::AnswerSocket`].
pub fn socket(words: &Path) -> PathBuf {
    words.with_extension("sock")
}

/// Runs an app's process until it is killed.
pub fn run(spec: &Spec) -> Result<()> {
    let words = Words::each(&spec.words, Counter::open)?;
    fs::write(pid_file(&spec.words), std::process::id().to_string())?;
    let mut pipes = Vec::new();
    for nested in &spec.children {
        pipes.push(start(nested)?);
    }
    let listener = match spec.act {
        Act::AnswerSocket => {
            let path = socket(&spec.words);
            let listener = UnixListener::bind(&path)?;
            fs::set_permissions(&path, Permissions::from_mode(0o666))?;
            Some(listener)
        }
        _ => None,
    };
    // The directories to which these two acts write belong to root.
    let fill = matches!(spec.act, Act::Fill { .. } | Act::Copy { .. });
    if spec.uid != 0 && !fill {
        change_user(spec.uid)?;
    }
    wait_for(&words, 1);
    let mut heap = Mapping::anonymous(spec.mib as usize * MIB)?;
    let mut random = Random::new(u64::from(spec.mib));
    for page in 0..heap.pages() {
        heap.fill_words(page, 8, &mut random);
    }
    words.beats.add(1);
    wait_for(&words, 2);
    ask(spec, pipes);
    act(spec, &words, heap, listener)
}

fn wait_for(words: &Words, phase: u64) {
    while words.phase.kib() < phase {
        sleep(POLL);
    }
}

fn start(nested: &Nested) -> Result<Child> {
    let pipe = || {
        if nested.piped {
            Stdio::piped()
        } else {
            Stdio::null()
        }
    };
    let mut command = Command::new(&nested.program);
    command
        .args(["innocent", &serde_json::to_string(&nested.spec)?])
        .stdin(pipe())
        .stdout(pipe());
    command.spawn().context("cannot start a child")
}

/// Changes this process's group and user to `uid`. The group comes first, because only root may
/// change it.
fn change_user(uid: u32) -> Result<()> {
    // SAFETY: neither call takes pointers.
    let done = unsafe { libc::setgid(uid) == 0 && libc::setuid(uid) == 0 };
    match done {
        true => Ok(()),
        false => Err(io::Error::last_os_error()).context("cannot change the user"),
    }
}

/// Starts a thread that sends requests to the socket `spec.asks` or, without one, to a piped child.
/// A no-op if there is neither.
fn ask(spec: &Spec, pipes: Vec<Child>) {
    let late = spec.words.with_extension("late");
    let mut pipes = pipes.into_iter();
    let piped = pipes.find_map(|mut child| Some((child.stdin.take()?, child.stdout.take()?)));
    if let Some(path) = spec.asks.clone() {
        spawn(move || -> Result<()> {
            let late = Counter::open(&late)?;
            match UnixStream::connect(&path) {
                Ok(stream) => asker(&stream, &stream, stream.as_raw_fd(), &late),
                Err(_) => late.add(NEVER_MS),
            }
            Ok(())
        });
    } else if let Some((input, output)) = piped {
        spawn(move || -> Result<()> {
            let number = output.as_raw_fd();
            asker(input, output, number, &Counter::open(&late)?);
            Ok(())
        });
    }
}

fn asker(mut to: impl Write, mut from: impl Read, number: i32, late: &Counter) {
    loop {
        let begun = Instant::now();
        if to.write_all(b"?").and_then(|()| to.flush()).is_err() {
            return late.add(NEVER_MS);
        }
        loop {
            let mut poll = libc::pollfd {
                fd: number,
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one valid structure.
            let ready = unsafe { libc::poll(&mut poll, 1, LATE_EVERY_MS) };
            let waited = u64::try_from(begun.elapsed().as_millis()).unwrap_or(NEVER_MS);
            late.add(waited.saturating_sub(late.kib()));
            if ready > 0 {
                break;
            }
        }
        match from.read(&mut [0]) {
            Ok(1) => sleep(ASK_EVERY),
            _ => return late.add(NEVER_MS),
        }
    }
}

fn act(
    spec: &Spec,
    words: &Words,
    mut heap: Mapping,
    listener: Option<UnixListener>,
) -> Result<()> {
    match spec.act {
        Act::Idle => {}
        Act::Use => used(words, &mut heap, BEAT),
        Act::Churn => used(words, &mut heap, Duration::ZERO),
        Act::Grow { mib_per_s, to_mib } => grow(words, mib_per_s, to_mib)?,
        Act::Fill { mib_per_s, to_mib } => fill(spec, words, mib_per_s, to_mib)?,
        Act::Copy { mib } => copy(words, mib)?,
        Act::Fork { mib } => forks(words, mib)?,
        Act::Ring { ms } => {
            let begun = Instant::now();
            let due = Duration::from_millis(u64::from(ms));
            sleep(due);
            let late = begun.elapsed().saturating_sub(due);
            words.late.add(u64::try_from(late.as_millis())?);
        }
        Act::AnswerPipe => answer(words, &heap, io::stdin(), io::stdout()),
        Act::AnswerSocket => {
            let (stream, _) = listener.context("no socket")?.accept()?;
            answer(words, &heap, &stream, &stream);
        }
    }
    words.done.add(1);
    loop {
        sleep(Duration::from_secs(1));
    }
}

fn used(words: &Words, heap: &mut Mapping, pause: Duration) {
    let mut random = Random::new(7);
    for page in (0..heap.pages()).cycle() {
        heap.dirty_page(page, random.word());
        words.beats.add(1);
        if !pause.is_zero() {
            sleep(pause);
        }
    }
}

fn grow(words: &Words, mib_per_s: u32, to_mib: u32) -> Result<()> {
    let mut random = Random::new(9);
    let mut taken = Vec::new();
    while to_mib == 0 || taken.len() * STEP < to_mib as usize * MIB {
        let mut more = Mapping::anonymous(STEP)?;
        for page in 0..more.pages() {
            more.fill_words(page, 8, &mut random);
        }
        taken.push(more);
        words.beats.add(1);
        sleep(step_time(mib_per_s));
    }
    // The app keeps its memory until the end of the situation.
    std::mem::forget(taken);
    Ok(())
}

fn step_time(mib_per_s: u32) -> Duration {
    Duration::from_secs(1) * STEP as u32 / (mib_per_s.max(1) * MIB as u32)
}

fn fill(spec: &Spec, words: &Words, mib_per_s: u32, to_mib: u32) -> Result<()> {
    let mut file = File::create(spec.words.with_extension("upload"))?;
    let piece = vec![1; STEP];
    for _ in 0..to_mib as usize * MIB / STEP {
        file.write_all(&piece)?;
        words.beats.add(1);
        sleep(step_time(mib_per_s));
    }
    Ok(())
}

fn copy(words: &Words, mib: u32) -> Result<()> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true);
    let mut file = file
        .open("/data/copy")
        .context("cannot create a file on the disk")?;
    let mut piece = vec![1; STEP];
    loop {
        for read in [false, true] {
            file.seek(SeekFrom::Start(0))?;
            for _ in 0..mib as usize * MIB / STEP {
                match read {
                    true => file.read_exact(&mut piece)?,
                    false => file.write_all(&piece)?,
                }
                words.beats.add(1);
                // Limits the rate, because the emulated disk is not under test.
                sleep(BEAT);
            }
        }
    }
}

/// Forks children, one after the other. Each takes `mib` MiB and exits.
fn forks(words: &Words, mib: u32) -> Result<()> {
    loop {
        // SAFETY: the child is single-threaded and makes system calls only.
        match unsafe { libc::fork() } {
            0 => {
                if let Ok(mut heap) = Mapping::anonymous(mib as usize * MIB) {
                    let mut random = Random::new(3);
                    for page in 0..heap.pages() {
                        heap.fill_words(page, 8, &mut random);
                    }
                }
                // SAFETY: no pointers are passed.
                unsafe { libc::_exit(0) };
            }
            pid if pid > 0 => {
                // SAFETY: a null pointer means that the status is not wanted.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
                words.beats.add(1);
            }
            _ => bail!("cannot fork"),
        }
    }
}

fn answer(words: &Words, heap: &Mapping, mut from: impl Read, mut to: impl Write) {
    let mut next = 0;
    while let Ok(1) = from.read(&mut [0]) {
        for _ in 0..ANSWER_PAGES {
            heap.touch_page(next % heap.pages());
            next += 1;
        }
        if to.write_all(b"!").and_then(|()| to.flush()).is_err() {
            return;
        }
        words.beats.add(1);
    }
}
