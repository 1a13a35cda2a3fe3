// SPDX-License-Identifier: GPL-2.0-or-later
//! Three users run random operations without privilege, and one of them takes all memory. The other
//! users lose no more than on stock Linux, and no user learns what another one does.

use limelight_apps::scenario::UsersChaos;

use super::leak;
use super::terms::*;

const TASK: &str = "mingle";
/// Number of deaths by the kernel's OOM killer that may differ from run to run. The guest checks
/// that the daemon itself kills no innocent app.
const CHANCE: f64 = 1.0;

/// Three users on one machine.
pub const USERS_CHAOS: Spec = Spec {
    name: "users-chaos",
    about: "no action of three users harms or reveals another user's apps",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["users"])],
    arms: &[STOCK, ON_DEBIAN, LIMELIGHT],
    machine: |_| leak::machine(0),
    tasks: |_, _| {
        let work = UsersChaos {
            operations: 120,
            seed: 0x05e2_c4a0,
        };
        vec![Task::new(TASK, Work::UsersChaos(work))]
    },
    time_limit_s: 240,
    must_hold,
    // On stock, the OOM killer ends the growth.
    expected_console: OUT_OF_MEMORY,
    ..Spec::TEST
};

/// Verdicts on innocent deaths, and that memory ran short on stock, because otherwise nothing was
/// tested. The guest checks everything else.
fn must_hold(aggregates: &Aggregates) -> Vec<Verdict> {
    Seen::each_variant(aggregates, TASK, |seen| {
        let variant = seen.variant;
        let dead = |arm| seen.median(arm, "innocent_dead");
        let compared = OURS.into_iter().filter_map(|arm| {
            let (stock, ours) = (dead(STOCK)?, dead(arm)?);
            Some(
                Verdict::new(
                    format!("{variant}: {arm} costs at most one innocent app more than stock"),
                    ours <= stock + CHANCE,
                    format!("{ours} died, on stock {stock}"),
                )
                .on_figure(),
            )
        });
        let short = seen.median(STOCK, "oom_kills").map(|kills| {
            Verdict::new(
                format!("{variant}: one user takes all memory"),
                kills >= 1.0,
                format!("{kills} OOM kills on stock"),
            )
            .on_figure()
        });
        compared.chain(short).collect::<Vec<_>>()
    })
}
