// SPDX-License-Identifier: GPL-2.0-or-later
//! The daemon, the apps, and the checks of their state.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use limelight_proto::{Response, Status};

use super::session::Session;
use super::trouble::{set_writable, Trouble};
use crate::cgroup::ROOT;
use crate::counters::keyed;
use crate::daemon::{log_tail, write_config, Before, Daemon, LOG, STATE};
use crate::guest_setup::{mount, unmount};
use crate::process::send;
use crate::random::Random;
use crate::record::Reporter;
use crate::swap_app::{App, Spec, CLASSES, NORMAL};

const APPS: usize = 4;
const APP_MIB: u32 = 8;
/// Timeout for answers and for asynchronous changes; only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// The daemon's directory for what lasts until the next boot. It and [`STATE`] are each a small
/// file system of its own, which a trouble can fill.
pub const RUN: &str = "/run/limelight";
/// Claim that no app has the focus.
pub const NO_FOCUS: &str = r#"{"op":"focus","target":"none","source":"chaos"}"#;
/// Longest time from SIGKILL until the watcher has restored everything.
const RESTORED_WITHIN: Duration = Duration::from_secs(2);
/// The daemon's `gap_ms`: in a session, an app that lost the focus stays in the foreground for this
/// long, in milliseconds.
const GAP_MS: u32 = 200;

/// The machine under test.
pub struct World {
    /// `None` while the daemon is dead.
    pub daemon: Option<Daemon>,
    /// State of the machine before the first daemon; `None` while a daemon is running.
    pub before: Option<Before>,
    pub apps: Vec<App>,
    /// The session in which the focus moves. Without one, the test sends focus requests to the
    /// daemon.
    pub session: Option<Session>,
    /// Number of apps started so far, which is the seed of the next app's memory.
    started: u64,
    /// Failed checks.
    wrong: Vec<String>,
    /// Duration of each restore by a watcher.
    pub restored_ms: Vec<u64>,
}

impl World {
    /// Starts the apps and the daemon, with or without a session.
    pub fn new(session: bool) -> Result<World> {
        for directory in [RUN, STATE] {
            mount("limelight", directory, "tmpfs", "size=256k,mode=755")?;
        }
        // With `kill` enabled, the daemon keeps files open for writing, and their mount could not
        // be made read-only.
        write_config(&format!(
            "{CLASSES}[swap]\nkill = false\n[foreground]\ngap_ms = {GAP_MS}\n"
        ))?;
        let mut world = World {
            daemon: None,
            before: None,
            apps: Vec::new(),
            session: session.then(Session::start).transpose()?,
            started: 0,
            wrong: Vec::new(),
            restored_ms: Vec::new(),
        };
        for place in 0..APPS {
            world.start_app(place)?;
        }
        world.show()?;
        world.daemon = Some(Daemon::start(&[])?);
        Ok(world)
    }

    /// Starts an app and inserts it into [`World::apps`] at the index `place`. The names of the app
    /// and of its cgroup contain `place`.
    pub fn start_app(&mut self, place: usize) -> Result<()> {
        let spec = Spec::new(APP_MIB, self.started);
        self.started += 1;
        let app = App::start(NORMAL, &format!("app{place}"), &spec)?;
        self.apps.insert(place.min(self.apps.len()), app);
        Ok(())
    }

    /// Sends the daemon a request; `None` if the daemon does not answer.
    pub fn ask(&self, request: &str) -> Option<Response> {
        let mut stream = UnixStream::connect(Path::new(RUN).join("control.sock")).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(format!("{request}\n").as_bytes()).ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }

    /// Makes the apps show their windows; a no-op without a session.
    pub fn show(&mut self) -> Result<()> {
        match &mut self.session {
            Some(session) => session.show(&mut self.apps),
            None => Ok(()),
        }
    }

    /// The session; an error if there is none.
    pub fn session(&mut self) -> Result<&mut Session> {
        self.session.as_mut().context("there is no session")
    }

    /// Gives the focus to an app, by its index in [`World::apps`] and its PID, or to none. Returns
    /// the daemon's answer; `None` in a session, where the test sends no request, or if the daemon
    /// does not answer.
    pub fn focus(&self, app: Option<(usize, i32)>) -> Result<Option<Response>> {
        if let Some(session) = &self.session {
            session.focus(app.map(|(place, _)| place))?;
            return Ok(None);
        }
        Ok(match app {
            Some((_, pid)) => self.ask(&format!(
                r#"{{"op":"focus","target":{{"pid":{pid}}},"source":"chaos"}}"#
            )),
            None => self.ask(NO_FOCUS),
        })
    }

