// SPDX-License-Identifier: GPL-2.0-or-later
//! Completion scripts and manual pages, generated from the definition of the command line.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::args::Args;
use crate::exit::Failure;

/// Completes process ids in bash, in addition to the generated script.
const BASH_PIDS: &str = r#"
_limelight_pids() {
    _limelight "$@"
    local word=${COMP_WORDS[COMP_CWORD]} before=" ${COMP_WORDS[*]:1:COMP_CWORD-1} "
    [[ $word == -* ]] && return 0
    case $before in
        *" --pid " | *" explain " | *" focus " | *" class set " | *" class why ")
            COMPREPLY+=($(compgen -W "$(cd /proc && echo [0-9]*)" -- "$word"))
            ;;
    esac
}
complete -F _limelight_pids -o bashdefault -o default limelight
"#;
/// The same for fish.
const FISH_PIDS: &str = r#"
complete -c limelight -n "__fish_seen_subcommand_from explain focus" -f -a "(__fish_complete_pids)"
complete -c limelight -n "__fish_seen_subcommand_from class; and __fish_seen_subcommand_from set why" -f -a "(__fish_complete_pids)"
complete -c limelight -n "__fish_seen_subcommand_from doctor window" -l pid -x -a "(__fish_complete_pids)"
"#;

/// Prints the completion script for a shell.
pub fn completions(shell: Shell, out: &mut Vec<u8>) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "limelight", &mut script);
    match shell {
        Shell::Bash => script.extend(BASH_PIDS.bytes()),
        Shell::Fish => script.extend(FISH_PIDS.bytes()),
        Shell::Zsh => script = zsh_pids(&String::from_utf8_lossy(&script)).into_bytes(),
        _ => {}
    }
    out.extend(script);
}

/// Has zsh complete process ids where the script completes anything.
fn zsh_pids(script: &str) -> String {
    let pids = |line: &str| {
        let pid = ["pid -- ", "app -- ", "--pid="]
            .iter()
            .any(|mark| line.contains(mark));
        match pid {
            true => line.replace(":_default'", ":_pids'"),
            false => line.to_owned(),
        }
    };
    let lines: Vec<String> = script.lines().map(pids).collect();
    lines.join("\n") + "\n"
}

/// Examples of a command: the command line, and what it does.
type Examples = &'static [(&'static str, &'static str)];

/// Examples of each command, by its name below `limelight`.
const EXAMPLES: [(&str, Examples); 24] = [
    (
        "",
        &[
            ("limelight doctor", "Check what acts on this machine."),
            (
                "limelight status",
                "Show the foreground app and what is done for it.",
            ),
            ("limelight top", "Watch it."),
        ],
    ),
    (
        "status",
        &[
            ("limelight status", "Show the daemon's state."),
            (
                "limelight status --json",
                "The same for a program, such as jq.",
            ),
        ],
    ),
    (
        "top",
        &[
            ("limelight top --interval 5", "Refresh every five seconds."),
            ("limelight top --once", "Print the screen once, as text."),
        ],
    ),
    (
        "explain",
        &[
            (
                "limelight explain 4242",
                "Show what was changed for process 4242, and why.",
            ),
            (
                "limelight explain --last=kill",
                "Show why the last app was closed, and no other.",
            ),
        ],
    ),
    (
        "pause",
        &[
            (
                "limelight pause 10m",
                "Change nothing for ten minutes, for example during a measurement.",
            ),
            ("limelight pause", "Change nothing until limelight resume."),
        ],
    ),
    ("resume", &[("limelight resume", "End the pause.")]),
    (
        "focus",
        &[
            (
                "limelight focus 4242",
                "Make the app of process 4242 the foreground app.",
            ),
            ("limelight focus --none", "Withdraw that."),
        ],
    ),
    (
        "latency",
        &[
            ("limelight latency", "Show the response times of all apps."),
            ("limelight latency firefox", "Show those of one app."),
        ],
    ),
    (
        "class",
        &[("limelight class list", "List all apps with their classes.")],
    ),
    (
        "class-list",
        &[(
            "limelight class list --json",
            "List all apps for a program.",
        )],
    ),
    (
        "class-set",
        &[
            (
                "limelight class set 4242 disposable",
                "Close this app first when memory is short.",
            ),
            ("limelight class set 4242 auto", "Restore its default."),
            (
                "limelight class set --save org.gnome.Maps disposable",
                "Remember a class for each later start of an app.",
            ),
        ],
    ),
    (
        "class-why",
        &[(
            "limelight class why org.gnome.Maps",
            "Explain the class of an app.",
        )],
    ),
    (
        "listen",
        &[(
            "limelight listen --json",
            "Print each action as a line of JSON.",
        )],
    ),
    (
        "history",
        &[(
            "limelight history --entries 5",
            "Show the last five actions.",
        )],
    ),
    (
        "window",
        &[
            ("limelight window show", "Show the response windows."),
            (
                "limelight window open --pid 4242",
                "Report input for an app.",
            ),
        ],
    ),
    (
        "doctor",
        &[
            (
                "limelight doctor",
                "Show the mechanisms and what could be better.",
            ),
            (
                "limelight doctor --all --json",
                "Show every check, for a program.",
            ),
        ],
    ),
    (
        "run",
        &[
            (
                "limelight run -- make -j8",
                "Run a build as an app of its own.",
            ),
            (
                "limelight run --class=disposable -- ./indexer",
                "Run it as an app that may be closed.",
            ),
        ],
    ),
    (
        "selftest",
        &[(
            "limelight selftest",
            "Measure swipe times without and with protection.",
        )],
    ),
    (
        "report",
        &[(
            "limelight report --output report.txt",
            "Write the file for a bug report.",
        )],
    ),
    (
        "metrics",
        &[(
            "limelight metrics",
            "Print all metrics in Prometheus' text format.",
        )],
    ),
    (
        "config",
        &[(
            "limelight config show",
            "Show all values with their origins.",
        )],
    ),
    (
        "config-check",
        &[(
            "limelight config check ./limelight.toml",
            "List the errors of a file.",
        )],
    ),
    (
        "config-show",
        &[(
            "limelight config show --json",
            "Show all values for a program.",
        )],
    ),
    (
        "completions",
        &[(
            "limelight completions fish",
            "Print the script for fish. Packages install the scripts for bash, zsh and fish.",
        )],
    ),
];

