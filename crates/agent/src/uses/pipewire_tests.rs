// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests the connection against a simulated server on a socket, and against a real PipeWire. Without
//! PipeWire, that test is skipped with a message.

use super::*;
use crate::uses::video::{Video, SOCKET};
use limelight_proto::State;
use limelight_sys::clock;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const START: Duration = Duration::from_secs(1);

/// Only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A message: object, opcode, body.
type Message = (u32, u8, Vec<u8>);

struct TestServer {
    _dir: tempfile::TempDir,
    stream: UnixStream,
}

fn connected() -> (Pipewire, TestServer) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(SOCKET);
    let listener = UnixListener::bind(&path).unwrap();
    let pipewire = Pipewire::connect(&path, START).unwrap();
    let stream = listener.accept().unwrap().0;
    let mut test = TestServer { _dir: dir, stream };
    let hello = [
        (CORE, CORE_HELLO),
        (CLIENT, CLIENT_UPDATE_PROPERTIES),
        (REGISTRY - 2, CORE_GET_REGISTRY),
        (CORE, CORE_SYNC),
    ];
    for expected in hello {
        let (object, opcode, _) = test.request();
        assert_eq!((object, opcode), expected);
    }
    (pipewire, test)
}

fn encoded(object: u32, opcode: u8, body: &[u8]) -> Vec<u8> {
    let words = [object, u32::from(opcode) << 24 | body.len() as u32, 0, 0];
    let head = words.into_iter().flat_map(u32::to_ne_bytes);
    head.chain(body.iter().copied()).collect()
}

impl TestServer {
    fn request(&mut self) -> Message {
        let mut head = [0u8; HEAD];
        self.stream.read_exact(&mut head).unwrap();
        let word = |at: usize| u32::from_ne_bytes(*head[at..].first_chunk().unwrap());
        let mut body = vec![0; (word(4) & 0xff_ffff) as usize];
        self.stream.read_exact(&mut body).unwrap();
        (word(0), (word(4) >> 24) as u8, body)
    }

    fn send(&mut self, object: u32, opcode: u8, body: Builder) {
        let message = encoded(object, opcode, &body.message());
        self.stream.write_all(&message).unwrap();
    }

    fn done(&mut self) {
        self.send(CORE, CORE_DONE, Builder::default().int(CORE).int(0));
    }

    fn global(&mut self, global: u32, interface: &str, properties: &[(&str, &str)]) {
        let body = Builder::default()
            .int(global)
            .int(0o777)
            .text(interface)
            .int(4)
            .properties(properties);
        self.send(REGISTRY, REGISTRY_GLOBAL, body);
    }

    fn stream(&mut self, global: u32, client: &str) {
        let properties = [("media.class", STREAMS[0]), ("client.id", client)];
        self.global(global, INTERFACE_NODE, &properties);
    }

    /// What the next request binds, and the object that it creates.
    fn bound(&mut self) -> (u32, u32) {
        let (object, opcode, body) = self.request();
        assert_eq!((object, opcode), (REGISTRY, REGISTRY_BIND));
        let mut values = Values::of_message(&body).unwrap();
        let global = values.number().unwrap();
        let interface = values.text().unwrap();
        assert!([INTERFACE_NODE, INTERFACE_CLIENT].contains(&interface));
        assert_eq!(values.number(), Some(VERSION));
        (global, values.number().unwrap())
    }

    fn state(&mut self, object: u32, state: u32) {
        let body = Builder::default()
            .int(7)
            .int(1)
            .int(1)
            .long(4)
            .int(1)
            .int(0)
            .id(state);
        self.send(object, INFO, body);
    }

    fn process(&mut self, object: u32, properties: &[(&str, &str)]) {
        let body = Builder::default().int(7).long(1).properties(properties);
        self.send(object, INFO, body);
    }
}

fn pids(pipewire: &mut Pipewire) -> Option<Vec<i32>> {
    let pids = pipewire.turn(START).unwrap()?;
    Some(pids.into_iter().collect())
}

#[test]
fn client_of_a_running_video_stream_is_in_use() {
    let (mut pipewire, mut test) = connected();
    test.global(30, INTERFACE_CLIENT, &[("pipewire.sec.pid", "300")]);
    test.global(31, INTERFACE_CLIENT, &[("pipewire.sec.pid", "301")]);
    let audio = [("media.class", "Stream/Output/Audio"), ("client.id", "31")];
    test.global(40, INTERFACE_NODE, &audio);
    let camera = [("media.class", "Video/Source"), ("client.id", "31")];
    test.global(41, INTERFACE_NODE, &camera);
    test.stream(42, "30");
    assert_eq!(pids(&mut pipewire), None, "the list is not complete");
    test.done();
    assert_eq!(pids(&mut pipewire), Some(vec![]));
    assert_eq!(pipewire.deadline(), None);
    let (node, client) = (test.bound(), test.bound());
    assert_eq!((node, client), ((42, 3), (30, 4)));
    test.state(node.1, RUNNING);
    assert_eq!(pids(&mut pipewire), Some(vec![300]));
    // Behind the portal, another process than the client's opened the socket.
    test.process(client.1, &[("application.process.id", "77")]);
    assert_eq!(pids(&mut pipewire), Some(vec![77]));
    // Later changes of other properties come without this one.
    test.process(client.1, &[]);
    assert_eq!(pids(&mut pipewire), None);
    test.state(node.1, 2);
    assert_eq!(pids(&mut pipewire), Some(vec![]));
    test.state(node.1, RUNNING);
    test.send(REGISTRY, REGISTRY_GLOBAL_REMOVE, Builder::default().int(42));
    test.send(CORE, CORE_REMOVE_ID, Builder::default().int(node.1));
    assert_eq!(pids(&mut pipewire), Some(vec![]));
    // The number of the removed object is used again; the client is bound once.
    test.stream(43, "30");
    assert_eq!(pids(&mut pipewire), None);
    assert_eq!(test.bound(), (43, 3));
    test.stream(44, "31");
    assert_eq!(pids(&mut pipewire), None);
    assert_eq!((test.bound(), test.bound()), ((44, 5), (31, 6)));
}

