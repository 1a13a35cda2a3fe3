// SPDX-License-Identifier: GPL-2.0-or-later
//! Kernel tracepoints. A separate tracing instance keeps the events apart from other users of
//! tracing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::mountinfo;
use crate::proc::Proc;

/// Size of an instance's buffer for each processor, in KiB. The kernel's default of 1408
/// (kernel/trace/trace.h: TRACE_BUF_SIZE_DEFAULT) would cost a small machine much of the memory
/// that Limelight is meant to save.
const BUFFER_KIB: &str = "64";

/// A mounted tracefs.
#[derive(Debug)]
pub struct Tracefs {
    dir: Dir,
}

impl Tracefs {
    /// Finds the mount point in `mountinfo`; [`Error::Unsupported`] if tracefs is not mounted.
    pub fn find(proc: &Proc) -> Result<Self> {
        let mounts = proc.mounts()?;
        match mountinfo::find(&mounts, "tracefs") {
            Some(mount) => Self::at(&mount.point),
            None => Err(Error::Unsupported {
                action: "find a tracefs mount in",
                path: proc.dir().path().join("self/mountinfo"),
                errno: Errno::NOENT,
            }),
        }
    }

    /// Uses the tracefs at this mount point.
    pub fn at(mount_point: impl Into<PathBuf>) -> Result<Self> {
        Ok(Tracefs {
            dir: Dir::open(mount_point)?,
        })
    }

    /// Whether the kernel has this tracepoint.
    pub fn has_event(&self, system: &str, event: &str) -> bool {
        self.dir
            .open_dir(format!("events/{system}/{event}"))
            .is_ok()
    }

    /// Creates an instance with its own buffer. First removes an instance of the same name that
    /// another process left behind; [`Error::Busy`] if that instance is still in use.
    pub fn create_instance(&self, name: &str) -> Result<Instance> {
        let parent = self.dir.open_dir("instances").map_err(unsupported)?;
        match parent.make_dir(name) {
            Err(Error::Busy { .. }) => {
                parent.remove_dir(name)?;
                parent.make_dir(name)?;
            }
            result => result?,
        }
        let dir = parent.open_dir(name)?;
        match dir.write("buffer_size_kb", BUFFER_KIB) {
            Err(error) if !error.is_gone() => return Err(error),
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let pipe = dir
            .open_at("trace_pipe", flags, "read")
            .map_err(unsupported)?;
        let name = name.to_owned();
        Ok(Instance {
            parent,
            dir,
            name,
            pipe: Some(pipe),
            rest: Vec::new(),
        })
    }
}

/// Turns [`Error::Gone`] into [`Error::Unsupported`]: a missing file in a mounted tracefs means
/// that the kernel lacks the feature.
fn unsupported(error: Error) -> Error {
    match error {
        Error::Gone {
            action,
            path,
            errno,
        } => Error::Unsupported {
            action,
            path,
            errno,
        },
        error => error,
    }
}

/// A tracing instance: a trace buffer with its own set of events. Readable (`EPOLLIN`) when its
/// `trace_pipe` contains events. Dropping it removes the instance.
#[derive(Debug)]
pub struct Instance {
    parent: Dir,
    dir: Dir,
    name: String,
    /// The open `trace_pipe`. `None` only while the instance is removed: the removal requires a
    /// closed pipe.
    pipe: Option<OwnedFd>,
    /// The start of an incomplete line.
    rest: Vec<u8>,
}

/// Longest incomplete line that is kept, in bytes. The kernel limits lines to a page.
const LINE_MAX_BYTES: usize = 64 << 10;

impl Instance {
    /// Starts to record a tracepoint; [`Error::Unsupported`] if the kernel lacks the tracepoint.
    pub fn enable_event(&self, system: &str, event: &str) -> Result<()> {
        self.dir
            .write(format!("events/{system}/{event}/enable"), "1")
            .map_err(unsupported)
    }

    /// Stops recording a tracepoint. Takes milliseconds, because the kernel waits until no
    /// processor executes the tracepoint.
    pub fn disable_event(&self, system: &str, event: &str) -> Result<()> {
        self.dir
            .write(format!("events/{system}/{event}/enable"), "0")
            .map_err(unsupported)
    }

    /// Records only the events of a tracepoint that match `filter`, such as `oom_score_adj == 0`.
    pub fn filter_event(&self, system: &str, event: &str, filter: &str) -> Result<()> {
        self.dir
            .write(format!("events/{system}/{event}/filter"), filter)
            .map_err(unsupported)
    }

