// SPDX-License-Identifier: GPL-2.0-or-later
//! Background programs with a fixed amount of work: their run time shows how much a foreground app
//! slows them down. Two are our own programs, sized for the CPU caches; two come from Debian.

use std::fs;
use std::hint::black_box;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{bail, Context, Result};

use crate::cache_model::{take_role, Role};
use crate::cgroup::Cgroup;
use crate::guest_setup::ROOTFS;
use crate::memory::MIB;
use crate::process::{Process, Start};
use crate::random::Random;
use crate::scenario::Program;

/// Working set of the pointer chaser: three quarters of the modelled last-level cache.
const CHASED_BYTES: usize = 6 * MIB;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Pointers followed, and additions per pointer.
const STEPS: usize = 12_000_000;
const ADDITIONS: u64 = 12;
/// Elements of each of the stream's three arrays: 12 MiB in all, one and a half times the
/// last-level cache.
const ELEMENTS: usize = 4 * MIB / 8;
const PASSES: usize = 100;

/// Root directory of Debian's programs; it is in memory, so that no disk affects their run time.
const TREE: &str = "/tmp/programs";
/// File names below [`TREE`]: the compressor's input, and the interpreter's script.
const TEXT: &str = "text";
const SCRIPT_FILE: &str = "script";
const TEXT_BYTES: usize = 3 * MIB;
/// Files of Debian's programs and of their libraries, relative to the root directory.
const FILES: [&str; 6] = [
    "usr/bin/gzip",
    "usr/bin/perl",
    "usr/lib/x86_64-linux-gnu/libc.so.6",
    "usr/lib/x86_64-linux-gnu/libm.so.6",
    "usr/lib/x86_64-linux-gnu/libcrypt.so.1",
    "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
];
/// The interpreter's script: fills a table, sorts it, and joins and splits its values.
const SCRIPT: &str = r#"
my %table;
for my $i (1 .. 16000) { $table{"key $i"} = "value $i and some more text"; }
my @sorted = sort { $table{$a} cmp $table{$b} } keys %table;
my $text = join(",", map { $table{$_} } @sorted);
my @parts = map { [ $_, length $_, substr($_, 0, 5) ] } split(/,/, $text);
die "lost something" unless @parts == 16000 && $parts[7][1] > 20;
"#;

/// Starts a program, which begins its work when it has read a line from standard input.
pub fn start(program: Program, cgroup: &Cgroup) -> Result<Process> {
    let start = Start::in_cgroup(cgroup);
    let mut command = match program {
        Program::Chaser | Program::Stream => {
            let mut command = Command::new("/proc/self/exe");
            command
                .arg("background")
                .arg(serde_json::to_string(&program)?);
            command
        }
        Program::Compressor => packaged("/usr/bin/gzip -c </text")?,
        Program::Interpreter => packaged("/usr/bin/perl /script")?,
    };
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    start.prepare(&mut command)?;
    if matches!(program, Program::Compressor | Program::Interpreter) {
        let root = std::ffi::CString::new(TREE)?;
        // SAFETY: the closure runs between fork and exec of a single-threaded child and makes only
        // async-signal-safe calls.
        unsafe {
            command.pre_exec(move || {
                take_role(Role::Background);
                if libc::chroot(root.as_ptr()) != 0 || libc::chdir(c"/".as_ptr()) != 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
    }
    Process::spawn(command, "the background program")
}

/// A shell that waits for a line of input and then executes one of Debian's programs in [`TREE`].
fn packaged(line: &str) -> Result<Command> {
    if !Path::new(TREE).exists() {
        copy_programs()?;
    }
    let mut command = Command::new("/busybox");
    command
        .args(["sh", "-c", &format!("read go; exec {line}")])
        .env_clear()
        .env("PATH", "/usr/bin")
        .env("PERL_HASH_SEED", "0");
    Ok(command)
}

/// Copies Debian's programs from the root file system, and creates their input.
fn copy_programs() -> Result<()> {
    let tree = Path::new(TREE);
    for file in FILES {
        let (from, to) = (Path::new(ROOTFS).join(file), tree.join(file));
        fs::create_dir_all(to.parent().context("a file has no parent directory")?)?;
        fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    fs::copy("/bin/busybox", tree.join("busybox")).context("cannot copy busybox")?;
    for (link, to) in [("lib64", "usr/lib/x86_64-linux-gnu"), ("lib", "usr/lib")] {
        std::os::unix::fs::symlink(to, tree.join(link))
            .with_context(|| format!("cannot create the link {TREE}/{link}"))?;
    }
    for (name, contents) in [(TEXT, words(TEXT_BYTES)), (SCRIPT_FILE, SCRIPT.into())] {
        let file = tree.join(name);
        fs::write(&file, contents).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Partly repetitive text for a compressor.
fn words(bytes: usize) -> Vec<u8> {
    let mut random = Random::new(1);
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.extend(format!("w{:x} ", random.below(4096)).bytes());
        if random.below(12) == 0 {
            text.push(b'\n');
        }
    }
    text
}

/// Runs one of our own programs: prepares its memory, waits for a line of input, works and exits.
pub fn run(program: Program) -> Result<()> {
    take_role(Role::Background);
    match program {
        Program::Chaser => {
            let next = cycle(CHASED_BYTES / LINE, &mut Random::new(2));
            wait()?;
            black_box(chase(&next, STEPS));
        }
        Program::Stream => {
            let (a, b) = (vec![1.5f64; ELEMENTS], vec![2.5f64; ELEMENTS]);
            let mut c = vec![0.0f64; ELEMENTS];
            wait()?;
            for _ in 0..PASSES {
                for ((c, a), b) in c.iter_mut().zip(&a).zip(&b) {
                    *c = a + 3.0 * b;
                }
                black_box(&mut c);
            }
        }
        Program::Compressor | Program::Interpreter => {
            bail!("{program:?} is Debian's program, not one of our own")
        }
    }
    Ok(())
}

fn wait() -> Result<()> {
    let mut line = String::new();
    match io::stdin().read_line(&mut line)? {
        0 => bail!("standard input ended before the line that starts the work"),
        _ => Ok(()),
    }
}

/// A cache line that holds the index of the next line in the cycle.
#[derive(Clone)]
#[repr(align(64))]
struct Link(usize);

/// One random cycle through `count` lines.
fn cycle(count: usize, random: &mut Random) -> Vec<Link> {
    let order = random.sample(count, count);
    let mut links = vec![Link(0); count];
    for (at, &link) in order.iter().enumerate() {
        links[link] = Link(order[(at + 1) % count]);
    }
    links
}

fn chase(links: &[Link], steps: usize) -> u64 {
    let (mut at, mut sum) = (0, 0u64);
    for _ in 0..steps {
        at = links[at].0;
        for addition in 0..ADDITIONS {
            sum = black_box(sum.wrapping_add(addition ^ at as u64));
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chase_visits_every_line_once() {
        let links = cycle(1000, &mut Random::new(3));
        let (mut at, mut seen) = (0, vec![false; 1000]);
        for _ in 0..1000 {
            assert!(!std::mem::replace(&mut seen[at], true));
            at = links[at].0;
        }
        assert_eq!(at, 0);
        assert_eq!(std::mem::size_of::<Link>(), LINE);
    }

    #[test]
    fn text_is_reproducible() {
        assert_eq!(words(1000), words(1000));
        assert!(words(1000).len() >= 1000);
    }
}
