// SPDX-License-Identifier: GPL-2.0-or-later
//! Test with simulated traffic that follows niri's IPC documentation, because Debian 12 does not
//! package niri.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;

use super::*;

const BEGIN: &str = concat!(
    r#"{"Ok":"Handled"}"#,
    "\n",
    r#"{"WorkspacesChanged":{"workspaces":[{"id":1,"idx":1,"name":null,"output":"eDP-1","is_active":true,"is_focused":true,"active_window_id":12}]}}"#,
    "\n",
    r#"{"WindowsChanged":{"windows":[{"id":12,"title":"~","app_id":"Alacritty","pid":4242,"workspace_id":1,"is_focused":true},{"id":13,"title":"x","app_id":"firefox","pid":4300,"workspace_id":1,"is_focused":false}]}}"#,
    "\n",
    r#"{"KeyboardLayoutsChanged":{"keyboard_layouts":{"names":["English (US)"],"current_idx":0}}}"#,
    "\n",
);

#[test]
fn initial_state_is_followed_by_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("niri.wayland-1.77.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let environment = Environment {
        niri: Some(path),
        ..Environment::default()
    };
    let mut niri = connect(&environment).ok().unwrap();
    let (mut compositor, _) = listener.accept().unwrap();
    let mut asked = String::new();
    let mut reader = BufReader::new(compositor.try_clone().unwrap());
    reader.read_line(&mut asked).unwrap();
    assert_eq!(asked, "\"EventStream\"\n");
    assert_eq!(niri.observe().unwrap().pid, None);
    let mut say = |words: &str| {
        compositor.write_all(words.as_bytes()).unwrap();
        niri.observe()
    };
    let pid = |seen: Result<Seen, Gone>| seen.unwrap().pid;
    assert_eq!(pid(say(BEGIN)), Some(4242));
    assert_eq!(
        pid(say("{\"WindowFocusChanged\":{\"id\":13}}\n")),
        Some(4300)
    );
    let opened = r#"{"WindowOpenedOrChanged":{"window":{"id":14,"title":null,"app_id":"foot","pid":5000,"workspace_id":1,"is_focused":true}}}"#;
    assert_eq!(pid(say(&format!("{opened}\n"))), Some(5000));
    assert_eq!(pid(say("{\"WindowClosed\":{\"id\":14}}\n")), None);
    assert_eq!(
        pid(say("{\"WindowFocusChanged\":{\"id\":12}}\n")),
        Some(4242)
    );
    // In the overview no window has the focus.
    assert_eq!(pid(say("{\"WindowFocusChanged\":{\"id\":null}}\n")), None);
    assert_eq!(
        pid(say("{\"OverviewOpenedOrClosed\":{\"is_open\":true}}\n")),
        None
    );
    assert!(say("{\"Err\":\"error parsing request\"}\n").is_err());
}
