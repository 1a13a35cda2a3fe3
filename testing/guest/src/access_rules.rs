// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks the rules for several users of one machine, on a real kernel: which users may claim the
//! foreground, what each user sees of other users' apps, and that no user can overload the daemon
//! or keep it from finding other users' apps.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::cgroup::Cgroup;
use crate::daemon::{
    self, focus, limelight, log_tail, write_config, Daemon, LIMELIGHT, LOG, SOCKET,
};
use crate::dispatch::Stage;
use crate::keyboard::Keyboard;
use crate::process::{Process, Start};
use crate::record::Reporter;

const BUSYBOX: &str = "/bin/busybox";
const SESSIONS: &str = "/run/systemd/sessions";
/// UIDs of the user at the seat and of another user, and the GID of the group in `[access]`.
const OWNER: u32 = 1000;
const OTHER: u32 = 1001;
const GROUP: u32 = 2000;
/// UID of a user without a session or device, who floods the daemon with requests.
const FLOODER: u32 = 1002;
const CONFIG: &str = "[access]\ngroup = 2000\n[boost]\nenabled = false\n";
/// Names of three programs: the seat owner's, the other user's, and one that tries to forge log
/// lines.
const DIARY: &str = "diary";
const GAME: &str = "game";
const FORGER: &str = "x\nkilled: all";
/// Duration of the flood of requests.
const FLOOD: Duration = Duration::from_millis(2500);
/// Maximum number of `apps` requests served to one user during [`FLOOD`]: a burst of 50, then 10 a
/// second, plus slack for a slow machine. The test counts answers because timing under emulation is
/// unreliable.
const SERVED_MAX: u32 = 120;
const CONNECTIONS: usize = 14;
const KEY_A: u16 = 30;
/// Slice of the seat owner's apps, and the slice in which the other user creates cgroups.
const OWNER_APPS: &str = "user.slice/user-1000.slice/user@1000.service/app.slice";
const OTHER_APPS: &str = "user.slice/user-1001.slice/user@1001.service/app.slice";
/// Number of cgroups that the other user creates: more than the daemon's descriptor limit, and more
/// than it reads in one scan.
const GROUPS: u32 = 9000;
/// Name of the seat owner's program that starts after the flood of cgroups.
const LATE: &str = "late";
/// Name of the other user's program in the flooded slice. Scans skip slices without processes.
const BUSY: &str = "busy";
/// Timeout; only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Changes the credentials of the calling thread only.
pub(crate) fn become_user(uid: u32, gid: u32) -> std::io::Result<()> {
    // SAFETY: these system calls take numbers, and a null pointer with a length of 0.
    let done = unsafe {
        libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()) == 0
            && libc::syscall(libc::SYS_setresgid, gid, gid, gid) == 0
            && libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0
    };
    match done {
        true => Ok(()),
        false => Err(std::io::Error::last_os_error()),
    }
}

/// Starts a program named `name` as the user `uid`, in its own unit. The program keeps `held` open.
fn start(uid: u32, name: &str, held: Option<File>) -> Result<(Process, Cgroup)> {
    let program = format!("/run/{name}");
    std::os::unix::fs::symlink(BUSYBOX, &program)
        .with_context(|| format!("cannot make {program:?}"))?;
    let unit = match name.contains('\n') {
        true => "app-forger-1.scope".to_owned(),
        false => format!("app-{name}-1.scope"),
    };
    let slice = match name {
        LATE => OWNER_APPS,
        BUSY => OTHER_APPS,
        _ => "app.slice",
    };
    let unit = Cgroup::create(&format!("{slice}/{unit}"))?;
    let mut command = Command::new(&program);
    command.arg0("sleep").arg("1000");
    command.stdin(held.map_or_else(Stdio::null, Stdio::from));
    let start = Start::in_cgroup(&unit);
    start.prepare(&mut command)?;
    // This hook is registered last, because `prepare`'s hook needs root.
    // SAFETY: the closure runs between fork and exec of a single-threaded child and makes only
    // async-signal-safe calls.
    unsafe {
        command.pre_exec(move || become_user(uid, uid));
    }
    Ok((Process::spawn(command, "app")?, unit))
}

