// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests the search for a server, and a real PulseAudio with a null sink. Without PulseAudio, that
//! test is skipped with a message.

use super::*;
use crate::uses::watch::RETRY;
use limelight_sys::clock;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

fn in_runtime(server: Option<&str>, runtime: &std::path::Path) -> SoundPlaces {
    SoundPlaces {
        server: server.map(str::to_owned),
        runtime: Some(runtime.to_owned()),
    }
}

#[test]
fn servers_address_may_have_several_forms() {
    let temp = tempfile::tempdir().unwrap();
    for (server, path) in [
        ("unix:/run/pulse", Some("/run/pulse")),
        ("/run/pulse", Some("/run/pulse")),
        ("{77ac}unix:/run/pulse tcp:box:4713", Some("/run/pulse")),
        ("tcp:box:4713 unix:/run/pulse", Some("/run/pulse")),
        ("tcp:box:4713", None),
        ("box", None),
    ] {
        let found = in_runtime(Some(server), temp.path()).socket();
        assert_eq!(
            found.ok().as_deref(),
            path.map(std::path::Path::new),
            "{server}"
        );
    }
}

#[test]
fn absent_server_is_idle_and_pipewire_without_pulse_is_loud() {
    let temp = tempfile::tempdir().unwrap();
    let mut sound = Sound::new(in_runtime(None, temp.path()));
    sound.turn(Duration::from_secs(1));
    assert_eq!(sound.status().state, State::Idle);
    assert!(sound.arrivals.is_some() && sound.retry_at.is_none());
    std::fs::write(temp.path().join(SOCKET), "").unwrap();
    while let (State::Idle, Some(due)) = (sound.state, sound.deadline()) {
        sound.turn(due);
    }
    let status = sound.status();
    assert_eq!(status.state, State::Unavailable);
    assert!(
        status.detail.contains("pipewire-pulse"),
        "{}",
        status.detail
    );
}

#[test]
fn server_that_refuses_is_tried_again_later() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir(temp.path().join(DIRECTORY)).unwrap();
    std::fs::write(temp.path().join(DIRECTORY).join("native"), "no socket").unwrap();
    let mut sound = Sound::new(in_runtime(None, temp.path()));
    let now = Duration::from_secs(1);
    sound.turn(now);
    assert_eq!(sound.status().state, State::Unavailable);
    assert_eq!(sound.deadline(), Some(now + RETRY));
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
        let late = Instant::now() >= deadline;
        assert!(!late, "timed out waiting for {what}: {}", sound.detail);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn real_server_lists_playing_processes() {
    for program in ["pulseaudio", "pacat"] {
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
    let mut sound = Sound::new(in_runtime(Some(&address), temp.path()));
    wait_for("an empty list", &mut sound, |sound| {
        sound.state == State::Active
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
    drop(player);
    wait_for("silence", &mut sound, |sound| sound.pids().is_empty());
    let _other = play();
    wait_for("another player", &mut sound, |sound| {
        !sound.pids().is_empty()
    });
}
