// SPDX-License-Identifier: GPL-2.0-or-later
//! The restore record: what was changed and what was there before.
//!
//! Every entry is in a file (`restore.json` in the runtime directory) *before* its change is
//! made, and leaves it only after the change was undone, so that whatever kills the daemon, its
//! successor, or `limelightd --restore`, can put everything back. An entry whose change was never
//! made does no harm: a value is put back only while the present one is one that we wrote.
//!
//! Things are identified by what cannot be given to a stranger: a cgroup by its inode number, a
//! process by pid and start time, all of it by the boot.

use std::borrow::Cow;
use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use limelight_core::model::ProcessId;
use serde::{Deserialize, Serialize};
use tracing::{error, warn};

/// The record's name inside the runtime directory.
pub const FILE_NAME: &str = "restore.json";

const VERSION: u32 = 1;

/// A file of so many bytes is written anew.
const LONG: u64 = 64 << 10;

/// A cgroup, by path to find it and by inode to be sure.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Below the mount point, with a leading slash.
    pub path: String,
    /// Inode number of its directory.
    pub inode: u64,
}

/// A process that was moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub starttime: u64,
    /// Where it was.
    pub from: Place,
}

/// What a thread asks of the schedulers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asking {
    /// Nice value.
    pub nice: i32,
    /// Slice in nanoseconds; 0: the kernel's own.
    pub slice_ns: u64,
    /// I/O priority as the kernel packs it; 0: none.
    pub io_priority: u16,
}

/// A thread whose asking was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuned {
    /// Thread id.
    pub tid: i32,
    /// Start time in clock ticks since boot.
    pub starttime: u64,
    /// Before.
    pub original: Asking,
    /// What we gave it.
    pub ours: Asking,
}

/// One thing that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "changed", rename_all = "kebab-case")]
pub enum Entry {
    /// A memory limit of a cgroup.
    Limit {
        /// The cgroup.
        cgroup: Place,
        /// File name: `memory.min` or `memory.low`.
        knob: String,
        /// Bytes or `max`.
        original: String,
        /// Values that we wrote or are about to write.
        ours: Vec<String>,
    },
    /// A weight of a cgroup.
    Weight {
        /// The cgroup.
        cgroup: Place,
        /// File name: `cpu.weight`, `io.weight` or `io.bfq.weight`.
        knob: String,
        /// Weight before.
        original: u32,
        /// Weight that we wrote.
        ours: u32,
    },
    /// Nice value, slice and I/O priority of a process's threads.
    Threads {
        /// Process id.
        pid: i32,
        /// Start time in clock ticks since boot.
        starttime: u64,
        /// The app's own cgroup: children there inherited what we gave.
        home: Option<Place>,
        /// The threads, ascending.
        threads: Vec<Tuned>,
    },
    /// How much of a cgroup may be in swap: nothing, since we wrote so.
    SwapMax {
        /// The cgroup.
        cgroup: Place,
        /// Value before.
        original: String,
    },
    /// A cgroup whose processes we stopped.
    Frozen {
        /// The cgroup.
        cgroup: Place,
    },
    /// Nice value of a session as a group of the scheduler.
    Autogroup {
        /// One of its processes.
        pid: i32,
        /// Start time of that in clock ticks since boot.
        starttime: u64,
        /// The group's number.
        number: u64,
        /// Nice value before.
        original: i32,
        /// Nice value that we wrote.
        ours: i32,
    },
    /// A controller that a cgroup now hands to its children.
    Controller {
        /// The cgroup.
        cgroup: Place,
        /// `memory`.
        controller: String,
    },
    /// `oom_score_adj` of a process.
    OomScoreAdj {
        /// Process id.
        pid: i32,
        /// Start time in clock ticks since boot.
        starttime: u64,
        /// Value before.
        original: i16,
        /// Value that we wrote.
        ours: i16,
        /// The app's own cgroup: children there inherited our value.
        home: Option<Place>,
    },
    /// A cgroup that we made for others to be made in.
    Slice {
        /// Path below the mount point.
        path: String,
    },
    /// A cgroup that we made for an app, with the processes moved into it.
    Scope {
        /// Path below the mount point.
        path: String,
        /// Where the app was: children born since then go there.
        from: Place,
        /// Processes that were moved.
        moved: Vec<Move>,
    },
    /// A tracefs instance.
    TraceInstance {
        /// Its directory.
        path: PathBuf,
    },
}