/// Runs `limelight` as a user; returns its exit code and output.
fn limelight_as(uid: u32, gid: u32, arguments: &[&str]) -> Result<(i32, String)> {
    let mut command = Command::new(LIMELIGHT);
    command.args(["--timeout", "120"]).args(arguments);
    // SAFETY: as in `start`.
    unsafe {
        command.pre_exec(move || become_user(uid, gid));
    }
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {LIMELIGHT}"))?;
    let text = [output.stdout, output.stderr].concat();
    let code = output.status.code().unwrap_or(-1);
    Ok((code, String::from_utf8_lossy(&text).into_owned()))
}

/// PID of the foreground app, as seen by root.
fn foreground() -> Result<Option<i64>> {
    let (_, status) = daemon::json(&["status"])?;
    Ok(status["foreground"]["pid"].as_i64())
}

/// Checks the exit code of a user's claim, and the foreground app afterwards.
fn check_claim(
    reporter: &Reporter,
    what: &str,
    (uid, gid): (u32, u32),
    pid: i32,
    expected: i32,
) -> Result<()> {
    let before = foreground()?;
    let (code, text) = limelight_as(uid, gid, &["focus", &pid.to_string()])?;
    let front = foreground()?;
    let held = match expected {
        0 => code == 0 && front == Some(pid.into()),
        _ => code == expected && front == before,
    };
    reporter.check(
        what,
        held,
        format!("exit code {code}, foreground PID {front:?}: {text}"),
    )
}

/// Runs all checks.
pub fn run(stage: Stage) -> Result<()> {
    let reporter = &stage.reporter;
    write_config(CONFIG)?;
    let keyboard = Keyboard::plug_in(&[KEY_A])?;
    let device = File::open(&keyboard.node)?;
    let (diary, _diary_unit) = start(OWNER, DIARY, Some(device))?;
    let (game, _game_unit) = start(OTHER, GAME, None)?;
    let (forger, _forger_unit) = start(OTHER, FORGER, None)?;
    let (busy, _busy_unit) = start(OTHER, BUSY, None)?;
    // Enables the slice's controllers for children before the daemon starts.
    Cgroup::create(&format!("{OWNER_APPS}/background.slice"))?;
    let pids = [&diary, &game, &forger, &busy].map(Process::pid);
    let daemon = Daemon::start(&pids)?;

    without_logind(reporter, diary.pid(), game.pid())?;
    with_sessions(reporter, diary.pid(), game.pid())?;
    visibility(reporter, diary.pid())?;
    names(reporter, forger.pid())?;
    flood(reporter, &daemon)?;
    flood_of_cgroups(reporter)?;
    flood_of_scores(reporter, &daemon)?;

    limelight(&["focus", "--none"])?;
    fs::remove_dir_all(SESSIONS).context("cannot remove the sessions")?;
    daemon.stop(reporter)?;
    drop((diary, game, forger, busy, keyboard));
    stage.reporter.finish()
}

fn without_logind(reporter: &Reporter, diary: i32, game: i32) -> Result<()> {
    check_claim(
        reporter,
        "without logind, a user outside the group without an input device may not claim focus",
        (OTHER, OTHER),
        game,
        4,
    )?;
    let (_, text) = limelight_as(OTHER, OTHER, &["focus", &game.to_string()])?;
    reporter.check(
        "the refusal of a claim names the group that may claim focus",
        text.contains("group 2000"),
        text,
    )?;
    check_claim(
        reporter,
        "without logind, the user whose process has an input device open may claim focus",
        (OWNER, OWNER),
        diary,
        0,
    )?;
    check_claim(
        reporter,
        "without logind, a member of the group may claim focus",
        (OTHER, GROUP),
        game,
        0,
    )
}

fn with_sessions(reporter: &Reporter, diary: i32, game: i32) -> Result<()> {
    let session = |name: &str, text: &str| {
        fs::write(format!("{SESSIONS}/{name}"), text).context("cannot write a session")
    };
    fs::create_dir_all(SESSIONS)?;
    session(
        "2",
        "UID=1000\nACTIVE=1\nSTATE=active\nSEAT=seat0\nCLASS=user\n",
    )?;
    session(
        "c3",
        "UID=1001\nACTIVE=1\nSTATE=active\nREMOTE=1\nCLASS=user\n",
    )?;
    session("c4", "UID=1001\nACTIVE=1\nSTATE=active\nCLASS=manager\n")?;
    check_claim(
        reporter,
        "with logind, the user with a session at the seat may claim focus",
        (OWNER, OWNER),
        diary,
        0,
    )?;
    check_claim(
        reporter,
        "with logind, a group member whose sessions have no seat may not claim focus",
        (OTHER, GROUP),
        game,
        4,
    )
}

