// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests of the records of starts.

use super::*;
use proptest::prelude::*;

const KIB: u64 = 1 << 10;

fn version(inode: u64, size: u64) -> FileVersion {
    FileVersion {
        device: 2049,
        inode,
        size,
        mtime_ns: -5,
    }
}

fn file(inode: u64, size: u64, extents: &[(u64, u64)]) -> FileExtents {
    FileExtents {
        version: version(inode, size),
        path: format!("/usr/lib/{inode}"),
        extents: extents
            .iter()
            .map(|&(offset, len)| Extent { offset, len })
            .collect(),
    }
}

fn record(files: Vec<FileExtents>) -> Record {
    Record::new("/usr/bin/app", version(1, 9), files, u64::MAX)
}

fn extents(record: &Record, at: usize) -> Vec<(u64, u64)> {
    let extents = &record.files[at].extents;
    extents.iter().map(|e| (e.offset, e.len)).collect()
}

#[test]
fn close_ranges_are_merged_and_stay_inside_the_file() {
    let size = 900 * KIB;
    let record = record(vec![file(
        7,
        size,
        &[
            (500 * KIB, 8 * KIB),
            (0, 4 * KIB),
            (60 * KIB, 4 * KIB),
            (890 * KIB, 64 * KIB),
            (2000 * KIB, 4 * KIB),
        ],
    )]);
    let expected = [(0, 64 * KIB), (500 * KIB, 8 * KIB), (890 * KIB, 10 * KIB)];
    assert_eq!(extents(&record, 0), expected);
}

#[test]
fn files_keep_their_order_and_the_largest_are_dropped_first() {
    let files = vec![
        file(9, 100 * KIB, &[(0, 10 * KIB)]),
        file(3, 100 * KIB, &[(0, 90 * KIB)]),
        file(4, 100 * KIB, &[(0, 20 * KIB)]),
        file(8, 100 * KIB, &[]),
        file(9, 200 * KIB, &[(0, KIB)]),
    ];
    let all = record(files.clone());
    let inodes = |record: &Record| -> Vec<u64> {
        record.files.iter().map(|file| file.version.inode).collect()
    };
    assert_eq!(inodes(&all), [9, 3, 4]);
    let bounded = Record::new("/a", version(1, 9), files, 30 * KIB);
    assert_eq!(inodes(&bounded), [9, 4]);
    assert_eq!(bounded.bytes(), 30 * KIB);
}

#[test]
fn newer_recording_adds_drops_and_merges() {
    let size = 900 * KIB;
    let old = record(vec![
        file(1, size, &[(0, 4 * KIB)]),
        file(2, size, &[(0, 4 * KIB)]),
    ]);
    let newer = record(vec![
        file(2, size, &[(500 * KIB, 4 * KIB)]),
        file(3, size, &[(0, 4 * KIB)]),
    ]);
    let updated = old.updated(newer.clone(), false, u64::MAX);
    assert_eq!(updated.files.len(), 2);
    assert_eq!(extents(&updated, 0), [(0, 4 * KIB), (500 * KIB, 4 * KIB)]);
    let partial = old.updated(newer, true, u64::MAX);
    assert_eq!(partial.files.len(), 3);
    let inodes: Vec<u64> = partial
        .files
        .iter()
        .map(|file| file.version.inode)
        .collect();
    assert_eq!(inodes, [2, 3, 1]);
    assert!(!old.resembles(&updated) && updated.resembles(&updated.clone()));
}

#[test]
fn record_round_trips_through_text() {
    let mut odd = file(2, 900 * KIB, &[(0, 4 * KIB), (500 * KIB, 8 * KIB)]);
    odd.path = "/home/a b/c\\d\ne\r".to_owned();
    let record = record(vec![odd]);
    let text = record.encode();
    assert!(text.starts_with("limelight-coldstart 2\nprogram 2049 1 9 -5 /usr/bin/app\n"));
    assert_eq!(Record::decode(&text), Ok(record));
}

