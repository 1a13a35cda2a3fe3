// SPDX-License-Identifier: GPL-2.0-or-later
//! Parsers of files in `/proc` and `/sys`. Some of the text comes from other programs: processes
//! choose their names and the paths of files, sockets and mounts.

use limelight_sys::files::{parse_maps, Position};
use limelight_sys::lru_gen;
use limelight_sys::maps::ReadMapping;
use limelight_sys::meminfo::{parse_swaps, MemInfo};
use limelight_sys::mountinfo;
use limelight_sys::process::{Autogroup, Stat, Status};
use limelight_sys::swap::Zram;
use limelight_sys::swapped::accessible;
use limelight_sys::unix_sockets;
use limelight_sys::watermarks::Watermarks;

/// Runs all parsers on the input and checks their results. No parser may panic. Process names,
/// socket names and paths of swap areas must occur in the input.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(stat) = Stat::parse(&text) {
        assert!(text.contains(&stat.comm), "{stat:?}");
        check_name(&stat);
    }
    if let Some(status) = Status::parse(&text) {
        assert!(text.contains("Uid:"), "{status:?}");
    }
    for line in text.lines() {
        if let Some(range) = accessible(line) {
            assert!(range.start < range.end, "{line:?}");
        }
        ReadMapping::parse(line);
    }
    for mapped in parse_maps(&text) {
        assert!(mapped.path.is_absolute() && mapped.key.1 != 0, "{mapped:?}");
    }
    for mount in mountinfo::parse(&text) {
        assert!(mountinfo::find(std::slice::from_ref(&mount), &mount.kind).is_some());
    }
    if let Some(marks) = Watermarks::parse(&text, 4096) {
        assert_eq!(marks.most_boost_bytes, 0);
    }
    for socket in unix_sockets::parse(&text) {
        assert!(text.contains(&socket.name), "{socket:?}");
    }
    for area in parse_swaps(&text) {
        assert!(text.contains(&area.path) && area.size_bytes % 1024 == 0);
    }
    if let Some(group) = Autogroup::parse(&text) {
        assert_ne!(group.number, 0);
    }
    MemInfo::parse(&text);
    Position::parse(&text);
    Zram::parse(&text);
    lru_gen::parse(&text);
}

/// Checks that the process name cannot change other fields of a `stat` line, even if the name looks
/// like such fields.
fn check_name(stat: &Stat) {
    let comm: String = stat.comm.chars().filter(|&char| char != '\n').collect();
    let tail = "S 1 7 7 0 -1 4194560 311 0 42 0 5 3 0 0 20 0 1 0 9876 10 20 30";
    let own = Stat::parse(&format!("4242 ({comm}) {tail}\n")).expect("any name is valid");
    assert_eq!((own.pid, own.ppid, own.start_ticks), (4242, 1, 9876));
    assert_eq!(own.comm, comm);
}