/// How clap_mangen titles the text that follows the options, and how manual pages title it.
const EXTRA: &str = ".SH EXTRA\n";
const NOTES: &str = ".SH NOTES\n";

/// Files that the pages name.
const FILES: [(&str, &str); 3] = [
    (
        "/run/limelight/control.sock",
        "The daemon's control socket.",
    ),
    (
        "/etc/limelight/limelight.toml",
        "The configuration, with every key explained.",
    ),
    (
        "/usr/share/doc/limelight/docs/user/cli.md",
        "Which command answers which question.",
    ),
];

/// Writes `limelight.1` and one page for each command.
pub fn write(directory: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::Other(format!(
            "cannot write manual pages to {}: {error}",
            directory.display()
        ))
    };
    let mut command = without_help(Args::command());
    command.build();
    clap_mangen::generate_to(command.clone(), directory).map_err(failed)?;
    for (name, command) in pages("", &command) {
        let file = match name.as_str() {
            "" => directory.join("limelight.1"),
            name => directory.join(format!("limelight-{name}.1")),
        };
        let page = std::fs::read_to_string(&file).map_err(failed)?;
        let mut page = page.replace(EXTRA, NOTES);
        page.push_str(&further_sections(&name, command));
        std::fs::write(&file, page).map_err(failed)?;
    }
    Ok(())
}

/// The command without the subcommand `help` at any level, which needs no page.
fn without_help(command: Command) -> Command {
    let command = command.disable_help_subcommand(true);
    command.mut_subcommands(without_help)
}

/// All commands that have a page, with their names.
fn pages<'a>(name: &str, command: &'a Command) -> Vec<(String, &'a Command)> {
    let mut all = vec![(name.to_owned(), command)];
    for below in command.get_subcommands() {
        if below.is_hide_set() {
            continue;
        }
        let name = match name {
            "" => below.get_name().to_owned(),
            name => format!("{name}-{}", below.get_name()),
        };
        all.extend(pages(&name, below));
    }
    all
}

