// SPDX-License-Identifier: GPL-2.0-or-later
//! Runs other programs. Errors include the command and the end of its output.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, io};

use anyhow::{bail, Context, Result};

/// Number of lines at the end of a failed program's output that the error shows.
const TAIL_LINES: usize = 25;

/// Runs `command` to its end; its output appears only in the error if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// Runs `command` and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| not_started(error, command, &shown))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let said = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
        bail!("{shown}: {}\n{}", output.status, tail(&said, TAIL_LINES));
    }
    Ok(text)
}

/// The error for a program that could not be started, with a hint when it is not installed.
pub fn not_started(error: io::Error, command: &Command, shown: &str) -> anyhow::Error {
    if error.kind() == io::ErrorKind::NotFound {
        let program = command.get_program().to_string_lossy();
        return anyhow::anyhow!(
            "{program} is not installed: scripts/deps.sh installs everything the lab needs"
        );
    }
    anyhow::Error::new(error).context(format!("cannot run {shown}"))
}

/// The last `lines` lines of `text`.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// The path of `program`, if it is installed. Also searches the sbin directories, because mkfs.ext4
/// is there and they are missing from an ordinary user's `PATH`.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}

/// [`find`], or an error with a hint.
pub fn need(program: &str) -> Result<PathBuf> {
    find(program).with_context(|| {
        format!("{program} is not installed: scripts/deps.sh installs everything the lab needs")
    })
}

/// `command` as a shell command line.
pub fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(quote).collect::<Vec<_>>().join(" ")
}

/// `word`, quoted for a shell if necessary.
pub fn quote(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The commit of the work tree at `root`, with `+` if there are changes; `unknown` without git.
pub fn commit(root: &Path) -> String {
    let git = |args: &[&str]| output(Command::new("git").arg("-C").arg(root).args(args));
    let Ok(head) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".into();
    };
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_ok_and(|s| !s.is_empty());
    format!("{}{}", head.trim(), if changed { "+" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_program_is_shown_with_its_output() {
        let error = run(Command::new("sh").args(["-c", "echo told; echo more >&2; exit 3"]));
        let text = error.unwrap_err().to_string();
        assert!(
            text.contains("'echo told; echo more >&2; exit 3'"),
            "{text}"
        );
        assert!(
            text.contains("told\nmore") && text.contains("exit status: 3"),
            "{text}"
        );
    }

    #[test]
    fn missing_program_error_names_deps_script() {
        let error = run(&mut Command::new("limelight-no-such-program"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("limelight-no-such-program is not installed"),
            "{error}"
        );
        assert!(error.contains("scripts/deps.sh"), "{error}");
    }

    #[test]
    fn words_are_quoted_only_where_necessary() {
        for (word, quoted) in [
            ("-m", "-m"),
            ("a b", "'a b'"),
            ("", "''"),
            ("it's", r"'it'\''s'"),
            ("x=1", "x=1"),
        ] {
            assert_eq!(quote(OsStr::new(word)), quoted);
        }
    }

    #[test]
    fn tail_returns_the_last_lines() {
        assert_eq!(tail("1\n2\n3\n", 2), "2\n3");
        assert_eq!(tail("1", 5), "1");
    }
}
