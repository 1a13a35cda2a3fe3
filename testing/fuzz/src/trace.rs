// SPDX-License-Identifier: GPL-2.0-or-later
//! Tracepoint records, as text and as bytes. They contain process names.

use limelight_sys::perf::{self, Tracepoint};
use limelight_sys::tracefs::{parse_oom_score_adj, parse_sched_waking, take_lines, Line};

/// The lines read from a pipe do not depend on how its bytes were split. A process name cannot
/// shift the fields of a record.
pub fn run(data: &[u8]) {
    let mut whole = data.to_vec();
    let lines = take_lines(&mut whole);
    let (mut pieces, mut buffer) = (Vec::new(), Vec::new());
    for piece in data.split_inclusive(|&byte| byte == b'\n') {
        buffer.extend_from_slice(piece);
        pieces.extend(take_lines(&mut buffer));
    }
    assert_eq!(lines, pieces);
    for line in &lines {
        if let Some(Line::Event(event)) = Line::parse(line) {
            assert!(event.tid >= 0, "{line:?}");
            parse_oom_score_adj(event.fields);
            assert!(parse_sched_waking(event.fields).is_none_or(|pid| pid > 0));
        }
    }
    check_fields(&lines, data);
    let batch = perf::parse(data);
    let recorded: usize = batch.events.iter().map(Vec::len).sum();
    assert!(recorded <= data.len());
}

fn check_fields(lines: &[String], data: &[u8]) {
    let Some(tracepoint) = Tracepoint::parse("600\n", &lines.join("\n")) else {
        return;
    };
    for line in lines {
        let name = line
            .split(';')
            .next()
            .and_then(|text| text.split(' ').next_back());
        tracepoint.number(data, name.unwrap_or_default());
    }
}