/// The sections EXAMPLES, EXIT STATUS, FILES and SEE ALSO of a page.
fn further_sections(name: &str, command: &Command) -> String {
    let mut text = String::new();
    let known = EXAMPLES.iter().find(|(of, _)| *of == name);
    let examples = known.map_or(&[][..], |(_, examples)| examples);
    let mut section = |title: &str, items: Vec<(String, String)>| {
        let _ = writeln!(text, ".SH {title}");
        for (term, what) in items {
            let _ = writeln!(text, ".TP\n\\fB{}\\fR\n{}", roff(&term), roff(&what));
        }
    };
    let owned = |(term, what): &(&str, &str)| ((*term).to_owned(), (*what).to_owned());
    section("EXAMPLES", examples.iter().map(owned).collect());
    section("\"EXIT STATUS\"", exit_codes());
    section("FILES", FILES.iter().map(owned).collect());
    let mut others: Vec<String> = match name {
        "" => Vec::new(),
        _ => vec!["limelight".to_owned()],
    };
    for below in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        if below.get_name() != "help" {
            let dash = if name.is_empty() { "" } else { "-" };
            others.push(format!("limelight-{name}{dash}{}", below.get_name()));
        }
    }
    let mut others: Vec<String> = others.iter().map(|name| format!("{name}(1)")).collect();
    others.extend(["limelight-agent(1)".to_owned(), "limelightd(8)".to_owned()]);
    let _ = writeln!(text, ".SH \"SEE ALSO\"\n{}", roff(&others.join(", ")));
    text
}

/// The exit codes and their meanings, as the help text lists them.
fn exit_codes() -> Vec<(String, String)> {
    let command = Args::command();
    let help = command.get_after_help().map(ToString::to_string);
    let help = help.unwrap_or_default();
    let list = help.strip_prefix("Exit codes: ").unwrap_or(&help);
    let code = |item: &str| {
        let (code, meaning) = item.split_once(' ')?;
        let (first, rest) = meaning.trim_end_matches('.').split_at_checked(1)?;
        Some((code.to_owned(), format!("{}{rest}.", first.to_uppercase())))
    };
    list.split("; ").filter_map(code).collect()
}

/// Escapes text for a manual page.
pub fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn every_page_has_examples_that_parse() {
        let mut command = without_help(Args::command());
        command.build();
        for (name, _) in pages("", &command) {
            let (_, examples) = EXAMPLES.iter().find(|(of, _)| *of == name).expect(&name);
            assert!(!examples.is_empty(), "{name}");
            for (example, _) in *examples {
                let words = example.split(' ');
                assert!(Args::try_parse_from(words).is_ok(), "{example}");
                let shown = name.replace('-', " ");
                assert!(example.contains(&shown), "{example} is not about {name}");
            }
        }
    }

    #[test]
    fn only_commands_have_pages_and_all_pages_have_the_usual_sections() {
        let temp = tempfile::tempdir().unwrap();
        write(temp.path()).unwrap();
        let pages = pages("", &without_help(Args::command())).len();
        let mut written = 0;
        for entry in std::fs::read_dir(temp.path()).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for section in ["EXAMPLES", "EXIT STATUS", "FILES", "SEE ALSO"] {
                let found = text.contains(&format!(".SH {section}\n"))
                    || text.contains(&format!(".SH \"{section}\"\n"));
                assert!(found, "{} has no {section}", path.display());
            }
            assert!(!text.contains(EXTRA), "{}", path.display());
            written += 1;
        }
        assert_eq!(written, pages);
    }

    #[test]
    fn exit_codes_are_those_of_the_help_text() {
        let codes = exit_codes();
        let numbers: Vec<&str> = codes.iter().map(|(code, _)| code.as_str()).collect();
        assert_eq!(numbers, ["0", "1", "2", "3", "4", "5"]);
        assert_eq!(codes[2].1, "Wrong usage.");
    }

    #[test]
    fn completion_scripts_complete_classes_and_pids() {
        for (shell, pids) in [
            (Shell::Bash, "_limelight_pids"),
            (Shell::Zsh, ":_pids'"),
            (Shell::Fish, "__fish_complete_pids"),
        ] {
            let mut script = Vec::new();
            completions(shell, &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains(pids), "{shell}");
            let class = script.lines().find(|line| line.contains("disposable"));
            assert!(class.is_some(), "{shell}");
        }
    }

    #[test]
    fn bash_completes_the_pid_of_a_process() {
        let mut script = Vec::new();
        completions(Shell::Bash, &mut script);
        let mut script = String::from_utf8(script).unwrap();
        script.push_str(
            "COMP_WORDS=(limelight explain \"$$\") COMP_CWORD=2\n\
             _limelight_pids limelight \"$$\" explain\n\
             [[ \" ${COMPREPLY[*]} \" == *\" $$ \"* ]] && echo found\n",
        );
        let out = std::process::Command::new("bash")
            .arg("-c")
            .arg(script)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), "found\n", "{out:?}");
    }
}
