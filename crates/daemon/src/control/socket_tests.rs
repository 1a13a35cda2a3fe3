// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use std::io::{BufRead, BufReader, Read};

const NOW: Duration = Duration::from_secs(100);

struct Fixture {
    _temp: tempfile::TempDir,
    path: PathBuf,
    source: ControlSource,
    reactor: Reactor,
}

impl Fixture {
    fn new() -> Fixture {
        let temp = tempfile::tempdir().unwrap();
        let source = ControlSource::bind(temp.path()).unwrap();
        let reactor = Reactor::new().unwrap();
        let listener = source.listener();
        reactor
            .add(listener, Token::Listener, EventFlags::IN)
            .unwrap();
        let path = temp.path().join(SOCKET_NAME);
        Fixture {
            _temp: temp,
            path,
            source,
            reactor,
        }
    }

    fn connect(&mut self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        self.source.accept(&self.reactor, NOW);
        stream
    }

    /// One turn of the loop without waiting; the answer to each request is the request's length.
    fn turn(&mut self) -> Vec<u64> {
        for ready in self.reactor.wait(Some(Duration::ZERO)).unwrap() {
            if let Token::Client(id) = ready.token {
                self.source.transfer(id, ready, NOW);
            }
        }
        for line in self.source.take_lines(NOW) {
            let message = line.text.len().to_string();
            self.source
                .answer(line.client, &Response::Ok { message }, NOW);
        }
        self.source.tidy(&self.reactor, NOW)
    }
}

fn line(stream: &UnixStream) -> String {
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut text = String::new();
    BufReader::new(stream.try_clone().unwrap())
        .read_line(&mut text)
        .unwrap();
    text
}

#[test]
fn socket_is_open_to_all_users() {
    let fixture = Fixture::new();
    let mode = std::fs::metadata(&fixture.path)
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o666);
}

#[test]
fn lines_may_arrive_in_pieces_or_several_at_once() {
    let mut fixture = Fixture::new();
    let mut stream = fixture.connect();
    stream.write_all(b"abc").unwrap();
    fixture.turn();
    stream.write_all(b"de\nx\n").unwrap();
    fixture.turn();
    assert_eq!(
        fixture.source.next_line(NOW),
        Some(NOW),
        "the second request was not left for the next turn"
    );
    fixture.turn();
    let mut reader = BufReader::new(&stream);
    let mut text = String::new();
    reader.read_line(&mut text).unwrap();
    reader.read_line(&mut text).unwrap();
    assert_eq!(
        text,
        "{\"result\":\"ok\",\"message\":\"5\"}\n{\"result\":\"ok\",\"message\":\"1\"}\n"
    );
}

