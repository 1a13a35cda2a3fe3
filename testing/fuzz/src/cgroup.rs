// SPDX-License-Identifier: GPL-2.0-or-later
//! Cgroup paths and files. Any process that may create a cgroup chooses its name.

use limelight_sys::cgroup::{CgroupPath, Limit};
use limelight_sys::keyed::Keyed;
use limelight_sys::persistent_file::keyed_lines;
use limelight_sys::process::parse_cgroup;
use limelight_sys::psi::Pressure;
use limelight_sys::schedulers::parse_cost;

/// A parsed path stays inside the hierarchy, and each of its ancestors contains it. Both parsers of
/// `memory.stat` agree.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(path) = parse_cgroup(&text).as_deref().and_then(CgroupPath::parse) {
        check_path(&path);
    }
    if let Some(path) = CgroupPath::parse(&text) {
        check_path(&path);
    }
    if let Ok(limit) = text.parse::<Limit>() {
        assert_eq!(limit.to_string().parse(), Ok(limit));
    }
    if let Some(pressure) = Pressure::parse(&text) {
        assert!(text.contains("some"), "{pressure:?}");
    }
    for device in parse_cost(&text) {
        assert!(text.contains(&device));
    }
    check_counters(&text);
}

fn check_path(path: &CgroupPath) {
    let text = path.as_str();
    assert!(text.starts_with('/') && !text.contains("//"), "{text:?}");
    let names = || text.split('/').skip(1);
    assert!(!names().any(|name| name == "." || name == ".."), "{text:?}");
    assert_eq!(CgroupPath::parse(text).as_ref(), Some(path));
    let chain = path.chain();
    assert_eq!(chain.last(), (!path.is_root()).then_some(path));
    for group in &chain {
        let parent = group.parent().expect("only the root has no parent");
        assert!(parent.contains(path) && group.contains(path), "{text:?}");
        assert_eq!(parent.is_root(), chain.first() == Some(group), "{text:?}");
    }
}

/// `Keyed` and `keyed_lines` agree, except on numbers with a sign and on an unterminated last line,
/// which the kernel never writes.
fn check_counters(text: &str) {
    let whole = text.rfind('\n').map_or("", |at| &text[..at + 1]);
    let known = Keyed::parse(whole);
    let lines = keyed_lines(whole.as_bytes());
    let numbers = lines.filter_map(|(name, value)| Some((name, value.number()?)));
    let numbers: Vec<(&[u8], u64)> = numbers.collect();
    for (name, value) in &numbers {
        let name = std::str::from_utf8(name).expect("valid UTF-8 cut at ASCII bytes");
        // If a name occurs twice, the last value counts.
        let last = numbers.iter().rfind(|(other, _)| *other == name.as_bytes());
        let last = last.map(|(_, value)| *value);
        assert!(
            known.get(name) == last || whole.contains('+'),
            "{name:?} {value}"
        );
    }
}
