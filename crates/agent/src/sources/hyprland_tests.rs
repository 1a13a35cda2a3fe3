// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests with simulated traffic that follows Hyprland's wiki (IPC, hyprctl) and source, because
//! Debian 12 does not package Hyprland.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use super::super::FocusBy;
use super::*;

struct Compositor {
    _directory: tempfile::TempDir,
    questions: UnixListener,
    events: UnixStream,
    source: Box<dyn Source>,
}

impl Compositor {
    fn start() -> Compositor {
        let directory = tempfile::tempdir().unwrap();
        let questions = UnixListener::bind(directory.path().join(".socket.sock")).unwrap();
        let events = UnixListener::bind(directory.path().join(".socket2.sock")).unwrap();
        let environment = Environment {
            hyprland: Some(directory.path().to_owned()),
            ..Environment::default()
        };
        let source = connect(&environment).ok().unwrap();
        Compositor {
            events: events.accept().unwrap().0,
            questions,
            source,
            _directory: directory,
        }
    }

    /// Observes while one query receives this answer.
    fn observe_with(&mut self, answer: &'static str) -> Result<Seen, Gone> {
        let listener = self.questions.try_clone().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut question = [0u8; 64];
            let count = client.read(&mut question).unwrap();
            assert_eq!(&question[..count], b"j/activewindow");
            client.write_all(answer.as_bytes()).unwrap();
        });
        let seen = self.source.observe();
        answering.join().unwrap();
        seen
    }
}

const KITTY: &str = r#"{"address": "0x55d3b5c3c0a0","mapped": true,"hidden": false,
    "at": [22, 22],"size": [1876, 1036],"workspace": {"id": 1,"name": "1"},"floating": false,
    "monitor": 0,"class": "kitty","title": "~","initialClass": "kitty","pid": 4242,
    "xwayland": false,"pinned": false,"fullscreen": 0,"grouped": [],"focusHistoryID": 0}"#;

#[test]
fn active_window_has_a_process() {
    let mut compositor = Compositor::start();
    let seen = compositor.observe_with(KITTY).unwrap();
    assert_eq!(
        (seen.pid, seen.window.as_deref()),
        (Some(4242), Some("0x55d3b5c3c0a0"))
    );
    // No query is made: the source reacts only to `activewindowv2` and `closewindow`, and
    // `activewindow` repeats the former without the address.
    let talk = "workspacev2>>2,2\nwindowtitle>>55d3b5c3c0a0\nactivewindow>>kitty,~ > x>>y\n";
    compositor.events.write_all(talk.as_bytes()).unwrap();
    assert_eq!(compositor.source.observe().unwrap(), seen);
    // An incomplete line has no effect either.
    compositor.events.write_all(b"activewindowv2>>").unwrap();
    assert_eq!(compositor.source.observe().unwrap(), seen);
    compositor.events.write_all(b"\n").unwrap();
    let nothing = compositor.observe_with("{}").unwrap();
    assert_eq!(nothing, Seen::nothing(FocusBy::Compositor));
}

#[test]
fn ended_compositor_is_gone() {
    let mut compositor = Compositor::start();
    assert!(compositor.observe_with("unknown request").is_err());
    compositor.observe_with(KITTY).unwrap();
    compositor
        .events
        .shutdown(std::net::Shutdown::Both)
        .unwrap();
    let gone = compositor.source.observe().unwrap_err();
    assert!(gone.to_string().contains("Hyprland"), "{gone}");
}
