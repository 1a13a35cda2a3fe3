// SPDX-License-Identifier: GPL-2.0-or-later
//! The test's child processes, viewer and load, and the pipes to them.

use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use limelight_sys::cgroup::Cgroup;
use limelight_sys::mapped_file::MappedFile;
use limelight_sys::proc::Proc;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{set_parent_process_death_signal, Signal};

use super::stop::Stop;
use super::{failed, Role, PHOTO_COUNT};
use crate::exit::Failure;

/// Interval between two checks whether the test must end.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A child process that is killed on drop.
#[derive(Debug)]
pub struct Part {
    role: Role,
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// Bytes that were read, but not yet returned.
    heard: Vec<u8>,
}

impl Part {
    /// Starts a child with this file in this cgroup. It waits for its first line.
    pub fn start(role: Role, file: &File, cgroup: &Cgroup) -> Result<Part, Failure> {
        let mut child = ourselves(role, &file.as_raw_fd().to_string())?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.ok_or_else(|| Failure::Other("no pipe".to_owned()))?;
        let part = Part {
            role,
            child,
            stdin,
            stdout,
            heard: Vec::new(),
        };
        cgroup.attach(part.pid()).map_err(failed)?;
        Ok(part)
    }

    /// The process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Page faults so far that waited for the disk.
    pub fn major_faults(&self) -> Result<u64, Failure> {
        let process = Proc::open("/proc").and_then(|proc| proc.process(self.pid()));
        let stat = process.and_then(|process| process.stat());
        Ok(stat.map_err(failed)?.major_faults)
    }

    /// Sends a line.
    pub fn say(&mut self, line: &str) -> Result<(), Failure> {
        Ok(writeln!(self.stdin, "{line}")?)
    }

    /// Sends a line and waits for the answer.
    pub fn ask(&mut self, line: &str, stop: &Stop) -> Result<String, Failure> {
        self.say(line)?;
        loop {
            if let Some(line) = self.line() {
                return Ok(line);
            }
            self.listen(&TICK, stop)?;
        }
    }

    /// Waits for a line, but not longer than `limit`.
    pub fn hear_within(&mut self, limit: Duration, stop: &Stop) -> Result<(), Failure> {
        let deadline = Instant::now() + limit;
        while self.line().is_none() && Instant::now() < deadline {
            self.listen(&TICK, stop)?;
        }
        Ok(())
    }

    /// Drops the lines that have already arrived.
    pub fn skip_heard(&mut self, stop: &Stop) -> Result<(), Failure> {
        let now = Timespec::default();
        while self.listen(&now, stop)? {}
        while self.line().is_some() {}
        Ok(())
    }

    fn line(&mut self) -> Option<String> {
        let end = self.heard.iter().position(|byte| *byte == b'\n')?;
        let rest = self.heard.split_off(end + 1);
        let line = std::mem::replace(&mut self.heard, rest);
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// Reads what arrives within `limit`. Returns whether anything did.
    fn listen(&mut self, limit: &Timespec, stop: &Stop) -> Result<bool, Failure> {
        let mut descriptors = [PollFd::new(&self.stdout, PollFlags::IN)];
        let ready = match poll(&mut descriptors, Some(limit)) {
            Err(rustix::io::Errno::INTR) => 0,
            ready => ready.map_err(io::Error::from)?,
        };
        stop.check()?;
        if ready == 0 {
            return Ok(false);
        }
        let mut buffer = [0; 256];
        match self.stdout.read(&mut buffer)? {
            0 => Err(Failure::Other(format!(
                "the test's {} ended early: see the kernel's log",
                self.role.word()
            ))),
            length => {
                self.heard.extend_from_slice(&buffer[..length]);
                Ok(true)
            }
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // A failure means that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This program in another role.
pub fn ourselves(role: Role, argument: &str) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["selftest", "--role", role.word(), "--argument", argument]);
    Ok(command)
}

/// The file that a child inherited, mapped. The child dies with its parent from here on.
fn inherit(descriptor: &str) -> Result<MappedFile, Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    let file = File::open(format!("/proc/self/fd/{descriptor}"))?;
    MappedFile::new(&file).map_err(failed)
}

/// The viewer. `visit` reads all photos, `swipe N` one of them; the answer is the time in
/// microseconds. Ends with its input.
pub fn view(descriptor: &str) -> Result<(), Failure> {
    let photos = inherit(descriptor)?;
    let in_photo = photos.pages() / PHOTO_COUNT as usize;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let begin = Instant::now();
        let photo = line.strip_prefix("swipe ").map(str::parse::<usize>);
        match photo {
            Some(Ok(photo)) => {
                let first = photo % PHOTO_COUNT as usize * in_photo;
                decode(in_photo).for_each(|page| {
                    photos.touch(first + page);
                });
            }
            // Twice, because a page that was used once is the first to be evicted.
            _ => (0..2 * photos.pages()).for_each(|page| {
                photos.touch(page % photos.pages());
            }),
        }
        println!("{}", begin.elapsed().as_micros());
    }
    Ok(())
}

/// Pages of a photo in the order in which the viewer reads them: pieces of 16 pages, scattered.
fn decode(pages: usize) -> impl Iterator<Item = usize> {
    const PIECE: usize = 16;
    // Coprime to the number of pieces in a photo: 24, 6 or 2, depending on the page size.
    const STRIDE: usize = 13;
    let pieces = pages.div_ceil(PIECE);
    let begin = (0..pieces).map(move |piece| piece * STRIDE % pieces * PIECE);
    begin.flat_map(move |begin| begin..(begin + PIECE).min(pages))
}

/// The load: reads its file again and again, and prints a line after each pass. Ends when the
/// reader of these lines does.
pub fn read_on(descriptor: &str) -> Result<(), Failure> {
    let file = inherit(descriptor)?;
    if io::stdin().lock().read_line(&mut String::new())? == 0 {
        return Ok(());
    }
    loop {
        (0..file.pages()).for_each(|page| {
            file.touch(page);
        });
        if writeln!(io::stdout(), "pass").is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn decoding_reads_every_page_once() {
        // 1.5 MiB in pages of 4, 16 and 64 KiB.
        for pages in [384, 96, 24] {
            let mut read: Vec<usize> = decode(pages).collect();
            read.sort_unstable();
            assert_eq!(read, (0..pages).collect::<Vec<_>>());
        }
    }
}
