// SPDX-License-Identifier: GPL-2.0-or-later
//! Listening Unix sockets that have a name: `/proc/net/unix`.

use crate::error::Result;
use crate::proc::Proc;

/// A listening socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listening {
    /// Its inode number, as in the link of a file descriptor (`socket:[4242]`).
    pub inode: u64,
    /// Its path, or its abstract name with a leading `@`. The creator of the socket can choose any
    /// name.
    pub name: String,
}

/// `__SO_ACCEPTCON` of `include/linux/net.h`, in the column `Flags`.
const LISTENS: u32 = 1 << 16;

/// Parses `/proc/net/unix`; leaves out sockets that do not listen or have no name.
///
/// ```text
/// Num       RefCount Protocol Flags    Type St Inode Path
/// 0000000000000000: 00000002 00000000 00010000 0001 01 16033 /run/user/1000/wayland-0
/// ```
pub fn parse(text: &str) -> Vec<Listening> {
    let line = |line: &str| {
        let mut rest = line;
        // The name comes last and may contain blanks. The inode number before it is right-aligned,
        // so several blanks may precede the number.
        let mut word = || {
            let (word, after) = rest.trim_start_matches(' ').split_once(' ')?;
            rest = after;
            Some(word)
        };
        let words = [
            word()?,
            word()?,
            word()?,
            word()?,
            word()?,
            word()?,
            word()?,
        ];
        let flags = u32::from_str_radix(words[3], 16).ok()?;
        let inode = words[6].parse().ok()?;
        (flags & LISTENS != 0 && !rest.is_empty()).then(|| Listening {
            inode,
            name: rest.to_owned(),
        })
    };
    text.lines().filter_map(line).collect()
}

impl Proc {
    /// Listening sockets in the network namespace of process 1, even if the caller is in another
    /// one.
    pub fn listening_sockets(&self) -> Result<Vec<Listening>> {
        Ok(parse(&self.dir().read_text("1/net/unix")?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000003 00000000 00000000 0001 03  1056
0000000000000000: 00000002 00000000 00010000 0001 01   900 /run/user/1000/wayland-0
0000000000000000: 00000002 00000000 00010000 0001 01 16034 @/tmp/.X11-unix/X0
0000000000000000: 00000002 00000000 00010000 0001 01 16035 /tmp/a b  c
0000000000000000: 00000003 00000000 00000000 0001 03 16036 /run/user/1000/wayland-0
";

    #[test]
    fn listening_sockets_are_found_by_name() {
        let found = parse(TEXT);
        let found: Vec<(u64, &str)> = found
            .iter()
            .map(|socket| (socket.inode, socket.name.as_str()))
            .collect();
        let expected = [
            (900, "/run/user/1000/wayland-0"),
            (16034, "@/tmp/.X11-unix/X0"),
            (16035, "/tmp/a b  c"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn own_socket_is_found() {
        use std::os::fd::AsRawFd;
        use std::os::unix::net::UnixListener;
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let own = format!("/proc/self/fd/{}", listener.as_raw_fd());
        let target = std::fs::read_link(own).unwrap();
        // Not `listening_sockets()`: process 1 may be in another network namespace.
        let text = std::fs::read_to_string("/proc/self/net/unix").unwrap();
        let found = parse(&text);
        let found = found
            .iter()
            .find(|socket| socket.name == path.to_str().unwrap());
        let inode = found.unwrap().inode;
        assert_eq!(target.to_str().unwrap(), format!("socket:[{inode}]"));
    }

    proptest! {
        #[test]
        fn never_panics(text in any::<String>()) {
            parse(&text);
        }
    }
}
