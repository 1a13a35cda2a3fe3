// SPDX-License-Identifier: GPL-2.0-or-later
//! The manual page `limelight.toml(5)`, made from the packaged configuration file.

use std::path::Path;

use limelight_daemon::config::{has_only_example, shown_key};

use crate::exit::Failure;
use crate::manual::roff;

/// Writes `limelight.toml.5`, from the packaged configuration file.
pub fn write(directory: &Path) -> Result<(), Failure> {
    let path = directory.join("limelight.toml.5");
    std::fs::write(path, configuration()).map_err(|error| {
        Failure::Other(format!(
            "cannot write manual pages to {}: {error}",
            directory.display()
        ))
    })
}

/// The packaged configuration file, which documents each key.
const PACKAGED: &str = include_str!("../../../packaging/limelight.toml");

/// The end of the page.
const END: &str = ".SH FILES
.TP
.I /etc/limelight/limelight.toml
The configuration.
.TP
.I /etc/limelight/limelight.toml.d/*.toml
Drop\\-ins, which are read afterwards in alphabetical order.
.TP
.I /etc/limelight/classes.toml
Classes by category, instead of the packaged table.
.TP
.I ~/.config/limelight/limelight.toml
A user's own exceptions, for own apps: only the section [never]. The session agent sends them to
limelightd.
.SH EXAMPLES
Never close apps, and give backups and builds more processor time:
.PP
.nf
[swap]
kill = false

[boost]
cpu_weight = 500
.fi
.PP
Never close the notes, and give a renderer no processor time ahead of others:
.PP
.nf
[never]
close = [\"org.example.Notes\"]
boost = [\"/usr/bin/renderer\"]
.fi
.PP
Check the files before a reload, and show which file sets a value:
.PP
.nf
limelight config check
limelight config show
.fi
.SH \"SEE ALSO\"
.BR limelightd (8),
.BR limelight\\-config\\-check (1),
.BR limelight\\-config\\-show (1)
";

/// The page `limelight.toml(5)`. The file consists of blocks: comment lines, then the keys that the
/// comment is about.
fn configuration() -> String {
    let mut page = format!(
        ".TH limelight.toml 5 \"\" \"limelight {}\"\n.SH NAME\nlimelight.toml \\- configuration of \
         limelightd\n.SH DESCRIPTION\n",
        env!("CARGO_PKG_VERSION")
    );
    // The first line is the licence.
    let text = PACKAGED.split_once('\n').map_or("", |(_, text)| text);
    for block in text.split("\n\n") {
        let lines = || block.lines().filter(|line| !line.is_empty());
        if let Some(section) = lines().find_map(|line| line.strip_prefix('[')) {
            let name = section.trim_end_matches(']');
            page.push_str(&format!(".SH \"[{name}]\"\n"));
        }
        let keys = lines().filter_map(|line| {
            let (name, _) = shown_key(line)?;
            Some((line.trim_start_matches('#'), !has_only_example(name)))
        });
        let mut tag = ".TP\n";
        for (key, has_default) in keys {
            let note = if has_default {
                ""
            } else {
                " (example; no default)"
            };
            page.push_str(&format!("{tag}\\fB{}\\fR{note}\n", roff(key)));
            tag = ".TQ\n";
        }
        if tag == ".TP\n" {
            page.push_str(".PP\n");
        }
        let comments = lines().filter(|line| shown_key(line).is_none());
        let mut in_list = false;
        for line in comments.filter_map(|line| line.strip_prefix('#')) {
            let text = line.strip_prefix(' ').unwrap_or(line);
            // Items of a list are indented; their further lines are indented more.
            let indent = text.len() - text.trim_start().len();
            let breaks = indent == 2 || indent == 0 && std::mem::take(&mut in_list);
            in_list |= indent > 0;
            let line = match (text.is_empty(), breaks) {
                (true, _) => ".sp".to_owned(),
                (false, true) => format!(".br\n{}", roff(text.trim_start())),
                (false, false) => roff(text.trim_start()),
            };
            page.push_str(&format!("{line}\n"));
        }
    }
    page.push_str(END);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_page_has_every_section_and_key() {
        let page = configuration();
        let mut keys = 0;
        for line in PACKAGED.lines() {
            if let Some(section) = line.strip_prefix('[') {
                let head = format!(".SH \"[{}]\"", section.trim_end_matches(']'));
                assert!(page.lines().any(|line| line == head), "{head}");
            }
            if shown_key(line).is_some() {
                let tag = format!("\n\\fB{}\\fR", roff(line.trim_start_matches('#')));
                assert!(page.contains(&tag), "{tag}");
                keys += 1;
            }
        }
        assert!(keys > 50, "{keys}");
        // A line that troff would take for a request.
        let requests = page.lines().filter(|line| line.starts_with('.'));
        let known = [
            ".TH ", ".SH ", ".TP", ".TQ", ".PP", ".BR ", ".I ", ".br", ".sp", ".nf", ".fi",
        ];
        for line in requests {
            assert!(known.iter().any(|one| line.starts_with(one)), "{line}");
        }
    }
}
