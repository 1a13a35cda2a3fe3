// SPDX-License-Identifier: GPL-2.0-or-later
//! Names and categories of apps, from the system's desktop entries and AppStream data.
//!
//! Only system-wide directories are read: users control the files in their home directories, and
//! the daemon runs as root. Entries are read once, and again when a directory has changed. They are
//! not read again for each app that appears, because memory may be short then.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use limelight_core::model::unit::Unit;

/// Longer files are truncated.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// Maximum number of entries that are kept.
const ENTRIES_MAX: usize = 4096;

/// Programs that run other programs: their path does not identify the app.
const INTERPRETERS: [&str; 12] = [
    "sh", "bash", "dash", "env", "python", "perl", "ruby", "node", "java", "mono", "gjs",
    "electron",
];

/// A parsed desktop entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// Desktop id without `.desktop`.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Last part of the program's path.
    program: String,
    /// Registered and other categories.
    pub categories: Vec<String>,
    /// Not shown in menus (`NoDisplay`, `Hidden`): a service or a helper, not an app.
    pub hidden: bool,
}

/// The system's desktop entries.
#[derive(Debug)]
pub struct Desktop {
    directories: Vec<PathBuf>,
    read_at: Vec<Option<SystemTime>>,
    entries: BTreeMap<String, Entry>,
}

impl Desktop {
    /// Entries in `applications` below these directories, not read yet. If two have the same id,
    /// the first one counts.
    pub fn new(directories: &[PathBuf]) -> Desktop {
        Desktop {
            directories: directories.to_vec(),
            read_at: Vec::new(),
            entries: BTreeMap::new(),
        }
    }

    /// Reads the entries if they have not been read yet or have changed.
    pub fn refresh(&mut self) {
        let changed = |directory: &PathBuf| {
            let metadata = fs::metadata(directory.join("applications"));
            metadata.and_then(|metadata| metadata.modified()).ok()
        };
        let read_at: Vec<_> = self.directories.iter().map(changed).collect();
        if read_at == self.read_at {
            return;
        }
        self.read_at = read_at;
        self.entries.clear();
        for directory in &self.directories {
            let Ok(listing) = fs::read_dir(directory.join("applications")) else {
                continue;
            };
            for file in listing.flatten() {
                let name = file.file_name();
                let id = name.to_str().and_then(|name| name.strip_suffix(".desktop"));
                let Some(id) = id.filter(|id| !self.entries.contains_key(*id)) else {
                    continue;
                };
                if let Some(entry) = read(&file.path()).and_then(|text| parse(id, &text)) {
                    if self.entries.len() < ENTRIES_MAX {
                        self.entries.insert(id.to_owned(), entry);
                    }
                }
            }
        }
    }

    /// Finds an app's entry by its unit, else by its program. `comm` is used instead of the program
    /// if the program is an interpreter.
    pub fn find(&self, unit: Option<&Unit>, program: Option<&str>, comm: &str) -> Option<&Entry> {
        if let Some(entry) = unit.and_then(|unit| self.of_unit(unit)) {
            return Some(entry);
        }
        let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let program = program.map(base).filter(|program| !interprets(program));
        let program = program.as_deref().unwrap_or(comm);
        let runs = |entry: &&Entry| !entry.hidden && entry.program == program;
        self.entries
            .get(program)
            .filter(runs)
            .or_else(|| self.entries.values().find(runs))
    }

    /// The entry of the app for which a unit was made.
    pub fn of_unit(&self, unit: &Unit) -> Option<&Entry> {
        unit.ids.iter().find_map(|id| self.entries.get(id))
    }

    /// Categories in the AppStream data of this id.
    pub fn appstream_categories(&self, id: &str) -> Vec<String> {
        let files = ["metainfo.xml", "appdata.xml"];
        let paths = self.directories.iter().flat_map(|directory| {
            files.map(|kind| directory.join("metainfo").join(format!("{id}.{kind}")))
        });
        let text = paths.into_iter().find_map(|path| read(&path));
        text.map_or_else(Vec::new, |text| categories_of(&text))
    }
}

fn interprets(program: &str) -> bool {
    let name = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&name)
}

