// SPDX-License-Identifier: GPL-2.0-or-later
//! The real programs that the scenarios start, with their files on the measured disk.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{bail, Context, Result};

use crate::guest_setup::ROOTFS;
use crate::process::{change_root, run as run_program, Start};
use crate::scenario::StartedProgram;

/// Root of the programs' files, on the measured disk.
pub const TREE: &str = "/data/root";
/// Directory of shared libraries.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// The dynamic loader.
const LOADER: &str = "ld-linux-x86-64.so.2";

/// Imports of the Python script: as many as a medium-sized tool has, spread over the whole library.
const MODULES: &str = "argparse, ast, asyncio, base64, bz2, calendar, cmd, concurrent.futures, \
    configparser, copy, csv, ctypes, dataclasses, datetime, decimal, difflib, dis, doctest, \
    email.message, email.mime.multipart, email.mime.text, email.policy, fractions, ftplib, \
    getpass, gettext, gzip, hashlib, hmac, html.parser, http.client, http.cookiejar, http.server, \
    imaplib, inspect, ipaddress, json, locale, logging.config, logging.handlers, lzma, mailbox, \
    mimetypes, multiprocessing.pool, netrc, optparse, pathlib, pdb, pickle, pkgutil, platform, \
    plistlib, poplib, pprint, pstats, pydoc, queue, random, sched, secrets, selectors, shelve, \
    shlex, shutil, smtplib, socketserver, sqlite3, ssl, statistics, subprocess, tarfile, \
    telnetlib, tempfile, textwrap, timeit, trace, tracemalloc, typing, unittest.mock, \
    urllib.request, uuid, wave, xml.dom.minidom, xml.etree.ElementTree, xml.sax, xmlrpc.client, \
    zipapp, zipfile, zoneinfo";

/// Modules of the Perl script: as many as a medium-sized tool has.
const PERL_MODULES: &str = "Archive::Tar Attribute::Handlers B::Deparse Benchmark CPAN::Meta Carp \
    Class::Struct Compress::Zlib Config Cwd Data::Dumper Digest::MD5 Digest::SHA Encode English \
    Env Fcntl File::Basename File::Compare File::Copy File::Find File::Path File::Spec File::Temp \
    FileHandle Filter::Simple FindBin Getopt::Long HTTP::Tiny I18N::LangTags IO::File IO::Select \
    IO::Socket::INET IPC::Open3 JSON::PP List::Util Locale::Maketext MIME::Base64 Math::BigFloat \
    Math::Complex Memoize Module::Load Net::FTP Net::SMTP Params::Check Pod::Text Pod::Usage POSIX \
    Safe Search::Dict SelfLoader Socket Storable Symbol Sys::Hostname Term::ANSIColor Test::More \
    Text::Balanced Text::ParseWords Text::Wrap Tie::File Time::HiRes Time::Local \
    Unicode::Collate Unicode::Normalize Unicode::UCD";

/// Name prefixes of the shared libraries that python3 and its modules need; the loader does not
/// list those of modules.
const PYTHON_LIBRARIES: [&str; 16] = [
    "libc.so",
    "libm.so",
    "libz.so",
    "libexpat.so",
    "libssl.so",
    "libcrypto.so",
    "libsqlite3.so",
    "libffi.so",
    "libbz2.so",
    "liblzma.so",
    "libuuid.so",
    "libtinfo.so",
    "libreadline.so",
    "libncursesw.so",
    "libcrypt.so",
    "libdl.so",
];

/// A program and its files.
struct Files {
    /// The program's executables; their libraries are copied too.
    executables: &'static [&'static str],
    /// The program's other files and directories.
    more: &'static [&'static str],
    /// Path of the executable to start in [`TREE`], and its arguments.
    run: &'static [&'static str],
}

fn files(program: StartedProgram) -> Files {
    match program {
        StartedProgram::Python => Files {
            executables: &["usr/bin/python3.11"],
            more: &["usr/lib/python3.11"],
            run: &["/start-python"],
        },
        StartedProgram::Perl => Files {
            executables: &["usr/bin/perl"],
            more: &[
                "usr/share/perl",
                "usr/lib/x86_64-linux-gnu/perl",
                "usr/lib/x86_64-linux-gnu/perl-base",
            ],
            run: &["/start-perl"],
        },
        // GLX would load Mesa's drivers, which are larger than the rest of the machine.
        StartedProgram::Xvfb => Files {
            executables: &["usr/bin/Xvfb", "usr/bin/xkbcomp", "usr/bin/dash"],
            more: &["usr/share/X11"],
            run: &[
                "/usr/bin/Xvfb",
                "-displayfd",
                "1",
                "-screen",
                "0",
                "640x480x24",
                "-extension",
                "GLX",
                "-nolisten",
                "tcp",
            ],
        },
    }
}

