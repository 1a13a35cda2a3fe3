// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests the link against a simulated daemon. Time is passed in, so no test waits.

use super::*;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};

struct TestDaemon {
    dir: tempfile::TempDir,
    listener: UnixListener,
}

impl TestDaemon {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        TestDaemon { dir, listener }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    fn accept(&self) -> BufReader<UnixStream> {
        BufReader::new(self.listener.accept().unwrap().0)
    }

    /// A link that has claimed a process and waits for the answer.
    fn claimed(&self, pid: i32, now: Instant) -> (Link, BufReader<UnixStream>) {
        let mut link = Link::new(self.socket());
        link.claim("x11", FocusTarget::Pid(pid));
        link.turn(now);
        let mut client = self.accept();
        assert_eq!(claim_of(&mut client), FocusTarget::Pid(pid));
        (link, client)
    }
}

fn claim_of(client: &mut BufReader<UnixStream>) -> FocusTarget {
    match request(client) {
        Request::Focus {
            target,
            source,
            hold: true,
        } if source == "x11" => target,
        other => panic!("{other:?}"),
    }
}

fn answer(client: &BufReader<UnixStream>) {
    let ok = serde_json::to_string(&Response::Ok {
        message: "yes".into(),
    })
    .unwrap();
    writeln!(client.get_ref(), "{ok}").unwrap();
}

/// Whether no line is waiting; does not block.
fn is_silent(client: &mut BufReader<UnixStream>) -> bool {
    client.get_ref().set_nonblocking(true).unwrap();
    let silent = client.fill_buf().is_err();
    client.get_ref().set_nonblocking(false).unwrap();
    silent
}

#[test]
fn latest_claim_is_sent_once() {
    let daemon = TestDaemon::new();
    let now = Instant::now();
    let (mut link, mut client) = daemon.claimed(1, now);
    // While the answer is pending, claims are merged.
    link.claim("x11", FocusTarget::Pid(2));
    link.turn(now);
    link.claim("x11", FocusTarget::Pid(3));
    link.turn(now);
    assert!(is_silent(&mut client));
    answer(&client);
    link.turn(now);
    assert_eq!(claim_of(&mut client), FocusTarget::Pid(3));
    answer(&client);
    link.turn(now);
    link.claim("x11", FocusTarget::Pid(3));
    link.turn(now);
    assert!(is_silent(&mut client));
}

fn window(event: WindowEvent, at_us: u64) -> Request {
    Request::Window {
        event,
        at_us: Some(at_us),
        pid: Some(7),
        source: "x11".into(),
    }
}

