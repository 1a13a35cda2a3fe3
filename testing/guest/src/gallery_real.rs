// SPDX-License-Identifier: GPL-2.0-or-later
//! `gallery-real`: Debian's Xvfb, openbox and feh with real key events, next to Debian's `cp` and
//! recoll's indexer.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::cgroup::Cgroup;
use crate::counters::Counters;
use crate::daemon::{log_tail, Daemon, LIMELIGHT};
use crate::dispatch::Stage;
use crate::gallery::APP;
use crate::guest_setup::{self, ROOTFS};
use crate::knobs;
use crate::memory::{cached_pages, PAGE};
use crate::photo;
use crate::plan::Arm;
use crate::process::{change_root, run as run_program, Process, Start};
use crate::record::Reporter;
use crate::response::{series, Responses};
use crate::scenario::{RealGallery, RealLoad};
use crate::store::Store;
use crate::x11::User;

pub(crate) const DISPLAY: &str = ":0";
/// Size of the screen and of the photos, in pixels.
const WIDTH: u32 = 1024;
const HEIGHT: u32 = 768;
/// Size of the file that `cp` copies, in MiB.
pub(crate) const COPY_MIB: u32 = 400;
/// Mount point of the data disk, inside the root file system.
const INSIDE: &str = "/mnt";
/// feh's key for the next photo.
const SPACE: u32 = 0x20;
/// Timeout for the agent and the daemon to name the topmost app.
const FOCUS_LIMIT: Duration = Duration::from_secs(30);
/// Maximum number of attempts at starting the X session.
const ATTEMPTS: u32 = 3;
const SETTLE: Duration = Duration::from_secs(2);

/// The running session. Fields are dropped in this order, so the viewer exits before the server.
pub(crate) struct Session {
    pub(crate) user: User,
    pub(crate) viewer: Process,
    _manager: Process,
    server: Process,
    cgroup: Option<Cgroup>,
}

/// Runs the scenario.
pub fn run(mut stage: Stage, gallery: &RealGallery) -> Result<()> {
    if stage.machine.rootfs.is_none() {
        bail!("gallery-real needs a root file system, and the plan's machine has none");
    }
    let mut store = stage.store()?;
    let Store::Directory(data) = &store else {
        bail!("gallery-real needs a data disk with a file system");
    };
    let photos = photos(data, gallery.photos)?;
    store.file("background", COPY_MIB)?;
    guest_setup::drop_caches()?;
    // The idle arm has no loads.
    let wanted = match stage.arm {
        Arm::Idle => &[],
        _ => gallery.loads.as_slice(),
    };
    let load_cgroups: Vec<Option<Cgroup>> = wanted
        .iter()
        .map(|&load| {
            gallery
                .app_cgroup
                .then(|| Cgroup::background(load_name(load)))
                .transpose()
        })
        .collect::<Result<_>>()?;
    stage.reporter.progress("starting the X session")?;
    let session = Session::start(gallery.app_cgroup)?;
    // Shows every photo once, as in an app that has been running for a while.
    for _ in &photos {
        session
            .user
            .press(SPACE)?
            .context("the viewer does not answer although no load is running")?;
    }
    let background = prepare_arm(stage.arm, &session)?;
    sleep(SETTLE);

    let loads: Vec<Process> = wanted
        .iter()
        .zip(&load_cgroups)
        .map(|(&load, cgroup)| start_load(load, cgroup.as_ref()))
        .collect::<Result<_>>()?;
    if !loads.is_empty() {
        stage
            .reporter
            .progress("waiting until the loads fill the memory")?;
        wait_for_pressure(Duration::from_millis(gallery.warm_up_ms.into()))?;
    }
    let counters = Counters::now()?;
    press_keys(&session, gallery, &photos, &mut stage.reporter)?;
    counters.report(&mut stage.reporter.values)?;
    stage.report_all_oom_kills()?;
    drop(loads);
    if let Some((daemon, agent)) = background {
        drop(agent);
        daemon.stop(&stage.reporter)?;
    }
    stage.reporter.finish()
}

