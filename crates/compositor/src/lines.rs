// SPDX-License-Identifier: GPL-2.0-or-later
//! Splits a byte stream into lines.

/// Removes all complete lines from `unread`, and returns them without their line endings. Invalid
/// UTF-8 is replaced.
pub fn take(unread: &mut Vec<u8>) -> Vec<String> {
    let end = unread.iter().rposition(|&byte| byte == b'\n');
    let whole: Vec<u8> = unread.drain(..end.map_or(0, |end| end + 1)).collect();
    let whole = String::from_utf8_lossy(&whole);
    whole.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_line_stays_in_the_buffer() {
        let mut unread = b"one\r\ntwo\nthr".to_vec();
        assert_eq!(take(&mut unread), ["one", "two"]);
        assert_eq!(take(&mut unread), [""; 0]);
        unread.extend(b"ee\n");
        assert_eq!(take(&mut unread), ["three"]);
    }
}
