// SPDX-License-Identifier: GPL-2.0-or-later
//! The clients printed in docs/integrator/compositors.md, against a real limelightd that changes
//! nothing.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use limelight_proto::{Response, Status};

/// A process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct TestDaemon {
    _process: Running,
    directory: tempfile::TempDir,
}

impl TestDaemon {
    fn start() -> TestDaemon {
        let directory = tempfile::tempdir().unwrap();
        let configuration = directory.path().join("limelight.toml");
        let records = directory.path().join("state/coldstart");
        let text = format!("[readahead]\ndirectory = \"{}\"\n", records.display());
        std::fs::write(&configuration, text).unwrap();
        let log = File::create(directory.path().join("log")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_limelightd"))
            .arg("--dry-run")
            .arg("--config")
            .arg(&configuration)
            .arg("--runtime-dir")
            .arg(directory.path().join("run"))
            .env_remove("NOTIFY_SOCKET")
            .env_remove("JOURNAL_STREAM")
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let daemon = TestDaemon {
            _process: Running(process),
            directory,
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while UnixStream::connect(daemon.socket()).is_err() {
            let log = std::fs::read_to_string(daemon.directory.path().join("log")).unwrap();
            assert!(Instant::now() < deadline, "limelightd is not there: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("run/control.sock")
    }

    fn status(&self) -> Status {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.write_all(b"{\"op\":\"status\"}\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        match serde_json::from_str(&line).unwrap() {
            Response::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }
}

/// Runs a client that claims the foreground for an app, and reports a key and a frame.
fn check(mut client: Command) {
    let daemon = TestDaemon::start();
    let app = Running(Command::new("sleep").arg("600").spawn().unwrap());
    let pid = app.0.id() as i32;
    let mut client = client
        .arg(daemon.socket())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut words = client.stdin.take().unwrap();
    let mut answers = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut client = Running(client);
    let mut say = |word: &str| {
        words.write_all(format!("{word}\n").as_bytes()).unwrap();
        let answer = answers.next().unwrap().unwrap();
        match serde_json::from_str(&answer).unwrap() {
            Response::Ok { message } => message,
            other => panic!("{word}: {other:?}"),
        }
    };
    assert!(say(&format!("focus {pid}")).ends_with("is in the foreground"));
    let topmost = daemon.status().topmost.unwrap();
    assert_eq!((topmost.app.pid, &*topmost.source), (Some(pid), "example"));
    assert!(say("input").starts_with("open for"));
    assert!(say("frame").starts_with("answered after"));
    assert_eq!(daemon.status().window.topmost.unwrap().answers, 1);
    assert!(say("none").contains("stays in the foreground for another"));
    say(&format!("focus {pid}"));
    drop(words);
    assert!(client.0.wait().unwrap().success());
    // The claim ends after the connection does, with a delay that allows a compositor to restart.
    let deadline = Instant::now() + Duration::from_secs(60);
    while daemon.status().topmost.is_some() {
        assert!(
            Instant::now() < deadline,
            "the claim outlives its connection"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn client_in_rust_works() {
    // Cargo builds examples next to the tests.
    let tests = std::env::current_exe().unwrap();
    let built = tests.parent().and_then(Path::parent).unwrap();
    let client = built.join("examples/compositor");
    assert!(
        client.exists(),
        "not built: cargo test without --test builds it, or --examples"
    );
    check(Command::new(client));
}

#[test]
fn client_in_python_works() {
    if Command::new("python3").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "python3 is not there");
        eprintln!("SKIPPED: python3 is not installed");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/compositor.py");
    let mut python = Command::new("python3");
    python.arg(script);
    check(python);
}

/// The page prints exactly the tested clients.
#[test]
fn page_shows_these_clients() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/integrator/compositors.md")).unwrap();
    for name in ["compositor.rs", "compositor.py"] {
        let text = std::fs::read_to_string(root.join("examples").join(name)).unwrap();
        let shown = text.split_once("Identifier: GPL-2.0-or-later\n").unwrap().1;
        assert!(
            page.contains(shown.trim()),
            "docs/integrator/compositors.md shows another {name}"
        );
    }
}