fn visibility(reporter: &Reporter, diary: i32) -> Result<()> {
    let pid = diary.to_string();
    let questions: [&[&str]; 9] = [
        &["status"],
        &["status", "--json"],
        &["class", "list", "--json"],
        &["latency"],
        &["history", "--json"],
        &["explain", "--last"],
        &["top", "--once"],
        &["metrics"],
        &["doctor", "--json"],
    ];
    for question in questions {
        let (_, text) = limelight_as(OTHER, OTHER, question)?;
        reporter.check(
            format!(
                "limelight {} as another user does not name the app",
                question.join(" ")
            ),
            !text.contains(DIARY) && !text.is_empty(),
            text,
        )?;
    }
    for question in [&["explain", &pid][..], &["class", "why", &pid]] {
        let (code, text) = limelight_as(OTHER, OTHER, question)?;
        reporter.check(
            format!(
                "limelight {} as another user is refused",
                question.join(" ")
            ),
            code == 4 && !text.contains(DIARY),
            text,
        )?;
    }
    for (who, uid, gid) in [
        ("its owner", OWNER, OWNER),
        ("a group member", OTHER, GROUP),
    ] {
        for question in [&["status"][..], &["class", "list"], &["explain", &pid]] {
            let (code, text) = limelight_as(uid, gid, question)?;
            reporter.check(
                format!("limelight {} as {who} names the app", question.join(" ")),
                code == 0 && text.contains(DIARY),
                text,
            )?;
        }
    }
    Ok(())
}

fn names(reporter: &Reporter, forger: i32) -> Result<()> {
    focus(forger)?;
    let forged = |text: &str| {
        text.lines()
            .any(|line| line.trim_start().starts_with("killed: all"))
    };
    let pid = forger.to_string();
    for question in [&["status"][..], &["explain", &pid], &["focus", &pid]] {
        let (_, text) = limelight_as(0, 0, question)?;
        reporter.check(
            format!(
                "limelight {} escapes a line break in an app's name",
                question.join(" ")
            ),
            text.contains("x\\nkilled") && !forged(&text),
            text,
        )?;
    }
    let log = fs::read_to_string(LOG).unwrap_or_default();
    reporter.check(
        "the log escapes a line break in an app's name",
        log.contains("x\\nkilled") && !forged(&log),
        log_tail(),
    )
}

/// One user requests the list of apps over many connections, as fast as answers arrive.
fn flood(reporter: &Reporter, daemon: &Daemon) -> Result<()> {
    let before = daemon.cpu_ns()?;
    let begin = Instant::now();
    let ask = || -> Result<(u32, u32)> {
        become_user(FLOODER, FLOODER)?;
        let mut stream = UnixStream::connect(SOCKET)?;
        let mut answers = BufReader::new(stream.try_clone()?);
        let (mut served, mut busy) = (0, 0);
        while begin.elapsed() < FLOOD {
            stream.write_all(b"{\"op\":\"apps\"}\n")?;
            let mut answer = String::new();
            if answers.read_line(&mut answer)? == 0 {
                bail!("limelightd closed the connection");
            }
            match answer.contains("\"code\":\"busy\"") {
                true => busy += 1,
                false => served += 1,
            }
        }
        Ok((served, busy))
    };
    let tallies: Vec<Result<(u32, u32)>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(ask)).collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| bail!("a thread has panicked"))
            })
            .collect()
    });
    let (mut served, mut busy) = (0, 0);
    for tally in tallies {
        let (some, others) = tally?;
        served += some;
        busy += others;
    }
    let cpu = Duration::from_nanos(daemon.cpu_ns()?.saturating_sub(before));
    let figures = format!("{served} answers, {busy} refusals, {cpu:?} of processor time");
    reporter.check(
        format!("the daemon refuses some requests when one user floods {CONNECTIONS} connections"),
        busy > 0 && (1..=SERVED_MAX).contains(&served),
        figures,
    )?;
    let asked = Instant::now();
    foreground()?;
    reporter.check(
        "after the flood of requests, root gets an answer within 5 s",
        asked.elapsed() < Duration::from_secs(5),
        format!("answered after {:?}", asked.elapsed()),
    )
}

