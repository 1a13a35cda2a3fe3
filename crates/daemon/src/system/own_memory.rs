// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads what a process shows of its own memory: its arguments, its environment and its mappings.
//!
//! Such a read waits for the lock of the process's memory map. A process can hold that lock as long
//! as it wants, for example in a page fault on a FUSE file that its own file server does not
//! answer. So another thread reads. If its answer is late, the read counts as failed, the thread is
//! left behind, and the next read gets a new one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, sync_channel, Receiver, Sender};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use limelight_sys::files::MappedFile;
use limelight_sys::maps::ReadMapping;
use limelight_sys::process::Process;
use tracing::warn;

/// Time that a read may take once it has begun. It is far more than a busy machine needs.
const PATIENCE: Duration = Duration::from_millis(250);

/// Time in which a read must begin. Only a busy machine delays that: the process that is read
/// cannot.
const BEGIN: Duration = Duration::from_secs(2);

/// Threads that may be left behind. With that many, no further process is read.
const LATE_MAX: usize = 8;

const STACK: usize = 128 << 10;

type Job = Box<dyn FnOnce() + Send>;

/// What the thread says about a job.
enum Answer<T> {
    Begun,
    Found(Option<T>),
}

/// The thread that reads.
#[derive(Debug, Default)]
struct Reader {
    /// Jobs for the thread; `None`: there is no thread. A thread ends when its queue is gone.
    jobs: Option<Sender<Job>>,
    /// Threads that were left behind and have not ended.
    late: Arc<AtomicUsize>,
}

static READER: LazyLock<Mutex<Reader>> = LazyLock::new(Mutex::default);

/// The first arguments of a process ([`Process::cmdline`]); `None` if they cannot be read in time.
pub fn arguments(process: &Process) -> Option<Vec<String>> {
    read(&READER, process, |process| process.cmdline().ok())
}

/// A variable of a process's environment ([`Process::environment`]); `None` if it is not set or
/// cannot be read in time.
pub fn variable(process: &Process, name: &'static str) -> Option<String> {
    read(&READER, process, |process| {
        process.environment(name).ok().flatten()
    })
}

/// The files that a process maps ([`Process::mapped_files`]); none if they cannot be read in time.
pub fn mapped_files(process: &Process) -> Vec<MappedFile> {
    read(&READER, process, |process| process.mapped_files().ok()).unwrap_or_default()
}

/// A process's mappings of files ([`Process::read_mappings`]); none if they cannot be read in time.
pub fn mappings(process: &Process) -> Vec<ReadMapping> {
    read(&READER, process, |process| process.read_mappings().ok()).unwrap_or_default()
}

/// The result of `reading` in the reader's thread; `None` if it is late, or if too many threads
/// are.
fn read<T: Send + 'static>(
    reader: &Mutex<Reader>,
    process: &Process,
    reading: impl FnOnce(&Process) -> Option<T> + Send + 'static,
) -> Option<T> {
    let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
    let (pid, process) = (process.pid(), process.try_clone().ok()?);
    let (answer, answers) = sync_channel(2);
    let job: Job = Box::new(move || {
        // Sending fails once this function has given up waiting.
        let _ = answer.send(Answer::Begun);
        let _ = answer.send(Answer::Found(reading(&process)));
    });
    reader.jobs()?.send(job).ok()?;
    let begun = answers.recv_timeout(BEGIN);
    let answer = begun.and_then(|_| answers.recv_timeout(PATIENCE));
    if let Ok(Answer::Found(found)) = answer {
        return found;
    }
    warn!("pid {pid} keeps its memory map locked, so it cannot be examined");
    reader.leave_behind();
    None
}

