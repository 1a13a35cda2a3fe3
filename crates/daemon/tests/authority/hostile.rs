// SPDX-License-Identifier: GPL-2.0-or-later
//! Malicious or broken clients. Whatever a client sends, the daemon still serves all others.

use std::io::{IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use limelight_proto::{ErrorCode, Response, LINE_MAX};
use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::{World, FRONT, OWNER, STRANGER};
use crate::common::{Machine, Running};

/// Runs the daemon's event loop until the client thread has finished; returns the thread's result.
fn serve<T>(daemon: &mut Running, others: thread::JoinHandle<T>) -> T {
    while !others.is_finished() {
        daemon.daemon.turn(Some(Duration::from_millis(5))).unwrap();
    }
    others.join().unwrap()
}

fn become_user(uid: u32) {
    rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(uid)).unwrap();
}

fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: speaking as other users requires root");
    }
    root
}

fn socket(machine: &Machine) -> PathBuf {
    machine.path("run/control.sock")
}

/// Number of open descriptors of the socket of `stream` in this process, in which the daemon runs
/// too.
fn descriptors_like(stream: &UnixStream) -> usize {
    let link = |number: &str| std::fs::read_link(format!("/proc/self/fd/{number}")).ok();
    let own = link(&stream.as_raw_fd().to_string());
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    all.filter(|entry| link(entry.as_ref().unwrap().file_name().to_str().unwrap()) == own)
        .count()
}

fn is_served(daemon: &mut Running) {
    let asked = Instant::now();
    daemon.status();
    assert!(asked.elapsed() < Duration::from_secs(20));
}

/// The answer of the daemon within 20 seconds: a refusal, the end of the connection, or data.
fn answer(stream: &mut UnixStream) -> String {
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut text = [0; 4096];
    let count = stream.read(&mut text).unwrap_or(0);
    String::from_utf8_lossy(&text[..count]).into_owned()
}

