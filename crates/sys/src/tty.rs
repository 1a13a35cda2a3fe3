// SPDX-License-Identifier: GPL-2.0-or-later
//! Pseudo-terminals.

use crate::dir::Dir;
use crate::error::Result;

/// The first major number of the terminals in `/dev/pts` (`UNIX98_PTY_SLAVE_MAJOR`), and how many
/// there are.
const MAJOR: u32 = 136;
const MAJORS: u32 = 8;

/// Number `N` of the terminal `/dev/pts/N` with the device number `tty` of proc(5); `None` for 0
/// (no terminal) and for other terminals, such as a console.
pub fn pts_number(tty: i32) -> Option<u32> {
    // new_encode_dev(): bits 8 to 19 are the major number.
    let bits = u32::try_from(tty).ok()?;
    let major = ((bits >> 8) & 0xfff)
        .checked_sub(MAJOR)
        .filter(|major| *major < MAJORS)?;
    let minor = (bits & 0xff) | ((bits >> 12) & 0xf_ff00);
    Some((major << 8) + minor)
}

/// When a process last read from a terminal, in seconds since 1970. The kernel updates the time at
/// most once in 8 s. `pts` is the directory of the terminals.
pub fn last_read_s(pts: &Dir, number: u32) -> Result<i64> {
    pts.last_access_s(&number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn device_numbers_of_pseudo_terminals_are_decoded() {
        for (tty, number) in [
            (0, None),
            (-1, None),
            (34816, Some(0)),
            (34819, Some(3)),
            (136 << 8 | 1 << 20 | 7, Some(263)),
            (137 << 8, Some(256)),
            // tty1, the console, a serial line.
            (1025, None),
            (1281, None),
            (4 << 8 | 64, None),
        ] {
            assert_eq!(pts_number(tty), number, "{tty}");
        }
    }

    #[test]
    fn time_of_a_read_is_the_access_time() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("3");
        std::fs::write(&path, "").unwrap();
        let times = std::fs::FileTimes::new();
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1234);
        std::fs::File::open(&path)
            .unwrap()
            .set_times(times.set_accessed(at))
            .unwrap();
        let pts = Dir::open(temp.path()).unwrap();
        assert_eq!(last_read_s(&pts, 3).unwrap(), 1234);
        assert!(last_read_s(&pts, 4).unwrap_err().is_gone());
    }

    proptest! {
        #[test]
        fn any_device_number_is_decoded_without_a_panic(tty: i32) {
            let _ = pts_number(tty);
        }
    }
}
