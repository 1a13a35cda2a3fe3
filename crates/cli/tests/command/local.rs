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
    std::fs::write(&file, "[expert]\nboost_io_level = 3\n").unwrap();
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
        line("boost_io_level").ends_with(&format!("3  ({}:2)", file.display())),
        "{text}"
    );
    assert!(line("cpu_weight").ends_with("10000  (default)"), "{text}");
    assert!(
        line("prezero_block_device").ends_with("not set  (default)"),
        "{text}"
    );
}

#[test]
fn own_exceptions_are_shown_and_checked() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("limelight/limelight.toml");
    std::fs::create_dir(home.path().join("limelight")).unwrap();
    let config = |word: &str| {
        let mut command = limelight();
        command.env("XDG_CONFIG_HOME", home.path());
        command.args(["config", word]).output().unwrap()
    };
    std::fs::write(&file, "[never]\n\nclose = [\"org.x.Notes\"]\n").unwrap();
    let shown = text(&config("show").stdout);
    let last: Vec<&str> = shown.lines().rev().take(2).collect();
    assert_eq!(last[1].trim(), "[never]", "{shown}");
    let value = format!("[\"org.x.Notes\"]  ({}:3)", file.display());
    assert!(
        last[0].starts_with("close") && last[0].ends_with(&value),
        "{shown}"
    );
    std::fs::write(&file, "[never]\nclsoe = []\n[swap]\nkill = false\n").unwrap();
    let checked = config("check");
    assert_eq!(checked.status.code(), Some(1));
    let said = text(&checked.stderr);
    let place = |line: u8| format!("{}:{line}: ", file.display());
    assert!(
        said.contains(&format!("{}unknown key `clsoe`", place(2))),
        "{said}"
    );
    assert!(said.contains("did you mean `close`?"), "{said}");
    assert!(
        said.contains(&format!("{}`swap`: a user's file", place(3))),
        "{said}"
    );
}

#[test]
fn old_names_are_reported_and_are_no_errors() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("limelight.toml");
    std::fs::write(&file, "[readahead]\nfactor = 4\n").unwrap();
    let check = |more: &[&str]| {
        let mut command = limelight();
        let out = command
            .args(["config", "check"])
            .args(more)
            .arg(&file)
            .assert();
        text(&out.success().get_output().stdout)
    };
    let warning = "`factor` in [readahead] is now `readahead_factor` in [expert]";
    let place = file.display();
    let expected = format!("warning: {place}:2: {warning}\nno errors\n");
    assert_eq!(check(&[]), expected);
    let json: serde_json::Value = serde_json::from_str(&check(&["--json"])).unwrap();
    assert_eq!(json["warnings"][0]["message"], warning);
    assert_eq!(json["mistakes"], serde_json::json!([]));
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
        "-report",
        "-metrics",
        "-completions",
    ] {
        let page = format!("limelight{command}.1");
        let text = std::fs::read_to_string(dir.path().join(&page)).expect(&page);
        assert!(
            text.contains(".SH SYNOPSIS") && text.contains(".SH DESCRIPTION"),
            "{page}"
        );
        for section in ["EXAMPLES", "\"EXIT STATUS\"", "FILES", "\"SEE ALSO\""] {
            assert!(
                text.contains(&format!(".SH {section}\n")),
                "{page}: {section}"
            );
        }
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
    let Request::Class { pid, class, .. } = daemon.request() else {
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

#[test]
fn report_works_without_the_daemon_and_names_no_home() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("report.txt");
    let run = |json: &[&str]| {
        limelight()
            .env("HOME", home.path())
            .env("USER", "annabel")
            .args(["--socket", "/nonexistent/annabel/control.sock", "report"])
            .args(json)
            .assert()
            .success()
    };
    let out = run(&["--output", file.to_str().unwrap()]);
    assert!(text(&out.get_output().stdout).ends_with("read it before you post it\n"));
    let report = std::fs::read_to_string(&file).unwrap();
    for part in [
        "It contains",
        "== machine",
        "== configuration",
        "== doctor",
        "== log",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    assert!(report.contains("limelightd is not running"), "{report}");
    assert!(!report.contains("annabel"), "{report}");
    assert!(!report.contains(home.path().to_str().unwrap()), "{report}");
    let out = run(&["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&out.get_output().stdout).unwrap();
    assert_eq!(json["sections"][0]["title"], "machine");
    let nowhere = home.path().join("none/report.txt");
    let nowhere = nowhere.to_str().unwrap();
    limelight()
        .args(["report", "--output", nowhere])
        .assert()
        .code(1);
}

#[test]
fn usage_errors_are_json_on_request() {
    for arguments in [
        &["--json", "explain"][..],
        &["focus", "zero", "--json"],
        &["nonsense", "--json"],
    ] {
        let out = limelight().args(arguments).assert().code(2);
        let out = out.get_output();
        let error: serde_json::Value = serde_json::from_slice(&out.stderr).unwrap();
        assert_eq!(error["code"], 2);
        let what = error["error"].as_str().unwrap();
        assert!(
            !what.is_empty() && !what.contains('\n') && !what.starts_with("error"),
            "{what}"
        );
        assert!(out.stdout.is_empty());
    }
    for (arguments, what, cure) in [
        (
            &["--json", "statsu"][..],
            "unrecognized subcommand 'statsu'",
            "a similar subcommand exists: 'status'; usage: limelight [OPTIONS] <COMMAND>; for more \
             information, try '--help'",
        ),
        (
            &["--json", "window", "ajar"],
            "invalid value 'ajar' for '<EVENT>' [possible values: open, close, show]",
            "for more information, try '--help'",
        ),
        (
            &["--json", "history", "--last", "none"],
            "invalid value 'none' for '--last <N>': invalid digit found in string",
            "for more information, try '--help'",
        ),
    ] {
        let out = limelight().args(arguments).assert().code(2);
        let error: serde_json::Value = serde_json::from_slice(&out.get_output().stderr).unwrap();
        assert_eq!((&error["error"], &error["cure"]), (&what.into(), &cure.into()));
    }
    // The option of another program is not the option of this one.
    let out = limelight()
        .args(["run", "--class=x", "--", "jq", "--json"])
        .assert()
        .code(2);
    assert!(text(&out.get_output().stderr).starts_with("error: "));
    limelight().args(["--json", "--help"]).assert().success();
}

#[test]
fn missing_things_have_one_exit_code() {
    for arguments in [
        &["config", "check", "/nonexistent/limelight.toml"][..],
        &["config", "show", "/nonexistent/limelight.toml"],
        &["doctor", "--pid", "2147483647"],
        &["run", "--no-scope", "--", "/nonexistent/program"],
    ] {
        limelight().args(arguments).assert().code(5);
    }
    let daemon = TestDaemon::answering(Response::Apps {
        apps: Vec::new(),
        hidden: None,
    });
    daemon.limelight(&["class", "why", "nothing"]).code(5);
}
