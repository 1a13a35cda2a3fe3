// SPDX-License-Identifier: GPL-2.0-or-later
//! No user's process keeps what it was given or inherited while its app was in front: a process that
//! changes its own values, threads, children that leave parent, session and cgroup, hide from their
//! owner, or outlive the app. All of it without privilege.

use std::fs;
use std::io::{self, BufRead};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use limelight_sys::sched;
use serde::{Deserialize, Serialize};

use crate::boost::sleeper;
use crate::cell::Stage;
use crate::cgroup::Cgroup;
use crate::daemon::{focus, limelight, write_config, Daemon, LIMELIGHTD};
use crate::process::{run as run_program, send, Conversation, Start};
use crate::record::Reporter;

const USER: u32 = 1000;
/// Only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Claims of the focus in a row by which an app tries to lower its value ever further.
const CLAIMS: usize = 3;
/// For how long processes fork and end without pause.
const CHAIN_MS: u64 = 2000;

/// What the app does next.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    /// Sets its own `oom_score_adj`; answers with the error number or 0.
    Score(i16),
    /// Sets the nice value of its main thread; answers with the error number or 0.
    Nice(i32),
    /// Makes a thread, which asks for the idle scheduler if so; answers with its number.
    Thread { idle: bool },
    /// Makes a child that leaves parent and session; answers with its number.
    Orphan(Orphan),
    /// Makes a child that forks and ends without pause for so many milliseconds, as does each child
    /// of it; answers with 0 at once.
    Chain { ms: u64 },
    /// Answers with the number of the last child of that.
    Chained,
}

/// A child that leaves parent and session.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Orphan {
    /// What it sets its `oom_score_adj` to.
    score: Option<i16>,
    /// What it sets its nice value to.
    nice: Option<i32>,
    /// Whether its `/proc` belongs to root.
    hidden: bool,
    /// What it tries to set its `oom_score_adj` to after a signal (SIGUSR1).
    later: bool,
}

/// The app: a user's process, which takes orders.
pub fn app() -> Result<()> {
    // SAFETY: no pointers are passed. What exec would do after a login is done at the end.
    let done = unsafe {
        libc::setgid(USER) == 0
            && libc::setuid(USER) == 0
            && libc::prctl(libc::PR_SET_DUMPABLE, 1) == 0
    };
    if !done {
        return Err(io::Error::last_os_error()).context("cannot become a user's process");
    }
    let mut chain = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let answer = match serde_json::from_str(&line)? {
            Order::Score(score) => errno(write_score(score)),
            Order::Nice(nice) => {
                // SAFETY: no pointers are passed.
                errno(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } == 0)
            }
            Order::Thread { idle } => thread(idle)?,
            Order::Orphan(orphan) => hear(&orphaned(|tell| live_as(orphan, tell))?)?,
            Order::Chain { ms } => {
                let end = Instant::now() + Duration::from_millis(ms);
                chain = Some(orphaned(|tell| fork_until(end, tell))?);
                0
            }
            Order::Chained => hear(chain.as_ref().context("no chain was begun")?)?,
        };
        println!("{answer}");
    }
    Ok(())
}

fn errno(done: bool) -> i32 {
    match done {
        true => 0,
        false => io::Error::last_os_error().raw_os_error().unwrap_or(-1),
    }
}

/// Without allocation: also a forked child and a signal handler call it.
fn write_score(score: i16) -> bool {
    let mut text = [0u8; 8];
    let mut at = text.len();
    let mut rest = score.unsigned_abs();
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if score < 0 {
        at -= 1;
        text[at] = b'-';
    }
    // SAFETY: plain system calls on a valid path and buffer.
    unsafe {
        let fd = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
        if fd < 0 {
            return false;
        }
        let len = text.len() - at;
        let written = libc::write(fd, text[at..].as_ptr().cast(), len);
        let error = *libc::__errno_location();
        libc::close(fd);
        *libc::__errno_location() = error;
        written == len as isize
    }
}

