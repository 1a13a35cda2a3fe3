// SPDX-License-Identifier: GPL-2.0-or-later
//! The scenarios, one file each.

mod boot;
mod gallery_synthetic;
mod knobs;

use crate::scenario::Scenario;

/// Every scenario that the lab knows, in the order of `limelight-lab list`.
pub fn all() -> Vec<&'static dyn Scenario> {
    vec![
        &boot::Boot,
        &knobs::Knobs,
        &gallery_synthetic::GallerySynthetic,
        &gallery_synthetic::GalleryThink,
    ]
}