#[test]
fn requests_before_the_end_of_the_stream_are_answered() {
    let mut fixture = Fixture::new();
    let mut stream = fixture.connect();
    stream.write_all(b"ab\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut gone = Vec::new();
    for _ in 0..4 {
        gone.extend(fixture.turn());
    }
    assert!(line(&stream).contains("\"2\""));
    assert_eq!(gone.len(), 1);
}

#[test]
fn endless_line_is_refused() {
    let mut fixture = Fixture::new();
    let mut stream = fixture.connect();
    stream.set_nonblocking(true).unwrap();
    let chunk = [b'x'; 4096];
    let mut gone = Vec::new();
    for _ in 0..64 {
        let _ = stream.write(&chunk);
        gone.extend(fixture.turn());
    }
    stream.set_nonblocking(false).unwrap();
    assert_eq!(gone.len(), 1);
    assert!(line(&stream).contains("bad-request"));
}

#[test]
fn client_that_reads_no_answers_is_stalled_then_disconnected() {
    let mut fixture = Fixture::new();
    let mut deaf = fixture.connect();
    let mut other = fixture.connect();
    deaf.set_nonblocking(true).unwrap();
    let requests = b"r\n".repeat(2048);
    for _ in 0..600 {
        let _ = deaf.write(&requests);
        fixture.turn();
    }
    let waiting = fixture
        .source
        .clients
        .values()
        .map(|client| client.unsent.len())
        .max();
    assert!(
        waiting.unwrap() < WAITING_MAX + 4096,
        "{waiting:?} bytes pending"
    );
    other.write_all(b"hello\n").unwrap();
    fixture.turn();
    assert!(line(&other).contains("\"5\""));
    let deadline = fixture.source.next_deadline(NOW).unwrap();
    assert_eq!(deadline, NOW + STUCK);
    assert_eq!(fixture.source.tidy(&fixture.reactor, deadline), [0]);
}

#[test]
fn idle_client_is_disconnected_unless_it_holds_a_claim() {
    let mut fixture = Fixture::new();
    let _idle = fixture.connect();
    let _agent = fixture.connect();
    fixture.source.set_holding(1);
    assert!(fixture
        .source
        .tidy(&fixture.reactor, NOW + IDLE / 2)
        .is_empty());
    assert_eq!(fixture.source.tidy(&fixture.reactor, NOW + IDLE), [0]);
}

#[test]
fn number_of_clients_is_bounded() {
    let mut fixture = Fixture::new();
    let limit = if rustix::process::geteuid().is_root() {
        CLIENTS_MAX
    } else {
        CLIENTS_PER_USER
    };
    let kept: Vec<UnixStream> = (0..limit).map(|_| fixture.connect()).collect();
    let late = fixture.connect();
    assert!(line(&late).contains("busy"));
    assert_eq!(fixture.source.clients.len(), kept.len());
}

#[test]
fn notices_of_an_app_go_to_its_owner_root_and_the_group() {
    const OWNER: u32 = 54_321;
    const GROUP: u32 = 60_123;
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: speaking as other users requires root");
    }
    let mut fixture = Fixture::new();
    fixture.source.set_group(Some(GROUP));
    let streams = [
        (OWNER, 1, true),
        (OWNER + 1, 1, false),
        (OWNER + 1, GROUP, true),
        (0, 1, true),
    ]
    .map(|(uid, gid, hears)| {
        let (stream, _) = connect_as(&mut fixture, uid, gid);
        stream.set_nonblocking(true).unwrap();
        (stream, hears)
    });
    let ids: Vec<u64> = fixture.source.clients.keys().copied().collect();
    ids.iter()
        .for_each(|&id| fixture.source.set_listening(id, false));
    let notice = limelight_proto::Notice::Growing {
        app: limelight_proto::AppStatus {
            name: "diary".to_owned(),
            pid: None,
            cgroup: None,
            own_cgroup: true,
        },
        grown: 1,
    };
    let message = Message {
        owner: Some(OWNER),
        notice,
        others: None,
    };
    fixture.source.tell(&message, Duration::ZERO);
    for (number, (mut stream, hears)) in streams.into_iter().enumerate() {
        let mut text = [0; 1024];
        let heard = stream.read(&mut text).is_ok_and(|count| count > 0);
        assert_eq!(heard, hears, "listener {number}");
    }
}

/// Connects as this user in this group. Also returns the client's id.
fn connect_as(fixture: &mut Fixture, uid: u32, gid: u32) -> (UnixStream, u64) {
    let path = fixture.source.path.clone();
    let connected = std::thread::spawn(move || {
        rustix::thread::set_thread_groups(&[rustix::process::Gid::from_raw(gid)]).unwrap();
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(uid)).unwrap();
        UnixStream::connect(path).unwrap()
    });
    let stream = connected.join().unwrap();
    fixture.source.accept(&fixture.reactor, NOW);
    (stream, fixture.source.next - 1)
}

/// One person may have thousands of uids, and any user may hold something without permission.
#[test]
fn client_that_holds_something_without_permission_makes_room_for_others() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: speaking as other users requires root");
    }
    let mut fixture = Fixture::new();
    let (_agent, agent) = connect_as(&mut fixture, 1000, 1);
    fixture.source.set_holding(agent);
    assert!(fixture.source.needs_permission(agent));
    fixture.source.set_permitted(agent);
    assert!(!fixture.source.needs_permission(agent));
    let mut crowd = Vec::new();
    for uid in 100_000..100_000 + CLIENTS_MAX as u32 - 1 {
        let (stream, id) = connect_as(&mut fixture, uid, 1);
        fixture.source.set_holding(id);
        crowd.push(stream);
    }
    for uid in [1001, 0] {
        let (stream, id) = connect_as(&mut fixture, uid, 1);
        assert!(fixture.source.clients.contains_key(&id), "uid {uid}");
        crowd.push(stream);
    }
    assert!(fixture.source.clients.contains_key(&agent));
    assert_eq!(fixture.source.clients.len(), CLIENTS_MAX);
}

