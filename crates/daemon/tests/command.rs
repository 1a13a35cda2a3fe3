// SPDX-License-Identifier: GPL-2.0-or-later
//! The program's interface for scripts: options, messages, exit codes.

use assert_cmd::Command;
use limelight_daemon::system::lock;

fn limelightd() -> Command {
    let mut command = Command::cargo_bin("limelightd").unwrap();
    command
        .env_remove("JOURNAL_STREAM")
        .env_remove("NOTIFY_SOCKET")
        .env_remove("LIMELIGHT_LOG");
    command
}

/// Runs limelightd with these arguments; returns the exit code and its standard error.
fn run(arguments: &[&str]) -> (i32, String) {
    let output = limelightd().args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), said)
}

#[test]
fn help_lists_the_exit_codes() {
    let output = limelightd().arg("--help").output().unwrap();
    assert!(output.status.success());
    let help = String::from_utf8_lossy(&output.stdout);
    for line in [
        "  11  another limelightd is running",
        "--dry-run",
        "--restore",
        "--check-config",
    ] {
        assert!(help.contains(line), "{help}");
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    assert_eq!(run(&["--bogus"]).0, 2);
    assert_eq!(run(&["--dry-run", "--restore"]).0, 2);
}

#[test]
fn invalid_configuration_exits_with_10_before_any_change() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    let runtime = temp.path().join("run");
    std::fs::write(&file, "[protect]\n\nbudjet = 4\n").unwrap();
    let file = file.to_str().unwrap();
    for mode in [
        &["--config", file][..],
        &["--config", file, "--check-config"][..],
    ] {
        let mut arguments = mode.to_vec();
        arguments.extend(["--runtime-dir", runtime.to_str().unwrap()]);
        let (code, said) = run(&arguments);
        assert_eq!(code, 10, "{said}");
        assert!(
            said.contains("limelight.toml:3: unknown key `budjet` in [protect]"),
            "{said}"
        );
        assert!(!runtime.exists());
    }
    std::fs::write(file, "[protect]\nbudget_percent = 4\n").unwrap();
    assert_eq!(run(&["--config", file, "--check-config"]).0, 0);
}

#[test]
fn second_daemon_exits_with_11_and_names_the_first() {
    let temp = tempfile::tempdir().unwrap();
    let _lock = lock::take(temp.path()).unwrap();
    let runtime = temp.path().to_str().unwrap();
    for mode in [
        &["--runtime-dir", runtime][..],
        &["--runtime-dir", runtime, "--restore"][..],
    ] {
        let (code, said) = run(mode);
        assert_eq!(code, 11, "{said}");
        assert!(
            said.contains(&format!("(pid {})", std::process::id())),
            "{said}"
        );
    }
}

#[test]
fn unusable_runtime_directory_exits_with_15() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("run");
    let (code, said) = run(&["--runtime-dir", below.to_str().unwrap()]);
    assert_eq!(code, 15, "{said}");
    assert!(said.contains("--runtime-dir"), "{said}");
}

#[test]
fn empty_restore_succeeds() {
    let temp = tempfile::tempdir().unwrap();
    let runtime = temp.path().join("never-made");
    let (code, said) = run(&["--restore", "--runtime-dir", runtime.to_str().unwrap()]);
    assert_eq!((code, said.as_str()), (0, ""));
}
