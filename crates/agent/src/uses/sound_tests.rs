// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests with handwritten lists, and one with a real PulseAudio and a null sink. Without
//! PulseAudio, that test is skipped with a message.

use super::*;
use limelight_sys::clock;
use proptest::prelude::*;
use std::time::Instant;

/// Only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn playing_streams_have_a_process() {
    let list = br#"[
        {"index":1,"corked":false,"properties":{"application.process.id":"101"}},
        {"index":2,"corked":true,"properties":{"application.process.id":"102"}},
        {"index":3,"corked":false,"properties":{}},
        {"index":4,"corked":false,"properties":{"application.process.id":"-1"}}
    ]"#;
    assert_eq!(streams(list), BTreeSet::from([101]));
    assert!(streams(b"").is_empty() && streams(b"{}").is_empty());
}

#[test]
fn lines_are_taken_when_complete() {
    let mut said = b"Event 'new' on client #3\nEvent 'new' on sink-in".to_vec();
    assert!(!concerns_streams(&mut said));
    said.extend_from_slice(b"put #5\nEvent");
    assert!(concerns_streams(&mut said));
    assert_eq!(said, b"Event");
}

proptest! {
    #[test]
    fn no_list_panics(list in prop::collection::vec(any::<u8>(), 0..100)) {
        streams(&list);
        concerns_streams(&mut list.clone());
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for(what: &str, sound: &mut Sound, holds: impl Fn(&Sound) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        sound.turn(clock::monotonic());
        if holds(sound) {
            return;
        }
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// No other test may use `$PULSE_SERVER`, which this one sets.
#[test]
fn real_server_lists_playing_processes() {
    for program in ["pulseaudio", "pactl", "pacat"] {
        if !is_installed(program) {
            eprintln!("SKIPPED: real_server_lists_playing_processes, because {program} is missing");
            return;
        }
    }
    let temp = tempfile::tempdir().unwrap();
    let socket = temp.path().join("native");
    let address = format!("unix:{}", socket.display());
    let protocol = format!(
        "module-native-protocol-unix auth-anonymous=1 socket={}",
        socket.display()
    );
    let server = Command::new("pulseaudio")
        .args([
            "-n",
            "--daemonize=no",
            "--exit-idle-time=-1",
            "--use-pid-file=no",
        ])
        .args(["--load", "module-null-sink", "--load", &protocol])
        .env("HOME", temp.path())
        .env("XDG_RUNTIME_DIR", temp.path())
        .env("PULSE_RUNTIME_PATH", temp.path())
        .stderr(Stdio::null())
        .spawn();
    let _server = Ended(server.unwrap());
    let deadline = Instant::now() + PATIENCE;
    while !socket.exists() {
        assert!(Instant::now() < deadline, "PulseAudio does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::env::set_var("PULSE_SERVER", &address);
    let mut sound = Sound::new();
    wait_for("an empty list", &mut sound, |sound| {
        sound.listed_at.is_some() && sound.lists.is_empty()
    });
    assert!(sound.pids().is_empty());

    let play = || {
        let zeroes = std::fs::File::open("/dev/zero").unwrap();
        let player = Command::new("pacat")
            .args(["--playback", "--raw"])
            .env("PULSE_SERVER", &address)
            .stdin(zeroes)
            .spawn();
        Ended(player.unwrap())
    };
    let player = play();
    let pid = player.0.id() as i32;
    wait_for("the player", &mut sound, |sound| {
        sound.pids().contains(&pid)
    });
    let list = Command::new("pactl")
        .args(["-f", "json", "list", "sink-inputs"])
        .env("PULSE_SERVER", &address)
        .output()
        .unwrap();
    let listed: Value = serde_json::from_slice(&list.stdout).unwrap();
    assert!(listed[0]["index"].is_number(), "{listed}");
    drop(player);
    wait_for("silence", &mut sound, |sound| sound.pids().is_empty());
    let _other = play();
    wait_for("another player", &mut sound, |sound| {
        !sound.pids().is_empty()
    });
}
