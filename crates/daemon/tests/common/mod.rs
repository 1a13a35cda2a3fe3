// SPDX-License-Identifier: GPL-2.0-or-later
//! A machine made of plain files, and the real daemon on it. The tests run the daemon's event loop
//! in their own thread, one turn at a time.
//!
//! Processes are real ones (`sleep`), because a pidfd cannot be faked; their entries in `/proc` and
//! the cgroup tree are written here.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use limelight_daemon::config::Origin;
use limelight_daemon::event_loop::{Daemon, Options};
use limelight_daemon::restore::{Entry, Ledger};
use limelight_daemon::system::Roots;
use limelight_proto::{Explain, Response, Status};
use rustix::fs::{AtFlags, StatxFlags, CWD};

/// Longer than any successful operation takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A real process with an entry in the fake `/proc`.
pub struct App {
    child: Child,
    pub pid: i32,
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A machine made of plain files in a temporary directory.
pub struct Machine {
    temp: tempfile::TempDir,
    /// Start time of the most recently started process, in clock ticks.
    started: std::cell::Cell<u64>,
}

/// How far the start times of processes are ahead of the daemon's clock, in clock ticks.
const AHEAD_TICKS: u64 = 1_000_000;

/// The time since boot in clock ticks, as in `/proc/PID/stat`.
fn ticks_since_boot() -> u64 {
    let per_second = rustix::param::clock_ticks_per_second();
    let at = limelight_daemon::system::now();
    at.as_millis() as u64 * per_second / 1000
}

impl Machine {
    /// 1000 MiB of memory, no swap, MGLRU, an empty cgroup tree with the memory controller.
    pub fn new() -> Machine {
        let machine = Machine {
            temp: tempfile::tempdir().unwrap(),
            started: std::cell::Cell::new(0),
        };
        for directory in [
            "proc/pressure",
            "sys/kernel/mm/lru_gen",
            "cgroup",
            "sessions",
        ] {
            fs::create_dir_all(machine.path(directory)).unwrap();
        }
        machine.write(
            "proc/meminfo",
            "MemTotal: 1024000 kB\nMemAvailable: 900000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
        );
        machine.write("proc/vmstat", "oom_kill 0\n");
        // Its existence tells the daemon that the kernel reports the cgroups of pages.
        machine.write("proc/kpagecgroup", "");
        machine.write("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
        machine.write("sys/kernel/mm/lru_gen/enabled", "0x0007\n");
        machine.configure("");
        machine.make_cgroup("");
        machine
    }

    /// Writes the configuration that all tests use, followed by `more`.
    pub fn configure(&self, more: &str) {
        let text = format!(
            "[protect]\ninterval_ms = 100\n[sources]\nscan_interval_ms = 100\n\
             [foreground]\ngap_ms = 60000\n[boost]\nenabled = false\n{more}"
        );
        self.write("limelight.toml", &text);
    }

    /// A path inside the machine.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.temp.path().join(relative)
    }

    /// Writes a file. A configuration without a state directory gets one in the machine, so that no
    /// test writes into the history of a daemon that is installed.
    pub fn write(&self, relative: &str, text: &str) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut text = text.to_owned();
        if relative == "limelight.toml" && !text.contains("[readahead]") {
            let state = self.path("state/coldstart");
            text += &format!("\n[readahead]\ndirectory = {state:?}\n");
        }
        fs::write(path, text).unwrap();
    }

    /// The entries of the restore record.
    pub fn recorded(&self) -> Vec<Entry> {
        Ledger::open(&self.path("run"), String::new())
            .entries()
            .to_vec()
    }

    /// Reads a file, trimmed.
    pub fn read(&self, relative: &str) -> String {
        fs::read_to_string(self.path(relative))
            .unwrap()
            .trim()
            .to_owned()
    }

    /// Makes a cgroup that uses no memory.
    pub fn make_cgroup(&self, path: &str) {
        let directory = format!("cgroup/{path}");
        fs::create_dir_all(self.path(&directory)).unwrap();
        for (file, text) in [
            ("cgroup.procs", ""),
            ("cgroup.controllers", "cpu memory\n"),
            ("cgroup.subtree_control", "memory\n"),
            ("memory.min", "0\n"),
            ("memory.low", "0\n"),
            ("memory.high", "max\n"),
            ("memory.max", "max\n"),
            ("memory.current", "0\n"),
            ("memory.stat", "anon 0\nfile 0\n"),
        ] {
            self.write(&format!("{directory}/{file}"), text);
        }
    }

    /// Starts a process in a cgroup.
    pub fn spawn(&self, cgroup: &str) -> App {
        self.run(cgroup, Command::new("sleep").arg("600"))
    }

