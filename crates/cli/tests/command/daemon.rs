// SPDX-License-Identifier: GPL-2.0-or-later
//! A simulated daemon and its answers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::JoinHandle;

use assert_cmd::Command;
use limelight_proto::Class;
use limelight_proto::Level;
use limelight_proto::{
    AgentStatus, AppLatency, AppReport, AppStatus, Change, DeviceStatus, KernelWindows,
    MechanismId, MechanismStatus, MemoryStatus, OpenWindow, Outcome, Request, Response,
    SourceStatus, Stall, Stalls, State, Status, TopmostStatus, WindowStatus, WindowTallies,
    NOTIFICATIONS, PROTOCOL, SOUND, VIDEO,
};

/// A simulated daemon that answers requests and records them.
pub struct TestDaemon {
    dir: tempfile::TempDir,
    thread: JoinHandle<Request>,
}

impl TestDaemon {
    pub fn answering(response: Response) -> Self {
        Self::sending(serde_json::to_string(&response).unwrap() + "\n")
    }

    pub fn sending(answer: String) -> Self {
        Self::sending_each(vec![answer])
    }

    /// Answers the requests of one connection in order, and records the last one.
    pub fn sending_each(answers: Vec<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("control.sock")).unwrap();
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&stream).lines();
            let mut last = String::new();
            for answer in answers {
                last = lines.next().unwrap().unwrap();
                (&stream).write_all(answer.as_bytes()).unwrap();
            }
            serde_json::from_str(&last).unwrap()
        });
        TestDaemon { dir, thread }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    pub fn limelight(&self, args: &[&str]) -> assert_cmd::assert::Assert {
        limelight()
            .arg("--socket")
            .arg(self.socket())
            .args(args)
            .assert()
    }

    pub fn request(self) -> Request {
        self.thread.join().unwrap()
    }
}

pub fn limelight() -> Command {
    Command::cargo_bin("limelight").unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn app() -> AppStatus {
    AppStatus {
        name: "viewer".into(),
        pid: Some(4242),
        cgroup: Some("/user.slice/app-viewer.scope".into()),
        own_cgroup: true,
    }
}

pub fn change() -> Change {
    Change {
        knob: "/user.slice/app-viewer.scope/memory.min".into(),
        from: "0".into(),
        to: "104857600".into(),
        rule: "working set 80 MiB + a quarter".into(),
        at_ms: 0,
        outcome: Outcome::Applied,
        undone_by: "focus on another app".into(),
    }
}

pub fn latency() -> AppLatency {
    AppLatency {
        name: "viewer".into(),
        answers: 40,
        late: 1,
        unanswered: 2,
        p50_us: 850,
        p95_us: 12_400,
        p99_us: 730_000,
        max_us: 1_730_000,
        deadline_ms: 500,
        recent_us: Vec::new(),
    }
}

/// A facility of an agent.
pub fn facility(name: &str, state: State, detail: &str) -> SourceStatus {
    SourceStatus {
        name: name.into(),
        state,
        detail: detail.into(),
    }
}

pub fn status() -> Status {
    Status {
        version: "0.1.0".into(),
        protocol: PROTOCOL,
        pid: 99,
        uptime_ms: 61_000,
        dry_run: false,
        paused: None,
        topmost: Some(TopmostStatus {
            app: app(),
            source: "x11".into(),
            for_ms: 12_000,
            members: 3,
            demoted_in_ms: None,
        }),
        previous: None,
        sources: vec![SourceStatus {
            name: "explicit".into(),
            state: State::Idle,
            detail: "control socket".into(),
        }],
        agents: vec![AgentStatus {
            pid: 77,
            uid: 1000,
            source: Some("sway".into()),
            detail: "sway (pid 70) reports the focus".into(),
            passed_over: Vec::new(),
            facilities: vec![
                facility(NOTIFICATIONS, State::Active, "shown by mako 1.9"),
                facility(SOUND, State::Active, "read from the sound server"),
                facility(VIDEO, State::Idle, "PipeWire does not run"),
            ],
        }],
        mechanisms: MechanismId::ALL
            .map(|id| MechanismStatus {
                name: id.name().into(),
                state: State::Active,
                detail: "memory.min on its cgroup".into(),
                short: String::new(),
                counters: match id {
                    MechanismId::Swap => [
                        ("killed".to_owned(), 3),
                        ("killed_bytes".to_owned(), 1 << 30),
                    ]
                    .into(),
                    _ => BTreeMap::new(),
                },
            })
            .into(),
        window: WindowStatus {
            state: State::Active,
            detail: "reported by x11".into(),
            open: Some(OpenWindow {
                app: "viewer".into(),
                for_us: 12_000,
                ends_in_us: 488_000,
                inputs: 1,
            }),
            kernel: KernelWindows {
                state: State::Active,
                detail: "reported through /dev/limelight".into(),
                opened: 40,
                closed: 38,
                failed: 0,
            },
            sources: vec![SourceStatus {
                name: "control socket".into(),
                state: State::Active,
                detail: "1 session agents".into(),
            }],
            tallies: WindowTallies {
                opened: 43,
                answered: 39,
                late: 1,
                unanswered: 2,
                ..WindowTallies::default()
            },
            topmost: Some(latency()),
        },
        memory: MemoryStatus {
            total: 8 << 30,
            budget: 4 << 30,
            protected: 100 << 20,
            level: Some(Level::Swap),
            ..MemoryStatus::default()
        },
        stalls: Stalls {
            io: Some(Stall {
                some: 12.5,
                full: None,
            }),
            ..Stalls::default()
        },
        device: DeviceStatus::Unused {
            why: "absent".into(),
        },
        changes: vec![change()],
        hidden: None,
    }
}

pub fn app_report(class: Class) -> AppReport {
    AppReport {
        app: app(),
        uid: 1000,
        class,
        why: "its default".into(),
        last_topmost_ms: Some(1),
        processes: 1,
        resident: 40 << 20,
        anonymous: 30 << 20,
        swapped: 1 << 20,
        ..AppReport::default()
    }
}