    /// Takes the focus from all apps.
    pub fn focus_nobody(&self) -> Result<()> {
        self.focus(None).map(|_| ())
    }

    /// Gives the focus to a random app or to none; the answer does not matter.
    pub fn change_focus(&self, random: &mut Random) -> Result<()> {
        let place = random.below(APPS as u64 + 1) as usize;
        let app = self.apps.get(place).map(|app| (place, app.pid()));
        self.focus(app).map(|_| ())
    }

    /// Gives the focus to a random app. Checks that the daemon reports this app as topmost,
    /// protects its cgroup and lowers its oom_score_adj.
    pub fn settle(&mut self, trouble: Trouble, random: &mut Random) -> Result<()> {
        let place = random.below(APPS as u64) as usize;
        let pid = self.apps[place].pid();
        let answer = self.focus(Some((place, pid)))?;
        if self.session.is_none() && !matches!(answer, Some(Response::Ok { .. })) {
            self.note(
                trouble,
                format!("limelightd answered {answer:?} to a focus claim for pid {pid}"),
            );
        }
        let topmost = |status: &Status| {
            let app = status.topmost.as_ref().map(|topmost| &topmost.app);
            app.and_then(|app| app.pid) == Some(pid)
        };
        let status = || self.ask(r#"{"op":"status"}"#);
        let followed = || matches!(status(), Some(Response::Status(status)) if topmost(&status));
        // A request takes effect at once; the agent's report is asynchronous.
        let known = match self.session {
            None => followed(),
            Some(_) => soon(followed),
        };
        if !known {
            let status = status();
            self.note(
                trouble,
                format!("pid {pid} is not in the foreground: {status:?}"),
            );
        }
        // The daemon retries changes that failed during the trouble.
        let group = self.apps[place].cgroup().path().to_owned();
        let held =
            |file: &str| fs::read_to_string(group.join(file)).is_ok_and(|text| text.trim() != "0");
        if !soon(|| held("memory.min") || held("memory.low")) {
            self.note(trouble, format!("{} is not protected", group.display()));
        }
        if !soon(|| adjustment(pid).is_ok_and(|adjusted| adjusted < 0)) {
            self.note(trouble, format!("oom_score_adj of {pid} is not lowered"));
        }
        Ok(())
    }

    /// Takes the focus from all apps, and checks that no changed value remains.
    pub fn check_nothing_left(&mut self, trouble: Trouble) -> Result<()> {
        self.focus_nobody()?;
        match self.session.is_some() && self.daemon.is_some() {
            true => self.check_nothing_left_by_and_by(trouble),
            false => self.check_now(trouble),
        }
    }

    /// Waits until the daemon has restored all values, and checks that no changed value remains.
    pub fn check_nothing_left_by_and_by(&mut self, trouble: Trouble) -> Result<()> {
        soon(|| self.left().is_ok_and(|left| left.is_empty()));
        self.check_now(trouble)
    }

    fn check_now(&mut self, trouble: Trouble) -> Result<()> {
        let left = self.left()?;
        if !left.is_empty() {
            let log = log_tail();
            let left = left.join("; ");
            self.note(trouble, format!("values not restored: {left}\n{log}"));
        }
        let log = fs::read_to_string(LOG).unwrap_or_default();
        if let Some(line) = log.lines().find(|line| line.contains("panicked")) {
            self.note(trouble, line.to_owned());
        }
        Ok(())
    }

    /// Values that differ from those before the daemon started, and processes with a changed
    /// oom_score_adj or nice value, one line each.
    fn left(&self) -> Result<Vec<String>> {
        let before = match (&self.daemon, &self.before) {
            (Some(daemon), _) => daemon.before(),
            (None, Some(before)) => before,
            (None, None) => bail!("no daemon has run"),
        };
        let mut left = before.changes()?;
        let apps = self.apps.iter().map(App::pid);
        let session = self.session.iter().flat_map(Session::pids);
        for pid in apps.chain(session) {
            let adjusted = adjustment(pid)?;
            let nice = nice(pid)?;
            if adjusted != 0 || nice != 0 {
                left.push(format!("pid {pid}: oom_score_adj {adjusted}, nice {nice}"));
            }
        }
        Ok(left)
    }

    /// Records a failed check.
    pub fn note(&mut self, trouble: Trouble, what: String) {
        self.wrong.push(format!("{}: {what}", trouble.name()));
    }

    /// The daemon; an error if it is dead.
    pub fn running(&self) -> Result<&Daemon> {
        self.daemon.as_ref().context("limelightd is dead")
    }

    /// Kills the daemon and its watcher with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        let daemon = self.daemon.take().context("limelightd is dead")?;
        self.before = Some(daemon.kill()?);
        Ok(())
    }