impl Entry {
    /// Whether both are about the same thing, so that one replaces the other.
    fn same_thing(&self, other: &Entry) -> bool {
        match (self, other) {
            (
                Entry::Limit {
                    cgroup: a, knob: x, ..
                },
                Entry::Limit {
                    cgroup: b, knob: y, ..
                },
            ) => a.inode == b.inode && x == y,
            (
                Entry::Controller {
                    cgroup: a,
                    controller: x,
                },
                Entry::Controller {
                    cgroup: b,
                    controller: y,
                },
            ) => a.inode == b.inode && x == y,
            (
                Entry::OomScoreAdj {
                    pid: a,
                    starttime: x,
                    ..
                },
                Entry::OomScoreAdj {
                    pid: b,
                    starttime: y,
                    ..
                },
            ) => a == b && x == y,
            (
                Entry::Weight {
                    cgroup: a, knob: x, ..
                },
                Entry::Weight {
                    cgroup: b, knob: y, ..
                },
            ) => a.inode == b.inode && x == y,
            (
                Entry::Threads {
                    pid: a,
                    starttime: x,
                    ..
                },
                Entry::Threads {
                    pid: b,
                    starttime: y,
                    ..
                },
            ) => a == b && x == y,
            (Entry::Autogroup { number: a, .. }, Entry::Autogroup { number: b, .. }) => a == b,
            (Entry::SwapMax { cgroup: a, .. }, Entry::SwapMax { cgroup: b, .. })
            | (Entry::Frozen { cgroup: a }, Entry::Frozen { cgroup: b }) => a.inode == b.inode,
            (Entry::Slice { path: a }, Entry::Slice { path: b }) => a == b,
            (Entry::Scope { path: a, .. }, Entry::Scope { path: b, .. }) => a == b,
            (Entry::TraceInstance { path: a }, Entry::TraceInstance { path: b }) => a == b,
            _ => false,
        }
    }

    /// The process of an entry that is about one.
    pub fn process(&self) -> Option<ProcessId> {
        match self {
            Entry::OomScoreAdj { pid, starttime, .. }
            | Entry::Threads { pid, starttime, .. }
            | Entry::Autogroup { pid, starttime, .. } => Some(ProcessId {
                pid: *pid,
                starttime: *starttime,
            }),
            _ => None,
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Limit {
                cgroup,
                knob,
                original,
                ..
            } => {
                write!(
                    f,
                    "{}/{knob} = {original}",
                    cgroup.path.trim_end_matches('/')
                )
            }
            Entry::Weight {
                cgroup,
                knob,
                original,
                ..
            } => write!(
                f,
                "{}/{knob} = {original}",
                cgroup.path.trim_end_matches('/')
            ),
            Entry::SwapMax { cgroup, original } => {
                let path = cgroup.path.trim_end_matches('/');
                write!(f, "{path}/memory.swap.max = {original}")
            }
            Entry::Frozen { cgroup } => {
                write!(f, "{}/cgroup.freeze = 0", cgroup.path.trim_end_matches('/'))
            }
            Entry::Threads { pid, threads, .. } => {
                write!(f, "scheduling of {} threads of pid {pid}", threads.len())
            }
            Entry::Controller { cgroup, controller } => {
                let path = cgroup.path.trim_end_matches('/');
                write!(f, "{path}/cgroup.subtree_control without {controller}")
            }
            Entry::OomScoreAdj { pid, original, .. } => {
                write!(f, "/proc/{pid}/oom_score_adj = {original}")
            }
            Entry::Autogroup {
                number, original, ..
            } => write!(f, "nice value of autogroup {number} = {original}"),
            Entry::Slice { path } => write!(f, "no {path}"),
            Entry::Scope { path, from, moved } => {
                write!(
                    f,
                    "no {path}, its {} processes in {}",
                    moved.len(),
                    from.path
                )
            }
            Entry::TraceInstance { path } => write!(f, "no {}", path.display()),
        }
    }
}

