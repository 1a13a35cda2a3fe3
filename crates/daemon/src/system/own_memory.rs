// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads what a process shows of its own memory: its arguments and its environment.
//!
//! Such a read waits for the lock of the process's memory map. A process can hold that lock as long
//! as it wants, for example in a page fault on a FUSE file that its own file server does not
//! answer. So each read runs in a thread of its own. If the answer is late, the read counts as
//! failed and the thread is left behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use limelight_sys::process::Process;
use tracing::warn;

/// Time that a read may take. It is far more than a busy machine needs.
const PATIENCE: Duration = Duration::from_millis(250);

/// Threads that may be left behind. With that many, no further process is read.
const LATE_MAX: usize = 8;

const STACK: usize = 128 << 10;

/// Threads that have not ended.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// The first arguments of a process ([`Process::cmdline`]); `None` if they cannot be read in time.
pub fn arguments(process: &Process) -> Option<Vec<String>> {
    read(process, &RUNNING, |process| process.cmdline().ok())
}

/// A variable of a process's environment ([`Process::environment`]); `None` if it is not set or
/// cannot be read in time.
pub fn variable(process: &Process, name: &'static str) -> Option<String> {
    read(process, &RUNNING, |process| {
        process.environment(name).ok().flatten()
    })
}

/// The result of `reading` in a thread; `None` if it is late, or if too many threads are.
fn read<T: Send + 'static>(
    process: &Process,
    running: &'static AtomicUsize,
    reading: impl FnOnce(&Process) -> Option<T> + Send + 'static,
) -> Option<T> {
    if running.load(Ordering::Acquire) >= LATE_MAX {
        return None;
    }
    let pid = process.pid();
    let process = process.try_clone().ok()?;
    let (sender, receiver) = sync_channel(1);
    running.fetch_add(1, Ordering::AcqRel);
    let thread = std::thread::Builder::new()
        .name("ll-own-memory".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            let found = reading(&process);
            running.fetch_sub(1, Ordering::AcqRel);
            // Fails if nobody waits any more.
            let _ = sender.send(found);
        });
    if let Err(error) = thread {
        running.fetch_sub(1, Ordering::AcqRel);
        warn!("cannot start a thread to read the arguments of pid {pid}: {error}");
        return None;
    }
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        warn!("pid {pid} keeps its memory locked, so its arguments and environment are unknown");
        None
    })
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
    fn process_that_keeps_its_memory_locked_delays_no_more_than_a_few_reads() {
        static STUCK: AtomicUsize = AtomicUsize::new(0);
        let fixture = Fixture::new();
        let process = fixture.process();
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let begun = Instant::now();
        for _ in 0..100 {
            let wait = wait.clone();
            let found: Option<()> = read(&process, &STUCK, move |_| {
                let _ = wait.lock().unwrap().recv();
                None
            });
            assert_eq!(found, None);
        }
        assert_eq!(STUCK.load(Ordering::Acquire), LATE_MAX);
        let most = PATIENCE * (LATE_MAX as u32 + 2);
        assert!(begun.elapsed() < most, "{:?}", begun.elapsed());
        // The processes have ended.
        drop(release);
        let begun = Instant::now();
        while STUCK.load(Ordering::Acquire) > 0 {
            assert!(begun.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(read(&process, &STUCK, |_| Some(())), Some(()));
    }
}