    /// Freezes an app as the daemon does, and kills only the daemon. Checks that the watcher
    /// restores every value within [`RESTORED_WITHIN`].
    pub fn kill_alone(&mut self, trouble: Trouble) -> Result<()> {
        let daemon = self.daemon.take().context("limelightd is dead")?;
        // While SIGSTOP suspends the daemon, it neither writes to the restore record nor changes
        // values.
        daemon.signal(libc::SIGSTOP)?;
        let group = self.apps[0].cgroup().path().to_owned();
        record_frozen(&group)?;
        fs::write(group.join("cgroup.freeze"), "1")?;
        if !soon(|| is_frozen(&group)) {
            bail!("{} cannot be frozen", group.display());
        }
        self.before = Some(daemon.kill_alone()?);
        let killed = Instant::now();
        let restored = || !is_frozen(&group) && self.left().is_ok_and(|left| left.is_empty());
        soon(restored);
        let took = killed.elapsed();
        self.check_now(trouble)?;
        if took > RESTORED_WITHIN || is_frozen(&group) {
            self.note(
                trouble,
                format!(
                    "not restored within {RESTORED_WITHIN:?}, but after {took:?}\n{}",
                    log_tail()
                ),
            );
        }
        let record = Path::new(RUN).join("private/record/restore.json");
        if !soon(|| !record.exists()) {
            self.note(trouble, format!("{} was not removed", record.display()));
        }
        self.restored_ms.push(took.as_millis() as u64);
        Ok(())
    }

    /// Kills only the daemon's watcher. Checks that the daemon starts a new watcher.
    pub fn kill_watcher(&mut self, trouble: Trouble) -> Result<()> {
        let daemon = self.daemon.as_ref().context("limelightd is dead")?;
        let watcher = daemon.watcher()?.context("limelightd has no watcher")?;
        send(watcher, libc::SIGKILL)?;
        let another = || matches!(daemon.watcher(), Ok(Some(pid)) if pid != watcher);
        if !soon(another) {
            self.note(
                trouble,
                format!("limelightd starts no new watcher\n{}", log_tail()),
            );
        }
        Ok(())
    }

    /// Starts the daemon's successor.
    pub fn succeed(&mut self) -> Result<()> {
        let before = self.before.take().context("limelightd is not dead")?;
        self.daemon = Some(Daemon::start_after(before)?);
        Ok(())
    }

    /// Stops everything; returns the failed checks.
    pub fn stop(mut self, reporter: &Reporter) -> Result<Vec<String>> {
        let mut daemon = self.daemon.take().context("limelightd is dead")?;
        if !daemon.alive() {
            bail!("limelightd has ended by itself; it wrote:\n{}", log_tail());
        }
        daemon.stop(reporter)?;
        Ok(std::mem::take(&mut self.wrong))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A no-op unless an error interrupted a trouble.
        let _ = set_writable(true);
        for directory in [RUN, STATE] {
            // The next cell needs the original state; a failure shows up there.
            let _ = unmount(directory);
        }
    }
}

/// Adds an entry to the restore record, as if the daemon had frozen this cgroup.
fn record_frozen(group: &Path) -> Result<()> {
    let path = Path::new("/").join(group.strip_prefix(ROOT)?);
    let inode = fs::metadata(group)?.ino();
    let step = serde_json::json!({
        "intend": [{ "changed": "frozen", "cgroup": { "path": path, "inode": inode } }]
    });
    let record = Path::new(RUN).join("private/record/restore.json");
    let mut file = OpenOptions::new().append(true).open(&record)?;
    writeln!(file, "{step}").with_context(|| format!("cannot write {}", record.display()))
}

fn is_frozen(group: &Path) -> bool {
    keyed(&group.join("cgroup.events"), "frozen").is_ok_and(|frozen| frozen == 1)
}

/// Waits for an asynchronous change; false on timeout.
pub fn soon(mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        if Instant::now() > deadline {
            return false;
        }
        sleep(Duration::from_millis(20));
    }
    true
}

fn adjustment(pid: i32) -> Result<i32> {
    let path = format!("/proc/{pid}/oom_score_adj");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    text.trim().parse().with_context(|| path)
}

fn nice(pid: i32) -> Result<i32> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // Field 19 of the line. The text after the name begins with field 3.
    let fields = text.rsplit_once(") ").map(|(_, rest)| rest.split(' '));
    let field = fields.and_then(|mut fields| fields.nth(16));
    let field = field.with_context(|| format!("{path} is cut off"))?;
    field.parse().with_context(|| path)
}
