// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests the connection against a simulated server on a socket. Time is passed in.

use super::*;
use proptest::prelude::*;
use protocol::{SubscriptionEvent, SubscriptionEventFacility, SubscriptionEventType};
use std::io::{BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};

const START: Duration = Duration::from_secs(1);

struct TestServer {
    _dir: tempfile::TempDir,
    stream: BufReader<UnixStream>,
}

/// A connection to a simulated server that has answered the login.
fn connected() -> (Server, TestServer) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("native");
    let listener = UnixListener::bind(&path).unwrap();
    let mut server = Server::connect(&path, vec![1, 2], START).unwrap();
    let mut test = TestServer {
        _dir: dir,
        stream: BufReader::new(listener.accept().unwrap().0),
    };
    match test.request() {
        (0, Command::Auth(login)) => {
            assert_eq!((login.version, login.cookie.len()), (20, 256));
            assert!(login.cookie.starts_with(&[1, 2, 0]));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(test.request(), (1, Command::SetClientName(_))));
    assert!(matches!(test.request(), (2, Command::Subscribe(_))));
    let version = AuthReply {
        version: 35,
        ..AuthReply::default()
    };
    test.reply(0, &version);
    // pipewire-pulse does not answer in order.
    test.acknowledge(2);
    test.acknowledge(1);
    server.turn(START).unwrap();
    assert!(server.is_idle() && server.deadline().is_none());
    (server, test)
}

impl TestServer {
    fn request(&mut self) -> (u32, Command) {
        protocol::read_command_message(&mut self.stream, VERSION).unwrap()
    }

    fn send(&self, bytes: &[u8]) {
        self.stream.get_ref().write_all(bytes).unwrap();
    }

    fn reply<T: CommandReply + protocol::TagStructWrite>(&self, sequence: u32, reply: &T) {
        let mut message = Vec::new();
        protocol::encode_reply_message(&mut message, sequence, reply, VERSION).unwrap();
        self.send(&message);
    }

    fn acknowledge(&self, sequence: u32) {
        let mut message = Vec::new();
        protocol::encode_ack_message(sequence, &mut message).unwrap();
        self.send(&message);
    }

    fn announce_a_change(&self) {
        let event = Command::SubscribeEvent(SubscriptionEvent {
            event_facility: SubscriptionEventFacility::SinkInput,
            event_type: SubscriptionEventType::New,
            index: Some(3),
        });
        let mut message = Vec::new();
        protocol::encode_command_message(&mut message, u32::MAX, &event, VERSION).unwrap();
        self.send(&message);
    }
}

fn process(pid: &str) -> Props {
    let mut props = Props::new();
    let pid = std::ffi::CString::new(pid).unwrap();
    props.set(Prop::ApplicationProcessId, pid);
    props
}

fn player(pid: Option<&str>, client_index: Option<u32>, corked: bool) -> SinkInputInfo {
    SinkInputInfo {
        props: pid.map_or(Props::new(), process),
        client_index,
        corked,
        ..SinkInputInfo::default()
    }
}

#[test]
fn playing_and_recording_streams_have_a_process() {
    let (mut server, mut test) = connected();
    server.list(START).unwrap();
    assert!(matches!(test.request(), (3, Command::GetSinkInputInfoList)));
    assert!(matches!(
        test.request(),
        (4, Command::GetSourceOutputInfoList)
    ));
    assert!(matches!(test.request(), (5, Command::GetClientInfoList)));
    let players = vec![
        player(Some("101"), Some(1), false),
        player(Some("102"), Some(1), true),
        player(None, None, false),
        player(Some("-1"), None, false),
        player(Some("x"), None, false),
        player(None, Some(7), false),
        player(None, Some(8), true),
    ];
    test.reply(3, &players);
    let clients: Vec<ClientInfo> = [(7, "301"), (8, "302")]
        .map(|(index, pid)| ClientInfo {
            index,
            props: process(pid),
            ..ClientInfo::default()
        })
        .into();
    test.reply(5, &clients);
    server.turn(START).unwrap();
    assert_eq!(server.pids, None);
    let recorder = SourceOutputInfo {
        props: process("201"),
        ..SourceOutputInfo::default()
    };
    test.reply(4, &vec![recorder]);
    server.turn(START).unwrap();
    assert_eq!(server.pids, Some(BTreeSet::from([101, 201, 301])));
    assert!(!server.changed && server.is_idle());
    test.announce_a_change();
    server.turn(START).unwrap();
    assert!(server.changed);
}

#[test]
fn message_in_pieces_is_taken_when_complete() {
    let (mut server, test) = connected();
    server.list(START).unwrap();
    let mut message = Vec::new();
    let players = vec![player(Some("101"), None, false)];
    protocol::encode_reply_message(&mut message, 3, &players, VERSION).unwrap();
    for byte in &message {
        assert_eq!(server.asked.len(), 3);
        test.send(&[*byte]);
        server.turn(START).unwrap();
    }
    assert_eq!(server.asked.len(), 2);
}

#[test]
fn hanging_server_is_given_up() {
    let (mut server, _test) = connected();
    server.list(START).unwrap();
    let by = server.deadline().unwrap();
    server.turn(by - Duration::from_millis(1)).unwrap();
    assert!(matches!(server.turn(by), Err(PulseError::Silent)));
}

#[test]
fn errors_and_the_end_of_the_server_are_reported() {
    let (mut server, test) = connected();
    server.list(START).unwrap();
    let mut message = Vec::new();
    let denied = protocol::PulseError::AccessDenied;
    protocol::encode_command_message(&mut message, 3, &Command::Error(denied), VERSION).unwrap();
    test.send(&message);
    let error = server.turn(START).unwrap_err();
    assert!(error.to_string().contains("AccessDenied"), "{error}");

    let (mut server, test) = connected();
    test.send(&[0xff; 20]);
    assert!(matches!(server.turn(START), Err(PulseError::TooLong(_))));

    let (mut server, test) = connected();
    drop(test);
    assert!(matches!(server.turn(START), Err(PulseError::Closed)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_message_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), tagged: bool) {
        let (mut server, test) = connected();
        server.list(START).unwrap();
        let mut message = (bytes.len() as u32 + 10).to_be_bytes().to_vec();
        message.extend([0xff; 4]);
        message.extend([0; 12]);
        // The head of a reply to the first list.
        message.extend([b'L', 0, 0, 0, if tagged { 2 } else { 66 }, b'L', 0, 0, 0, 3]);
        message.extend(&bytes);
        test.send(&message);
        let _ = server.turn(START);
    }
}
