// SPDX-License-Identifier: GPL-2.0-or-later
//! The kernel's "flat keyed" files: `memory.stat`, `memory.events`, `/proc/vmstat`,
//! `/proc/meminfo`.

use memchr::memmem;

/// Values by name. Lines that do not begin with a name and a number are left out. So if a later
/// kernel changes the format of a value, the value is absent, not wrong.
///
/// Stores the text and parses it on demand, because callers rarely need more than five of a hundred
/// lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keyed(String);

impl Keyed {
    /// Accepts lines of the form `NAME NUMBER`, with or without a colon after the name. Anything
    /// after the number, such as a unit, is ignored.
    pub fn parse(text: impl Into<String>) -> Self {
        Keyed(text.into())
    }

    /// Value of the last line with that name; `None` if there is none.
    pub fn get(&self, name: &str) -> Option<u64> {
        // Parsing only the lines that contain the name saves most of the time of a lookup.
        let places = memmem::find_iter(self.0.as_bytes(), name);
        let lines = places.filter_map(|place| self.line_at(place));
        let values = lines.filter(|line| begins(line, name)).filter_map(value);
        let values = values.filter_map(|(known, value)| (known == name).then_some(value));
        values.last()
    }

    /// The line that contains the byte at this place.
    fn line_at(&self, place: usize) -> Option<&str> {
        let (before, _) = self.0.split_at_checked(place)?;
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        self.0[begin..].lines().next()
    }

    /// Names with this prefix and their values, ordered by name.
    pub fn with_prefix<'a>(&'a self, prefix: &str) -> impl Iterator<Item = (&'a str, u64)> {
        let lines = self.0.lines().rev().filter(|line| begins(line, prefix));
        let mut values: Vec<_> = lines.filter_map(value).collect();
        values.sort_by_key(|(name, _)| *name);
        values.dedup_by_key(|(name, _)| *name);
        values.into_iter()
    }

    /// Whether no line has the expected form.
    pub fn is_empty(&self) -> bool {
        !self.0.lines().any(|line| value(line).is_some())
    }
}

fn begins(line: &str, name: &str) -> bool {
    line.trim_ascii_start().starts_with(name)
}

fn value(line: &str) -> Option<(&str, u64)> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next()?;
    let name = name.strip_suffix(':').unwrap_or(name);
    Some((name, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_with_and_without_a_colon_are_parsed() {
        let stat = Keyed::parse("anon 4096\nfile 8192\nworkingset_refault_file 3\n");
        assert_eq!(stat.get("anon"), Some(4096));
        assert_eq!(stat.get("absent"), None);
        let meminfo = Keyed::parse("MemTotal:       24576 kB\nHugePages_Total:   0\n");
        assert_eq!(meminfo.get("MemTotal"), Some(24576));
        assert_eq!(meminfo.get("HugePages_Total"), Some(0));
    }

    #[test]
    fn name_may_be_indented_and_the_last_value_is_returned() {
        let stat = Keyed::parse(" \ta: 1\nb 2\n  a 3\n");
        assert_eq!(stat.get("a"), Some(3));
        assert_eq!(
            stat.with_prefix("").collect::<Vec<_>>(),
            [("a", 3), ("b", 2)]
        );
    }

    #[test]
    fn lines_without_a_number_are_left_out() {
        let odd = Keyed::parse("a -1\nb 18446744073709551616\nc\n\n d 1\n");
        assert_eq!(odd.with_prefix("").collect::<Vec<_>>(), [("d", 1)]);
    }

    proptest! {
        #[test]
        fn never_panics(text in any::<String>()) {
            Keyed::parse(&text);
        }

        #[test]
        fn both_ways_find_the_same_values(
            text in "([ \t\x0c\r]?[ab_]{1,4}:? {1,2}[0-9a]{1,21}( ab?)?\n){0,6}",
            name in "[ab_]{1,3}",
        ) {
            let parsed = Keyed::parse(&text);
            let all: std::collections::BTreeMap<_, _> = parsed.with_prefix("").collect();
            prop_assert_eq!(parsed.get(&name), all.get(name.as_str()).copied());
            for (name, value) in all {
                prop_assert_eq!(parsed.get(name), Some(value));
            }
        }

        #[test]
        fn written_values_are_found(values in prop::collection::btree_map("[a-z_]{1,12}", any::<u64>(), 0..8)) {
            let text: String = values.iter().map(|(k, v)| format!("{k} {v}\n")).collect();
            let parsed = Keyed::parse(&text);
            for (name, value) in &values {
                prop_assert_eq!(parsed.get(name), Some(*value));
            }
        }
    }
}
