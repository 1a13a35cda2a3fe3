// SPDX-License-Identifier: GPL-2.0-or-later
//! The runtime directory, and the lock that makes this daemon the only one in it.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{flock, FlockOperation};
use rustix::io::Errno;

use crate::exit::Failure;

/// Longest wait for a previous daemon to exit, and the polling interval. A service manager may
/// start this daemon milliseconds after it ended the previous one.
const PATIENCE: Duration = Duration::from_millis(500);
const INTERVAL: Duration = Duration::from_millis(25);

/// Longest wait for a process that restores a dead daemon's changes.
const RESTORE_PATIENCE: Duration = Duration::from_secs(30);

/// Role of a process that only restores. It follows the pid in the lock file.
const RESTORING: &str = "restoring";

/// File name of the lock inside the runtime directory.
const FILE_NAME: &str = "lock";

/// The lock, held while the daemon runs. The kernel releases it when the process ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Unlocks explicitly. The lock belongs to the open file: a child process between fork and exec
    /// has a copy of the descriptor and would keep the lock.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::NonBlockingUnlock);
    }
}

/// Creates the runtime directory if necessary and takes the lock. Waits briefly for a previous
/// daemon to exit, and longer for a process that only restores a dead daemon's changes.
pub fn take(runtime: &Path) -> Result<Lock, Failure> {
    take_as(runtime, "")
}

/// Like [`take`], for a process that restores a dead daemon's changes and exits.
pub fn take_to_restore(runtime: &Path) -> Result<Lock, Failure> {
    take_as(runtime, RESTORING)
}

fn take_as(runtime: &Path, role: &str) -> Result<Lock, Failure> {
    let unusable = |error: std::io::Error| {
        let forbidden = error.kind() == ErrorKind::PermissionDenied;
        let root = rustix::process::geteuid().is_root();
        if forbidden && !root {
            Failure::Permission {
                what: format!("{} is not writable for this user", runtime.display()),
                cure: "run limelightd as root, or give it another --runtime-dir",
            }
        } else {
            Failure::Runtime {
                path: runtime.to_owned(),
                why: error.to_string(),
            }
        }
    };
    match fs::DirBuilder::new().mode(0o755).create(runtime) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(unusable(error)),
    }
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .open(runtime.join(FILE_NAME))
        .map_err(unusable)?;
    match lock(&file) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let text = holder(&file).unwrap_or_default();
            let pid = text.split_whitespace().next();
            let pid = pid.and_then(|pid| pid.parse().ok());
            return Err(Failure::Running { pid });
        }
        Err(errno) => return Err(unusable(errno.into())),
    }
    let mut write = || -> std::io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", format!("{} {role}", std::process::id()).trim())
    };
    write().map_err(unusable)?;
    Ok(Lock { file })
}

fn lock(file: &File) -> Result<(), Errno> {
    let start = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {}
            ended => return ended,
        }
        let waited = start.elapsed();
        let restores = || holder(file).is_ok_and(|text| text.trim_end().ends_with(RESTORING));
        if waited >= RESTORE_PATIENCE || waited >= PATIENCE && !restores() {
            return Err(Errno::WOULDBLOCK);
        }
        thread::sleep(INTERVAL);
    }
}

/// The text in the lock file: the pid of the lock's holder, and its role.
fn holder(file: &File) -> std::io::Result<String> {
    let mut text = [0; 32];
    let length = file.read_at(&mut text, 0)?;
    let text = text.get(..length).unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_daemon_learns_the_pid_of_the_first() {
        let temp = tempfile::tempdir().unwrap();
        let runtime = temp.path().join("limelight");
        let first = take(&runtime).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        match take(&runtime) {
            Err(Failure::Running { pid }) => assert_eq!(pid, Some(own)),
            other => panic!("{other:?}"),
        }
        drop(first);
        take(&runtime).unwrap();
    }

    #[test]
    fn start_waits_for_a_restore_to_end() {
        let temp = tempfile::tempdir().unwrap();
        let runtime = temp.path().join("limelight");
        let restoring = take_to_restore(&runtime).unwrap();
        let release = thread::spawn(move || {
            thread::sleep(PATIENCE * 2);
            drop(restoring);
        });
        take(&runtime).unwrap();
        release.join().unwrap();
    }

    #[test]
    fn child_before_exec_does_not_keep_the_lock() {
        let temp = tempfile::tempdir().unwrap();
        let runtime = temp.path().join("limelight");
        let lock = take(&runtime).unwrap();
        // The child's copy of the descriptor.
        let copy = lock.file.try_clone().unwrap();
        drop(lock);
        take(&runtime).unwrap();
        drop(copy);
    }

    #[test]
    fn error_names_the_directory_that_cannot_be_created() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("file");
        fs::write(&file, "").unwrap();
        let error = take(&file.join("below")).unwrap_err();
        assert_eq!(error.code(), 15, "{error}");
        assert!(error.to_string().contains("file/below"), "{error}");
    }
}
