// SPDX-License-Identifier: GPL-2.0-or-later
//! Commands that need no daemon: config, manual pages, run.

use assert_cmd::Command;
use limelight_proto::Class;
use limelight_proto::{Request, Response};

use crate::daemon::{limelight, text, TestDaemon};
#[test]
fn each_value_is_shown_with_its_origin() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    std::fs::write(&file, "[boost]\nio_level = 3\n").unwrap();
    let shown = Command::cargo_bin("limelight")
        .unwrap()
        .args(["config", "show"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(shown.status.success());
    let text = String::from_utf8(shown.stdout).unwrap();
    let line = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap();
    assert!(
        line("io_level").ends_with(&format!("3  ({}:2)", file.display())),
        "{text}"
    );
    assert!(line("cpu_weight").ends_with("10000  (default)"), "{text}");
    assert!(
        line("block_device").ends_with("not set  (default)"),
        "{text}"
    );
}

#[test]
fn wrong_configuration_is_reported_with_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("limelight.toml");
    std::fs::write(&file, "").unwrap();
    limelight()
        .args(["config", "check"])
        .arg(&file)
        .assert()
        .success()
        .stdout("no errors\n");
    std::fs::write(&file, "[protect]\nbugdet_percent = 3\n").unwrap();
    let out = limelight()
        .args(["config", "check"])
        .arg(&file)
        .assert()
        .code(1);
    let err = text(&out.get_output().stderr);
    assert!(
        err.contains("limelight.toml:2:") && err.contains("bugdet_percent"),
        "{err}"
    );
    let out = limelight()
        .args(["config", "check", "--json"])
        .arg(&file)
        .assert()
        .code(1);
    let told: serde_json::Value = serde_json::from_slice(&out.get_output().stdout).unwrap();
    assert_eq!(told["mistakes"][0]["line"], 2);
}

#[test]
fn manual_and_completions_cover_every_command() {
    let dir = tempfile::tempdir().unwrap();
    limelight().arg("man").arg(dir.path()).assert().success();
    for command in [
        "",
        "-status",
        "-top",
        "-explain",
        "-doctor",
        "-focus",
        "-window",
        "-class",
        "-class-list",
        "-class-set",
        "-class-why",
        "-history",
        "-latency",
        "-listen",
        "-run",
        "-selftest",
        "-config",
        "-config-check",
        "-config-show",
        "-metrics",
        "-completions",
    ] {
        let page = format!("limelight{command}.1");
        let text = std::fs::read_to_string(dir.path().join(&page)).expect(&page);
        assert!(
            text.contains(".SH SYNOPSIS") && text.contains(".SH DESCRIPTION"),
            "{page}"
        );
    }
    // Hidden commands, which only packagers use, have no page.
    assert!(!dir.path().join("limelight-man.1").exists());
    for shell in ["bash", "zsh", "fish"] {
        let out = limelight().args(["completions", shell]).assert().success();
        assert!(
            text(&out.get_output().stdout).contains("explain"),
            "{shell}"
        );
    }
    let missing = dir.path().join("none");
    limelight().arg("man").arg(missing).assert().code(1);
}

#[test]
fn class_needs_a_scope() {
    let output = limelight()
        .env("PATH", "/nowhere")
        .args(["run", "--class=disposable", "--", "/bin/sh", "-c", "exit 7"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("systemd-run") && said.contains("leave out --class"),
        "{said}"
    );
    // Without an option that needs a scope, the program runs without one.
    let output = limelight()
        .env("PATH", "/nowhere")
        .args(["run", "--", "/bin/sh", "-c", "exit 7"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert!(text(&output.stderr).contains("no scope of its own"));
    limelight()
        .args(["run", "--class=keep", "--no-scope", "--", "true"])
        .assert()
        .code(2);
}

#[test]
fn program_in_its_scope_gets_its_class_and_is_executed() {
    let daemon = TestDaemon::answering(Response::Ok {
        message: "done".into(),
    });
    daemon
        .limelight(&[
            "run",
            "--inside",
            "--class=keep",
            "--",
            "/bin/sh",
            "-c",
            "exit 7",
        ])
        .code(7);
    let Request::Class { pid, class } = daemon.request() else {
        panic!("no class was set");
    };
    assert!(pid > 1 && class == Some(Class::Keep));
}

#[test]
fn run_without_the_library_lists_the_searched_places() {
    let output = limelight()
        .env("LIMELIGHT_PREMAP_LIBRARY", "/no/such/library.so")
        .args(["run", "--premap", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("/no/such/library.so"), "{said}");
    assert!(said.contains("LIMELIGHT_PREMAP_LIBRARY"), "{said}");
}

#[test]
fn run_executes_the_program_with_the_library_before_others() {
    // The dynamic linker ignores a file that is not a library.
    let library = tempfile::NamedTempFile::new().unwrap();
    let run = |program: &[&str]| {
        limelight()
            .env("LIMELIGHT_PREMAP_LIBRARY", library.path())
            .env("LD_PRELOAD", "/other.so")
            .args(["run", "--premap", "--"])
            .args(program)
            .output()
            .unwrap()
    };
    let output = run(&["sh", "-c", "echo $LD_PRELOAD; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    let expected = format!("{}:/other.so\n", library.path().display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);

    let output = run(&["no-such-program-anywhere"]);
    assert_eq!(output.status.code(), Some(5));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no-such-program-anywhere"), "{said}");
}
