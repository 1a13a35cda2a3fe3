// SPDX-License-Identifier: GPL-2.0-or-later
//! `prezero`'s promises other than speed.

use std::time::Duration;

use limelight_apps::scenario::Work;

use super::terms::LIMELIGHT;
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// The variant with the first response window of a previously seen app.
const FIRST: &str = "first-window";

/// Checks of prezero, as a test or as a soak.
pub struct PrezeroRules {
    name: &'static str,
    about: &'static str,
    kind: Kind,
    rounds: u32,
    limit: Duration,
}

/// The checks as a test.
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
        let rules = Variant::new(Lru::Mglru, SwapKind::None, "engines");
        let first =
            (self.kind == Kind::Test).then(|| Variant::new(Lru::Mglru, SwapKind::None, FIRST));
        std::iter::once(rules).chain(first).collect()
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![LIMELIGHT]
    }

    fn machine(&self, variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: if variant.load == FIRST { 512 } else { 256 },
            vcpus: 2,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        if variant.load == FIRST {
            return vec![Task::new(FIRST, Work::PrezeroFirstWindow)];
        }
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

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}
