// SPDX-License-Identifier: GPL-2.0-or-later
//! The kernel's lists of processors or nodes, such as `0-3,8` (`%*pbl` in its `vsprintf()`).

/// Maximum number of returned numbers. The kernel itself is limited to 8192 processors.
const MAX: usize = 1 << 16;

/// Returns the numbers in order of appearance. Anything but numbers and ranges is left out.
pub fn parse(text: &str) -> Vec<u32> {
    let ranges = text.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().take(MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_and_single_numbers_are_parsed() {
        assert_eq!(parse("0\n"), [0]);
        assert_eq!(parse("0-2,8,10-11\n"), [0, 1, 2, 8, 10, 11]);
        assert_eq!(parse("\n"), [0; 0]);
        assert_eq!(parse("(null)\n"), [0; 0]);
        assert_eq!(parse("3-1,x,4-"), [0; 0]);
        assert_eq!(parse("0-4294967295").len(), MAX);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in "[0-9,\\-x\n]{0,30}") {
            prop_assert!(parse(&text).len() <= MAX);
        }
    }
}