impl Reader {
    /// The queue of the thread, which is started if there is none.
    fn jobs(&mut self) -> Option<&Sender<Job>> {
        if self.jobs.is_none() {
            if self.late.load(Ordering::Acquire) >= LATE_MAX {
                return None;
            }
            let (jobs, queue) = channel();
            let late = self.late.clone();
            std::thread::Builder::new()
                .name("ll-own-memory".to_owned())
                .stack_size(STACK)
                .spawn(move || work(&queue, &late))
                .inspect_err(|error| warn!("cannot start a thread to examine processes: {error}"))
                .ok()?;
            self.jobs = Some(jobs);
        }
        self.jobs.as_ref()
    }

    fn leave_behind(&mut self) {
        self.late.fetch_add(1, Ordering::AcqRel);
        self.jobs = None;
    }
}

fn work(queue: &Receiver<Job>, late: &AtomicUsize) {
    while let Ok(job) = queue.recv() {
        job();
    }
    late.fetch_sub(1, Ordering::AcqRel);
}

#[cfg(test)]
mod tests {
    use super::*;
    use limelight_sys::proc::Proc;
    use std::fs;
    use std::time::Instant;

    struct Fixture {
        temp: tempfile::TempDir,
        proc: Proc,
    }

    impl Fixture {
        fn new() -> Fixture {
            let temp = tempfile::tempdir().unwrap();
            fs::create_dir_all(temp.path().join("7")).unwrap();
            let proc = Proc::open(temp.path().to_str().unwrap()).unwrap();
            Fixture { temp, proc }
        }

        fn write(&self, file: &str, contents: &[u8]) {
            fs::write(self.temp.path().join("7").join(file), contents).unwrap();
        }

        fn process(&self) -> Process {
            self.proc.process(7).unwrap()
        }
    }

    #[test]
    fn arguments_and_variables_are_read() {
        let fixture = Fixture::new();
        fixture.write("cmdline", b"-bash\0-c\0true\0");
        fixture.write("environ", b"A=1\0LIMELIGHT_CLASS=keep\0");
        let process = fixture.process();
        assert_eq!(arguments(&process).unwrap(), ["-bash", "-c", "true"]);
        assert_eq!(variable(&process, "LIMELIGHT_CLASS").unwrap(), "keep");
        assert_eq!(variable(&process, "B"), None);
    }

    /// A process can let its arguments begin anywhere in its memory.
    #[test]
    fn endless_arguments_are_cut() {
        let fixture = Fixture::new();
        fixture.write("cmdline", &vec![0; 16 << 20]);
        fixture.write("environ", &vec![b'x'; 16 << 20]);
        let process = fixture.process();
        assert!(arguments(&process).unwrap().len() <= 64);
        assert_eq!(variable(&process, "A"), None);
    }

    #[test]
    fn read_that_waits_for_a_processor_is_not_late() {
        let fixture = Fixture::new();
        let reader = Mutex::new(Reader::default());
        let busy: Job = Box::new(|| std::thread::sleep(PATIENCE * 2));
        reader.lock().unwrap().jobs().unwrap().send(busy).unwrap();
        assert_eq!(read(&reader, &fixture.process(), |_| Some(1)), Some(1));
    }

    #[test]
    fn process_that_keeps_its_memory_locked_delays_no_more_than_a_few_reads() {
        let fixture = Fixture::new();
        let process = fixture.process();
        let reader = Mutex::new(Reader::default());
        let (release, wait) = channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        for _ in 0..100 {
            let wait = wait.clone();
            let found: Option<()> = read(&reader, &process, move |_| {
                let _ = wait.lock().unwrap().recv();
                None
            });
            assert_eq!(found, None);
        }
        let late = reader.lock().unwrap().late.clone();
        assert_eq!(late.load(Ordering::Acquire), LATE_MAX);
        // The processes have ended.
        drop(release);
        let begun = Instant::now();
        while late.load(Ordering::Acquire) > 0 {
            assert!(begun.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(read(&reader, &process, |_| Some(1)), Some(1));
        assert_eq!(read(&reader, &process, |_| Some(2)), Some(2));
    }
}