    /// Selects the clock of the time stamps. `mono` is `CLOCK_MONOTONIC`; the default is a separate
    /// clock for each processor.
    pub fn set_clock(&self, clock: &str) -> Result<()> {
        self.dir.write("trace_clock", clock)
    }

    /// Sets the size of the buffer of each processor, in KiB.
    pub fn set_buffer_kib(&self, kib: u32) -> Result<()> {
        self.dir.write("buffer_size_kb", &kib.to_string())
    }

    /// Takes about `most` bytes of complete lines, without blocking. The number is limited because
    /// some events can be caused faster than they are read. An empty result is not an error.
    pub fn lines(&mut self, most: usize) -> Result<Taken> {
        let mut buffer = [0u8; 8192];
        let mut bytes = 0;
        if let Some(pipe) = &self.pipe {
            while bytes < most {
                match rustix::io::read(pipe, &mut buffer) {
                    Ok(0) | Err(Errno::AGAIN) => break,
                    Ok(count) => {
                        bytes += count;
                        self.rest.extend_from_slice(&buffer[..count]);
                    }
                    Err(Errno::INTR) => {}
                    Err(errno) => {
                        return Err(Error::new(
                            "read",
                            self.dir.path().join("trace_pipe"),
                            errno,
                        ))
                    }
                }
            }
        }
        Ok(Taken {
            lines: take_lines(&mut self.rest),
            all: bytes < most,
        })
    }
}

/// Lines of a trace, oldest first for each processor.
#[derive(Debug, Clone, Default)]
pub struct Taken {
    /// The lines.
    pub lines: Vec<String>,
    /// Whether there were no more.
    pub all: bool,
}

/// Removes all complete lines from the front of the buffer and returns them. Also clears the buffer
/// if the incomplete line is longer than 64 KiB. Each byte that is not ASCII becomes one `?`, so
/// that columns stay where the kernel wrote them.
pub fn take_lines(buffer: &mut Vec<u8>) -> Vec<String> {
    let end = buffer
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |at| at + 1);
    let ascii = |byte: u8| if byte.is_ascii() { byte } else { b'?' };
    let whole: Vec<u8> = buffer.drain(..end).map(ascii).collect();
    if buffer.len() > LINE_MAX_BYTES {
        buffer.clear();
    }
    String::from_utf8_lossy(&whole)
        .lines()
        .map(str::to_owned)
        .collect()
}

impl AsFd for Instance {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.pipe {
            Some(pipe) => pipe.as_fd(),
            None => self.dir.as_fd(),
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.pipe = None;
        // If the removal fails, the instance and its buffer remain until the next
        // [`Tracefs::create_instance`] removes them.
        let _ = self.parent.remove_dir(&self.name);
    }
}

/// One line of a trace.
#[derive(Debug, Clone, PartialEq)]
pub enum Line<'a> {
    /// A recorded event.
    Event(TraceEvent<'a>),
    /// The buffer overflowed, and events of one CPU were lost.
    Lost {
        /// Number of lost events; 0 if the kernel does not report it.
        events: u64,
    },
}

/// One recorded event.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceEvent<'a> {
    /// Name of the running task, at most 15 bytes, which the task can choose. `<...>` if the kernel
    /// does not know the name.
    pub comm: &'a str,
    /// Thread id of the running task.
    pub tid: i32,
    /// CPU of the event.
    pub cpu: u32,
    /// Time stamp in seconds, of the clock of the instance.
    pub seconds: f64,
    /// Name of the tracepoint.
    pub name: &'a str,
    /// Fields of the event as text, such as `pid=7 comm=sh oom_score_adj=0`.
    pub fields: &'a str,
}

impl<'a> Line<'a> {
    /// Parses a line of `trace_pipe`; `None` for anything else. A task name that contains a
    /// newline, for example, splits its line into two.
    ///
    /// ```text
    ///            <...>-1234    [000] d..2.   123.456789: oom_score_adj_update: pid=7 comm=sh ...
    /// ```
    pub fn parse(line: &'a str) -> Option<Self> {
        if let Some(lost) = line.strip_prefix("CPU:") {
            // CPU:1 [LOST 42 EVENTS]
            let (_, lost) = lost.split_once("[LOST ")?;
            let events = lost.split_once(" EVENTS]")?.0.parse().unwrap_or(0);
            return Some(Line::Lost { events });
        }
        // The name may contain any byte, including dashes and blanks, so its width determines its
        // end.
        let (comm, rest) = split_comm(line)?;
        let (tid, rest) = rest.split_once(' ')?;
        let (_, rest) = rest.split_once('[')?;
        let (cpu, rest) = rest.split_once("] ")?;
        let (head, rest) = rest.split_once(": ")?;
        let (name, fields) = rest.split_once(':')?;
        Some(Line::Event(TraceEvent {
            comm: comm.trim_start(),
            tid: tid.parse().ok().filter(|&tid| tid >= 0)?,
            cpu: cpu.trim().parse().ok()?,
            seconds: head.split_ascii_whitespace().last()?.parse().ok()?,
            name,
            fields: fields.trim_start(),
        }))
    }
}

