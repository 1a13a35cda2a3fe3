// SPDX-License-Identifier: GPL-2.0-or-later
//! The gate against getting worse: a brief run in exact mode, whose counters are compared with
//! `testing/lab/record.toml`. It runs on Debian's kernel, which needs no build. `boost` has no counter
//! that is not a time, so it takes no part.

use super::gallery::{self, INDEX_MAPPING, INDEX_READ};
use super::gallery_synthetic::{self, brief_swipes};
use super::terms::*;
use crate::results::record::Recorded;

const fn counter(name: &'static str, allowance: f64) -> Recorded {
    Recorded { name, allowance }
}

/// The image viewer under the load that hurts each page replacement most.
pub const GALLERY: Spec = Spec {
    name: "recorded-gallery",
    about: "the image viewer, exact: faults and pages read again are no more than recorded",
    kind: Kind::Test,
    variants: &[
        (&[Lru::TwoList], &[SwapKind::Zram], &[INDEX_READ]),
        (&[Lru::Mglru], &[SwapKind::Zram], &[INDEX_MAPPING]),
    ],
    arms: &[ON_DEBIAN],
    further_arms: &[STOCK, LIMELIGHT],
    tasks: |variant, _| vec![brief_swipes(variant)],
    must_hold: |_| Vec::new(),
    metrics: &[gallery::METRICS],
    repetitions: 1,
    recorded: &[
        counter("major_faults", 24.0),
        counter("read_miss_pages", 32.0),
        counter("oom_kills", 0.0),
    ],
    ..gallery_synthetic::EXACT
};