#[test]
fn damaged_text_is_refused_with_its_flaw() {
    let text = record(vec![file(2, 9 * KIB, &[(0, 4 * KIB)])]).encode();
    for cut in 0..text.len() {
        assert!(Record::decode(&text[..cut]).is_err(), "{cut}");
    }
    assert_eq!(
        Record::decode(&text.replace("4096", "4097")),
        Err(Flaw::Damaged)
    );
    assert_eq!(
        Record::decode(&text.replace("coldstart 2", "coldstart 1")),
        Err(Flaw::Foreign)
    );
    let with_sum = |body: &str| format!("{body}sum {:016x}\n", checksum(body));
    for (body, line) in [
        ("limelight-coldstart 2\n", 2),
        ("limelight-coldstart 2\nprogram 1 2 3 4 relative\n", 2),
        ("limelight-coldstart 2\nprogram 1 2 3 4 /a\nrange 0 1\n", 3),
        ("limelight-coldstart 2\nprogram 1 2 3 4 /a\nfile 1 2 3 4 /b\nrange 18446744073709551615 1\n", 4),
        ("limelight-coldstart 2\nprogram 1 2 3 4 /a\nfile 1 2 3 4 /b\\x\n", 3),
    ] {
        assert_eq!(Record::decode(&with_sum(body)), Err(Flaw::Line(line)), "{body}");
    }
}

#[test]
fn figures_of_any_size_are_accepted() {
    let whole = [(0, u64::MAX), (u64::MAX - 1, 1)];
    let huge = record(vec![file(1, u64::MAX, &whole), file(2, u64::MAX, &whole)]);
    assert_eq!(extents(&huge, 0), [(0, u64::MAX)]);
    assert_eq!(huge.bytes(), u64::MAX);
    let again = huge.updated(huge.clone(), true, u64::MAX);
    assert!(again.resembles(&huge));
}

#[test]
fn record_names_are_file_names_and_distinguish_programs() {
    let name = file_name("/usr/bin/gimp-2.10", 1000);
    assert!(name.starts_with("gimp-2.10-"), "{name}");
    assert_ne!(name, file_name("/usr/local/bin/gimp-2.10", 1000));
    assert_ne!(name, file_name("/usr/bin/gimp-2.10", 1001));
    assert!(!file_name("/a/.. \n/\u{e9}", 7).contains(['/', '\n', ' ']));
    assert_eq!(user_of(&name), 1000);
    assert_eq!(user_of("gimp-2.10-0123456789abcdef"), 0);
    assert_eq!(user_of(&file_name("/a@7", 8)), 8);
}

#[test]
fn records_of_one_user_leave_other_users_their_share() {
    let own = |user: u32, count: u32| (0..count).map(move |n| file_name(&format!("/a{n}"), user));
    // The oldest records belong to the users with few records.
    let mut names: Vec<String> = own(1000, 3).chain(own(1001, 2)).collect();
    names.extend(own(1002, 100));
    let gone = surplus(&names, 64);
    assert_eq!(gone.len(), names.len() - 64);
    assert!(gone.iter().all(|name| user_of(name) == 1002), "{gone:?}");
    assert_eq!(gone, names[5..5 + gone.len()], "least recently used first");
    // Of three users with many records, each gets a third.
    let names: Vec<String> = (1000..1003).flat_map(|user| own(user, 64)).collect();
    let gone = surplus(&names, 63);
    for user in 1000..1003 {
        let kept = names.iter().filter(|name| !gone.contains(name));
        assert_eq!(kept.filter(|name| user_of(name) == user).count(), 21);
    }
    assert!(surplus(&names, 500).is_empty());
}

proptest! {
    #[test]
    fn decoding_never_panics(text in any::<String>()) {
        let _ = Record::decode(&text);
    }

    #[test]
    fn merged_ranges_cover_everything_and_never_overlap(
        ranges in proptest::collection::vec((0u64..2_000_000, 1u64..200_000), 0..40),
        size in 1u64..2_000_000,
    ) {
        let given: Vec<Extent> = ranges
            .iter()
            .map(|&(offset, len)| Extent { offset, len })
            .collect();
        let merged = merge(given.clone(), size);
        for pair in merged.windows(2) {
            prop_assert!(pair[0].offset + pair[0].len + HOLE < pair[1].offset);
        }
        for extent in given.iter().filter(|extent| extent.offset < size) {
            let last = (extent.offset + extent.len).min(size) - 1;
            for byte in [extent.offset, last] {
                let inside = |m: &&Extent| m.offset <= byte && byte < m.offset + m.len;
                prop_assert!(merged.iter().any(|m| inside(&m)));
            }
        }
        prop_assert!(merged.iter().all(|m| m.offset + m.len <= size));
    }

    #[test]
    fn any_record_round_trips_through_text(
        paths in proptest::collection::vec("/[ -~\r\n\\\\]{0,12}", 0..6),
        offset in 0u64..1_000_000,
    ) {
        let files = paths.iter().enumerate().map(|(at, path)| FileExtents {
            path: path.clone(),
            ..file(at as u64, 2_000_000, &[(offset, 5000)])
        });
        let record = record(files.collect());
        prop_assert_eq!(Record::decode(&record.encode()), Ok(record));
    }
}
