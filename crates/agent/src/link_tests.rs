// SPDX-License-Identifier: GPL-2.0-or-later
//! The link against a daemon that the test plays. Time is passed in, so no test waits.

use super::*;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};

struct Daemon {
    dir: tempfile::TempDir,
    listener: UnixListener,
}

impl Daemon {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        Daemon { dir, listener }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    fn accept(&self) -> BufReader<UnixStream> {
        BufReader::new(self.listener.accept().unwrap().0)
    }
}

fn told(client: &mut BufReader<UnixStream>) -> FocusTarget {
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    match serde_json::from_str(&line).unwrap() {
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

/// Whether a line waits, without waiting for one.
fn is_silent(client: &mut BufReader<UnixStream>) -> bool {
    client.get_ref().set_nonblocking(true).unwrap();
    let silent = client.fill_buf().is_err();
    client.get_ref().set_nonblocking(false).unwrap();
    silent
}

#[test]
fn tells_the_latest_claim_and_each_only_once() {
    let daemon = Daemon::new();
    let mut link = Link::new(daemon.socket());
    let now = Instant::now();
    link.claim("x11", FocusTarget::Pid(1));
    link.turn(now);
    let mut client = daemon.accept();
    assert_eq!(told(&mut client), FocusTarget::Pid(1));
    // While the answer is out, claims are merged.
    link.claim("x11", FocusTarget::Pid(2));
    link.turn(now);
    link.claim("x11", FocusTarget::Pid(3));
    link.turn(now);
    assert!(is_silent(&mut client));
    answer(&client);
    link.turn(now);
    assert_eq!(told(&mut client), FocusTarget::Pid(3));
    answer(&client);
    link.turn(now);
    link.claim("x11", FocusTarget::Pid(3));
    link.turn(now);
    assert!(is_silent(&mut client));
}

#[test]
fn a_restarted_daemon_is_told_again() {
    let daemon = Daemon::new();
    let socket = daemon.socket();
    let mut link = Link::new(socket.clone());
    let mut now = Instant::now();
    link.claim("x11", FocusTarget::Pid(7));
    link.turn(now);
    let mut client = daemon.accept();
    assert_eq!(told(&mut client), FocusTarget::Pid(7));
    answer(&client);
    drop(client);
    drop(daemon.listener);
    std::fs::remove_file(&socket).unwrap();
    link.turn(now);
    assert!(link.interest().is_none());
    // Fails as long as there is none, with growing pauses.
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
    assert!(link.interest().is_none(), "the pause holds");
    link.turn(now + RETRY_MAX);
    let mut client = BufReader::new(listener.accept().unwrap().0);
    assert_eq!(told(&mut client), FocusTarget::Pid(7));
}

#[test]
fn a_daemon_that_does_not_answer_is_left() {
    let daemon = Daemon::new();
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
fn refusals_and_nonsense_are_survived() {
    let daemon = Daemon::new();
    let mut link = Link::new(daemon.socket());
    let now = Instant::now();
    link.claim("x11", FocusTarget::Pid(1));
    link.turn(now);
    let mut client = daemon.accept();
    told(&mut client);
    for line in [
        "{\"result\":\"error\",\"code\":\"not-found\",\"message\":\"\",\"cure\":\"\"}",
        "?",
    ] {
        writeln!(client.get_ref(), "{line}").unwrap();
        link.turn(now);
        assert!(link.interest().is_some());
    }
    client
        .get_ref()
        .write_all(&vec![b'x'; ANSWER_MAX_BYTES + 1])
        .ok();
    link.turn(now);
    link.turn(now);
    assert!(
        link.interest().is_none(),
        "an answer without end is not kept"
    );
}