/// Writes the photos that are absent; returns their paths in the viewer's order.
pub(crate) fn photos(data: &Path, count: u32) -> Result<Vec<PathBuf>> {
    let directory = data.join("photos");
    fs::create_dir_all(&directory)?;
    (0..count)
        .map(|index| {
            let path = directory.join(format!("{index:03}.png"));
            if !path.exists() {
                photo::write(&path, WIDTH, HEIGHT, index.into())
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
            Ok(path)
        })
        .collect()
}

impl Session {
    /// Starts the session, and retries if the viewer shows no window. After a cold boot of an
    /// emulated machine, openbox has been seen to wait forever with its first window unmapped.
    pub(crate) fn start(app_cgroup: bool) -> Result<Self> {
        let mut attempt = 1;
        loop {
            match Session::start_once(app_cgroup) {
                Ok(session) => return Ok(session),
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Err(error) => eprintln!("starting the X session again: {error:#}"),
            }
            attempt += 1;
        }
    }

    fn start_once(app_cgroup: bool) -> Result<Self> {
        let cgroup = |path| app_cgroup.then(|| Cgroup::create(path)).transpose();
        let desktop = cgroup("session.slice/desktop.scope")?;
        let app = cgroup(APP)?;
        let size = format!("{WIDTH}x{HEIGHT}x24");
        let server = start(
            desktop.as_ref(),
            "Xvfb",
            &[DISPLAY, "-screen", "0", &size, "-ac", "-nolisten", "tcp"],
        )?;
        let mut user = User::connect(DISPLAY)?;
        let manager = start(desktop.as_ref(), "openbox", &[])?;
        user.wait_for_window_manager().with_context(session_logs)?;
        let photos = format!("{INSIDE}/photos");
        // feh's own cache is off, so that earlier photos come from the page cache.
        let viewer = start(
            app.as_ref(),
            "feh",
            &[
                "--fullscreen",
                "--hide-pointer",
                "--cache-size",
                "0",
                &photos,
            ],
        )?;
        user.watch_first_window().with_context(session_logs)?;
        user.wait_until_quiet()?;
        Ok(Session {
            user,
            viewer,
            _manager: manager,
            server,
            cgroup: app,
        })
    }
}

/// Error output of the session's programs.
fn session_logs() -> String {
    ["Xvfb", "openbox", "feh"]
        .into_iter()
        .map(|program| {
            let text = fs::read_to_string(log_path(program)).unwrap_or_default();
            format!("{program} wrote: {}", text.trim())
        })
        .collect::<Vec<_>>()
        .join("\n")
}

pub(crate) fn log_path(program: &str) -> String {
    format!("/run/{program}.log")
}

/// Starts a program inside the root file system.
pub(crate) fn start(cgroup: Option<&Cgroup>, program: &str, arguments: &[&str]) -> Result<Process> {
    let name = Path::new(program).file_name().unwrap_or(program.as_ref());
    let mut command = graphical(program, arguments, &name.to_string_lossy())?;
    Start::in_cgroup(cgroup).prepare(&mut command)?;
    change_root(&mut command, ROOTFS)?;
    Process::spawn(command, program)
}

/// The command for a program that uses the X server and writes to the log of this name.
pub(crate) fn graphical(program: &str, arguments: &[&str], log: &str) -> Result<Command> {
    let log = File::create(log_path(log))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .env("HOME", "/root")
        .env("LANG", "C.UTF-8")
        .env("DISPLAY", DISPLAY)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(command)
}

/// Waits until the kernel has reclaimed as many pages as the machine has, or until `limit` has
/// passed. A fixed time cannot replace this, because the speed of real programs depends on the
/// host's disk and on its other load.
pub(crate) fn wait_for_pressure(limit: Duration) -> Result<()> {
    let memory_pages = guest_setup::memory_kib("MemTotal")? * 1024 / PAGE as u64;
    let before = Counters::now()?.reclaimed_pages();
    let deadline = Instant::now() + limit;
    while Counters::now()?.reclaimed_pages() - before < memory_pages && Instant::now() < deadline {
        sleep(Duration::from_millis(500));
    }
    Ok(())
}

/// Prepares the arm; in Limelight's arms the agent, not this program, reports the topmost app.
fn prepare_arm(arm: Arm, session: &Session) -> Result<Option<(Daemon, Process)>> {
    let charge = match &session.cgroup {
        Some(cgroup) => cgroup.number("memory.current")?,
        None => 0,
    };
    knobs::set(arm, session.cgroup.as_ref(), charge)?;
    match arm {
        Arm::LimelightOnDebian | Arm::Limelight => {
            let daemon = Daemon::start(&[session.viewer.pid()])?;
            let agent = start_agent()?;
            wait_for_focus(session.viewer.pid())?;
            Ok(Some((daemon, agent)))
        }
        _ => Ok(None),
    }
}

/// Starts the session's agent.
pub(crate) fn start_agent() -> Result<Process> {
    let mut command = Command::new("/bin/limelight-agent");
    command
        .args(["--stay", "--display", DISPLAY])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Start::PLAIN.program(command, "limelight-agent")
}

/// Waits until the daemon reports that `pid` belongs to the topmost app.
pub(crate) fn wait_for_focus(pid: i32) -> Result<()> {
    let deadline = Instant::now() + FOCUS_LIMIT;
    loop {
        let (code, text) = run_program(LIMELIGHT, &["status", "--json"])?;
        if code == 0 && names_topmost(&text, pid)? {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "pid {pid} is not in the foreground after {FOCUS_LIMIT:?}; status is {text}; \
                 limelightd wrote:\n{}",
                log_tail()
            );
        }
        sleep(Duration::from_millis(200));
    }
}