/// Splits a line into the task name and the text after the dash that follows it. The kernel pads
/// the name to 16 bytes, so a dash in the name is never mistaken for the separator.
fn split_comm(line: &str) -> Option<(&str, &str)> {
    let (comm, rest) = line.split_at_checked(16)?;
    Some((comm, rest.strip_prefix('-')?))
}

/// Extracts the pid and the new value from the fields of `oom:oom_score_adj_update`. The task name
/// between them may contain any text, so the pid is read from the start and the value from the end.
pub fn parse_oom_score_adj(fields: &str) -> Option<(i32, i16)> {
    let (pid, rest) = fields.strip_prefix("pid=")?.split_once(" comm=")?;
    let (_, value) = rest.rsplit_once(" oom_score_adj=")?;
    Some((pid.parse().ok()?, value.trim_end().parse().ok()?))
}

/// Extracts the id of the woken thread from the fields of `sched:sched_waking`. The task name
/// before the id may contain any text, so the id is read from the end.
///
/// ```text
/// comm=foot pid=812 prio=120 target_cpu=001
/// ```
pub fn parse_sched_waking(fields: &str) -> Option<i32> {
    let (_, rest) = fields.strip_prefix("comm=")?.rsplit_once(" pid=")?;
    let (pid, _) = rest.split_once(" prio=")?;
    pid.parse().ok().filter(|&pid| pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn event(line: &str) -> TraceEvent<'_> {
        match Line::parse(line) {
            Some(Line::Event(event)) => event,
            other => panic!("{line:?} gave {other:?}"),
        }
    }

    #[test]
    fn lines_with_and_without_flags_are_parsed() {
        let with = event("            bash-1234    [001] d..2.   123.456789: oom_score_adj_update: pid=7 comm=sh oom_score_adj=0");
        assert_eq!((with.comm, with.tid, with.cpu), ("bash", 1234, 1));
        assert_eq!(
            (with.seconds, with.name),
            (123.456789, "oom_score_adj_update")
        );
        assert_eq!(with.fields, "pid=7 comm=sh oom_score_adj=0");
        let without =
            event("           <...>-7       [000]     5.000001: limelight_topmost: members=3");
        assert_eq!((without.comm, without.fields), ("<...>", "members=3"));
        let tgid = event("            bash-1234    (   1200) [001] d..2.   1.000000: x: y");
        assert_eq!((tgid.tid, tgid.cpu, tgid.name), (1234, 1, "x"));
    }

    #[test]
    fn hostile_names_are_parsed() {
        for comm in [
            "a b-c d",
            "-1 [9] : x: y",
            "x-99 [000] d.",
            "kworker/0:1-ev",
            "]: [",
        ] {
            let line =
                format!("{comm:>16}-77      [003] d..1.  9.500000: name: pid=1 comm=a-2 v=3");
            let event = event(&line);
            assert_eq!((event.comm, event.tid, event.cpu), (comm, 77, 3), "{line}");
            assert_eq!(event.fields, "pid=1 comm=a-2 v=3");
        }
    }

    #[test]
    fn task_names_cannot_forge_a_thread_id() {
        for comm in [&b"\xff\xff\xff\xff\xff\xff-5 x"[..], "€€€€-5 x".as_bytes()] {
            let mut buffer = vec![b' '; 16 - comm.len()];
            buffer.extend_from_slice(comm);
            buffer.extend_from_slice(b"-77      [003] d..1.  9.500000: name: v=3\n");
            let lines = take_lines(&mut buffer);
            assert_eq!(event(&lines[0]).tid, 77, "{lines:?}");
        }
        assert_eq!(
            Line::parse("           <...>--77   [003] d..1.  9.500000: name: v=3"),
            None
        );
        // A name with a newline splits its line in two.
        let mut buffer =
            b"        a\nb-5 [000] d..1.  9.500000: name: v=3-77 [003] x: y: v=1\n".to_vec();
        let lines = take_lines(&mut buffer);
        assert!(
            lines.iter().all(|line| Line::parse(line).is_none()),
            "{lines:?}"
        );
    }

    #[test]
    fn lost_events_and_broken_lines_are_recognised() {
        assert_eq!(
            Line::parse("CPU:1 [LOST 42 EVENTS]"),
            Some(Line::Lost { events: 42 })
        );
        assert_eq!(Line::parse("rest of a name oom_score_adj=0"), None);
        assert_eq!(Line::parse(""), None);
    }

    #[test]
    fn oom_score_adj_fields_are_parsed() {
        assert_eq!(
            parse_oom_score_adj("pid=7 comm=sh oom_score_adj=-900"),
            Some((7, -900))
        );
        let hostile = "pid=7 comm=a oom_score_adj=5 oom_score_adj=0";
        assert_eq!(parse_oom_score_adj(hostile), Some((7, 0)));
        assert_eq!(parse_oom_score_adj("pid=7 comm=sh"), None);
    }

    #[test]
    fn sched_waking_fields_are_parsed() {
        let fields = "comm=foot pid=812 prio=120 target_cpu=001";
        assert_eq!(parse_sched_waking(fields), Some(812));
        let hostile = "comm=a pid=1 prio=0 pid=7 prio=98 target_cpu=000";
        assert_eq!(parse_sched_waking(hostile), Some(7));
        assert_eq!(parse_sched_waking("comm=foot pid=0 prio=120"), None);
        assert_eq!(parse_sched_waking("comm=foot"), None);
    }

    #[test]
    fn only_complete_lines_are_taken() {
        let mut buffer = b"one\ntwo\nthr".to_vec();
        assert_eq!(take_lines(&mut buffer), ["one", "two"]);
        assert_eq!(buffer, b"thr");
        buffer.extend_from_slice(b"ee\n");
        assert_eq!(take_lines(&mut buffer), ["three"]);
        buffer = vec![b'x'; LINE_MAX_BYTES + 1];
        assert!(take_lines(&mut buffer).is_empty() && buffer.is_empty());
    }

    /// A user can write `/proc/self/oom_score_adj` in a loop, faster than the lines are read.
    #[test]
    fn lines_that_never_end_are_taken_in_parts() {
        use std::io::Write;
        use std::sync::atomic::{AtomicBool, Ordering};
        const MOST: usize = 64 << 10;
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("trace_pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let pipe = dir.open_at("trace_pipe", OFlags::RDONLY | OFlags::NONBLOCK, "read");
        let mut writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let mut instance = Instance {
            parent: Dir::open(temp.path()).unwrap(),
            dir,
            name: "absent".to_owned(),
            pipe: Some(pipe.unwrap()),
            rest: Vec::new(),
        };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = writer.write_all(&b"a line\n".repeat(1000));
                }
            });
            let mut largest = 0;
            for _ in 0..100 {
                let taken = instance.lines(MOST).unwrap();
                largest = largest.max(taken.lines.len() * b"a line\n".len());
            }
            done.store(true, Ordering::Relaxed);
            // The writer may be blocked.
            while !instance.lines(MOST).unwrap().all {}
            instance.pipe = None;
            assert!(largest <= MOST + 2 * 8192, "{largest}");
        });
        let _ = writer;
    }

    #[test]
    fn instance_requires_its_kernel_files() {
        let temp = tempfile::tempdir().unwrap();
        let tracefs = Tracefs::at(temp.path()).unwrap();
        assert!(tracefs
            .create_instance("limelight")
            .unwrap_err()
            .is_unsupported());
        fs::create_dir_all(temp.path().join("events/oom/oom_score_adj_update")).unwrap();
        assert!(tracefs.has_event("oom", "oom_score_adj_update"));
        assert!(!tracefs.has_event("oom", "mark_victim"));
    }

    proptest! {
        #[test]
        fn never_panics(line in any::<String>(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            Line::parse(&line);
            Line::parse(&String::from_utf8_lossy(&bytes));
            parse_oom_score_adj(&line);
            parse_sched_waking(&line);
            take_lines(&mut bytes.clone());
        }

        #[test]
        fn any_name_leaves_the_other_fields_intact(comm in "[ -~]{1,15}", tid in 1..4_000_000i32) {
            let line = format!("{comm:>16}-{tid:<7} [001] d..2.   1.000000: name: v=1");
            let event = event(&line);
            prop_assert_eq!((event.tid, event.cpu, event.name), (tid, 1, "name"));
            prop_assert_eq!(event.comm, comm.trim_start());
        }
    }
}
