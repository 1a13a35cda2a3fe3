// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use limelight_core::model::class::Class;
use limelight_core::model::ProcessId;

fn report(at: u64) -> Report {
    let key = AppKey::Tree(ProcessId {
        pid: 7,
        starttime: 1,
    });
    Report {
        candidate: Candidate {
            app: key,
            owner: 1000,
            class: Class::Normal,
            leaks: false,
            in_use: false,
            avoid: false,
            dear: false,
            waits: false,
            starts_until: Duration::ZERO,
            held: 0,
            least: 0,
            least_at: Duration::ZERO,
        },
        level: Level::Kill,
        before: Duration::ZERO,
        crossed: Duration::from_secs(at),
        asked: None,
        killed: Duration::from_secs(at),
        freed: None,
        gauge: Gauge::default(),
        held: 0,
        burst: None,
        bytes: 0,
        how: Some(Killed::default()),
    }
}

#[test]
fn reports_are_taken_once_in_order_and_overflow_is_counted() {
    let mut reports = Reports::new();
    for at in 0..REPORTS_MAX as u64 + 3 {
        reports.push(report(at));
    }
    let taken = reports.take();
    assert_eq!(taken.lost, 3);
    let order: Vec<u64> = taken
        .ring
        .iter()
        .flatten()
        .map(|report| report.crossed.as_secs())
        .collect();
    assert_eq!(order, (0..REPORTS_MAX as u64).collect::<Vec<_>>());
    assert_eq!(reports.take().count, 0);
}
