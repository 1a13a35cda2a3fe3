// SPDX-License-Identifier: GPL-2.0-or-later
//! Everything that limelightd depends on fails: it is killed, as are a session's agent and X
//! server, cgroups vanish, descriptors and disks run out, /sys is read-only, clocks jump, the
//! machine suspends. The guest checks that the state is correct after each trouble and that nothing
//! is left behind.

use std::time::Duration;

use limelight_apps::scenario::{Chaos as Parameters, Work};

use super::terms::{LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// A series of troubles.
pub struct Chaos {
    name: &'static str,
    about: &'static str,
    kind: Kind,
    steps: u32,
    /// Whether there is a user's session, with Debian's X server.
    session: bool,
    /// Whether the machine suspends.
    sleep: bool,
    limit: Duration,
}

/// Each trouble once, without a session: in every test run.
pub const SHORT: Chaos = Chaos {
    name: "chaos-short",
    about: "everything around limelightd breaks once, and the state is right afterwards",
    kind: Kind::Test,
    steps: EVERYWHERE.len() as u32,
    session: false,
    sleep: false,
    limit: Duration::from_secs(240),
};

/// Each trouble once, with a session.
pub const SESSION: Chaos = Chaos {
    name: "chaos-session",
    about: "the same beside a session with an X server and limelight-agent, which are killed too",
    kind: Kind::Soak,
    steps: EVERYWHERE.len() as u32 + 1,
    session: true,
    sleep: false,
    limit: Duration::from_secs(600),
};

/// Each trouble once, and the machine suspends. An emulator was lost in this once, so it runs on
/// demand, and separate from long runs.
pub const SLEEP: Chaos = Chaos {
    name: "chaos-sleep",
    about: "chaos-short on a machine that sleeps, too",
    kind: Kind::Soak,
    steps: EVERYWHERE.len() as u32 + 1,
    session: false,
    sleep: true,
    limit: Duration::from_secs(240),
};

/// Hundreds of troubles.
pub const LONG: Chaos = Chaos {
    name: "chaos",
    about: "everything around limelightd and a session breaks, 400 times in random order",
    kind: Kind::Soak,
    steps: 400,
    session: true,
    sleep: false,
    limit: Duration::from_secs(7200),
};

const TASK: &str = "chaos";
/// The troubles that every machine supports.
const EVERYWHERE: [&str; 14] = [
    "killed",
    "killed_for_good",
    "killed_alone",
    "watcher_killed",
    "killed_read_only",
    "agent_killed",
    "group_gone",
    "no_descriptors",
    "read_only",
    "full_run",
    "full_state",
    "clock_back",
    "clock_ahead",
    "stopped",
];

impl Chaos {
    /// The troubles that must have occurred.
    fn troubles(&self) -> Vec<&'static str> {
        let mut all = EVERYWHERE.to_vec();
        if self.session {
            all.push("server_killed");
        }
        if self.sleep {
            all.push("suspended");
        }
        all
    }
}

impl Scenario for Chaos {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, TASK)]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        match self.sleep {
            // Our kernel is built without suspend.
            true => vec![ON_DEBIAN],
            false => vec![ON_DEBIAN, LIMELIGHT],
        }
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        let (memory_mib, rootfs_packages) = match self.session {
            true => (384, vec!["xvfb".to_owned()]),
            false => (256, Vec::new()),
        };
        MachineSize {
            memory_mib,
            rootfs_packages,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let work = Parameters {
            steps: self.steps,
            seed: 0xc4a0,
            sleep: self.sleep,
        };
        vec![Task::new(TASK, Work::Chaos(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        self.limit
    }

    /// The guest checks the state; here only the number of troubles counts.
    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for arm in [ON_DEBIAN, LIMELIGHT] {
                let count =
                    |name: &str| aggregates.median(&variant, arm, TASK, &format!("trouble_{name}"));
                if count(EVERYWHERE[0]).is_none() {
                    continue;
                }
                let troubles = self.troubles();
                let missing: Vec<&str> = troubles
                    .iter()
                    .copied()
                    .filter(|name| count(name).is_none_or(|count| count < 1.0))
                    .collect();
                let all: f64 = troubles.iter().filter_map(|name| count(name)).sum();
                verdicts.push(Verdict::new(
                    format!("{variant}: {arm} goes through every trouble"),
                    missing.is_empty(),
                    match missing.is_empty() {
                        true => format!("{all} of {} kinds", troubles.len()),
                        false => format!("missing: {}", missing.join(", ")),
                    },
                ));
            }
        }
        verdicts
    }
}