fn thread(idle: bool) -> Result<i32> {
    let (tell, hear) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // SAFETY: the kernel reads one int there (struct sched_param).
        let done = unsafe {
            let nothing = 0;
            !idle || libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &nothing) == 0
        };
        // SAFETY: no pointers are passed.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
        let _ = tell.send(done.then_some(tid));
        loop {
            sleep(PATIENCE);
        }
    });
    hear.recv()?.context("a thread did not become idle")
}

/// What the kernel lets a process set after what it inherited was put back shows whether it still has
/// permission to lower its value.
extern "C" fn lower_again(_signal: libc::c_int) {
    write_score(-400);
}

/// Makes a grandchild whose parent has ended; what it tells can be read from the answer. It makes only
/// async-signal-safe calls.
fn orphaned(live: impl FnOnce(libc::c_int)) -> Result<OwnedFd> {
    let mut pipe = [0; 2];
    // SAFETY: `pipe` has room for both, which are nobody else's. Between the forks and the end of each
    // child there are only async-signal-safe calls.
    unsafe {
        if libc::pipe(pipe.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error()).context("no pipe");
        }
        match libc::fork() {
            -1 => return Err(io::Error::last_os_error()).context("no fork"),
            0 => {
                if libc::fork() == 0 {
                    live(pipe[1]);
                }
                libc::_exit(0);
            }
            child => libc::waitpid(child, std::ptr::null_mut(), 0),
        };
        libc::close(pipe[1]);
        Ok(OwnedFd::from_raw_fd(pipe[0]))
    }
}

/// The number that an orphan tells.
fn hear(pipe: &OwnedFd) -> Result<i32> {
    let mut pid = [0u8; 4];
    // SAFETY: the buffer is as long as the kernel is told.
    let read = unsafe { libc::read(pipe.as_raw_fd(), pid.as_mut_ptr().cast(), pid.len()) };
    match (read, i32::from_ne_bytes(pid)) {
        (4, pid) if pid > 0 => Ok(pid),
        (_, pid) => bail!("an orphan could not do what it should: {pid}"),
    }
}

/// In a forked child: each child forks the next one and ends.
fn fork_until(end: Instant, tell: libc::c_int) {
    while Instant::now() < end {
        // SAFETY: only async-signal-safe calls.
        unsafe {
            match libc::fork() {
                0 => {}
                _ => libc::_exit(0),
            }
        }
    }
    live_as(Orphan::default(), tell);
}

/// In a forked child: does what it should, tells its number, and waits for its end.
fn live_as(orphan: Orphan, tell: libc::c_int) -> ! {
    let mut done = orphan.score.is_none_or(write_score);
    // SAFETY: valid pointers, a handler that makes only async-signal-safe calls, and an open pipe.
    unsafe {
        done &= libc::setsid() > 0;
        if let Some(nice) = orphan.nice {
            done &= libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0;
        }
        if orphan.later {
            let handler = lower_again as extern "C" fn(libc::c_int);
            libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
        }
        if orphan.hidden {
            done &= libc::prctl(libc::PR_SET_DUMPABLE, 0) == 0;
        }
        let error = *libc::__errno_location();
        let pid = if done { libc::getpid() } else { -error };
        let pid = pid.to_ne_bytes();
        libc::write(tell, pid.as_ptr().cast(), pid.len());
        if !done {
            libc::_exit(1);
        }
        loop {
            libc::pause();
        }
    }
}

/// The values of a thread, or of a process by its first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Values {
    score: i16,
    nice: i32,
    slice_ns: u64,
}

fn values(tid: i32) -> Result<Values> {
    let path = format!("/proc/{tid}/oom_score_adj");
    let score = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(Values {
        score: score.trim().parse()?,
        nice: sched::nice(tid)?,
        slice_ns: sched::Cpu::of(tid)?.slice_ns(),
    })
}

/// The app and what it has made, which ends with the test.
struct App {
    talk: Conversation,
    orphans: Vec<i32>,
}

