// SPDX-License-Identifier: GPL-2.0-or-later
//! Text that came from a process: names, paths, a client's strings.
//!
//! A process chooses its name freely, including newlines and terminal sequences. Wherever such text
//! is shown (terminal, log, notification) it goes through [`escaped`], so that it cannot forge a
//! line or move the cursor.

use std::borrow::Cow;

/// Escapes the text into one line. Control characters, line and paragraph separators, and
/// characters that change the direction of writing become escapes such as `\n` and `\u{1b}`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_unsafe(c) {
            true => safe.extend(c.escape_default()),
            false => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

fn is_unsafe(c: char) -> bool {
    let separator = matches!(c, '\u{2028}' | '\u{2029}');
    let direction =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || separator || direction
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_unsafe_characters_are_escaped() {
        for (text, shown) in [
            ("gimp", "gimp"),
            ("Fotos \u{e4}\u{1f600} \\x2d", "Fotos \u{e4}\u{1f600} \\x2d"),
            ("a\nkilled: b", "a\\nkilled: b"),
            ("\t\r\0", "\\t\\r\\u{0}"),
            ("\u{1b}[2J\u{9b}1m\u{7f}", "\\u{1b}[2J\\u{9b}1m\\u{7f}"),
            ("a\u{202e}b\u{2028}", "a\\u{202e}b\\u{2028}"),
        ] {
            assert_eq!(escaped(text), shown);
        }
    }

    proptest! {
        #[test]
        fn result_is_one_harmless_line(text in any::<String>()) {
            let shown = escaped(&text);
            prop_assert!(!shown.chars().any(is_unsafe));
            prop_assert_eq!(escaped(&shown), shown.clone());
        }
    }
}
