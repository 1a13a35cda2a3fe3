// SPDX-License-Identifier: GPL-2.0-or-later
//! `/proc/PID/mountinfo`: where file systems are mounted.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Directory of the file system that is mounted at `point`; `/` for the whole file system.
    pub root: PathBuf,
    /// Mount point. The path is relative to the root directory of the process of this mountinfo.
    pub point: PathBuf,
    /// Type of the file system: `cgroup2`, `tracefs`, `ext4`.
    pub kind: String,
    /// The mounted device. A file system without a device has an arbitrary name here.
    pub source: String,
    /// Major and minor device number. The major number is 0 if the file system has no single
    /// device.
    pub device: (u32, u32),
    /// Options of the file system, separated by commas. They apply to all its mounts.
    pub options: String,
}

impl Mount {
    /// Whether the file system has this option.
    pub fn has_option(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }
}

/// Parses mountinfo. Malformed lines are left out.
pub fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    // 36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/root rw
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(2);
    let mut right = right.split(' ');
    let (major, minor) = left.next()?.split_once(':')?;
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: unescape(left.next()?),
        point: unescape(left.next()?),
        kind: right.next()?.to_owned(),
        source: right.next().unwrap_or_default().to_owned(),
        options: right.next().unwrap_or_default().to_owned(),
    })
}

/// Decodes the kernel's octal escapes (`\ooo`) of space, tab, newline and backslash.
pub(crate) fn unescape(field: &str) -> PathBuf {
    let bytes = field.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = (bytes[at] == b'\\')
            .then(|| bytes.get(at + 1..at + 4))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

/// Finds a mount of this type. Prefers a mount of the whole file system; otherwise returns the
/// first.
pub fn find<'a>(mounts: &'a [Mount], kind: &str) -> Option<&'a Mount> {
    let whole = mounts
        .iter()
        .find(|m| m.kind == kind && m.root.as_os_str() == "/");
    whole.or_else(|| mounts.iter().find(|m| m.kind == kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HYBRID: &str = "\
22 1 0:20 / /proc rw,nosuid - proc proc rw
30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 /sub /mnt/part rw - cgroup2 cgroup2 rw
32 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 master:3 - cgroup2 cgroup2 rw,nsdelegate
33 24 0:30 / /mnt/with\\040space rw - tracefs tracefs rw
";

    #[test]
    fn mount_of_the_whole_file_system_is_preferred() {
        let mounts = parse(HYBRID);
        assert_eq!(mounts.len(), 5);
        let cgroup2 = find(&mounts, "cgroup2").unwrap();
        assert_eq!(cgroup2.point, PathBuf::from("/sys/fs/cgroup/unified"));
        assert_eq!(cgroup2.device, (0, 27));
        assert!(cgroup2.has_option("nsdelegate") && !cgroup2.has_option("delegate"));
        assert_eq!(find(&mounts, "bpf"), None);
    }

    #[test]
    fn escapes_are_decoded() {
        let mounts = parse(HYBRID);
        assert_eq!(
            find(&mounts, "tracefs").unwrap().point,
            PathBuf::from("/mnt/with space")
        );
        assert_eq!(unescape("a\\"), PathBuf::from("a\\"));
        assert_eq!(unescape("\\999"), PathBuf::from("\\999"));
    }

    proptest! {
        #[test]
        fn never_panics(text in any::<String>(), path in "[\\\\0-9a-z]{0,12}") {
            parse(&text);
            unescape(&path);
        }
    }
}
