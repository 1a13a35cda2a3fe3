// SPDX-License-Identifier: GPL-2.0-or-later
//! Means to map fresh heap ahead of its faults: the Limelight kernel, the preloaded library, and a
//! stock kernel's large folios.

use std::path::{Path, PathBuf};

use limelight_sys::advice::knows_populate_write;
use limelight_sys::device::Mechanism;
use limelight_sys::dir::Dir;

use super::Findings;
use crate::library;

const THP: &str = "kernel/mm/transparent_hugepage";
/// Folio sizes in KiB, larger than a page and smaller than a huge page. Larger ones cost too much
/// for a program that touches little.
const WANTED_KIB: std::ops::RangeInclusive<u32> = 16..=64;

/// One finding for each means.
pub fn examine(
    sys: &Path,
    library: &Result<PathBuf, Vec<PathBuf>>,
    built_in: &[String],
    findings: &mut Findings,
) {
    let ours = built_in.iter().any(|name| name == Mechanism::Premap.name());
    match ours {
        true => findings.acts(
            "premap kernel",
            "the heap of the app in front is mapped ahead",
        ),
        false => findings.note(
            "premap kernel",
            "not in this kernel: only programs that are started with limelight run --premap have \
             their heap mapped ahead",
        ),
    }
    library_line(library, findings);
    folios(sys, ours, findings);
}

fn library_line(library: &Result<PathBuf, Vec<PathBuf>>, findings: &mut Findings) {
    const CHECK: &str = "premap library";
    match library {
        Ok(path) if knows_populate_write() => findings.acts(
            CHECK,
            format!("{}: limelight run --premap works", path.display()),
        ),
        Ok(path) => findings.inert(
            CHECK,
            format!(
                "{} is there, but this kernel cannot populate memory on demand",
                path.display()
            ),
            "run Linux 5.14 or newer",
        ),
        Err(places) => findings.missing(
            CHECK,
            format!("the library is not at {}", library::list(places)),
            "make install, or name it in LIMELIGHT_PREMAP_LIBRARY",
        ),
    }
}

/// The active value of `[always] madvise never`.
fn chosen(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

/// Folio sizes in KiB that all anonymous memory gets, ascending, without huge pages.
fn always(thp: &Dir, all: &str) -> Vec<u32> {
    let mut sizes: Vec<u32> = thp
        .directories()
        .unwrap_or_default()
        .iter()
        .filter_map(|name| {
            let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
            let text = thp.read_text(format!("{name}/enabled")).ok()?;
            let word = match chosen(&text)? {
                "inherit" => all.to_owned(),
                word => word.to_owned(),
            };
            (word == "always").then(|| kib.parse().ok())?
        })
        .filter(|kib| *kib < 2048)
        .collect();
    sizes.sort_unstable();
    sizes
}

/// Reports the large folios for all programs, and whether more of them would be worthwhile.
fn folios(sys: &Path, ours: bool, findings: &mut Findings) {
    const CHECK: &str = "large folios";
    let Ok(thp) = Dir::open(sys.join(THP)) else {
        return findings.note(
            CHECK,
            "this kernel is built without them (no transparent_hugepage)",
        );
    };
    let text = thp.read_text("enabled").unwrap_or_default();
    let all = chosen(&text).unwrap_or("unknown");
    let sizes = always(&thp, all);
    let has = match sizes.as_slice() {
        [] => format!("huge pages {all}, none of the smaller sizes for everybody"),
        sizes => {
            let sizes: Vec<String> = sizes.iter().map(|kib| format!("{kib} KiB")).collect();
            format!("huge pages {all}, for everybody {}", sizes.join(", "))
        }
    };
    let advice = if ours {
        "premap needs none: it takes large folios for the app in front where they fit"
    } else if sizes.iter().any(|kib| WANTED_KIB.contains(kib)) {
        "they take most first faults of a growing heap away as long as memory is not fragmented"
    } else if thp.contains("hugepages-64kB") {
        "echo always > /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled takes most first \
         faults of a growing heap away, for everybody, at the price of 64 KiB for each page of a \
         program that touches little"
    } else {
        "kernels from 6.8 on have smaller ones, which take most first faults of a growing heap away"
    };
    findings.note(CHECK, format!("{has}; {advice}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(THP).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn said(root: &tempfile::TempDir, ours: bool) -> String {
        let mut findings = Findings::default();
        folios(root.path(), ours, &mut findings);
        findings.list.remove(0).detail
    }

    #[test]
    fn sizes_for_all_programs_are_listed_in_order() {
        let root = machine(&[
            ("enabled", "always [madvise] never\n"),
            ("hugepages-64kB/enabled", "[always] inherit madvise never\n"),
            ("hugepages-16kB/enabled", "[always] inherit madvise never\n"),
            ("hugepages-32kB/enabled", "always [inherit] madvise never\n"),
            (
                "hugepages-2048kB/enabled",
                "[always] inherit madvise never\n",
            ),
        ]);
        let text = said(&root, false);
        assert!(
            text.contains("huge pages madvise, for everybody 16 KiB, 64 KiB;"),
            "{text}"
        );
        assert!(
            text.contains("as long as memory is not fragmented"),
            "{text}"
        );
    }

    #[test]
    fn advice_is_given_only_where_the_kernel_can_follow_it() {
        let off = [
            ("enabled", "always [madvise] never\n"),
            ("hugepages-64kB/enabled", "always inherit madvise [never]\n"),
        ];
        assert!(said(&machine(&off), false).contains("echo always"));
        assert!(said(&machine(&off), true).contains("premap needs none"));
        assert!(said(&machine(&off[..1]), false).contains("from 6.8 on"));
        assert!(said(&machine(&[]), false).contains("built without"));
    }

    #[test]
    fn missing_library_is_reported_with_the_places() {
        let mut findings = Findings::default();
        library_line(
            &Err(vec!["/a/x.so".into(), "/b/x.so".into()]),
            &mut findings,
        );
        let finding = &findings.list[0];
        assert!(finding.state.is_trouble() && finding.cure.is_some());
        assert!(finding.detail.contains("/a/x.so, /b/x.so"), "{finding:?}");
    }
}