fn read(path: &Path) -> Option<String> {
    // Opening a FIFO would block.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(FILE_MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses the main section of a desktop entry; `None` if there is no main section or the entry is
/// not an application.
pub fn parse(id: &str, text: &str) -> Option<Entry> {
    let mut entry = Entry {
        id: id.to_owned(),
        ..Entry::default()
    };
    let lines = text.lines().map(str::trim);
    let mut lines = lines.skip_while(|line| *line != "[Desktop Entry]");
    lines.next()?;
    for line in lines.take_while(|line| !line.starts_with('[')) {
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let value = value.trim_start();
        match key.trim_end() {
            "Type" if value != "Application" => return None,
            "Name" => entry.name = value.to_owned(),
            "Exec" => entry.program = program(value).unwrap_or_default().to_owned(),
            "Categories" => {
                let categories = value.split(';').map(str::trim);
                let named = categories.filter(|category| !category.is_empty());
                entry.categories = named.map(str::to_owned).collect();
            }
            "NoDisplay" | "Hidden" => entry.hidden |= value == "true",
            _ => {}
        }
    }
    Some(entry)
}

/// Last part of the path of the program that a command line runs; `None` for launchers, which do
/// not identify the app.
fn program(command: &str) -> Option<&str> {
    let words = command.split_ascii_whitespace();
    let words = words.map(|word| word.trim_matches('"'));
    let mut words =
        words.skip_while(|word| word.ends_with("/env") || *word == "env" || word.contains('='));
    let name = words.next()?.rsplit('/').next()?;
    let launcher = ["flatpak", "snap", "gtk-launch"].contains(&name) || interprets(name);
    (!launcher).then_some(name)
}

/// Categories in AppStream's XML.
pub fn categories_of(text: &str) -> Vec<String> {
    let between = |text: &str, open: &str, close: &str| -> Option<(String, usize)> {
        let start = text.find(open)? + open.len();
        let length = text.get(start..)?.find(close)?;
        let inside = text.get(start..start + length)?;
        Some((inside.trim().to_owned(), start + length + close.len()))
    };
    let Some((mut list, _)) = between(text, "<categories>", "</categories>") else {
        return Vec::new();
    };
    let mut categories = Vec::new();
    while let Some((category, end)) = between(&list, "<category>", "</category>") {
        categories.push(category);
        list = list.split_off(end.min(list.len()));
    }
    categories
}

#[cfg(test)]
mod tests {
    use super::*;
    use limelight_core::model::unit;
    use proptest::prelude::*;

    const FIREFOX: &str = "# made by hand\n[Desktop Entry]\nType=Application\nName = Firefox\nName[de]=Feuerfuchs\nExec=env A=b /usr/lib/firefox-esr/firefox-esr %u\nCategories=Network;WebBrowser;\n[Desktop Action x]\nName=New\nExec=other\n";

    fn system() -> (tempfile::TempDir, Desktop) {
        let temp = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = temp.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/applications/firefox-esr.desktop", FIREFOX);
        write(
            "b/applications/firefox-esr.desktop",
            "[Desktop Entry]\nName=Second\nCategories=Game\n",
        );
        write(
            "b/applications/org.x.Music.desktop",
            "[Desktop Entry]\nName=Music\nExec=\"/usr/bin/music\" --x\n",
        );
        write(
            "b/applications/daemon.desktop",
            "[Desktop Entry]\nName=D\nExec=daemon\nNoDisplay=true\n",
        );
        write(
            "b/applications/link.desktop",
            "[Desktop Entry]\nType=Link\n",
        );
        write(
            "b/metainfo/org.x.Music.metainfo.xml",
            "<component><categories>\n <category>Audio</category>\n<category>Player</category></categories></component>",
        );
        let mut desktop = Desktop::new(&[temp.path().join("a"), temp.path().join("b")]);
        desktop.refresh();
        (temp, desktop)
    }

    fn id(entry: Option<&Entry>) -> Option<&str> {
        entry.map(|entry| entry.id.as_str())
    }

    #[test]
    fn app_is_found_by_its_unit_else_by_its_program() {
        let (_temp, desktop) = system();
        // The launcher of this unit did not escape the id.
        let unit = unit::parse("app-gnome-firefox-esr-7.scope").unwrap();
        let firefox = desktop.find(Some(&unit), None, "x").unwrap();
        assert_eq!(firefox.name, "Firefox");
        assert_eq!(firefox.categories, ["Network", "WebBrowser"]);
        let program = Some("/opt/firefox-esr");
        assert_eq!(id(desktop.find(None, program, "x")), Some("firefox-esr"));
        let python = Some("/usr/bin/python3.11");
        assert_eq!(id(desktop.find(None, python, "music")), Some("org.x.Music"));
        assert_eq!(id(desktop.find(None, Some("/x/gimp"), "music")), None);
        assert_eq!(id(desktop.find(None, None, "daemon")), None);
    }

    #[test]
    fn appstream_adds_categories() {
        let (_temp, desktop) = system();
        assert_eq!(
            desktop.appstream_categories("org.x.Music"),
            ["Audio", "Player"]
        );
        assert_eq!(desktop.appstream_categories("firefox-esr"), [""; 0]);
    }

    #[test]
    fn new_entry_is_found_after_a_refresh() {
        let (temp, mut desktop) = system();
        let file = temp.path().join("a/applications/new.desktop");
        fs::write(file, "[Desktop Entry]\nName=New\nExec=new\n").unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        let directory = File::open(temp.path().join("a/applications")).unwrap();
        directory.set_modified(later).unwrap();
        assert_eq!(id(desktop.find(None, None, "new")), None);
        desktop.refresh();
        assert_eq!(id(desktop.find(None, None, "new")), Some("new"));
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*", xml in "(<categor(y|ies)>|</categor(y|ies)>|é|x){0,20}") {
            parse("x", &text);
            parse("x", &format!("[Desktop Entry]\n{text}"));
            program(&text);
            categories_of(&xml);
        }
    }
}
