// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks the means to map fresh heap ahead of its faults: the Limelight kernel, the preloaded
//! library, and a stock kernel's large folios.

use std::path::{Path, PathBuf};

use limelight_proto::MechanismId;
use limelight_sys::advice::knows_populate_write;
use limelight_sys::dir::Dir;

use super::device::{BuiltIn, UNKNOWN};
use super::Findings;
use crate::library;

const THP: &str = "kernel/mm/transparent_hugepage";
/// Useful folio sizes in KiB. Larger folios cost too much for a program that touches little.
const WANTED_KIB: std::ops::RangeInclusive<u32> = 16..=64;

/// Adds findings on the kernel's premap, on the preloaded library and on large folios.
pub fn examine(
    sys: &Path,
    library: &Result<PathBuf, Vec<PathBuf>>,
    built_in: &BuiltIn,
    findings: &mut Findings,
) {
    const CHECK: &str = "premap kernel";
    let ours = built_in.has(MechanismId::Premap.name());
    match ours {
        Some(true) => findings.acts(
            CHECK,
            "the foreground app's heap is mapped ahead of its faults",
        ),
        Some(false) => findings.note(
            CHECK,
            "not in this kernel: only programs that are started with limelight run --premap have \
             their heap mapped ahead",
        ),
        None => findings.note(CHECK, UNKNOWN),
    }
    library_line(library, findings);
    folios(sys, ours.unwrap_or_default(), findings);
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
                "{} exists, but this kernel has no MADV_POPULATE_WRITE",
                path.display()
            ),
            "run Linux 5.14 or newer",
        ),
        Err(places) => findings.missing(
            CHECK,
            format!("the library was not found at {}", library::list(places)),
            "make install, or name it in LIMELIGHT_PREMAP_LIBRARY",
        ),
    }
}

/// The active value of `[always] madvise never`.
fn chosen(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

/// Folio sizes in KiB that all anonymous memory may get, ascending, without huge pages (2 MiB).
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

/// Reports which large folios all programs get, and whether more sizes would be worthwhile.
fn folios(sys: &Path, ours: bool, findings: &mut Findings) {
    const CHECK: &str = "large folios";
    let Ok(thp) = Dir::open(sys.join(THP)) else {
        return findings.note(
            CHECK,
            "this kernel is built without large folios (no transparent_hugepage)",
        );
    };
    let text = thp.read_text("enabled").unwrap_or_default();
    let all = chosen(&text).unwrap_or("unknown");
    let sizes = always(&thp, all);
    let has = match sizes.as_slice() {
        [] => format!("transparent huge pages: {all}; no smaller folio size is set to always"),
        sizes => {
            let sizes: Vec<String> = sizes.iter().map(|kib| format!("{kib} KiB")).collect();
            format!(
                "transparent huge pages: {all}; folio sizes for all programs: {}",
                sizes.join(", ")
            )
        }
    };
    let advice = if ours {
        "premap needs no size set to always: it gives the foreground app folios of each size that is \
         not set to never"
    } else if sizes.iter().any(|kib| WANTED_KIB.contains(kib)) {
        "they avoid most first faults of a growing heap, as long as memory is not fragmented"
    } else if thp.contains("hugepages-64kB") {
        "echo always > /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled avoids most \
         first faults of a growing heap, in all programs; in a program that touches little, each \
         page then costs 64 KiB"
    } else {
        "kernels from 6.8 on have smaller folios, which avoid most first faults of a growing heap"
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

    fn detail(root: &tempfile::TempDir, ours: bool) -> String {
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
        let text = detail(&root, false);
        assert!(
            text.contains(
                "transparent huge pages: madvise; folio sizes for all programs: 16 KiB, 64 KiB;"
            ),
            "{text}"
        );
        assert!(
            text.contains("as long as memory is not fragmented"),
            "{text}"
        );
    }

    #[test]
    fn advice_fits_the_kernel() {
        let off = [
            ("enabled", "always [madvise] never\n"),
            ("hugepages-64kB/enabled", "always inherit madvise [never]\n"),
        ];
        assert!(detail(&machine(&off), false).contains("echo always"));
        assert!(detail(&machine(&off), true).contains("premap needs no size"));
        assert!(detail(&machine(&off[..1]), false).contains("from 6.8 on"));
        assert!(detail(&machine(&[]), false).contains("built without"));
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
