// SPDX-License-Identifier: GPL-2.0-or-later
//! One error type for every door: what was attempted, on which path, and what kind of failure.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Result of every call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a door did not open. `action` completes "cannot ... PATH".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The process, cgroup or file is not there (any more).
    #[error("cannot {action} {}: gone: {errno}", path.display())]
    Gone {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The caller may not do this.
    #[error("cannot {action} {}: not permitted: {errno}", path.display())]
    Permission {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// This kernel, or this cgroup's set of controllers, does not have it.
    #[error("cannot {action} {}: not supported here: {errno}", path.display())]
    Unsupported {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The kernel refused the value or the request as such.
    #[error("cannot {action} {}: refused as invalid: {errno}", path.display())]
    Invalid {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// Somebody else holds it, or it still has contents.
    #[error("cannot {action} {}: in use: {errno}", path.display())]
    Busy {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The contents are not what the kernel documents; `what` names the offending part.
    #[error("cannot understand {}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Any other failure.
    #[error("cannot {action} {}: {errno}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl Error {
    /// Sorts an error number into the kind that callers act upon.
    pub fn new(action: &'static str, path: impl Into<PathBuf>, errno: Errno) -> Self {
        let path = path.into();
        match errno {
            Errno::NOENT | Errno::SRCH | Errno::NODEV | Errno::NXIO => Error::Gone {
                action,
                path,
                errno,
            },
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Error::Permission {
                action,
                path,
                errno,
            },
            Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOTTY => Error::Unsupported {
                action,
                path,
                errno,
            },
            Errno::INVAL | Errno::RANGE | Errno::TOOBIG | Errno::NOTDIR | Errno::LOOP => {
                Error::Invalid {
                    action,
                    path,
                    errno,
                }
            }
            Errno::BUSY | Errno::NOTEMPTY | Errno::EXIST => Error::Busy {
                action,
                path,
                errno,
            },
            _ => Error::Io {
                action,
                path,
                errno,
            },
        }
    }

    /// Contents that could not be parsed.
    pub fn malformed(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Error::Malformed {
            path: path.into(),
            what: what.into(),
        }
    }

    /// The file, directory or device concerned.
    pub fn path(&self) -> &Path {
        match self {
            Error::Gone { path, .. }
            | Error::Permission { path, .. }
            | Error::Unsupported { path, .. }
            | Error::Invalid { path, .. }
            | Error::Busy { path, .. }
            | Error::Malformed { path, .. }
            | Error::Io { path, .. } => path,
        }
    }

    /// The kernel's answer; `None` when its contents, not the call, were at fault.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Error::Gone { errno, .. }
            | Error::Permission { errno, .. }
            | Error::Unsupported { errno, .. }
            | Error::Invalid { errno, .. }
            | Error::Busy { errno, .. }
            | Error::Io { errno, .. } => Some(*errno),
            Error::Malformed { .. } => None,
        }
    }

    /// True when the process, cgroup or file does not exist (any more).
    pub fn is_gone(&self) -> bool {
        matches!(self, Error::Gone { .. })
    }

    /// True when there is no descriptor or memory left to look with: nothing is known then.
    pub fn is_exhausted(&self) -> bool {
        let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
        self.errno().is_some_and(|errno| exhausted.contains(&errno))
    }

    /// True when another caller, with more rights, could do it.
    pub fn is_permission(&self) -> bool {
        matches!(self, Error::Permission { .. })
    }

    /// True when the kernel or the cgroup does not have it.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Error::Unsupported { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_the_error_number() {
        let kind = |errno| Error::new("read", "/x", errno);
        assert!(kind(Errno::NOENT).is_gone());
        assert!(kind(Errno::NODEV).is_gone());
        assert!(kind(Errno::SRCH).is_gone());
        assert!(kind(Errno::ACCESS).is_permission());
        assert!(kind(Errno::PERM).is_permission());
        assert!(kind(Errno::OPNOTSUPP).is_unsupported());
        assert!(matches!(kind(Errno::INVAL), Error::Invalid { .. }));
        assert!(matches!(kind(Errno::BUSY), Error::Busy { .. }));
        assert!(matches!(kind(Errno::IO), Error::Io { .. }));
        assert!(kind(Errno::MFILE).is_exhausted() && !kind(Errno::IO).is_exhausted());
    }

    #[test]
    fn messages_name_path_and_cause() {
        let text = Error::new("write", "/sys/fs/cgroup/a/memory.min", Errno::ACCESS).to_string();
        assert!(text.contains("/sys/fs/cgroup/a/memory.min"), "{text}");
        assert!(text.contains("os error 13"), "{text}");
    }
}
