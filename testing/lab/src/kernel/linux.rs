// SPDX-License-Identifier: GPL-2.0-or-later
//! The versions of Linux that the lab builds and fetches.

use clap::ValueEnum;

use crate::scenario::Kernel;

/// A version of Linux that the series exists for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Linux {
    /// The long-term version, and the default.
    #[default]
    #[value(name = "6.12")]
    V6_12,
    /// The version in the backports of Debian 13.
    #[value(name = "7.3")]
    V7_3,
}

impl Linux {
    /// Version and patch level, as in the names of Debian's packages and of the directories in
    /// `kernel/`.
    pub fn series(self) -> &'static str {
        match self {
            Linux::V6_12 => "6.12",
            Linux::V7_3 => "7.3",
        }
    }

    /// Memory in MiB that Debian's kernel of this version takes beyond that of 6.12, rounded up.
    pub fn additional_mib(self) -> u32 {
        match self {
            Linux::V6_12 => 0,
            Linux::V7_3 => 32,
        }
    }

    /// Kernel parameters with which all zeroing of pages is in functions of its own, as the cache
    /// model requires. Linux 7.3 otherwise inlines `rep stosq` into the callers.
    pub fn traceable_zeroing(self) -> &'static [&'static str] {
        match self {
            Linux::V6_12 => &[],
            Linux::V7_3 => &["clearcpuid=rep_good"],
        }
    }

    /// The version of `kernel` if version `self` is selected. Kernels for other machines, and the
    /// kernel of our package, exist only for Linux 6.12 (or older).
    pub fn of(self, kernel: Kernel) -> Linux {
        match kernel {
            Kernel::Debian | Kernel::Limelight | Kernel::Unpatched | Kernel::Debug => self,
            Kernel::Fu540 | Kernel::Arm64 | Kernel::Arm64Oldest | Kernel::Packaged => Linux::V6_12,
        }
    }

    /// The name of `kernel` in the cache and below `target/lab/kernels`: `limelight` or
    /// `limelight-7.3`.
    pub fn name_of(self, kernel: Kernel) -> String {
        match self.of(kernel) {
            Linux::V6_12 => kernel.name().to_owned(),
            newer @ Linux::V7_3 => format!("{}-{}", kernel.name(), newer.series()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_newer_versions_are_part_of_a_kernel_name() {
        assert_eq!(Linux::V6_12.name_of(Kernel::Limelight), "limelight");
        assert_eq!(Linux::V7_3.name_of(Kernel::Limelight), "limelight-7.3");
        assert_eq!(Linux::V7_3.name_of(Kernel::Arm64), "debian-arm64");
    }
}