/// The file's first line.
#[derive(Debug, Serialize, Deserialize)]
struct Record<'a> {
    version: u32,
    boot_id: Cow<'a, str>,
    pid: u32,
    entries: Cow<'a, [Entry]>,
}

/// Each later line: what has changed since the one before.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Step<'a> {
    /// Noted, in the place of what is about the same thing.
    Intend(Cow<'a, [Entry]>),
    /// Undone or never made.
    Forget(Cow<'a, [Entry]>),
}

impl Step<'_> {
    fn apply(&self, entries: &mut Vec<Entry>) {
        match self {
            Step::Intend(fresh) => {
                for entry in fresh.iter() {
                    match entries.iter_mut().find(|known| known.same_thing(entry)) {
                        Some(known) => *known = entry.clone(),
                        None => entries.push(entry.clone()),
                    }
                }
            }
            Step::Forget(gone) => {
                entries.retain(|known| !gone.iter().any(|entry| known.same_thing(entry)));
            }
        }
    }
}

/// What a file says, and why the rest of it could not be understood.
fn read(bytes: &[u8], boot_id: &str) -> (Vec<Entry>, Option<String>) {
    let mut head = serde_json::Deserializer::from_slice(bytes).into_iter::<Record<'_>>();
    let mut entries = match head.next() {
        Some(Ok(record)) if record.version != VERSION => {
            let why = format!("version {} instead of {VERSION}", record.version);
            return (Vec::new(), Some(why));
        }
        Some(Ok(record)) if record.boot_id != boot_id => return (Vec::new(), None),
        Some(Ok(record)) => record.entries.into_owned(),
        Some(Err(error)) => return (Vec::new(), Some(error.to_string())),
        None => return (Vec::new(), Some("it is empty".to_owned())),
    };
    let rest = bytes.get(head.byte_offset()..).unwrap_or_default();
    for step in serde_json::Deserializer::from_slice(rest).into_iter::<Step<'_>>() {
        match step {
            Ok(step) => step.apply(&mut entries),
            // Who was killed while he wrote it had not made the change yet.
            Err(error) if error.is_eof() => break,
            Err(error) => return (entries, Some(error.to_string())),
        }
    }
    (entries, None)
}

/// The record could not be written, so the change must not be made.
#[derive(Debug, thiserror::Error)]
#[error("the restore record {} cannot be written: {error}", path.display())]
pub struct NotRecorded {
    path: PathBuf,
    error: std::io::Error,
}

/// The record, in memory and on disk.
///
/// Every change is a line at the end of the file, because an app waits for it: the focus moves in
/// a dozen of them. It is never synchronised. It has to outlive this process, not the boot.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    boot_id: String,
    entries: Vec<Entry>,
    /// `None`: the file is written anew at the next change.
    file: Option<File>,
    /// Bytes in it.
    len: u64,
}

impl Ledger {
    /// Opens the record in the runtime directory, with what a dead predecessor left in it. A
    /// record of an earlier boot is forgotten: nothing of what it names exists any more. One that
    /// cannot be understood is moved aside to `restore.json.corrupt` and reported.
    pub fn open(runtime: &Path, boot_id: String) -> Ledger {
        let path = runtime.join(FILE_NAME);
        let entries = match fs::read(&path) {
            Ok(bytes) => {
                let (entries, wrong) = read(&bytes, &boot_id);
                if let Some(why) = wrong {
                    set_aside(&path, &why);
                }
                entries
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                error!("the restore record {} cannot be read: {error}; nothing of a predecessor is put back", path.display());
                Vec::new()
            }
        };
        Ledger {
            path,
            boot_id,
            entries,
            file: None,
            len: 0,
        }
    }

    /// Everything that is changed now, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Notes changes that are about to be made; an entry about the same thing is replaced where it
    /// stands. On an error nothing is noted and nothing may be changed.
    pub fn intend(&mut self, entries: impl IntoIterator<Item = Entry>) -> Result<(), NotRecorded> {
        let mut fresh: Vec<Entry> = entries.into_iter().collect();
        fresh.retain(|entry| !self.entries.contains(entry));
        if fresh.is_empty() {
            return Ok(());
        }
        self.save(&Step::Intend(fresh.into()))
    }

