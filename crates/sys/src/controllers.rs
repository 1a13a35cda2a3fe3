// SPDX-License-Identifier: GPL-2.0-or-later
//! Determines from `/proc/cgroups` why cgroup v2 lacks a controller.

use std::fmt;

use crate::error::Result;
use crate::proc::Proc;

/// Reason why a controller is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// A cgroup v1 hierarchy uses the controller.
    V1,
    /// The controller was disabled at boot (`cgroup_disable=`).
    Disabled,
    /// The kernel was built without the controller.
    NotBuilt,
    /// The controller is available to cgroup v2, but only part of the hierarchy is visible here.
    Hidden,
}

impl Lack {
    /// How a user can make the memory controller available.
    pub fn cure(self) -> &'static str {
        match self {
            Lack::V1 => {
                "boot with cgroup_no_v1=memory (or systemd.unified_cgroup_hierarchy=1; on Android \
                 list the memory controller under Cgroups2 in cgroups.json)"
            }
            Lack::Disabled => "remove cgroup_disable=memory from the kernel's command line",
            Lack::NotBuilt => "build the kernel with CONFIG_MEMCG",
            Lack::Hidden => "run Limelight outside the container",
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lack::V1 => "cgroup v1 holds it",
            Lack::Disabled => "it is switched off",
            Lack::NotBuilt => "the kernel was built without it",
            Lack::Hidden => "only part of the cgroup hierarchy is visible here",
        })
    }
}

impl Proc {
    /// Determines why cgroup v2 lacks a controller.
    pub fn lack_of(&self, controller: &str) -> Result<Lack> {
        Ok(parse(&self.dir().read_text("cgroups")?, controller))
    }
}

/// Parses `/proc/cgroups`. Its columns are: name, hierarchy (0: not in cgroup v1), number of
/// groups, enabled.
pub fn parse(text: &str, controller: &str) -> Lack {
    let line = text
        .lines()
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .find(|words| words.first() == Some(&controller));
    match line.as_deref() {
        Some([_, _, _, "0"]) => Lack::Disabled,
        Some([_, "0", _, _]) => Lack::Hidden,
        Some([_, _, _, _]) => Lack::V1,
        _ => Lack::NotBuilt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n\
                        cpuset\t1\t1\t1\ncpu\t0\t60\t1\nmemory\t6\t60\t1\nrdma\t0\t1\t0\n";

    #[test]
    fn each_reason_is_recognised() {
        for (controller, lack) in [
            ("memory", Lack::V1),
            ("cpu", Lack::Hidden),
            ("rdma", Lack::Disabled),
            ("io", Lack::NotBuilt),
        ] {
            assert_eq!(parse(TEXT, controller), lack, "{controller}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in any::<String>(), controller in "[a-z]{0,6}") {
            parse(&text, &controller);
        }
    }
}