#[test]
fn endless_line_is_refused_and_half_a_line_changes_nothing() {
    let machine = Machine::new();
    let mut daemon = machine.start();
    let path = socket(&machine);
    let long = thread::spawn(move || {
        let mut stream = UnixStream::connect(path).unwrap();
        // The daemon may close the connection in the middle of the write.
        let _ = stream.write_all(&vec![b' '; 4 * LINE_MAX]);
        answer(&mut stream)
    });
    let said = serve(&mut daemon, long);
    assert!(
        said.contains("bad-request") && said.contains("65536"),
        "{said}"
    );
    let mut half = UnixStream::connect(socket(&machine)).unwrap();
    half.write_all(br#"{"op":"focus","target":"none","#)
        .unwrap();
    is_served(&mut daemon);
    drop(half);
    is_served(&mut daemon);
    // Nested more deeply than any valid message.
    let deep = format!(r#"{{"op":{}"#, "[".repeat(60_000));
    let answer = daemon.ask(&deep);
    assert!(matches!(answer, Response::Error { .. }), "{answer:?}");
}

#[test]
fn thousands_of_connections_of_one_user_do_not_lock_out_others() {
    if !root() {
        return;
    }
    let machine = Machine::new();
    let mut daemon = machine.start();
    let path = socket(&machine);
    let flood = thread::spawn(move || {
        become_user(STRANGER);
        let mut kept = std::collections::VecDeque::new();
        for _ in 0..3000 {
            if let Ok(stream) = UnixStream::connect(&path) {
                kept.push_back(stream);
            }
            if kept.len() > 200 {
                kept.pop_front();
            }
        }
        kept
    });
    let kept = serve(&mut daemon, flood);
    assert_eq!(kept.len(), 200);
    is_served(&mut daemon);
    drop(kept);
    is_served(&mut daemon);
}

/// One person may have thousands of uids (`/etc/subuid`), so a limit per uid is not enough. None of
/// these requests needs permission, and all keep the connection open.
#[test]
fn connections_of_many_users_do_not_lock_out_others() {
    if !root() {
        return;
    }
    for request in [
        r#"{"op":"listen"}"#,
        r#"{"op":"agent","source":null,"detail":"x"}"#,
        r#"{"op":"never","file":"/f","text":"[never]\nclose = [\"*\"]"}"#,
    ] {
        let machine = Machine::new();
        let mut daemon = machine.start();
        let mut kept = Vec::new();
        for uid in 0..8 {
            let path = socket(&machine);
            let crowd = thread::spawn(move || {
                become_user(100_000 + uid);
                let connect = |_| UnixStream::connect(&path).unwrap();
                let mut streams: Vec<UnixStream> = (0..16).map(connect).collect();
                for stream in &mut streams {
                    let _ = writeln!(stream, "{request}");
                }
                streams
            });
            kept.extend(serve(&mut daemon, crowd));
        }
        is_served(&mut daemon);
        let mut user = daemon.connect_as(STRANGER);
        let answer = daemon.ask_over(&mut user, r#"{"op":"status"}"#);
        assert!(
            matches!(answer, Response::Status(_)),
            "{request}: {answer:?}"
        );
        daemon.stop();
    }
}

#[test]
fn clients_that_never_read_do_not_block_the_daemon() {
    let machine = Machine::new();
    let mut daemon = machine.start();
    let path = socket(&machine);
    let deaf = thread::spawn(move || {
        let connect = |_| UnixStream::connect(&path).unwrap();
        let mut streams: Vec<UnixStream> = (0..8).map(connect).collect();
        for stream in &mut streams {
            stream.set_nonblocking(true).unwrap();
        }
        let requests = b"{\"op\":\"status\"}\n".repeat(64);
        for _ in 0..100 {
            for stream in &mut streams {
                // Fails if the buffer is full.
                let _ = stream.write(&requests);
            }
            thread::sleep(Duration::from_millis(1));
        }
        streams
    });
    let deaf = serve(&mut daemon, deaf);
    is_served(&mut daemon);
    drop(deaf);
    is_served(&mut daemon);
}

#[test]
fn received_descriptors_are_not_kept() {
    let machine = Machine::new();
    let mut daemon = machine.start();
    let stream = UnixStream::connect(socket(&machine)).unwrap();
    let own = [stream.as_fd(); 100];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(100))];
    for _ in 0..20 {
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&own)));
        let line = [IoSlice::new(b"{\"op\":\"latency\"}\n")];
        sendmsg(&stream, &line, &mut control, SendFlags::empty()).unwrap();
        is_served(&mut daemon);
        assert_eq!(descriptors_like(&stream), 1);
    }
}

/// Sends 300 requests in succession. Returns how many were served, and the wait times in ms that
/// the refusals of the others gave.
fn flood(
    daemon: &mut Running,
    client: &mut crate::common::Client,
    question: &str,
) -> (usize, Vec<u64>) {
    let mut served = 0;
    let mut waits = Vec::new();
    for _ in 0..300 {
        match daemon.ask_over(client, question) {
            Response::Error {
                code: ErrorCode::Busy,
                retry_ms,
                cure,
                ..
            } => {
                assert!(cure.contains("again in"), "{cure}");
                waits.push(retry_ms.unwrap());
            }
            _ => served += 1,
        }
    }
    (served, waits)
}