fn request(client: &mut BufReader<UnixStream>) -> Request {
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
fn input_and_frames_wait_only_for_their_claim() {
    use std::time::Duration;
    let us = Duration::from_micros;
    let daemon = TestDaemon::new();
    let now = Instant::now();
    let (mut link, mut client) = daemon.claimed(1, now);
    // The answer is pending, but events of the claimed app are sent anyway.
    link.tell("x11", 7, News::Input(us(100)));
    link.tell("x11", 7, News::Frame(us(250)));
    link.turn(now);
    assert_eq!(request(&mut client), window(WindowEvent::Open, 100));
    assert_eq!(request(&mut client), window(WindowEvent::Close, 250));
    // Events of an app that cannot be claimed yet are held back.
    link.claim("x11", FocusTarget::Pid(7));
    link.tell("x11", 7, News::Input(us(300)));
    link.turn(now);
    assert!(is_silent(&mut client));
    for _ in 0..3 {
        answer(&client);
    }
    link.turn(now);
    assert_eq!(claim_of(&mut client), FocusTarget::Pid(7));
    assert_eq!(request(&mut client), window(WindowEvent::Open, 300));
}

#[test]
fn events_missed_by_the_daemon_are_dropped_and_the_queue_is_bounded() {
    use std::time::Duration;
    let daemon = TestDaemon::new();
    let mut link = Link::new(daemon.socket());
    let now = Instant::now();
    link.tell("x11", 7, News::Input(Duration::from_micros(1)));
    link.claim("x11", FocusTarget::Pid(7));
    link.turn(now);
    let mut client = daemon.accept();
    assert_eq!(claim_of(&mut client), FocusTarget::Pid(7));
    link.turn(now);
    assert!(
        is_silent(&mut client),
        "an event from before the connection must be dropped"
    );
    for at in 0..1000 {
        link.tell("x11", 7, News::Input(Duration::from_micros(at)));
    }
    link.turn(now);
    // The unanswered claim counts towards the limit.
    for at in 0..NEWS_MAX as u64 - 1 {
        let oldest = 1000 - NEWS_MAX as u64;
        assert_eq!(request(&mut client), window(WindowEvent::Open, oldest + at));
    }
    assert!(is_silent(&mut client));
    assert!(link.deadline().is_some());
}

#[test]
fn restarted_daemon_receives_the_claim_again() {
    let daemon = TestDaemon::new();
    let socket = daemon.socket();
    let mut link = Link::new(socket.clone());
    let mut now = Instant::now();
    link.claim("x11", FocusTarget::Pid(7));
    link.turn(now);
    let mut client = daemon.accept();
    assert_eq!(claim_of(&mut client), FocusTarget::Pid(7));
    answer(&client);
    drop(client);
    drop(daemon.listener);
    std::fs::remove_file(&socket).unwrap();
    link.turn(now);
    assert!(link.interest().is_none());
    // Fails while there is no daemon, with growing delays.
    for _ in 0..20 {
        let next = link.deadline().unwrap();
        assert!(next > now && next <= now + RETRY_MAX);
        now = next;
        link.turn(now);
        assert!(link.interest().is_none());
    }
    assert_eq!(link.deadline(), Some(now + RETRY_MAX));
    let listener = UnixListener::bind(&socket).unwrap();
    link.turn(now);
    assert!(link.interest().is_none(), "no attempt during the pause");
    link.turn(now + RETRY_MAX);
    let mut client = BufReader::new(listener.accept().unwrap().0);
    assert_eq!(claim_of(&mut client), FocusTarget::Pid(7));
}

#[test]
fn connection_to_an_unresponsive_daemon_is_closed() {
    let daemon = TestDaemon::new();
    let mut link = Link::new(daemon.socket());
    let now = Instant::now();
    link.claim("x11", FocusTarget::None);
    link.turn(now);
    let by = link.deadline().unwrap();
    link.turn(by - Duration::from_millis(1));
    assert!(link.interest().is_some());
    link.turn(by);
    assert!(link.interest().is_none());
}

#[test]
fn refusals_and_malformed_answers_are_survived() {
    let daemon = TestDaemon::new();
    let mut link = Link::new(daemon.socket());
    let now = Instant::now();
    link.claim("x11", FocusTarget::Pid(1));
    link.turn(now);
    let mut client = daemon.accept();
    claim_of(&mut client);
    for line in [
        "{\"result\":\"error\",\"code\":\"not-found\",\"message\":\"\",\"cure\":\"\"}",
        "?",
    ] {
        writeln!(client.get_ref(), "{line}").unwrap();
        link.turn(now);
        assert!(link.interest().is_some());
    }
    // More than the socket's buffer holds.
    let writer = std::thread::spawn(move || {
        let _ = client
            .get_ref()
            .write_all(&vec![b'x'; ANSWER_MAX_BYTES + 1]);
    });
    while link.interest().is_some() {
        link.turn(now);
    }
    drop(link);
    writer.join().unwrap();
}

#[test]
fn questions_are_answered_with_or_without_a_daemon() {
    use crate::notify::Purpose;
    let daemon = TestDaemon::new();
    let now = Instant::now();
    let (mut link, mut client) = daemon.claimed(1, now);
    let ask = |link: &mut Link| {
        link.questions
            .add((Request::Apps { pid: Some(1) }, Purpose::Recognise));
        link.turn(now);
    };
    // An app is known to the daemon only after the claim.
    ask(&mut link);
    answer(&client);
    link.turn(now);
    assert_eq!(request(&mut client), Request::Apps { pid: Some(1) });
    let apps = Response::Apps {
        apps: Vec::new(),
        hidden: None,
    };
    let line = serde_json::to_string(&apps).unwrap();
    writeln!(client.get_ref(), "{line}").unwrap();
    link.turn(now);
    assert_eq!(link.questions.take_answers(), [(Purpose::Recognise, apps)]);
    // One is sent, one waits, and the daemon ends.
    ask(&mut link);
    drop(client);
    ask(&mut link);
    link.turn(now);
    ask(&mut link);
    let answers = link.questions.take_answers();
    assert_eq!(answers.len(), 3);
    for (_, answer) in answers {
        assert!(matches!(answer, Response::Error { .. }), "{answer:?}");
    }
    for _ in 0..100 {
        link.questions.add((Request::Status, Purpose::Recognise));
    }
    assert_eq!(link.questions.take_answers().len(), 92);
}

#[test]
fn notices_between_answers_do_not_count_as_answers() {
    use limelight_proto::Level;
    use limelight_proto::MemoryThen;
    let daemon = TestDaemon::new();
    let now = Instant::now();
    let mut link = Link::new(daemon.socket());
    link.listen();
    link.claim("x11", FocusTarget::Pid(1));
    link.turn(now);
    let mut client = daemon.accept();
    assert_eq!(claim_of(&mut client), FocusTarget::Pid(1));
    assert_eq!(request(&mut client), Request::Listen { foreground: false });
    let notice = Notice::Memory {
        level: Level::Kill,
        memory: MemoryThen::default(),
        next: None,
    };
    let line = serde_json::to_string(&Response::Notice(notice.clone())).unwrap();
    writeln!(client.get_ref(), "{line}").unwrap();
    link.turn(now);
    assert_eq!(link.take_heard(), [notice]);
    // The claim is not answered yet, so the next one waits.
    link.claim("x11", FocusTarget::Pid(2));
    link.turn(now);
    assert!(is_silent(&mut client));
    answer(&client);
    link.turn(now);
    assert_eq!(claim_of(&mut client), FocusTarget::Pid(2));
    assert_eq!(link.take_heard(), []);
}

#[test]
fn changed_uses_are_sent_and_a_new_daemon_receives_all() {
    let daemon = TestDaemon::new();
    let now = Instant::now();
    let (mut link, mut client) = daemon.claimed(1, now);
    let uses = |pids: &[i32]| pids.iter().map(|pid| (*pid, Use::Visible)).collect();
    let next_use = |client: &mut BufReader<UnixStream>| match request(client) {
        Request::InUse { pid, on, .. } => (pid, on),
        other => panic!("{other:?}"),
    };
    link.in_use(uses(&[5, 6]));
    link.turn(now);
    assert_eq!(
        [next_use(&mut client), next_use(&mut client)],
        [(5, true), (6, true)]
    );
    link.in_use(uses(&[6, 7]));
    link.turn(now);
    assert_eq!(
        [next_use(&mut client), next_use(&mut client)],
        [(5, false), (7, true)]
    );
    link.turn(now);
    assert!(is_silent(&mut client));
    drop(client);
    link.turn(now);
    link.turn(now + RETRY_FIRST);
    let mut client = daemon.accept();
    assert_eq!(claim_of(&mut client), FocusTarget::Pid(1));
    assert_eq!(
        [next_use(&mut client), next_use(&mut client)],
        [(6, true), (7, true)]
    );
}

#[test]
fn configuration_of_the_user_is_sent_when_it_changes_and_after_a_reconnection() {
    let daemon = TestDaemon::new();
    let now = Instant::now();
    let (mut link, mut client) = daemon.claimed(1, now);
    answer(&client);
    // Without a file, there is nothing to send.
    link.rules("/f".to_owned(), String::new());
    link.turn(now);
    assert!(is_silent(&mut client));
    let sent = |text: &str| Request::Never {
        file: "/f".to_owned(),
        text: text.to_owned(),
    };
    link.rules("/f".to_owned(), "[never]\n".to_owned());
    link.turn(now);
    assert_eq!(request(&mut client), sent("[never]\n"));
    answer(&client);
    link.turn(now);
    assert!(is_silent(&mut client));
    drop(client);
    link.turn(now);
    link.turn(now + RETRY_FIRST);
    let mut client = daemon.accept();
    assert_eq!(request(&mut client), sent("[never]\n"));
    assert_eq!(claim_of(&mut client), FocusTarget::Pid(1));
    // The file is gone.
    link.rules("/f".to_owned(), String::new());
    link.turn(now);
    assert_eq!(request(&mut client), sent(""));
}
