// SPDX-License-Identifier: GPL-2.0-or-later
//! The control socket: arbitrary client input, over a real socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use limelight_daemon::control::socket::ControlSource;
use limelight_daemon::event_loop::reactor::{Reactor, Token};
use limelight_proto::{Request, Response, LINE_MAX, SOCKET_NAME};

const NOW: Duration = Duration::from_secs(100);

/// Every complete line arrives unchanged, and an unterminated line does not arrive. A line that is
/// too long ends the connection. A valid request stays the same when it is written and read again.
pub fn run(data: &[u8]) {
    let received = sent_over_socket(data);
    let whole = data
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |at| at + 1);
    let lines = data[..whole].split_inclusive(|&byte| byte == b'\n');
    let lines = lines.map(|line| &line[..line.len() - 1]);
    let expected: Vec<&[u8]> = lines.take_while(|line| line.len() < LINE_MAX).collect();
    assert_eq!(received, expected);
    for line in received {
        let Ok(request) = serde_json::from_slice::<Request>(&line) else {
            continue;
        };
        let text = serde_json::to_string(&request).expect("a request can be written");
        assert!(!text.contains('\n'), "{text}");
        let again: Request = serde_json::from_str(&text).expect("a written request is valid");
        assert_eq!(again, request);
    }
}

fn sent_over_socket(data: &[u8]) -> Vec<Vec<u8>> {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let mut source = ControlSource::bind(directory.path()).expect("a socket");
    let reactor = Reactor::new().expect("an epoll set");
    let mut client = UnixStream::connect(directory.path().join(SOCKET_NAME)).expect("a client");
    source.accept(&reactor, NOW);
    client.set_nonblocking(true).expect("an open socket");
    let (mut unsent, mut received) = (data, Vec::new());
    let (mut done, mut answers) = (false, [0; 4096]);
    // Enough iterations, because each one transfers at least some bytes or a line.
    for _ in 0..16 + 2 * data.len() {
        match client.write(unsent) {
            Ok(count) => unsent = &unsent[count..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // The daemon closed the connection.
            Err(_) => unsent = &[],
        }
        if unsent.is_empty() && !done {
            done = true;
            let _ = client.shutdown(std::net::Shutdown::Write);
        }
        // Read the answers: the daemon stops reading from a client that does not.
        while matches!(client.read(&mut answers), Ok(1..)) {}
        for ready in reactor.wait(Some(Duration::ZERO)).expect("an epoll set") {
            if let Token::Client(id) = ready.token {
                source.transfer(id, ready, NOW);
            }
        }
        for line in source.take_lines(NOW) {
            let message = String::new();
            source.answer(line.client, &Response::Ok { message }, NOW);
            received.push(line.text);
        }
        if !source.tidy(&reactor, NOW).is_empty() {
            return received;
        }
    }
    panic!("the connection of a client that hung up was not closed");
}
