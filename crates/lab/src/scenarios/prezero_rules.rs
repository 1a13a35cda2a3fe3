// SPDX-License-Identifier: GPL-2.0-or-later
//! What `prezero` promises beside speed.

use std::time::Duration;

use limelight_apps::scenario::Work;

use super::terms::LIMELIGHT;
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// See the module.
pub struct PrezeroRules {
    name: &'static str,
    about: &'static str,
    kind: Kind,
    rounds: u32,
    limit: Duration,
}

/// As a test.
pub const RULES: PrezeroRules = PrezeroRules {
    name: "prezero-rules",
    about:
        "only zeroes are handed out, whatever becomes of the engine; memory goes back, nothing is lost",
    kind: Kind::Test,
    rounds: 12,
    limit: Duration::from_secs(240),
};

/// The same over millions of pages.
pub const SOAK: PrezeroRules = PrezeroRules {
    name: "prezero-soak",
    about: "the same over two million pages",
    kind: Kind::Soak,
    rounds: 200,
    limit: Duration::from_secs(3600),
};

impl Scenario for PrezeroRules {
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
        vec![Variant::new(Lru::Mglru, SwapKind::None, "engines")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: 256,
            vcpus: 2,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new(
            "rules",
            Work::PrezeroRules {
                rounds: self.rounds,
            },
        )]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        self.limit
    }

    /// The guest checks.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}