#[test]
fn parts_of_lines_have_a_rate_limit() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: speaking as other users requires root");
    }
    let mut fixture = Fixture::new();
    let (mut stream, _) = connect_as(&mut fixture, 1000, 1);
    let mut parts = 0;
    while fixture.source.limiter.may_read(1000, NOW).is_ok() {
        stream.write_all(b"x").unwrap();
        fixture.turn();
        parts += 1;
        assert!(parts < 1000);
    }
    stream.write_all(b"\n").unwrap();
    let client = fixture.source.clients.values().next().unwrap();
    assert_eq!(
        (client.unread.len(), client.armed),
        (parts, Some(EventFlags::empty()))
    );
    let due = fixture.source.next_deadline(NOW).unwrap();
    assert!(due > NOW && due < NOW + Duration::from_secs(1), "{due:?}");
    fixture.source.tidy(&fixture.reactor, due);
    let client = fixture.source.clients.values().next().unwrap();
    assert_eq!(client.armed, Some(EventFlags::IN));
}

#[test]
fn connections_have_a_rate_limit() {
    let mut fixture = Fixture::new();
    for _ in 0..=ACCEPT_BURST {
        drop(fixture.connect());
        fixture.turn();
    }
    let mut waiting = fixture.connect();
    waiting.write_all(b"hello\n").unwrap();
    fixture.turn();
    assert!(fixture.source.clients.is_empty());
    let due = fixture.source.next_deadline(NOW).unwrap();
    assert_eq!(due, NOW + ACCEPT_PAUSE);
    fixture.source.tidy(&fixture.reactor, due);
    fixture.source.accept(&fixture.reactor, due);
    fixture.turn();
    assert!(line(&waiting).contains("\"5\""));
}

/// Lines that arrive in parts, several at once, and behind others.
#[test]
fn end_of_a_line_is_found_wherever_it_arrives() {
    let mut fixture = Fixture::new();
    let mut stream = fixture.connect();
    for (part, answers) in [
        (&b"one"[..], 0),
        (b"\ntwo\nthr", 2),
        (b"ee", 0),
        (b"\n\nfour\n", 3),
    ] {
        stream.write_all(part).unwrap();
        let mut lengths = Vec::new();
        for _ in 0..4 {
            for ready in fixture.reactor.wait(Some(Duration::ZERO)).unwrap() {
                if let Token::Client(id) = ready.token {
                    fixture.source.transfer(id, ready, NOW);
                }
            }
            let lines = fixture.source.take_lines(NOW);
            lengths.extend(lines.iter().map(|line| line.text.len()));
        }
        assert_eq!(lengths.len(), answers, "{lengths:?}");
    }
}

/// The kernel reports the end of a connection as long as it is waited for.
#[test]
fn client_that_left_requests_does_not_wake_the_loop() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: speaking as other users requires root");
    }
    let mut fixture = Fixture::new();
    let (mut stream, id) = connect_as(&mut fixture, 1000, 1);
    fixture.source.limiter.was_work(1000, 10_000, NOW);
    stream.write_all(b"x\n").unwrap();
    drop(stream);
    for _ in 0..3 {
        fixture.turn();
    }
    assert!(fixture.source.clients.contains_key(&id));
    let woken = fixture.reactor.wait(Some(Duration::ZERO)).unwrap();
    assert!(woken.is_empty(), "{woken:?}");
    let due = fixture.source.next_line(NOW).unwrap();
    assert!(due > NOW + Duration::from_secs(10), "{due:?}");
    // The request is still handled.
    assert_eq!(fixture.source.take_lines(due).len(), 1);
    assert_eq!(fixture.source.tidy(&fixture.reactor, due), [id]);
}
