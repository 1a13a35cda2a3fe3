// SPDX-License-Identifier: GPL-2.0-or-later
//! Removes private data from text: names of apps, users, hosts and documents, and paths.
//!
//! The texts of the daemon and of `doctor` name apps, paths and cgroups. What is known (apps,
//! users, homes) is replaced by name. What is not known is replaced by its form: a quoted text, a
//! name in front of `(pid N)`, and each path outside of the few places that say nothing about a
//! user. In doubt, too much is removed.

/// A place that private data was removed from.
const PATH: &str = "<path>";
const UNIT: &str = "<unit>";
const APP: &str = "<app>";

/// Programs that a report may name: they are parts of the system, and matter for a diagnosis.
const SYSTEM_PROGRAMS: [&str; 35] = [
    "limelightd",
    "limelight",
    "limelight-agent",
    "limelight-watch",
    "systemd",
    "systemd-oomd",
    "systemd-logind",
    "elogind",
    "init",
    "earlyoom",
    "nohang",
    "oomd",
    "uresourced",
    "gamemoded",
    "ananicy",
    "ananicy-cpp",
    "system76-scheduler",
    "tuned",
    "scx_lavd",
    "scx_bpfland",
    "scx_rusty",
    "dbus-daemon",
    "dbus-broker",
    "pipewire",
    "pipewire-pulse",
    "wireplumber",
    "pulseaudio",
    "Xorg",
    "Xwayland",
    "gnome-shell",
    "mutter",
    "kwin_wayland",
    "kwin_x11",
    "sway",
    "phoc",
];

/// Paths that say nothing about a user. Those with `/` at the end include all paths below.
const PUBLIC_PATHS: [&str; 18] = [
    "/sys/kernel/",
    "/sys/block/",
    "/sys/module/",
    "/proc/",
    "/run/limelight/",
    "/run/limelight",
    "/etc/limelight/limelight.toml",
    "/etc/limelight/limelight.toml.d",
    "/etc/limelight/classes.toml",
    "/etc/fstab",
    "/etc/os-release",
    "/usr/sbin/limelightd",
    "/usr/lib/limelight/liblimelight-premap.so",
    "/usr/share/doc/limelight/",
    "/var/lib/limelight",
    "/var/lib/limelight/coldstart",
    "/var/lib/limelight/history.jsonl",
    "/var/log/limelightd.log",
];

/// Components of cgroup paths that every machine with systemd, or with cgroup v1, has.
const PUBLIC_CGROUPS: [&str; 21] = [
    "user.slice",
    "system.slice",
    "machine.slice",
    "app.slice",
    "session.slice",
    "background.slice",
    "limelight.slice",
    "init.scope",
    "limelightd.service",
    "limelight-agent.service",
    "sys",
    "fs",
    "unified",
    "systemd",
    "memory",
    "cpu",
    "cpuacct",
    "cpuset",
    "blkio",
    "freezer",
    "devices",
];

/// Options of Limelight's programs and of systemctl, which messages advise to use. Any other option
/// is an argument of an app.
const OPTIONS: [&str; 8] = [
    "--dry-run",
    "--restore",
    "--explain",
    "--user",
    "--stay",
    "--last",
    "--premap",
    "--none",
];

/// First components of a cgroup's path below the mount point.
const CGROUP_ROOTS: [&str; 6] = [
    "/sys/fs/cgroup",
    "/user.slice",
    "/system.slice",
    "/machine.slice",
    "/limelight.slice",
    "/init.scope",
];

/// Replaces private data.
#[derive(Debug, Default)]
pub struct Scrubber {
    /// Names and their replacements, longest name first.
    names: Vec<(String, String)>,
    homes: Vec<String>,
    /// Whether app ids in cgroup paths are kept.
    app_ids: bool,
}

impl Scrubber {
    /// A scrubber that keeps app ids in the names of units, or not.
    pub fn new(app_ids: bool) -> Self {
        Scrubber {
            app_ids,
            ..Scrubber::default()
        }
    }

    /// Replaces this name wherever it is a whole word. The first replacement of a name counts.
    pub fn name(&mut self, name: &str, replacement: &str) {
        let shown = crate::format::printable(name);
        for name in [name, &shown] {
            let known = self.names.iter().any(|(known, _)| known == name);
            if !known && !name.trim().is_empty() && !SYSTEM_PROGRAMS.contains(&name) {
                self.names.push((name.to_owned(), replacement.to_owned()));
            }
        }
        self.names
            .sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    }

    /// Marks this directory as a home.
    pub fn home(&mut self, path: &str) {
        let path = path.trim_end_matches('/');
        if path.len() > 1 {
            self.homes.push(path.to_owned());
        }
    }

