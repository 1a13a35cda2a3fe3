// SPDX-License-Identifier: GPL-2.0-or-later
//! Sets of addresses: ascending ranges that do not overlap.

use limelight_sys::remote_memory::AddressRange;

/// Intersection.
pub fn both(left: &[AddressRange], right: &[AddressRange]) -> Vec<AddressRange> {
    let (mut i, mut j) = (0, 0);
    let mut all = Vec::new();
    while let (Some(a), Some(b)) = (left.get(i), right.get(j)) {
        let range = AddressRange {
            start: a.start.max(b.start),
            end: a.end.min(b.end),
        };
        if range.start < range.end {
            all.push(range);
        }
        match a.end < b.end {
            true => i += 1,
            false => j += 1,
        }
    }
    all
}

/// The addresses in `left` that are not in `right`.
pub fn without(left: &[AddressRange], right: &[AddressRange]) -> Vec<AddressRange> {
    let mut all = Vec::new();
    let mut j = 0;
    for range in left {
        let mut start = range.start;
        while let Some(hole) = right.get(j).filter(|hole| hole.start < range.end) {
            if hole.start > start {
                all.push(AddressRange {
                    start,
                    end: hole.start,
                });
            }
            start = start.max(hole.end);
            if hole.end > range.end {
                break;
            }
            j += 1;
        }
        if start < range.end {
            all.push(AddressRange {
                start,
                end: range.end,
            });
        }
    }
    all
}

/// Union.
pub fn either(left: &[AddressRange], right: &[AddressRange]) -> Vec<AddressRange> {
    let mut all = [left, right].concat();
    all.sort_unstable();
    joined(all, 0)
}

/// Merges ascending ranges that are at most `gap` bytes apart.
pub fn joined(ranges: Vec<AddressRange>, gap: u64) -> Vec<AddressRange> {
    let mut joined: Vec<AddressRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start.saturating_sub(last.end) <= gap => {
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ranges() -> impl Strategy<Value = Vec<AddressRange>> {
        prop::collection::vec((1u64..8, 1u64..8), 0..8).prop_map(|steps| {
            let mut at = 0;
            let range = |(gap, len)| {
                let start = at + gap;
                at = start + len;
                AddressRange { start, end: at }
            };
            steps.into_iter().map(range).collect()
        })
    }

    fn set(ranges: &[AddressRange]) -> BTreeSet<u64> {
        let all = ranges.iter().flat_map(|range| range.start..range.end);
        all.collect()
    }

    proptest! {
        #[test]
        fn range_operations_match_set_operations(left in ranges(), right in ranges()) {
            let (a, b) = (set(&left), set(&right));
            prop_assert_eq!(set(&both(&left, &right)), &a & &b);
            prop_assert_eq!(set(&without(&left, &right)), &a - &b);
            prop_assert_eq!(set(&either(&left, &right)), &a | &b);
        }

        #[test]
        fn near_ranges_are_merged(all in ranges(), gap in 0u64..8) {
            let joined = joined(all.clone(), gap);
            prop_assert!(set(&joined).is_superset(&set(&all)));
            let apart = |pair: &[AddressRange]| pair[1].start - pair[0].end > gap;
            prop_assert!(joined.windows(2).all(apart));
        }
    }
}