    /// Drops an entry whose change was undone or never made. When that cannot be written the file
    /// says too much, which is harmless.
    pub fn forget(&mut self, entry: &Entry) {
        self.forget_all(std::slice::from_ref(entry));
    }

    /// Drops several entries with one write.
    pub fn forget_all(&mut self, gone: &[Entry]) {
        let known = |gone: &Entry| self.entries.iter().any(|entry| entry.same_thing(gone));
        if !gone.iter().any(known) {
            return;
        }
        let step = Step::Forget(gone.into());
        if let Err(error) = self.save(&step) {
            warn!("{error}");
            step.apply(&mut self.entries);
        }
    }

    /// Removes the file of an empty record.
    pub fn close(self) {
        if self.entries.is_empty() {
            if let Err(error) = fs::remove_file(&self.path) {
                if error.kind() != std::io::ErrorKind::NotFound {
                    warn!(
                        "cannot remove the empty restore record {}: {error}",
                        self.path.display()
                    );
                }
            }
        }
    }

    /// Writes a step down and makes it; neither, on an error.
    fn save(&mut self, step: &Step<'_>) -> Result<(), NotRecorded> {
        let written = match &mut self.file {
            Some(file) if self.len < LONG => append(file, step),
            _ => self.renew(step),
        };
        match written {
            Ok(bytes) => self.len += bytes,
            Err(error) => {
                // Half a line may be at its end.
                self.file = None;
                let path = self.path.clone();
                return Err(NotRecorded { path, error });
            }
        }
        step.apply(&mut self.entries);
        Ok(())
    }

    /// Writes the whole file anew, with a step made.
    fn renew(&mut self, step: &Step<'_>) -> std::io::Result<u64> {
        let mut entries = self.entries.clone();
        step.apply(&mut entries);
        let record = Record {
            version: VERSION,
            boot_id: self.boot_id.as_str().into(),
            pid: std::process::id(),
            entries: entries.into(),
        };
        let fresh = self.path.with_extension("json.new");
        let mut file = File::create(&fresh)?;
        let bytes = append(&mut file, &record)?;
        fs::rename(&fresh, &self.path)?;
        (self.file, self.len) = (Some(file), 0);
        Ok(bytes)
    }
}

/// Adds a line to a file. Returns how many bytes it has.
fn append(file: &mut File, line: &impl Serialize) -> std::io::Result<u64> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)?;
    Ok(bytes.len() as u64)
}

