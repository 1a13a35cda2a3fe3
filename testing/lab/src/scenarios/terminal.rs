// SPDX-License-Identifier: GPL-2.0-or-later
//! A terminal with a build in it: the time from a key press to the frame that shows its echo, and
//! the build's progress. In the arm `best-stock`, the build runs at nice 10.

use limelight_apps::scenario::{Place, Session, Typing};

use super::terms::*;

const OWN: &str = "own-cgroup";
const ROOT: &str = "no-cgroup";

/// Number of keys in a run.
const KEYS: u32 = 100;
/// Highest 99th percentile of the time from a key to its frame, relative to an idle machine.
const SLOWER: f64 = 1.5;
/// Lowest progress of the build, relative to stock.
const PROGRESS: f64 = 0.9;

/// The sessions, with the names of their tasks.
const SESSIONS: [(&str, Session); 4] = [
    ("build", Session::Build),
    ("editor", Session::Editor),
    ("agent", Session::Agent),
    ("other-window", Session::OtherWindow),
];

fn tasks(variant: &Variant) -> Vec<Task> {
    let place = match variant.load.as_str() {
        ROOT => Place::Root,
        _ => Place::Background,
    };
    let task = |(name, session)| {
        let keys = KEYS;
        Task::new(
            name,
            Work::Terminal(Typing {
                session,
                keys,
                place,
            }),
        )
    };
    SESSIONS.map(task).into()
}

fn judge(aggregates: &Aggregates) -> Vec<Verdict> {
    let (first, _) = SESSIONS[0];
    Seen::each_arm(aggregates, first, |seen, arm| {
        SESSIONS
            .into_iter()
            .flat_map(move |(task, _)| {
                let seen = seen.of(task);
                [in_time(&seen, arm), built(&seen, arm)]
            })
            .flatten()
            .collect::<Vec<_>>()
    })
}

fn in_time(seen: &Seen<'_>, arm: ArmOn) -> Option<Verdict> {
    let ratio = seen.ratio("key_p99_us", arm, IDLE)?;
    Some(seen.verdict(
        format!(
            "the slowest key in a hundred of {arm} takes at most {SLOWER} times as long as on \
                 an idle machine"
        ),
        ratio <= SLOWER,
        format!("{ratio:.2} times as long"),
    ))
}

fn built(seen: &Seen<'_>, arm: ArmOn) -> Option<Verdict> {
    let ratio = seen.ratio("compiled_per_s", arm, STOCK)?;
    Some(seen.verdict(
        format!("the build beside {arm} makes at least {PROGRESS} of stock's progress"),
        ratio >= PROGRESS,
        format!("{ratio:.3} of stock's progress"),
    ))
}

/// Keys and a build on one CPU, with exact times.
pub const EXACT: Spec = Spec {
    name: "terminal-exact",
    about: "typing in a terminal beside a build in the same tab, another tab or another window",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &[OWN, ROOT])],
    arms: &[IDLE, STOCK, BEST_STOCK, ON_DEBIAN, LIMELIGHT],
    machine: |_| MachineSize {
        memory_mib: 192,
        ..MachineSize::default()
    },
    tasks: |variant, _| tasks(variant),
    time_limit_s: 120,
    must_hold: judge,
    metrics: &[&[
        Metric::lower("key_p50_us", "key to frame, p50"),
        Metric::lower("key_p95_us", "key to frame, p95"),
        Metric::lower("key_p99_us", "key to frame, p99"),
        Metric::lower("missed_frames_percent", "% of frames missed"),
        Metric::higher("compiled_per_s", "compilers ended per second"),
        Metric::lower("daemon_percent", "daemon's % of a processor"),
    ]],
    repetitions: 1,
    mode: Mode::Exact,
    ..Spec::BENCHMARK
};
