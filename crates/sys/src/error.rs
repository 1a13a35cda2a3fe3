// SPDX-License-Identifier: GPL-2.0-or-later
//! The error type of all kernel interfaces: the attempted action, the path, and the kind of
//! failure.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Result of every call in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kernel interface error. `action` is the verb phrase in "cannot ACTION PATH".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The process, cgroup or file does not exist, or no longer exists.
    #[error("cannot {action} {}: gone: {errno}", path.display())]
    Gone {
        /// The attempted action.
        action: &'static str,
        /// The path it was attempted on.
        path: PathBuf,
        /// The kernel's error number.
        errno: Errno,
    },
    /// The caller lacks the permission.
    #[error("cannot {action} {}: not permitted: {errno}", path.display())]
    Permission {
        /// The attempted action.
        action: &'static str,
        /// The path it was attempted on.
        path: PathBuf,
        /// The kernel's error number.
        errno: Errno,
    },
    /// The kernel lacks the feature, or the cgroup lacks the controller.
    #[error("cannot {action} {}: not supported here: {errno}", path.display())]
    Unsupported {
        /// The attempted action.
        action: &'static str,
        /// The path it was attempted on.
        path: PathBuf,
        /// The kernel's error number.
        errno: Errno,
    },
    /// The kernel rejected the value or the request itself.
    #[error("cannot {action} {}: refused as invalid: {errno}", path.display())]
    Invalid {
        /// The attempted action.
        action: &'static str,
        /// The path it was attempted on.
        path: PathBuf,
        /// The kernel's error number.
        errno: Errno,
    },
    /// The target is in use, is not empty, or already exists.
    #[error("cannot {action} {}: in use: {errno}", path.display())]
    Busy {
        /// The attempted action.
        action: &'static str,
        /// The path it was attempted on.
        path: PathBuf,
        /// The kernel's error number.
        errno: Errno,
    },
    /// The contents of a file do not have the form that the kernel documents.
    #[error("cannot parse {}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The offending part, and what is wrong with it.
        what: String,
    },
    /// Any other failure.
    #[error("cannot {action} {}: {errno}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The path it was attempted on.
        path: PathBuf,
        /// The kernel's error number.
        errno: Errno,
    },
}

impl Error {
    /// Chooses the kind of error that matches an error number.
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

    /// Error for contents that could not be parsed.
    pub fn malformed(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Error::Malformed {
            path: path.into(),
            what: what.into(),
        }
    }

    /// The file, directory or device that the error concerns.
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

    /// The kernel's error number; `None` if the call succeeded but the contents are malformed.
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

    /// True if the process, cgroup or file does not exist, or no longer exists.
    pub fn is_gone(&self) -> bool {
        matches!(self, Error::Gone { .. })
    }

    /// True if the request failed because no file descriptor or memory was left. Whether the target
    /// exists is then unknown.
    pub fn is_exhausted(&self) -> bool {
        let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
        self.errno().is_some_and(|errno| exhausted.contains(&errno))
    }

    /// True if the caller lacks the permission.
    pub fn is_permission(&self) -> bool {
        matches!(self, Error::Permission { .. })
    }

    /// True if the kernel or the cgroup lacks the feature.
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