    /// Starts an app with this program in this cgroup.
    pub fn run(&self, cgroup: &str, program: &mut Command) -> App {
        let child = program.spawn().unwrap();
        let app = App {
            pid: child.id() as i32,
            child,
        };
        self.enter(app.pid, 1, cgroup);
        app
    }

    /// Start time of a process, in clock ticks since boot.
    pub fn start_of(&self, app: &App) -> u64 {
        let stat = self.read(&format!("proc/{}/stat", app.pid));
        stat.split(' ').nth(21).unwrap().parse().unwrap()
    }

    fn enter(&self, pid: i32, ppid: i32, cgroup: &str) {
        let directory = format!("proc/{pid}");
        fs::create_dir_all(self.path(&directory)).unwrap();
        // Ahead of the daemon's clock until the test ends, and later than the start of every
        // earlier process.
        let start = (ticks_since_boot() + AHEAD_TICKS).max(self.started.get() + 1);
        self.started.set(start);
        let stat =
            format!("{pid} (app{pid}) S {ppid} 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 {start} 0 0\n");
        let status = format!("Tgid:\t{pid}\nUid:\t0\t0\t0\t0\n");
        self.write(&format!("{directory}/stat"), &stat);
        self.write(&format!("{directory}/status"), &status);
        self.write(&format!("{directory}/comm"), &format!("app{pid}\n"));
        self.write(&format!("{directory}/cgroup"), &format!("0::/{cgroup}\n"));
        self.write(&format!("{directory}/oom_score_adj"), "0\n");
        let procs = format!("cgroup/{cgroup}/cgroup.procs");
        let known = self.read(&procs);
        self.write(&procs, &format!("{known}\n{pid}\n"));
    }

    /// Changes the owner of a process in the fake `/proc`.
    pub fn give(&self, app: &App, uid: u32) {
        let directory = format!("proc/{}", app.pid);
        let status = format!("Tgid:\t{}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n", app.pid);
        self.write(&format!("{directory}/status"), &status);
        std::os::unix::fs::chown(self.path(&directory), Some(uid), None).unwrap();
    }

    /// Makes a process hold a device open in the fake `/proc`.
    pub fn open_device(&self, app: &App, device: &str) {
        let device = self.path(device);
        fs::create_dir_all(device.parent().unwrap()).unwrap();
        fs::write(&device, "").unwrap();
        self.open_file(app, &device, "0100002");
    }

    /// Gives the app's process a descriptor of a file, with these flags (octal).
    pub fn open_file(&self, app: &App, file: &Path, flags: &str) {
        let descriptors = self.path(&format!("proc/{}/fd", app.pid));
        fs::create_dir_all(&descriptors).unwrap();
        let number = fs::read_dir(&descriptors).unwrap().count();
        symlink(file, descriptors.join(number.to_string())).unwrap();
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let stat = rustix::fs::statx(CWD, file, AtFlags::empty(), wanted).unwrap();
        let info = format!(
            "pos:\t0\nflags:\t{flags}\nmnt_id:\t{}\nino:\t{}\n",
            stat.stx_mnt_id, stat.stx_ino
        );
        self.write(&format!("proc/{}/fdinfo/{number}", app.pid), &info);
    }

    /// Kills a process and removes its entry.
    pub fn end(&self, app: App, cgroup: &str) {
        let pid = app.pid;
        fs::remove_dir_all(self.path(&format!("proc/{pid}"))).unwrap();
        self.write(&format!("cgroup/{cgroup}/cgroup.procs"), "");
        drop(app);
    }

    /// Sets the counters of a cgroup's memory controller.
    pub fn use_memory(&self, cgroup: &str, anon_mib: u64) {
        let bytes = anon_mib << 20;
        self.write(
            &format!("cgroup/{cgroup}/memory.current"),
            &format!("{bytes}\n"),
        );
        self.write(
            &format!("cgroup/{cgroup}/memory.stat"),
            &format!("anon {bytes}\nfile 0\n"),
        );
    }

    /// The number of bytes in a cgroup file, converted to MiB.
    pub fn mib(&self, file: &str) -> u64 {
        self.read(&format!("cgroup/{file}")).parse::<u64>().unwrap() >> 20
    }

    fn options(&self) -> Options {
        Options {
            config: Origin::File(self.path("limelight.toml")),
            dry_run: false,
            watcher: None,
            roots: Roots {
                proc: self.path("proc"),
                sys: self.path("sys"),
                cgroup: Some(self.path("cgroup")),
                tracefs: None,
                device: self.path("dev-limelight"),
                input: self.path("dev-input"),
                pts: self.path("dev-pts"),
                dri: self.path("dev-dri"),
                groups: self.path("group"),
                top_app: self.path("top-app"),
                sessions: self.path("no-sessions"),
                inhibit: self.path("inhibit"),
                data: vec![self.path("data")],
                systemd: self.path(""),
                runtime: self.path("run"),
            },
        }
    }

