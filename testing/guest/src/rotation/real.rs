// SPDX-License-Identifier: GPL-2.0-or-later
//! The cast of ten small programs from Debian, each with its own document, on an X server.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

use crate::cgroup::Cgroup;
use crate::gallery_real::{graphical, log_path, major_faults, DISPLAY};
use crate::photo;
use crate::process::{Process, Start};
use crate::screen::Screen;
use crate::store::Store;

use super::app::Launched;
use super::launcher::Cast;
use super::table::Class::{self, Disposable, Keep, Normal};

const SCREEN: &str = "1024x768x24";
/// Keysym of Page Down, the key that the user presses in an app.
const PAGE_DOWN: u32 = 0xff56;
/// Size of the photos.
const PHOTO: (u32, u32) = (1600, 1200);
/// Number of lines in the texts and rows in the table.
const LINES: u32 = 6_000;

/// A program, its class and its document.
struct Part {
    /// Name of the app and of its cgroup. The name has no hyphen, because systemd's naming scheme
    /// takes the part before a hyphen for the launcher.
    name: &'static str,
    program: &'static str,
    class: Class,
    document: &'static str,
    /// Arguments before the document.
    arguments: &'static [&'static str],
}

const fn part(
    [name, program]: [&'static str; 2],
    class: Class,
    document: &'static str,
    arguments: &'static [&'static str],
) -> Part {
    Part {
        name,
        program,
        class,
        document,
        arguments,
    }
}

/// Office apps are kept; browsers, a terminal and a calculator are normal; viewers have no state to
/// lose and are disposable.
const PARTS: [Part; 10] = [
    part(["abiword", "abiword"], Keep, "letter.txt", &[]),
    part(
        ["gnumeric", "gnumeric"],
        Keep,
        "table.csv",
        &["--no-splash"],
    ),
    part(
        ["mousepad", "mousepad"],
        Keep,
        "notes.txt",
        &["--disable-server"],
    ),
    part(["netsurf", "netsurf-gtk"], Normal, "page.html", &[]),
    part(["dillo", "dillo"], Normal, "page.html", &[]),
    part(
        ["xterm", "xterm"],
        Normal,
        "notes.txt",
        &["-sl", "5000", "-e", "tail", "-n", "5000", "-f"],
    ),
    part(["galculator", "galculator"], Normal, "", &[]),
    part(["feh", "feh"], Disposable, "first.png", &["--auto-zoom"]),
    part(["gpicview", "gpicview"], Disposable, "second.png", &[]),
    part(["mupdf", "mupdf"], Disposable, "third.png", &[]),
];

/// The cast of real programs.
pub struct Real {
    directory: PathBuf,
    screen: Screen,
    _server: Process,
}

/// A running program.
pub struct Actor {
    process: Process,
    cgroup: PathBuf,
    windows: Vec<u32>,
}

impl Real {
    /// Writes the documents and starts the X server, in `slice`.
    pub fn prepare(store: &Store, slice: &str) -> Result<Self> {
        let Store::Directory(directory) = store else {
            bail!("rotation-real needs a data disk with a file system");
        };
        let directory = directory.clone();
        write_documents(&directory)?;
        let cgroup = Cgroup::create(&format!("{slice}/display.scope"))?;
        let arguments = [DISPLAY, "-screen", "0", SCREEN, "-ac", "-nolisten", "tcp"];
        let server = start("Xvfb", &arguments, &cgroup)?;
        Ok(Real {
            directory,
            screen: Screen::manage(DISPLAY)?,
            _server: server,
        })
    }

    /// Directory of the documents.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Cast for Real {
    type Actor = Actor;

    fn parts(&self) -> usize {
        PARTS.len()
    }

    fn part(&self, index: usize) -> (&'static str, Class) {
        (PARTS[index].name, PARTS[index].class)
    }

    fn start(&mut self, index: usize, _life: u64, cgroup: &Cgroup, _sent_ns: u64) -> Result<Actor> {
        let part = &PARTS[index];
        self.screen.expect()?;
        let document = self.directory.join(part.document);
        let document = document.to_string_lossy();
        let mut arguments = part.arguments.to_vec();
        if !part.document.is_empty() {
            arguments.push(&document);
        }
        Ok(Actor {
            process: start(part.program, &arguments, cgroup)?,
            cgroup: cgroup.path().to_owned(),
            windows: Vec::new(),
        })
    }

    fn process(actor: &mut Actor) -> &mut Process {
        &mut actor.process
    }

    fn started(&mut self, actor: &mut Actor, sent_ns: u64) -> Result<Launched> {
        let delay_ns = self.screen.settle(&actor.cgroup, true, sent_ns)?;
        actor.windows = self.screen.shown().to_vec();
        Ok(Launched {
            delay_ns,
            major_faults: actor.major_faults()?,
        })
    }

    fn come_to_front(&mut self, actor: &mut Actor, sent_ns: u64) -> Result<Launched> {
        let before = actor.major_faults()?;
        self.screen.expect()?;
        self.screen.raise(&actor.windows)?;
        let delay_ns = self.screen.settle(&actor.cgroup, false, sent_ns)?;
        Ok(Launched {
            delay_ns,
            major_faults: actor.major_faults()?.saturating_sub(before),
        })
    }

    fn complaint(&self, index: usize) -> String {
        let text = fs::read_to_string(log_path(PARTS[index].program)).unwrap_or_default();
        format!("and wrote: {}", text.trim())
    }

    fn be_used(&mut self, actor: &mut Actor) -> Result<u64> {
        let sent_ns = crate::memory::now_ns();
        self.screen.press(PAGE_DOWN)?;
        let answer_ns = self.screen.settle(&actor.cgroup, false, sent_ns)?;
        // A dialogue that the app has opened belongs to the app.
        for &window in self.screen.shown() {
            if !actor.windows.contains(&window) {
                actor.windows.push(window);
            }
        }
        Ok(answer_ns)
    }
}

impl Actor {
    fn major_faults(&self) -> Result<u64> {
        major_faults(self.process.pid())
    }
}

fn start(program: &str, arguments: &[&str], cgroup: &Cgroup) -> Result<Process> {
    let mut command = graphical(program, arguments, program)?;
    command
        // Disables the screen reader interface and persistent settings.
        .env("NO_AT_BRIDGE", "1")
        .env("GSETTINGS_BACKEND", "memory");
    Start::in_cgroup(cgroup).program(command, program)
}

/// Writes the documents.
fn write_documents(directory: &Path) -> Result<()> {
    let line =
        |n: u32| format!("Line {n}: what a person might write in a line, and some more of it");
    let lines = |begin: &str, end: &str| -> String {
        (0..LINES)
            .map(|n| format!("{begin}{}{end}\n", line(n)))
            .collect()
    };
    let html = format!(
        "<html><body><h1>A page</h1>\n{}</body></html>\n",
        lines("<p>", "</p>")
    );
    let table: String = (0..LINES)
        .map(|n| format!("{n},{},{},item {n}\n", n * 7 % 1000, n * 13 % 777))
        .collect();
    for (name, text) in [
        // Laying out a letter takes much longer than showing plain text.
        (
            "letter.txt",
            lines("", "")
                .lines()
                .take(800)
                .collect::<Vec<_>>()
                .join("\n"),
        ),
        ("notes.txt", lines("", "")),
        ("page.html", html),
        ("table.csv", table),
    ] {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    for (seed, name) in ["first.png", "second.png", "third.png"]
        .into_iter()
        .enumerate()
    {
        let path = directory.join(name);
        if !path.exists() {
            photo::write(&path, PHOTO.0, PHOTO.1, seed as u64)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}