/// A process of one user changes its own `oom_score_adj` as fast as it can. Last, because the
/// values are scanned for a minute afterwards.
fn flood_of_scores(reporter: &Reporter, daemon: &Daemon) -> Result<()> {
    let scores = || -> Result<String> {
        let (_, status) = daemon::json(&["status"])?;
        let sources = status["sources"].as_array().cloned().unwrap_or_default();
        let source = sources.iter().find(|one| one["name"] == "oom_score_adj");
        let detail = source.and_then(|one| one["detail"].as_str());
        Ok(detail.unwrap_or("no such source").to_owned())
    };
    let before = scores()?;
    let resident = daemon.footprint()?;
    let mut command = Command::new(BUSYBOX);
    let file = "/proc/self/oom_score_adj";
    command.args(["sh", "-c"]);
    command.arg(format!("while echo 500 >{file}; do echo 501 >{file}; done"));
    command.stdin(Stdio::null()).stderr(Stdio::null());
    // SAFETY: as in `start`.
    unsafe {
        command.pre_exec(|| become_user(FLOODER, FLOODER));
    }
    let mut flooder = Process::spawn(command, "flooder")?;
    let begin = Instant::now();
    let after = loop {
        let detail = scores()?;
        if detail.contains("too often to trace") || begin.elapsed() > PATIENCE {
            break detail;
        }
        thread::sleep(Duration::from_millis(100));
    };
    reporter.check(
        "the daemon scans oom_score_adj while a process writes its own value without end",
        before.starts_with("tracepoint") && after.contains("too often to trace"),
        format!("before: {before}; after {:?}: {after}", begin.elapsed()),
    )?;
    flooder.signal(libc::SIGKILL)?;
    flooder.wait(PATIENCE)?;
    let now = daemon.footprint()?;
    reporter.check(
        "the daemon's memory grows by less than 1 MiB in such a flood",
        now.rss_kib < resident.rss_kib + 1024,
        format!("{} KiB before, {} KiB after", resident.rss_kib, now.rss_kib),
    )
}

/// One user creates thousands of cgroups, and another one starts an app.
fn flood_of_cgroups(reporter: &Reporter) -> Result<()> {
    let slice = Cgroup::create(OTHER_APPS)?;
    std::os::unix::fs::chown(slice.path(), Some(OTHER), Some(OTHER))
        .context("cannot delegate a cgroup")?;
    let path = |number: u32| slice.path().join(format!("g{number}"));
    let as_other = |act: &(dyn Fn(u32) -> std::io::Result<()> + Sync)| {
        thread::scope(|scope| {
            let all = scope.spawn(|| {
                become_user(OTHER, OTHER)?;
                (0..GROUPS).try_for_each(act)
            });
            all.join()
                .unwrap_or_else(|_| Err(std::io::Error::other("a thread has panicked")))
        })
    };
    as_other(&|number| fs::create_dir(path(number)))
        .context("cannot create the flood of cgroups")?;

    let (mut late, unit) = start(OWNER, LATE, None)?;
    let begin = Instant::now();
    let listed = loop {
        let (_, text) = limelight_as(0, 0, &["class", "list"])?;
        if text.contains(LATE) || begin.elapsed() > PATIENCE {
            break text;
        }
        thread::sleep(Duration::from_millis(100));
    };
    reporter.check(
        format!("the daemon finds a new app while another user has {GROUPS} cgroups"),
        listed.contains(LATE),
        format!("after {:?}: {listed}\n{}", begin.elapsed(), log_tail()),
    )?;
    let log = fs::read_to_string(LOG).unwrap_or_default();
    let warnings = log
        .lines()
        .filter(|line| line.contains("/user.slice/user-1001.slice has more cgroups"));
    reporter.check(
        "the log has one warning that names the slice with too many cgroups",
        warnings.count() == 1,
        log_tail(),
    )?;

    late.signal(libc::SIGKILL)?;
    late.wait(PATIENCE)?;
    unit.remove()?;
    as_other(&|number| fs::remove_dir(path(number))).context("cannot remove the flood of cgroups")
}