    /// Starts the daemon.
    pub fn start(&self) -> Running<'_> {
        self.start_with(|_| {})
    }

    /// Starts the daemon with other options.
    pub fn start_with(&self, change: impl FnOnce(&mut Options)) -> Running<'_> {
        let mut options = self.options();
        change(&mut options);
        let daemon = Daemon::start(options).unwrap();
        Running {
            daemon,
            socket: self.path("run/control.sock"),
            _machine: self,
        }
    }
}

/// The daemon on the machine.
pub struct Running<'a> {
    pub daemon: Daemon,
    socket: PathBuf,
    _machine: &'a Machine,
}

/// A connection to the daemon.
pub struct Client {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Client {
    fn new(stream: UnixStream) -> Client {
        stream.set_nonblocking(true).unwrap();
        let answers = BufReader::new(stream.try_clone().unwrap());
        Client { stream, answers }
    }
}

impl Drop for Client {
    /// Shuts the socket down explicitly. Dropping the descriptor may not close the connection at
    /// once, because a process that another test has just forked can hold a copy of it.
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Running<'_> {
    /// Opens a connection.
    pub fn connect(&self) -> Client {
        Client::new(UnixStream::connect(&self.socket).unwrap())
    }

    /// Connects as another user.
    pub fn connect_as(&self, uid: u32) -> Client {
        let socket = self.socket.clone();
        // The kernel keeps credentials per thread, and this thread ends once the connection is
        // made.
        let connected = std::thread::spawn(move || {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(uid)).unwrap();
            UnixStream::connect(&socket).unwrap()
        });
        Client::new(connected.join().unwrap())
    }

    /// Connects as another user who is a member of this group.
    pub fn connect_in_group(&self, uid: u32, gid: u32) -> Client {
        let socket = self.socket.clone();
        let connected = std::thread::spawn(move || {
            rustix::thread::set_thread_groups(&[rustix::process::Gid::from_raw(gid)]).unwrap();
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(uid)).unwrap();
            UnixStream::connect(&socket).unwrap()
        });
        Client::new(connected.join().unwrap())
    }

    /// The next line that a client receives unsolicited.
    pub fn hear(&mut self, client: &mut Client) -> String {
        let mut line = String::new();
        self.until("a line", |_| client.answers.read_line(&mut line).is_ok());
        line
    }

    /// Sends a request and turns the loop until the answer arrives.
    pub fn ask_over(&mut self, client: &mut Client, request: &str) -> Response {
        client
            .stream
            .write_all(format!("{request}\n").as_bytes())
            .unwrap();
        let mut line = String::new();
        self.until("an answer", |_| client.answers.read_line(&mut line).is_ok());
        serde_json::from_str(&line).unwrap()
    }

    /// Sends a request over a separate connection.
    pub fn ask(&mut self, request: &str) -> Response {
        let mut client = self.connect();
        self.ask_over(&mut client, request)
    }

    /// Claims the foreground explicitly for a process.
    pub fn focus(&mut self, pid: i32) {
        let answer = self.ask(&format!(
            r#"{{"op":"focus","target":{{"pid":{pid}}},"source":"test"}}"#
        ));
        assert!(matches!(answer, Response::Ok { .. }), "{answer:?}");
    }

    /// Withdraws the explicit claim.
    pub fn focus_none(&mut self) {
        let answer = self.ask(r#"{"op":"focus","target":"none","source":"test"}"#);
        assert!(matches!(answer, Response::Ok { .. }), "{answer:?}");
    }

    /// Requests the status.
    pub fn status(&mut self) -> Status {
        match self.ask(r#"{"op":"status"}"#) {
            Response::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// Pid of the topmost app.
    pub fn topmost(&mut self) -> Option<i32> {
        self.status().topmost.and_then(|topmost| topmost.app.pid)
    }

    /// Requests the explanation of a process.
    pub fn explain(&mut self, pid: i32) -> Explain {
        match self.ask(&format!(r#"{{"op":"explain","pid":{pid}}}"#)) {
            Response::Explain(explain) => *explain,
            other => panic!("{other:?}"),
        }
    }

    /// Turns the loop until the condition holds.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Daemon) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(&mut self.daemon) {
            assert!(Instant::now() < deadline, "never: {what}");
            self.daemon.turn(Some(Duration::from_millis(20))).unwrap();
        }
    }

    /// Stops the daemon as SIGTERM would.
    pub fn stop(self) {
        self.daemon.stop();
    }

    /// Ends the daemon as SIGKILL would: nothing is restored.
    pub fn crash(self) {
        drop(self.daemon);
    }
}

/// The names in a directory.
pub fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