/// Whether the JSON of `limelight status` contains `pid` below its `foreground`.
fn names_topmost(status: &str, pid: i32) -> Result<bool> {
    let status: serde_json::Value =
        serde_json::from_str(status).context("limelight status --json does not print JSON")?;
    fn holds(value: &serde_json::Value, pid: i32) -> bool {
        match value {
            serde_json::Value::Number(number) => number.as_i64() == Some(pid.into()),
            serde_json::Value::Array(items) => items.iter().any(|item| holds(item, pid)),
            serde_json::Value::Object(fields) => fields.values().any(|item| holds(item, pid)),
            _ => false,
        }
    }
    Ok(status
        .get("foreground")
        .is_some_and(|topmost| holds(topmost, pid)))
}

pub(crate) fn load_name(load: RealLoad) -> &'static str {
    match load {
        RealLoad::Copy => "cp",
        RealLoad::Index => "recollindex",
    }
}

fn start_load(load: RealLoad, cgroup: Option<&Cgroup>) -> Result<Process> {
    start(cgroup, "sh", &["-c", &load_script(load, INSIDE, ROOTFS)?])
}

/// A shell's script that runs a load without end. `data`: the directory of the file that `cp`
/// copies, as the load sees it; `root`: the load's root directory.
pub(crate) fn load_script(load: RealLoad, data: &str, root: &str) -> Result<String> {
    Ok(match load {
        RealLoad::Copy => {
            format!("while cp {data}/background-{COPY_MIB}M {data}/copy; do :; done")
        }
        RealLoad::Index => {
            let config = format!("{root}/root/.recoll");
            fs::create_dir_all(&config)?;
            fs::write(
                format!("{config}/recoll.conf"),
                "topdirs = /usr /etc /var/lib\nindexallfilenames = 1\n",
            )?;
            "while recollindex -z; do :; done".into()
        }
    })
}

fn press_keys(
    session: &Session,
    gallery: &RealGallery,
    photos: &[PathBuf],
    reporter: &mut Reporter,
) -> Result<()> {
    let (mut faults, mut server_faults, mut misses, mut unanswered) = (0, 0, 0, 0u64);
    let mut responses = Responses::default();
    // Index of the photo on the screen. After the last photo, the viewer shows the first one again.
    let mut shown = 0;
    for pause in &gallery.pauses {
        for _ in 0..pause.swipes {
            sleep(Duration::from_millis(pause.ms.into()));
            shown = (shown + 1) % photos.len();
            let missing = missing_pages(&photos[shown])?;
            let before = (
                major_faults(session.viewer.pid())?,
                major_faults(session.server.pid())?,
            );
            let answer = session.user.press(SPACE)?;
            let viewer_faults = major_faults(session.viewer.pid())? - before.0;
            faults += viewer_faults;
            server_faults += major_faults(session.server.pid())? - before.1;
            misses += missing;
            match answer {
                None => unanswered += 1,
                Some(response) => {
                    let response_us = response.as_secs_f64() * 1e6;
                    responses.add(pause.ms, response_us, reporter);
                }
            }
            reporter.sample(series(pause.ms, "major_faults"), viewer_faults);
            reporter.sample(series(pause.ms, "read_miss_pages"), missing);
        }
    }
    reporter.value("major_faults", faults);
    reporter.value("server_major_faults", server_faults);
    reporter.value("read_miss_pages", misses);
    reporter.value("unanswered_keys", unanswered);
    responses.report(reporter);
    reporter.value("viewer_alive", true);
    Ok(())
}

/// Pages of a file that are not in the page cache.
fn missing_pages(path: &Path) -> Result<u64> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let len = file.metadata()?.len();
    let pages = len.div_ceil(PAGE as u64);
    Ok(pages.saturating_sub(cached_pages(&file, 0, len)?))
}

/// A process's major faults, including those of its reaped children.
pub(crate) fn major_faults(pid: i32) -> Result<u64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path)
        .with_context(|| format!("cannot read {path}: did the process die?"))?;
    parse_major_faults(&text).with_context(|| format!("cannot parse {path}: {text:?}"))
}

fn parse_major_faults(stat: &str) -> Option<u64> {
    // The name may contain spaces and parentheses, so fields 12 and 13 are counted from the last
    // closing parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(9)?.parse::<u64>().ok()? + fields.get(10)?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::{names_topmost, parse_major_faults};

    #[test]
    fn faults_are_parsed_after_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 200 30 4 5 6 7 8";
        assert_eq!(parse_major_faults(stat), Some(34));
        assert_eq!(parse_major_faults("7 (x"), None);
    }

    #[test]
    fn pid_is_searched_below_topmost_only() {
        let status = r#"{"foreground": {"app": {"pids": [5, 77]}}, "previous": {"pid": 9}}"#;
        assert!(names_topmost(status, 77).unwrap());
        assert!(!names_topmost(status, 9).unwrap());
        assert!(!names_topmost(r#"{"foreground": null}"#, 9).unwrap());
    }
}
