// SPDX-License-Identifier: GPL-2.0-or-later
//! The heap of a process of its own, so that no other test allocates meanwhile.

use limelight_sys::heap::trim;

/// Resident bytes of this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find(|line| line.starts_with("Rss:")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn free_pages_below_a_small_block_leave_memory() {
    let work = || {
        let blocks: Vec<Vec<u8>> = (0..1024).map(|_| vec![1; 8 << 10]).collect();
        let last = std::hint::black_box(vec![1_u8; 64]);
        let full = resident();
        drop(std::hint::black_box(blocks));
        trim();
        let freed = full.saturating_sub(resident());
        drop(last);
        freed
    };
    let freed = std::thread::spawn(work).join().unwrap();
    assert!(freed > 7 << 20, "{freed}");
}
