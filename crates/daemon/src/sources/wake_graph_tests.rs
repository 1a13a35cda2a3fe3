// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::system::Roots;
use std::fs;

/// Trace recorded by Linux 6.18 of Xvfb with openbox and four clients on a busy machine. The focus
/// moved between the first two clients, and keys were pressed through XTEST. Wakeups of other
/// processes are left out. Lines that begin with `#` were added by the recorder.
const TRACE: &str = include_str!("../../tests/wakes.trace");

/// The source, on a system with a fake procfs.
struct Fixture {
    temp: tempfile::TempDir,
    system: System,
    source: WakeGraphSource,
}

impl Fixture {
    fn new(server: i32) -> Fixture {
        let temp = tempfile::tempdir().unwrap();
        for directory in ["proc/1/net", "sys", "cgroup", "tracing"] {
            fs::create_dir_all(temp.path().join(directory)).unwrap();
        }
        fs::write(temp.path().join("proc/1/net/unix"), "").unwrap();
        let system = System::open(Roots {
            tracefs: Some(temp.path().join("tracing")),
            sessions: temp.path().join("no-sessions"),
            ..Roots::below(temp.path())
        })
        .unwrap();
        let id = ProcessId {
            pid: server,
            starttime: 70,
        };
        let source = WakeGraphSource {
            works: Some(Ok(())),
            servers: vec![DisplayServer {
                id,
                name: "Xorg".to_owned(),
                kind: Server::Outermost,
            }],
            threads: [(server, id)].into(),
            graph: WakeGraph::new([(id, Server::Outermost)].into()),
            span: Some(Span {
                since: Duration::ZERO,
                ends: Duration::MAX,
            }),
            ..WakeGraphSource::default()
        };
        let fixture = Fixture {
            temp,
            system,
            source,
        };
        fixture.process(server, server, 1, "Xorg", "session.slice");
        fixture
    }

    fn process(&self, tid: i32, pid: i32, ppid: i32, name: &str, cgroup: &str) {
        let directory = self.temp.path().join(format!("proc/{tid}"));
        fs::create_dir(&directory).unwrap();
        let stat = format!("{tid} ({name}) S {ppid} 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n");
        let status = format!("Tgid:\t{pid}\nUid:\t1000\t1000\t1000\t1000\n");
        let cgroup = format!("0::/{cgroup}\n");
        for (file, text) in [("stat", stat), ("status", status), ("cgroup", cgroup)] {
            fs::write(directory.join(file), text).unwrap();
        }
    }

    /// Feeds an input after which the server woke this thread at once. Returns the guessed
    /// foreground.
    fn input(&mut self, ms: u64, woken: i32) -> Option<i32> {
        let at = Duration::from_millis(ms);
        let waker = *self.source.threads.keys().next().unwrap();
        let line = format!(
            "            Xorg-{waker}    [001] d..3. {}.{:06}: sched_waking: comm=x pid={woken} prio=120 target_cpu=000",
            ms / 1000,
            ms % 1000 * 1000 + 300
        );
        self.look(&[at], &[line], at + Duration::from_millis(30))
    }

    fn look(&mut self, inputs: &[Duration], lines: &[String], until: Duration) -> Option<i32> {
        self.source.inputs = inputs.to_vec();
        let helpers = ["picom".to_owned()];
        self.source.take(lines, until, &self.system, &helpers);
        self.source.front().map(|front| front.pid)
    }
}

fn after<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    line.strip_prefix("# ")?
        .strip_prefix(word)?
        .strip_prefix(' ')
}

#[test]
fn recorded_focus_changes_are_guessed() {
    let server = TRACE
        .lines()
        .find_map(|line| after(line, "server"))
        .unwrap();
    let mut fixture = Fixture::new(server.parse().unwrap());
    for client in TRACE.lines().filter_map(|line| after(line, "client")) {
        let (pid, name) = client.split_once(' ').unwrap();
        let pid = pid.parse().unwrap();
        fixture.process(pid, pid, 1, name, "session-1.scope");
    }
    // One batch per input, as in the daemon: each batch is evaluated before the next input.
    let mut looks: Vec<(Option<i32>, Vec<Duration>, Vec<String>)> = Vec::new();
    let mut focus = None;
    for line in TRACE.lines() {
        if let Some(pid) = after(line, "focus") {
            focus = pid.parse().ok();
        } else if let Some(at) = after(line, "input") {
            let at = Duration::from_secs_f64(at.parse().unwrap());
            looks.push((focus, vec![at], Vec::new()));
        } else if let Some((.., lines)) = looks.last_mut() {
            lines.push(line.to_owned());
        }
    }
    let ends: Vec<Duration> = looks.iter().skip(1).map(|(_, at, _)| at[0]).collect();
    let last = looks.last().unwrap().1[0] + Duration::from_millis(100);
    let span = fixture.source.span.as_mut().unwrap();
    span.since = looks[0].1[0];
    let mut guesses: Vec<(i32, Option<i32>)> = Vec::new();
    for ((focus, inputs, lines), until) in looks.into_iter().zip(ends.into_iter().chain([last])) {
        let guess = fixture.look(&inputs, &lines, until);
        let focus = focus.unwrap();
        match guesses.last_mut() {
            Some((known, last)) if *known == focus => *last = guess,
            _ => guesses.push((focus, guess)),
        }
    }
    // The first three presses are not enough for a guess: the first one woke every client, because
    // the keyboard was new.
    assert_eq!(guesses.len(), 4);
    assert_eq!(guesses[0].1, None);
    for (focus, guess) in &guesses[1..] {
        assert_eq!(*guess, Some(*focus), "{guesses:?}");
    }
}