fn set_aside(path: &Path, why: &str) {
    let aside = path.with_extension("json.corrupt");
    let kept = match fs::rename(path, &aside) {
        Ok(()) => format!("it is kept as {}", aside.display()),
        Err(error) => format!("and it cannot be moved aside: {error}"),
    };
    error!(
        "the restore record {} cannot be understood ({why}); {kept}. What a predecessor changed may still be in force: look at memory.min and memory.low of the cgroups that it names",
        path.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limit(inode: u64, ours: &[&str]) -> Entry {
        Entry::Limit {
            cgroup: Place {
                path: format!("/g{inode}"),
                inode,
            },
            knob: "memory.min".into(),
            original: "0".into(),
            ours: ours.iter().map(|&value| value.to_owned()).collect(),
        }
    }

    #[test]
    fn what_was_intended_is_there_for_the_successor() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), "boot".into());
        ledger.intend([limit(1, &["5"]), limit(2, &["6"])]).unwrap();
        ledger.intend([limit(1, &["5", "7"])]).unwrap();
        let successor = Ledger::open(temp.path(), "boot".into());
        assert_eq!(
            successor.entries(),
            [limit(1, &["5", "7"]), limit(2, &["6"])]
        );
        assert_eq!(Ledger::open(temp.path(), "next".into()).entries(), []);
    }

    #[test]
    fn a_long_file_is_written_anew() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), "boot".into());
        ledger.intend([limit(1, &["5"])]).unwrap();
        let mut longest = 0;
        for value in 0..2000 {
            ledger.intend([limit(2, &[&value.to_string()])]).unwrap();
            longest = longest.max(fs::metadata(temp.path().join(FILE_NAME)).unwrap().len());
        }
        assert!((LONG..2 * LONG).contains(&longest), "{longest}");
        let successor = Ledger::open(temp.path(), "boot".into());
        assert_eq!(successor.entries(), [limit(1, &["5"]), limit(2, &["1999"])]);
    }

    #[test]
    fn a_line_that_was_not_finished_is_no_change() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), "boot".into());
        ledger.intend([limit(1, &["5"])]).unwrap();
        let whole = fs::read(temp.path().join(FILE_NAME)).unwrap().len();
        ledger.intend([limit(2, &["6"])]).unwrap();
        let bytes = fs::read(temp.path().join(FILE_NAME)).unwrap();
        for len in whole..bytes.len() - 2 {
            let (entries, wrong) = read(&bytes[..len], "boot");
            assert_eq!((entries, wrong), (vec![limit(1, &["5"])], None), "{len}");
        }
    }

    #[test]
    fn what_follows_a_line_that_makes_no_sense_is_left() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), "boot".into());
        ledger.intend([limit(1, &["5"])]).unwrap();
        let mut text = fs::read_to_string(temp.path().join(FILE_NAME)).unwrap();
        text.push_str("{\"what\":[]}\n");
        fs::write(temp.path().join(FILE_NAME), text).unwrap();
        let successor = Ledger::open(temp.path(), "boot".into());
        assert_eq!(successor.entries(), [limit(1, &["5"])]);
        assert!(temp.path().join("restore.json.corrupt").exists());
    }

    #[test]
    fn an_empty_record_leaves_no_file() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), String::new());
        ledger.intend([limit(1, &["5"])]).unwrap();
        ledger.forget(&limit(1, &[]));
        assert!(temp.path().join(FILE_NAME).exists());
        ledger.close();
        assert!(!temp.path().join(FILE_NAME).exists());
    }

    #[test]
    fn a_change_that_cannot_be_recorded_is_not_noted() {
        let temp = tempfile::tempdir().unwrap();
        let gone = temp.path().join("gone");
        let mut ledger = Ledger::open(&gone, String::new());
        let error = ledger.intend([limit(1, &["5"])]).unwrap_err();
        assert!(error.to_string().contains("restore.json"), "{error}");
        assert_eq!(ledger.entries(), []);
    }

    #[test]
    fn a_corrupt_record_is_moved_aside() {
        let temp = tempfile::tempdir().unwrap();
        for text in [
            "{\"version\":1,\"entries\":[",
            "{\"version\":9,\"boot_id\":\"\",\"pid\":1,\"entries\":[]}",
        ] {
            fs::write(temp.path().join(FILE_NAME), text).unwrap();
            assert_eq!(Ledger::open(temp.path(), String::new()).entries(), []);
            assert!(!temp.path().join(FILE_NAME).exists());
            let aside = fs::read_to_string(temp.path().join("restore.json.corrupt")).unwrap();
            assert_eq!(aside, text);
        }
    }

    proptest! {
        /// The file always equals the memory, and there is one entry a thing.
        #[test]
        fn the_file_is_the_memory(
            steps in prop::collection::vec((0u64..6, any::<bool>(), "[0-9]{1,4}"), 1..12),
        ) {
            let temp = tempfile::tempdir().unwrap();
            let mut ledger = Ledger::open(temp.path(), "b".into());
            for (inode, add, value) in steps {
                let entry = limit(inode, &[&value]);
                if add {
                    ledger.intend([entry]).unwrap();
                } else {
                    ledger.forget(&entry);
                }
                let read = Ledger::open(temp.path(), "b".into());
                prop_assert_eq!(read.entries(), ledger.entries());
                for (at, entry) in ledger.entries().iter().enumerate() {
                    prop_assert!(!ledger.entries()[..at].iter().any(|e| e.same_thing(entry)));
                }
            }
        }

        #[test]
        fn no_file_stops_the_start(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let temp = tempfile::tempdir().unwrap();
            fs::write(temp.path().join(FILE_NAME), bytes).unwrap();
            let ledger = Ledger::open(temp.path(), "b".into());
            prop_assert!(ledger.entries().is_empty());
        }
    }
}
