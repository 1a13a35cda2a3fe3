// SPDX-License-Identifier: GPL-2.0-or-later
//! The kernel's reserves of free memory: the watermarks of `/proc/zoneinfo`.

use crate::error::{Error, Result};
use crate::meminfo::page_bytes;
use crate::proc::Proc;

/// The watermarks of all zones together, in bytes.
///
/// Fragmentation temporarily raises all three watermarks (`boost`). The values exclude this boost;
/// its maximum is [`Watermarks::most_boost_bytes`]. They also exclude the `protection` of each
/// zone, a reserve against requests that other zones could serve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// With less free memory, allocating tasks reclaim memory themselves (direct reclaim).
    pub min_bytes: u64,
    /// With less free memory, kswapd wakes up.
    pub low_bytes: u64,
    /// kswapd reclaims until this much memory is free.
    pub high_bytes: u64,
    /// Largest boost of each watermark (`vm.watermark_boost_factor`).
    pub most_boost_bytes: u64,
}

impl Watermarks {
    /// Reads `/proc/zoneinfo`.
    pub fn read(proc: &Proc) -> Result<Watermarks> {
        const FILE: &str = "zoneinfo";
        let text = proc.dir().read_text(FILE)?;
        let marks = Watermarks::parse(&text, page_bytes()).ok_or_else(|| {
            Error::malformed(proc.dir().path().join(FILE), "no zone has watermarks")
        })?;
        // The unit of the factor is a ten-thousandth of the high watermark.
        let factor = proc.dir().read_text("sys/vm/watermark_boost_factor").ok();
        let factor = factor.and_then(|text| text.trim().parse::<u64>().ok());
        let boost = marks.high_bytes / 10_000;
        Ok(Watermarks {
            most_boost_bytes: boost.saturating_mul(factor.unwrap_or(0)),
            ..marks
        })
    }

    /// `high_bytes` with the largest boost.
    pub fn most_high_bytes(&self) -> u64 {
        self.high_bytes.saturating_add(self.most_boost_bytes)
    }

    /// Parses `zoneinfo`, given the page size in bytes; `None` if no zone has watermarks.
    pub fn parse(text: &str, page: u64) -> Option<Watermarks> {
        let mut sum = None;
        let mut boost = 0u64;
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(name), Some(value), None) = (words.next(), words.next(), words.next()) else {
                if begins_zone(line) {
                    boost = 0;
                }
                continue;
            };
            let Ok(pages) = value.parse::<u64>() else {
                continue;
            };
            let marks = |sum: &mut Option<Watermarks>, add: fn(&mut Watermarks) -> &mut u64| {
                let bytes = pages.saturating_sub(boost).saturating_mul(page);
                let mark = add(sum.get_or_insert_with(Watermarks::default));
                *mark = mark.saturating_add(bytes);
            };
            // Names of per-processor values end in a colon (`high:`) and match nothing here.
            match name {
                "boost" => boost = pages,
                "min" => marks(&mut sum, |marks| &mut marks.min_bytes),
                "low" => marks(&mut sum, |marks| &mut marks.low_bytes),
                "high" => marks(&mut sum, |marks| &mut marks.high_bytes),
                _ => {}
            }
        }
        sum
    }
}

fn begins_zone(line: &str) -> bool {
    line.starts_with("Node ") && line.contains(", zone ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 66554
  pages free     3840
        boost    4
        min      14
        low      17
        high     20
        promo    23
        spanned  4095
        protection: (0, 2913, 23903)
      nr_free_pages 3840
  pagesets
    cpu: 0
              count:    0
              high:     999
              high_min: 999
  vm stats threshold: 8
Node 0, zone   Normal
  pages free     100
        min      100
        low      125
        high     150
Node 0, zone  Movable
  pages free     0
        boost    0
        min      0
        low      0
        high     0
";

    #[test]
    fn zones_add_up_without_their_boost() {
        let marks = Watermarks::parse(TWO, 4096).unwrap();
        let expected = Watermarks {
            min_bytes: 110 * 4096,
            low_bytes: 138 * 4096,
            high_bytes: 166 * 4096,
            most_boost_bytes: 0,
        };
        assert_eq!(marks, expected);
        assert_eq!(Watermarks::parse("Node 0, zone DMA\n", 4096), None);
    }

    #[test]
    fn largest_boost_is_a_share_of_the_high_watermark() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("zoneinfo"), TWO).unwrap();
        let proc = Proc::open(temp.path().to_str().unwrap()).unwrap();
        assert_eq!(Watermarks::read(&proc).unwrap().most_boost_bytes, 0);
        std::fs::create_dir_all(temp.path().join("sys/vm")).unwrap();
        std::fs::write(temp.path().join("sys/vm/watermark_boost_factor"), "15000\n").unwrap();
        let marks = Watermarks::read(&proc).unwrap();
        assert_eq!(marks.most_boost_bytes, marks.high_bytes / 10_000 * 15_000);
    }

    #[test]
    fn this_machine_has_watermarks() {
        let proc = Proc::open("/proc").unwrap();
        let marks = Watermarks::read(&proc).unwrap();
        assert!(marks.min_bytes > 0, "{marks:?}");
        assert!(marks.min_bytes <= marks.low_bytes && marks.low_bytes <= marks.high_bytes);
    }

    proptest! {
        #[test]
        fn never_panics(text in any::<String>()) {
            Watermarks::parse(&text, 4096);
        }
    }
}