    /// The text without private data. Line breaks stay.
    pub fn text(&self, text: &str) -> String {
        let lines = text.lines().map(|line| self.line(line));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn line(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for (name, replacement) in &self.names {
            line = replace_word(&line, name, replacement);
        }
        unknown_apps(&without_options(&self.paths(&unquoted(&line))))
    }

    fn paths(&self, line: &str) -> String {
        let mut clean = String::with_capacity(line.len());
        let mut rest = line;
        while let Some(start) = path_start(rest, clean.chars().last()) {
            clean.push_str(&rest[..start]);
            let path = &rest[start..];
            let (replacement, length) = self.path(path);
            clean.push_str(&replacement);
            rest = &path[length..];
        }
        clean.push_str(rest);
        clean
    }

    /// The replacement of the path at the start of `text`, and the length of what it replaces.
    fn path(&self, text: &str) -> (String, usize) {
        // A path may contain spaces. Where that matters, it ends at the next punctuation.
        let loose = loose_end(text);
        let tight = text[..loose].find(' ').unwrap_or(loose);
        let path = text[..tight].trim_end_matches(['.', ',', ';', ':']);
        let below = |root: &str| {
            path.strip_prefix(root)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if CGROUP_ROOTS.into_iter().any(below) {
            let all = &text[..loose];
            let more = &all[tight.min(all.len())..];
            let marks = ["/", ".scope", ".slice", ".service"];
            let (path, length) = match marks.iter().any(|mark| more.contains(mark)) {
                true => (all, loose),
                false => (path, path.len()),
            };
            return (self.cgroup(path), length);
        }
        let public = PUBLIC_PATHS.iter().any(|place| match place.ends_with('/') {
            true => path.starts_with(place),
            false => path == *place,
        });
        if public || is_plain_device(path) || path == "/" {
            return (path.to_owned(), path.len());
        }
        // The home is tested with the text, because its name may contain spaces, too.
        let home = self
            .homes
            .iter()
            .any(|home| text.starts_with(home.as_str()));
        let replacement = match home || text.starts_with('~') || path.starts_with("/home/") {
            true => "<home>/...",
            false => PATH,
        };
        (replacement.to_owned(), loose)
    }

    fn cgroup(&self, path: &str) -> String {
        let component = |part: &str| match self.is_public_cgroup(part) {
            true => part.to_owned(),
            false => UNIT.to_owned(),
        };
        let parts: Vec<String> = path.split('/').map(component).collect();
        parts.join("/")
    }

    fn is_public_cgroup(&self, part: &str) -> bool {
        let number = |text: &str| text.chars().all(|one| one.is_ascii_digit() || one == '-');
        let within = |start: &str, end: &str| {
            let middle = part
                .strip_prefix(start)
                .and_then(|part| part.strip_suffix(end));
            middle.is_some_and(|middle| !middle.is_empty() && number(middle))
        };
        let knob = ["memory.", "cpu.", "io.", "cgroup.", "cpuset.", "pids."]
            .iter()
            .any(|kind| part.starts_with(kind))
            && part
                .chars()
                .all(|one| one.is_ascii_lowercase() || "._".contains(one));
        let word = |one: char| one.is_ascii_alphanumeric() || "._-\\@".contains(one);
        let app = part.starts_with("app-") && part.chars().all(word);
        part.is_empty()
            || part == "cgroup"
            || PUBLIC_CGROUPS.contains(&part)
            || knob
            || within("user-", ".slice")
            || within("user@", ".service")
            || within("session-", ".scope")
            || within("app-", ".scope")
            || self.app_ids && app
    }
}

/// Devices whose names the kernel chooses: `/dev/sda2`, `/dev/zram0`, `/dev/input/event3`. Names
/// below `/dev/mapper` often contain the host's name.
fn is_plain_device(path: &str) -> bool {
    let name = path
        .strip_prefix("/dev/input/")
        .or(path.strip_prefix("/dev/"));
    name.is_some_and(|name| {
        name.chars()
            .all(|one| one.is_ascii_alphanumeric() || one == '-')
    })
}

/// The position of the next path: `/` or `~/` at the start of a word. `before`: the character in
/// front of the text.
fn path_start(text: &str, before: Option<char>) -> Option<usize> {
    let mut before = before;
    for (at, one) in text.char_indices() {
        let opens = before.is_none_or(|one| one.is_whitespace() || "\"'`(=:[<>,|".contains(one));
        let home = one == '~' && text[at + 1..].starts_with('/');
        let next = text[at + one.len_utf8()..].chars().next();
        let named = next.is_some_and(|next| !next.is_whitespace());
        if opens && named && (one == '/' || home) {
            return Some(at);
        }
        before = Some(one);
    }
    None
}

/// The end of a path that may contain spaces.
fn loose_end(text: &str) -> usize {
    let ends = [": ", ", ", "; ", " (", ")", "\"", "`", " -> ", "\t"];
    let ends = ends.iter().filter_map(|end| text.find(end));
    ends.min().unwrap_or(text.len())
}

/// Replaces each quoted text.
fn unquoted(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut quote = None;
    let mut before = ' ';
    for one in line.chars() {
        match quote {
            Some(open) if one == open => {
                quote = None;
                clean.push_str("...");
                clean.push(one);
            }
            Some(_) => {}
            // An apostrophe inside a word does not open a quotation.
            None if one == '"' || one == '\'' && !before.is_alphanumeric() => {
                quote = Some(one);
                clean.push(one);
            }
            None => clean.push(one),
        }
        before = one;
    }
    if quote.is_some() {
        clean.push_str("...");
    }
    clean
}

/// Replaces each option that is not one of [`OPTIONS`], with its value.
fn without_options(line: &str) -> String {
    let clean = |word: &str| {
        let known = |option: &&str| {
            let rest = word.strip_prefix(*option);
            rest.is_some_and(|rest| !rest.starts_with(|one: char| one.is_alphanumeric()))
        };
        match word.starts_with("--") && word.len() > 2 && !OPTIONS.iter().any(known) {
            true => "<option>".to_owned(),
            false => word.to_owned(),
        }
    };
    line.split(' ').map(clean).collect::<Vec<_>>().join(" ")
}

/// Replaces the names in front of ` (pid N)` that have not been replaced yet.
fn unknown_apps(line: &str) -> String {
    const MARK: &str = " (pid ";
    let mut clean = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(MARK) {
        let before = &rest[..at];
        let last = before.rsplit(' ').next().unwrap_or_default();
        let known = SYSTEM_PROGRAMS.contains(&last)
            || [PATH, UNIT, APP].contains(&last)
            || is_pseudonym(last);
        let start = [": ", ", ", "; ", "(", "-> "]
            .iter()
            .filter_map(|mark| Some(before.rfind(mark)? + mark.len()))
            .max()
            .unwrap_or(0);
        match known {
            true => clean.push_str(before),
            false => {
                clean.push_str(&before[..start]);
                clean.push_str(APP);
            }
        }
        clean.push_str(MARK);
        rest = &rest[at + MARK.len()..];
    }
    clean.push_str(rest);
    clean
}

/// Whether the word is the name that a report gives to an app, with or without its id.
fn is_pseudonym(word: &str) -> bool {
    let number = word.strip_prefix("app-");
    number.is_some_and(|number| number.starts_with(|one: char| one.is_ascii_digit()))
        || word.ends_with('>')
}

fn replace_word(line: &str, name: &str, replacement: &str) -> String {
    let inside = |one: char| one.is_alphanumeric() || one == '_';
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(name) {
        let end = at + name.len();
        let before = rest[..at].chars().last().or(clean.chars().last());
        let after = rest[end..].chars().next();
        let whole = !before.is_some_and(inside) && !after.is_some_and(inside);
        clean.push_str(&rest[..at]);
        clean.push_str(if whole { replacement } else { name });
        rest = &rest[end..];
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrubber() -> Scrubber {
        let mut scrubber = Scrubber::new(false);
        scrubber.name("gimp", "app-1");
        scrubber.name("anna", "<user>");
        scrubber.home("/srv/people/anna");
        scrubber
    }

    #[test]
    fn private_parts_are_replaced_and_the_rest_stays() {
        for (text, clean) in [
            ("gimp (pid 7) killed, gimpressive", "app-1 (pid 7) killed, gimpressive"),
            ("start of /usr/bin/My Viewer: 3 KiB", "start of <path>: 3 KiB"),
            ("cannot read /home/anna/Tax 2025.odt (EACCES)", "cannot read <home>/... (EACCES)"),
            ("~/letters/to mum.txt, gone", "<home>/..., gone"),
            ("/srv/people/anna/x", "<path>"),
            ("mail \"Dear Bob\" open", "mail \"...\" open"),
            ("the app's 'Dear Bob' and limelightd's", "the app's '...' and limelightd's"),
            ("killed: Secret plan (pid 8), done", "killed: <app> (pid 8), done"),
            ("earlyoom (pid 9) runs", "earlyoom (pid 9) runs"),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gimp-3.scope/memory.min: 0 -> 4096",
                "/user.slice/user-1000.slice/user@1000.service/app.slice/<unit>/memory.min: 0 -> 4096",
            ),
            ("/sys/fs/cgroup/my docs/x y.scope: full", "/sys/fs/cgroup/<unit>/<unit>: full"),
            ("see /proc/7/oom_score_adj, /dev/zram0", "see /proc/7/oom_score_adj, /dev/zram0"),
            ("swap on /dev/mapper/annas--pc-swap", "swap on <path>"),
            ("started with --url=secret, not --dry-run.", "started with <option> not --dry-run."),
            ("3 / 4 and 12 KiB/s", "3 / 4 and 12 KiB/s"),
        ] {
            assert_eq!(scrubber().text(text), clean);
        }
    }

    #[test]
    fn app_ids_in_units_are_kept_on_request() {
        let path = "/user.slice/app-org.gnome.Maps-3.scope/my notes.scope";
        assert_eq!(
            Scrubber::new(true).text(path),
            "/user.slice/app-org.gnome.Maps-3.scope/<unit>"
        );
    }
}