/// Copies a program's files from the root file system to [`TREE`], with its layout. Returns whether
/// anything was copied; a second call for the same program copies nothing.
pub fn copy_program(program: StartedProgram) -> Result<bool> {
    let files = files(program);
    let tree = Path::new(TREE);
    if tree.join(files.executables[0]).exists() {
        return Ok(false);
    }
    copy_executables(files.executables)?;
    for path in files.more {
        copy(path)?;
    }
    if program == StartedProgram::Python {
        let names = fs::read_dir(Path::new(ROOTFS).join(LIBRARIES))
            .context("the root file system has no libraries")?;
        for name in names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            if PYTHON_LIBRARIES
                .iter()
                .any(|prefix| name.starts_with(prefix))
            {
                copy(&format!("{LIBRARIES}/{name}"))?;
            }
        }
    }
    let modules = PERL_MODULES.split_ascii_whitespace();
    let uses: String = modules.map(|name| format!("use {name} ();\n")).collect();
    for (name, text) in [
        (
            "start-python",
            format!(
                "#!/usr/bin/python3.11\nimport {MODULES}\nprint('ready', flush=True)\ninput()\n"
            ),
        ),
        (
            "start-perl",
            format!("#!/usr/bin/perl\n{uses}$| = 1;\nprint \"ready\\n\";\n<STDIN>;\n"),
        ),
    ] {
        let script = tree.join(name);
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    }
    Ok(true)
}

/// Copies executables and their libraries from the root file system to [`TREE`], with its layout.
pub fn copy_executables(executables: &[&str]) -> Result<()> {
    for executable in executables {
        copy(executable)?;
        for library in libraries(executable)? {
            copy(&library)?;
        }
    }
    lay_out(Path::new(TREE))
}

/// Creates the links and directories that programs expect.
fn lay_out(tree: &Path) -> Result<()> {
    for directory in [
        "lib",
        "lib64",
        "tmp/.X11-unix",
        "var/lib/xkb",
        "dev",
        "proc",
    ] {
        fs::create_dir_all(tree.join(directory))?;
    }
    for (to, link) in [
        ("../usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"),
        (
            "../usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
            "lib64/ld-linux-x86-64.so.2",
        ),
        ("usr/bin", "bin"),
    ] {
        let link = tree.join(link);
        if fs::symlink_metadata(&link).is_err() {
            symlink(to, &link).with_context(|| format!("cannot link {}", link.display()))?;
        }
    }
    let sh = tree.join("usr/bin/sh");
    if tree.join("usr/bin/dash").exists() && fs::symlink_metadata(&sh).is_err() {
        symlink("dash", sh)?;
    }
    Ok(())
}

/// The shared libraries that the dynamic loader maps for an executable, without a leading slash.
fn libraries(executable: &str) -> Result<Vec<String>> {
    let mut command = Command::new(format!("/{LIBRARIES}/{LOADER}"));
    command.arg("--list").arg(format!("/{executable}"));
    change_root(&mut command, ROOTFS)?;
    let output = command
        .output()
        .with_context(|| format!("cannot list the libraries of {executable}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let paths = text.lines().filter_map(|line| {
        let path = line.split("=> ").nth(1)?.split(' ').next()?;
        let path = path.trim_start_matches('/');
        // /lib is a link to /usr/lib.
        Some(match path.starts_with("lib/") {
            true => format!("usr/{path}"),
            false => path.to_owned(),
        })
    });
    let mut all: Vec<String> = paths.collect();
    if all.is_empty() {
        bail!("the loader lists no library of {executable}: {text}");
    }
    all.push(format!("{LIBRARIES}/{LOADER}"));
    Ok(all)
}

/// Copies a file or a directory to the same path in [`TREE`]. A link to a library is copied as a
/// file.
fn copy(path: &str) -> Result<()> {
    let (from, to) = (Path::new(ROOTFS).join(path), Path::new(TREE).join(path));
    if fs::symlink_metadata(&to).is_ok() {
        return Ok(());
    }
    let parent = to.parent().context("a path has no parent directory")?;
    fs::create_dir_all(parent)?;
    let flags = if from.is_dir() { "-a" } else { "-aL" };
    let arguments = [
        "cp",
        flags,
        &from.to_string_lossy(),
        &parent.to_string_lossy(),
    ];
    let (code, text) = run_program("/bin/busybox", &arguments)?;
    if code != 0 {
        bail!("cannot copy {}: {}", from.display(), text.trim());
    }
    Ok(())
}

/// A running program.
pub struct App(Child);

impl App {
    /// Starts a program and waits for its first line of output, which shows that it is ready. An X
    /// server prints the number of its display.
    pub fn start(program: StartedProgram) -> Result<Self> {
        let run = files(program).run;
        let mut command = Command::new(run[0]);
        command
            .args(&run[1..])
            .env_clear()
            .env("LANG", "C.UTF-8")
            .env("PATH", "/usr/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Start::PLAIN.prepare(&mut command)?;
        change_root(&mut command, TREE)?;
        let child = command.spawn();
        let mut app = App(child.with_context(|| format!("cannot start {}", run[0]))?);
        let stdout = app.0.stdout.take();
        let stdout = stdout.context("the program has no output pipe")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let ready = match program {
            StartedProgram::Xvfb => line.trim().parse::<u32>().is_ok(),
            StartedProgram::Python | StartedProgram::Perl => line == "ready\n",
        };
        if !ready {
            bail!("{} printed {line:?} instead of being ready", run[0]);
        }
        Ok(app)
    }

    /// PID of the program.
    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    /// Number of the program's major page faults, which wait for the disk.
    pub fn major_faults(&self) -> Result<u64> {
        crate::gallery_real::major_faults(self.pid())
    }
}

impl Drop for App {
    fn drop(&mut self) {
        if let Some(stdin) = &mut self.0.stdin {
            // The write fails if the program has exited already.
            let _ = stdin.write_all(b"\n");
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