#[test]
fn process_that_is_no_app_is_never_foreground() {
    let mut fixture = Fixture::new(50);
    fixture.process(60, 60, 2, "kworker/0:1", "");
    fixture.process(61, 61, 1, "picom", "session-1.scope");
    let own = i32::try_from(std::process::id()).unwrap();
    fixture.process(own, own, 1, "limelightd", "system.slice");
    let mut at = 1000;
    for pid in [60, 61, own, 4_000_000, 50] {
        for _ in 0..4 {
            at += 100;
            assert_eq!(fixture.input(at, pid), None, "pid {pid}");
        }
    }
}

#[test]
fn threads_count_as_their_process_and_one_unit_counts_as_one_app() {
    let mut fixture = Fixture::new(50);
    fixture.process(70, 70, 1, "firefox", "user.slice/app-firefox-1.scope");
    fixture.process(71, 70, 1, "IPC", "user.slice/app-firefox-1.scope");
    fixture.process(72, 72, 70, "gpu", "user.slice/app-firefox-1.scope/sub");
    let woken = [71, 72, 70, 72];
    let mut at = 1000;
    let mut front = None;
    for tid in woken {
        at += 100;
        front = fixture.input(at, tid);
    }
    assert_eq!(front, Some(70));
}

#[test]
fn batch_with_lost_events_is_not_evidence() {
    let mut fixture = Fixture::new(50);
    fixture.process(70, 70, 1, "foot", "session-1.scope");
    fixture.input(1000, 70);
    assert_eq!(fixture.input(1100, 70), Some(70));
    for round in 0..20 {
        let at = Duration::from_millis(1200 + round * 100);
        let lost = ["CPU:1 [LOST 42 EVENTS]".to_owned()];
        let front = fixture.look(&[at], &lost, at + Duration::from_millis(30));
        assert_eq!(front, Some(70));
    }
}

#[test]
fn ended_process_leaves_the_foreground() {
    let mut fixture = Fixture::new(50);
    fixture.process(70, 70, 1, "foot", "session-1.scope");
    fixture.input(1000, 70);
    assert_eq!(fixture.input(1100, 70), Some(70));
    fs::remove_dir_all(fixture.temp.path().join("proc/70")).unwrap();
    let at = Duration::from_millis(1200);
    assert_eq!(fixture.look(&[at], &[], at), None);
}

#[test]
fn failure_and_detail_name_what_is_missing() {
    let mut fixture = Fixture::new(50);
    let mut ledger = Ledger::open(&fixture.temp.path().join("run"), String::new());
    let mut source = WakeGraphSource::default();
    source.want(true, &fixture.system, &mut ledger);
    let why = source.failure().unwrap();
    assert!(
        why.contains("sched:sched_waking") && !source.listens(),
        "{why}"
    );
    let event = "tracing/events/sched/sched_waking";
    fs::create_dir_all(fixture.temp.path().join(event)).unwrap();
    source.want(false, &fixture.system, &mut ledger);
    source.want(true, &fixture.system, &mut ledger);
    assert!(source.listens() && source.next_deadline().is_none());
    let second = Duration::from_secs(1);
    source.pressed(&[second], &fixture.system, &mut ledger, second);
    assert!(
        source.detail().contains("no X server"),
        "{}",
        source.detail()
    );
    assert!(source.next_deadline().is_none() && ledger.entries().is_empty());
    fixture.source.stop(&mut ledger);
}

#[test]
fn filter_names_all_threads() {
    assert_eq!(filter([7, 12].iter()), "common_pid==7||common_pid==12");
}