impl App {
    fn start() -> Result<App> {
        let start = Start {
            session: true,
            ..Start::PLAIN
        };
        Ok(App {
            talk: start.conversation("heirs-app", &())?,
            orphans: Vec::new(),
        })
    }

    fn pid(&self) -> i32 {
        self.talk.process.pid()
    }

    fn order(&mut self, order: Order) -> Result<i32> {
        self.talk.ask(&serde_json::to_string(&order)?)
    }

    fn orphan(&mut self, orphan: Orphan) -> Result<i32> {
        let pid = self.order(Order::Orphan(orphan))?;
        self.orphans.push(pid);
        Ok(pid)
    }
}

impl Drop for App {
    fn drop(&mut self) {
        for pid in &self.orphans {
            // PID 1 waits for it at some time; until then the number is its own.
            let _ = send(*pid, libc::SIGKILL);
        }
    }
}

/// Something of the app's, and how it shall be.
struct Expected {
    what: &'static str,
    tid: i32,
    values: Values,
}

fn check_all(when: &str, all: &[Expected], reporter: &Reporter) -> Result<()> {
    for Expected {
        what,
        tid,
        values: wanted,
    } in all
    {
        let found = values(*tid)?;
        reporter.check(
            format!("{when}, {what} has the values that it had or chose"),
            found == *wanted,
            format!("{found:?}, wanted {wanted:?}"),
        )?;
    }
    Ok(())
}

/// Runs all checks.
pub fn run(stage: Stage) -> Result<()> {
    let reporter = &stage.reporter;
    // An app without a cgroup has no weight, so nice values are used.
    write_config("[protect]\nadopt = \"never\"\n")?;
    let mut app = App::start()?;
    let scope = Cgroup::create("app.slice/app-limelight-other-1.scope")?;
    let other = sleeper(Some(&scope), false)?;
    let elsewhere = Cgroup::create("app.slice/app-limelight-escaped-1.scope")?;
    let child = Cgroup::create("app.slice/app-limelight-child-1.scope")?;
    let before = values(app.pid())?;
    let daemon = Daemon::start(&[other.pid()])?;

    focus(app.pid())?;
    let front = values(app.pid())?;
    reporter.check(
        "in front the app has a lower nice value and oom_score_adj, and a shorter slice",
        front.nice == -20 && front.score == -500 && front.slice_ns == 300_000,
        format!("{front:?}, before {before:?}"),
    )?;
    let all = everything(&mut app, before, &elsewhere)?;
    focus(other.pid())?;
    check_all("after the focus has left", &all, reporter)?;
    check_floors(&mut app, &all, reporter)?;
    check_claims(&mut app, other.pid(), before, reporter)?;
    check_escaped(&mut app, before, &child, reporter)?;
    check_chain(&mut app, other.pid(), before, reporter)?;

    focus(app.pid())?;
    let all = everything(&mut app, before, &elsewhere)?;
    let dead = daemon.kill()?;
    let (code, text) = run_program(LIMELIGHTD, &["--restore"])?;
    reporter.check(
        "limelightd --restore ends with exit code 0",
        code == 0,
        format!("exit code {code}: {text}"),
    )?;
    check_all("after kill -9 and limelightd --restore", &all, reporter)?;

    let daemon = Daemon::start_after(dead)?;
    focus(app.pid())?;
    let all = everything(&mut app, before, &elsewhere)?;
    daemon.stop(reporter)?;
    check_all("after SIGTERM", &all, reporter)?;
    drop(app);
    stage.reporter.finish()
}

