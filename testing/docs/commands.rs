// SPDX-License-Identifier: GPL-2.0-or-later
//! Command lines that the documentation shows, parsed by the program's own definitions. Each
//! program's tests include this file.

use std::fs;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::Command;

/// Values for placeholders, such as PID, TIME and CLASS, that their own name is no value of.
const VALUES: [&str; 6] = ["42", "10m", "keep", "bash", "kill", "x11"];

/// Words that may precede a program's name in a command line.
const PREFIXES: [&str; 8] = ["$", "sudo", "exec", "eval", "env", "time", "do", "then"];

/// A piece of code on a page.
struct Code {
    /// Its line in the page, from 1.
    line: usize,
    /// Whether it is a line of a code block, in which a command has all required arguments. Running
    /// text may name a command without them.
    complete: bool,
    text: String,
}

/// Asserts that the program accepts every command line on every page, and that the pages show it at
/// least `least` times.
pub fn assert_valid(program: &Command, least: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut shown, mut wrong) = (0, Vec::new());
    for page in pages(&root) {
        let text = fs::read_to_string(&page).unwrap();
        let page = page.strip_prefix(&root).unwrap().display();
        for code in codes(&text) {
            for command in commands(program.get_name(), &code.text) {
                shown += 1;
                if let Err(error) = parse(program, &command, code.complete) {
                    wrong.push(format!(
                        "{page}:{}: {}: {error}",
                        code.line,
                        command.join(" ")
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(shown >= least, "only {shown} command lines found");
}

/// All pages of the tree.
fn pages(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut places = vec![root.to_owned()];
    while let Some(directory) = places.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let skipped = ["target", ".git", "corpus"];
            if kind.is_dir() && !skipped.iter().any(|name| path.ends_with(name)) {
                places.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|kind| kind == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// The lines of code blocks, with continued lines joined, and the inline code, which may be wrapped.
fn codes(text: &str) -> Vec<Code> {
    let mut found = Vec::new();
    let mut in_block = false;
    // The beginning of a continued line of a block, or of a paragraph.
    let mut begun: Option<(usize, String)> = None;
    for (at, line) in text.lines().chain([""]).enumerate() {
        let trimmed = line.trim();
        let fence = trimmed.starts_with("```");
        if fence || !in_block && trimmed.is_empty() {
            if let Some((line, text)) = begun.take() {
                let codes = text.split('`').skip(1).step_by(2);
                found.extend(codes.map(|code| Code {
                    line,
                    complete: false,
                    text: code.replace("\\|", "|"),
                }));
            }
            in_block ^= fence;
            continue;
        }
        let (line, mut text) = begun.take().unwrap_or((at + 1, String::new()));
        match trimmed.strip_suffix('\\').filter(|_| in_block) {
            Some(part) => begun = Some((line, text + part.trim_end() + " ")),
            None if in_block => found.push(Code {
                line,
                complete: true,
                text: text + trimmed,
            }),
            None => {
                text.push_str(trimmed);
                begun = Some((line, text + " "));
            }
        }
    }
    found
}

/// The command lines of one program in a piece of code, each as its words. Alternatives (`a|b`) and
/// optional parts (`[...]`) give a command line each. A text with a colon and a blank is a message.
fn commands(program: &str, code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    if code.split(" #").next().unwrap_or_default().contains(": ") {
        return found;
    }
    for command in simple_commands(code) {
        let mut words = command.split_whitespace().peekable();
        while let Some(word) = words.peek() {
            // A service in Android's init language has a name before its program.
            let name = usize::from(*word == "service");
            if name == 0 && !PREFIXES.contains(word) && !word.contains('=') {
                break;
            }
            words.nth(name);
        }
        let is_program = |word: &&str| word.rsplit('/').next() == Some(program);
        if words.next().filter(is_program).is_none() {
            continue;
        }
        let arguments: Vec<&str> = words.take_while(|word| !is_redirection(word)).collect();
        for variant in variants(&arguments.join(" ")) {
            let words = variant.split_whitespace();
            let words = words.map(|word| word.trim_matches(['"', '\'']).trim_end_matches("..."));
            let words = words.filter(|word| !word.is_empty()).map(str::to_owned);
            found.push([program.to_owned()].into_iter().chain(words).collect());
        }
    }
    found
}

/// Splits a line at the shell's operators. A command ends before a comment and before two blanks,
/// which precede an explanation.
fn simple_commands(code: &str) -> Vec<String> {
    let code = code.split(" #").next().unwrap_or_default();
    let code = code.trim().split("  ").next().unwrap_or_default();
    let mut commands = vec![String::new()];
    let mut depth = 0;
    for (at, letter) in code.char_indices() {
        let is_bar = letter == '|' && code[..at].ends_with(' ') && depth == 0;
        match letter {
            ';' | '&' | '(' | ')' => commands.push(String::new()),
            '|' if is_bar => commands.push(String::new()),
            _ => {
                depth += match letter {
                    '[' => 1,
                    ']' => -1,
                    _ => 0,
                };
                commands.last_mut().unwrap().push(letter);
            }
        }
    }
    commands
}

fn is_redirection(word: &str) -> bool {
    word == "<" || word.trim_start_matches(['1', '2']).starts_with('>')
}

/// The command lines for which a line with optional parts and alternatives stands.
fn variants(line: &str) -> Vec<String> {
    if let Some((before, rest)) = line.split_once('[') {
        let (part, after) = rest.split_once(']').unwrap_or((rest, ""));
        let each = part.split('|');
        return each
            .flat_map(|one| variants(&format!("{before}{}{after}", one.trim())))
            .collect();
    }
    let mut words = line.split(' ');
    let Some(word) = words.find(|word| word.contains('|')) else {
        return vec![line.to_owned()];
    };
    let each = word.split('|');
    each.flat_map(|one| variants(&line.replacen(word, one, 1)))
        .collect()
}

/// Whether a word stands for a value: `PID`, `<pid>`.
fn is_placeholder(word: &str) -> bool {
    let is_name = |letter: char| letter.is_ascii_uppercase() || "-_".contains(letter);
    !word.is_empty() && word.chars().all(is_name) || word.starts_with('<') && word.ends_with('>')
}

/// Parses a command line. A placeholder whose name is no value of its argument gets each of
/// [`VALUES`] in turn. Unless the command line is `complete`, required arguments may be missing.
fn parse(program: &Command, words: &[String], complete: bool) -> Result<(), String> {
    let Err(error) = program.clone().try_get_matches_from(words) else {
        return Ok(());
    };
    let described = || {
        let text = error.to_string();
        let what = text.lines().next().unwrap_or_default();
        what.trim_start_matches("error: ").to_owned()
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(()),
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            if !complete =>
        {
            Ok(())
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else {
                return Err(described());
            };
            let option = format!("={value}");
            let is = |word: &String| word == value || word.ends_with(&option);
            let at = words.iter().position(is);
            let Some(at) = at.filter(|_| is_placeholder(value)) else {
                return Err(described());
            };
            let fits = VALUES.iter().any(|instead| {
                let mut words = words.to_vec();
                words[at] = words[at].replace(value.as_str(), instead);
                parse(program, &words, complete).is_ok()
            });
            fits.then_some(()).ok_or_else(described)
        }
        _ => Err(described()),
    }
}

#[test]
fn command_lines_are_found_in_blocks_and_in_text() {
    let page = "Run `sudo limelight pause [TIME]` or `limelight\nwindow open|close`, not `x`.\n\n\
                | `a \\| limelight top` |\n\n```\nlimelight top --once | head   # one screen\n\
                limelight runs: not\nlimelight run \\\n  -- ls\n$ limelight status      what is in front\n\
                eval \"$(limelight completions bash)\"\nLC_ALL=C /usr/bin/limelight top > file &\n\
                systemctl restart limelight\n```\n";
    let codes = codes(page);
    let found = codes.iter().flat_map(|code| {
        let commands = commands("limelight", &code.text).into_iter();
        commands.map(|words| (code.line, code.complete, words[1..].join(" ")))
    });
    let found: Vec<_> = found.collect();
    let found: Vec<_> = found
        .iter()
        .map(|(line, complete, text)| (*line, *complete, text.as_str()))
        .collect();
    let expected = [
        (1, false, "pause TIME"),
        (1, false, "window open"),
        (1, false, "window close"),
        (4, false, "top"),
        (7, true, "top --once"),
        (9, true, "run -- ls"),
        (11, true, "status"),
        (12, true, "completions bash"),
        (13, true, "top"),
    ];
    assert_eq!(found, expected);
}
