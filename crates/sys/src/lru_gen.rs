// SPDX-License-Identifier: GPL-2.0-or-later
//! Detects which page reclaim the kernel uses: the two-list LRU or the multi-generational LRU
//! (MGLRU). The cgroup knob that protects memory depends on it: `memory.low` has no effect under
//! MGLRU.

use crate::dir::Dir;
use crate::error::{Error, Result};

const ENABLED: &str = "kernel/mm/lru_gen/enabled";

/// Page reclaim of the running kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reclaim {
    /// Active and inactive lists: MGLRU is not built in or is switched off.
    TwoList {
        /// Whether MGLRU is built in.
        lru_gen_built: bool,
    },
    /// The multi-generational LRU.
    MultiGen {
        /// Bits of `lru_gen/enabled`. Bit 0: the core. Bit 1: clears accessed bits in leaf page
        /// table entries in batches. Bit 2: clears them in non-leaf entries too.
        features: u32,
    },
}

impl Reclaim {
    /// Reads `kernel/mm/lru_gen/enabled` below a sysfs root (`/sys`).
    pub fn read(sys: &Dir) -> Result<Self> {
        match sys.read_text(ENABLED) {
            Ok(text) => parse(&text).ok_or_else(|| {
                Error::malformed(
                    sys.path().join(ENABLED),
                    format!("{:?} is not a mask", text.trim()),
                )
            }),
            Err(error) if error.is_gone() => Ok(Reclaim::TwoList {
                lru_gen_built: false,
            }),
            Err(error) => Err(error),
        }
    }

    /// True under MGLRU.
    pub fn is_multi_gen(self) -> bool {
        matches!(self, Reclaim::MultiGen { .. })
    }
}

/// Parses the mask: `0x0007`, `7`, or the `y` and `n` that the kernel also accepts.
pub fn parse(text: &str) -> Option<Reclaim> {
    let features = match text.trim() {
        "y" | "Y" => 7,
        "n" | "N" => 0,
        text => match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok()?,
            None => text.parse().ok()?,
        },
    };
    // Without bit 0 the other bits have no effect.
    Some(match features & 1 {
        0 => Reclaim::TwoList {
            lru_gen_built: true,
        },
        _ => Reclaim::MultiGen { features },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn masks_are_parsed() {
        assert_eq!(parse("0x0007\n"), Some(Reclaim::MultiGen { features: 7 }));
        assert_eq!(
            parse("0x0000\n"),
            Some(Reclaim::TwoList {
                lru_gen_built: true
            })
        );
        assert_eq!(
            parse("0x0006\n"),
            Some(Reclaim::TwoList {
                lru_gen_built: true
            })
        );
        assert_eq!(parse("1"), Some(Reclaim::MultiGen { features: 1 }));
        assert_eq!(parse("0x"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn missing_file_means_two_lists() {
        let sys = tempfile::tempdir().unwrap();
        let dir = Dir::open(sys.path()).unwrap();
        assert_eq!(
            Reclaim::read(&dir).unwrap(),
            Reclaim::TwoList {
                lru_gen_built: false
            }
        );
        std::fs::create_dir_all(sys.path().join("kernel/mm/lru_gen")).unwrap();
        std::fs::write(sys.path().join(ENABLED), "0x0007\n").unwrap();
        assert!(Reclaim::read(&dir).unwrap().is_multi_gen());
        std::fs::write(sys.path().join(ENABLED), "perhaps\n").unwrap();
        assert!(matches!(Reclaim::read(&dir), Err(Error::Malformed { .. })));
    }

    proptest! {
        #[test]
        fn never_panics(text in any::<String>()) {
            parse(&text);
        }
    }
}