/// Everything by which an app might keep something.
fn everything(app: &mut App, before: Values, elsewhere: &Cgroup) -> Result<Vec<Expected>> {
    let same = |what, tid| Expected {
        what,
        tid,
        values: before,
    };
    let mut all = vec![
        same("a thread", app.order(Order::Thread { idle: false })?),
        same("an orphan", app.orphan(Orphan::default())?),
    ];
    let idle = app.order(Order::Thread { idle: true })?;
    all.push(Expected {
        what: "a thread of the idle scheduler",
        tid: idle,
        values: Values {
            slice_ns: 0,
            ..before
        },
    });
    let raised = Orphan {
        score: Some(-499),
        nice: Some(-19),
        ..Orphan::default()
    };
    all.push(same(
        "an orphan that raised its values a little",
        app.orphan(raised)?,
    ));
    let hidden = Orphan {
        hidden: true,
        ..raised
    };
    all.push(same("an orphan that hides", app.orphan(hidden)?));
    let moved = app.orphan(Orphan::default())?;
    elsewhere.set("cgroup.procs", &moved.to_string())?;
    all.push(same("an orphan in another cgroup", moved));
    let above = Orphan {
        score: Some(300),
        nice: Some(5),
        later: true,
        ..Orphan::default()
    };
    all.push(Expected {
        what: "an orphan that raised its values above the original",
        tid: app.orphan(above)?,
        values: Values {
            score: 300,
            nice: 5,
            ..before
        },
    });
    for order in [Order::Score(-499), Order::Nice(-19)] {
        let error = app.order(order)?;
        if error != 0 {
            bail!("the app cannot carry out {order:?}: error {error}");
        }
    }
    all.push(same("the app, which raised its values a little", app.pid()));
    Ok(all)
}

/// Without privilege nobody may lower a value again.
fn check_floors(app: &mut App, all: &[Expected], reporter: &Reporter) -> Result<()> {
    let error = app.order(Order::Score(-400))?;
    reporter.check(
        "the app may not lower its oom_score_adj again",
        error == libc::EACCES,
        format!("error {error}"),
    )?;
    let above = all.iter().find(|expected| expected.values.score == 300);
    let above = above.context("no orphan with a value of its own")?;
    send(above.tid, libc::SIGUSR1)?;
    // Long enough for a signal's handler on a busy machine.
    sleep(Duration::from_millis(500));
    check_all(
        "after it tried to lower its oom_score_adj again",
        std::slice::from_ref(above),
        reporter,
    )
}

/// Each claim of the focus begins where the one before did.
fn check_claims(app: &mut App, other: i32, before: Values, reporter: &Reporter) -> Result<()> {
    let mut lowest = 0;
    for _ in 0..CLAIMS {
        focus(app.pid())?;
        lowest = lowest.min(values(app.pid())?.score);
        app.order(Order::Score(-499))?;
        focus(other)?;
    }
    let after = values(app.pid())?;
    reporter.check(
        "an app that claims the focus again and again gains nothing",
        lowest == -500 && after == before,
        format!("lowest {lowest}, then {after:?}"),
    )
}

/// A child that has left its app's cgroup comes to the front, while the app is and after it was.
fn check_escaped(app: &mut App, before: Values, scope: &Cgroup, reporter: &Reporter) -> Result<()> {
    focus(app.pid())?;
    let child = app.orphan(Orphan {
        score: Some(-499),
        ..Orphan::default()
    })?;
    scope.set("cgroup.procs", &child.to_string())?;
    focus(child)?;
    let front = values(child)?;
    reporter.check(
        "an escaped child in front is not lowered twice",
        front.score == -500,
        format!("{front:?}"),
    )?;
    limelight(&["focus", "--none"])?;
    let expected = Expected {
        what: "the child",
        tid: child,
        values: before,
    };
    check_all("after that", &[expected], reporter)
}

/// A process that forks and ends faster than it can be looked at keeps nothing once it rests.
fn check_chain(app: &mut App, other: i32, before: Values, reporter: &Reporter) -> Result<()> {
    focus(app.pid())?;
    app.order(Order::Chain { ms: CHAIN_MS })?;
    sleep(Duration::from_millis(CHAIN_MS / 4));
    focus(other)?;
    let last = app.order(Order::Chained)?;
    app.orphans.push(last);
    let deadline = Instant::now() + PATIENCE;
    while values(last)? != before && Instant::now() < deadline {
        sleep(Duration::from_millis(100));
    }
    let expected = Expected {
        what: "the last of many processes that forked and ended",
        tid: last,
        values: before,
    };
    check_all("after a while", &[expected], reporter)
}