#[test]
fn server_that_checks_the_connection_gets_an_answer() {
    let (mut pipewire, mut test) = connected();
    test.done();
    test.send(CORE, CORE_PING, Builder::default().int(0).int(9));
    pipewire.turn(START).unwrap();
    let (object, opcode, body) = test.request();
    assert_eq!((object, opcode), (CORE, CORE_PONG));
    let mut values = Values::of_message(&body).unwrap();
    assert_eq!((values.number(), values.number()), (Some(0), Some(9)));
}

#[test]
fn failures_end_the_connection_and_a_vanished_object_does_not() {
    let error = |object: u32| {
        let (mut pipewire, mut test) = connected();
        let body = Builder::default().int(object).int(0).int(1).text("no");
        test.send(CORE, CORE_ERROR, body);
        pipewire.turn(START)
    };
    assert!(matches!(error(CORE), Err(PipewireError::Refused(why)) if why == "no"));
    assert!(error(9).is_ok());
    let (mut pipewire, test) = connected();
    let late = pipewire.turn(START + ANSWER_PATIENCE);
    assert!(matches!(late, Err(PipewireError::Silent)));
    drop(test);
    assert!(matches!(pipewire.turn(START), Err(PipewireError::Closed)));
    let (mut pipewire, mut test) = connected();
    test.stream.write_all(&[0xff; HEAD]).unwrap();
    assert!(matches!(
        pipewire.turn(START),
        Err(PipewireError::TooLong(_))
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_message_panics(
        object in 0u32..6,
        opcode in 0u8..10,
        body in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let (mut pipewire, mut test) = connected();
        test.stream(42, "30");
        pipewire.turn(START).unwrap();
        test.stream.write_all(&encoded(object, opcode, &body)).unwrap();
        let _ = pipewire.turn(START);
    }
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

#[test]
fn real_pipewire_lists_the_process_that_records() {
    for program in ["pipewire", "pw-link", "gst-launch-1.0"] {
        if !is_installed(program) {
            eprintln!(
                "SKIPPED: real_pipewire_lists_the_process_that_records: {program} is missing"
            );
            return;
        }
    }
    let temp = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("HOME", temp.path())
            .env("XDG_RUNTIME_DIR", temp.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    let start = |program: &str, arguments: &[&str]| Ended(run(program, arguments).spawn().unwrap());
    let _server = start("pipewire", &[]);
    let mut video = Video::new(VideoPlaces {
        remote: None,
        runtime: Some(temp.path().to_owned()),
    });
    let wait_for = |what: &str, video: &mut Video, holds: &dyn Fn(&Video) -> bool| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            video.turn(clock::monotonic());
            if holds(video) {
                return;
            }
            let late = Instant::now() >= deadline;
            assert!(!late, "timed out waiting for {what}: {}", video.detail);
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for("the server", &mut video, &|video| {
        video.state == State::Active
    });
    assert!(video.pids().is_empty());
    let caps = "video/x-raw,format=RGB,width=64,height=64";
    let gst = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        start("gst-launch-1.0", &words)
    };
    let _screen = gst(&format!(
        "videotestsrc is-live=true ! {caps} ! pipewiresink mode=provide"
    ));
    let recorder = gst(&format!("pipewiresrc ! {caps} ! fakesink"));
    let pid = recorder.0.id() as i32;
    // Without a session manager, the test links the two.
    let port = |direction: &str| {
        let listed = run("pw-link", &[direction]).stdout(Stdio::piped()).output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        listed.lines().next().map(str::to_owned)
    };
    let deadline = Instant::now() + PATIENCE;
    while !port("-o").zip(port("-i")).is_some_and(|(output, input)| {
        run("pw-link", &[&output, &input])
            .status()
            .unwrap()
            .success()
    }) {
        assert!(Instant::now() < deadline, "the streams cannot be linked");
        std::thread::sleep(Duration::from_millis(100));
    }
    wait_for("the recorder", &mut video, &|video| {
        video.pids().contains(&pid)
    });
    drop(recorder);
    wait_for("its end", &mut video, &|video| !video.pids().contains(&pid));
}