#[test]
fn flood_of_lookups_is_refused_and_told_how_long_to_wait() {
    if !root() {
        return;
    }
    let machine = Machine::new();
    let mut daemon = machine.start();
    for (uid, question) in [
        (STRANGER, r#"{"op":"apps"}"#),
        (STRANGER + 1, r#"{"op":"status"}"#),
        (STRANGER + 2, r#"{"op":"explain","pid":1}"#),
        (
            STRANGER + 3,
            r#"{"op":"class","pid":1,"class":"disposable"}"#,
        ),
    ] {
        let mut stranger = daemon.connect_as(uid);
        let (served, waits) = flood(&mut daemon, &mut stranger, question);
        assert!(served < 250, "{question}: {served}");
        assert!(waits.iter().all(|ms| (1..=5000).contains(ms)), "{waits:?}");
        thread::sleep(Duration::from_millis(waits[waits.len() - 1]));
        let answer = daemon.ask_over(&mut stranger, r#"{"op":"latency"}"#);
        assert!(matches!(answer, Response::Latency(_)), "{answer:?}");
        // Other clients are still served.
        is_served(&mut daemon);
    }
}

/// Any user may claim, and make cgroups without limit.
#[test]
fn claimed_cgroup_with_very_many_cgroups_is_refused() {
    let Some(world) = World::new() else {
        return;
    };
    for number in 0..300 {
        let path = format!("cgroup/{FRONT}/g{number}/cgroup.procs");
        world.machine.write(&path, "");
    }
    let mut daemon = world.start(false);
    let mut owner = daemon.connect_as(OWNER);
    let claim =
        format!(r#"{{"op":"focus","target":{{"cgroup":"/{FRONT}"}},"source":"test","hold":true}}"#);
    let answer = daemon.ask_over(&mut owner, &claim);
    let Response::Error { code, message, .. } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(code, ErrorCode::BadRequest, "{message}");
    assert!(message.contains("read all groups below"), "{message}");
    assert_eq!(daemon.topmost(), None);
    daemon.stop();
}

#[test]
fn many_users_together_get_no_more_lookups_than_one() {
    if !root() {
        return;
    }
    let machine = Machine::new();
    let mut daemon = machine.start();
    let begin = Instant::now();
    let mut all = 0;
    for uid in 0..10 {
        let mut client = daemon.connect_as(200_000 + uid);
        all += flood(&mut daemon, &mut client, r#"{"op":"apps"}"#).0;
    }
    let bound = 50 + begin.elapsed().as_millis() as usize / 100 + 10;
    assert!(all <= bound, "{all} of at most {bound}");
    is_served(&mut daemon);
}

#[test]
fn session_agent_is_not_rate_limited() {
    if !root() {
        return;
    }
    let machine = Machine::new();
    for cgroup in ["u", "u/app-a-1.scope", "u/app-b-2.scope"] {
        machine.make_cgroup(cgroup);
    }
    let apps = ["u/app-a-1.scope", "u/app-b-2.scope"].map(|cgroup| machine.spawn(cgroup));
    apps.iter().for_each(|app| machine.give(app, STRANGER));
    machine.open_device(&apps[0], "dev-input/event0");
    let mut daemon = machine.start();
    let mut agent = daemon.connect_as(STRANGER);
    let mut last = 0;
    for turn in 0..100 {
        last = apps[turn % 2].pid;
        let report =
            format!(r#"{{"op":"focus","target":{{"pid":{last}}},"source":"x11","hold":true}}"#);
        let mut said = vec![report];
        for event in ["open", "close"].repeat(10) {
            said.push(format!(
                r#"{{"op":"window","event":"{event}","pid":{last},"source":"x11"}}"#
            ));
        }
        for message in said {
            let answer = daemon.ask_over(&mut agent, &message);
            assert!(matches!(answer, Response::Ok { .. }), "{answer:?}");
        }
    }
    assert_eq!(daemon.topmost(), Some(last));
    daemon.stop();
}

#[test]
fn requests_of_a_flooding_user_are_read_slowly() {
    if !root() {
        return;
    }
    let machine = Machine::new();
    let mut daemon = machine.start();
    let path = socket(&machine);
    let begin = Instant::now();
    let sender = thread::spawn(move || {
        become_user(STRANGER);
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_nonblocking(true).unwrap();
        let lines = b"{}\n".repeat(1000);
        let mut text = vec![0; 1 << 16];
        let mut answered = 0;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(2) {
            let _ = stream.write(&lines);
            if let Ok(count) = stream.read(&mut text) {
                answered += text[..count].iter().filter(|&&byte| byte == b'\n').count();
            }
            thread::sleep(Duration::from_millis(1));
        }
        answered
    });
    let answered = serve(&mut daemon, sender);
    let bound = 400 + begin.elapsed().as_millis() as usize / 5 + 100;
    assert!(answered <= bound, "{answered} of at most {bound}");
    is_served(&mut daemon);
}
