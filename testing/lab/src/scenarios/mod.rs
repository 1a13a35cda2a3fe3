// SPDX-License-Identifier: GPL-2.0-or-later
//! The scenarios. Scenarios without verdicts other than the guest's own checks are in
//! `guest_checks`. Each family of scenarios that judges figures has a file of its own.

pub mod aarch64;
mod boost;
mod boot;
mod browser;
mod cache_model;
mod chaos;
mod day;
pub mod demo;
mod fallback;
mod focus;
mod gallery;
mod gallery_real;
mod gallery_synthetic;
mod guest_checks;
mod innocents;
mod kill_latency;
mod leak;
mod overhead;
mod package;
mod premap;
mod prezero;
mod prezero_rules;
mod protect;
mod queued_start;
mod readahead;
mod recorded;
mod rotation;
mod scale;
mod soak;
mod storm;
mod suites;
mod swap_soak;
mod terminal;
mod terms;
mod throttle;
mod users_chaos;
mod windows;

use crate::scenario::Spec;

/// Every scenario that the lab knows, in the order of `limelight-lab list`.
pub const fn all() -> &'static [&'static Spec] {
    &[
        &boot::BOOT,
        &guest_checks::STARTUP,
        &boot::STARTS,
        &protect::PROTECT,
        &protect::BEYOND_CGROUPS,
        &focus::FOCUS,
        &fallback::FALLBACK,
        &guest_checks::SIBLINGS,
        &guest_checks::SELFTEST,
        &guest_checks::PREMAP_RULES,
        &prezero_rules::RULES,
        &prezero_rules::SOAK,
        &guest_checks::READAHEAD,
        &guest_checks::FULL_CACHE,
        &guest_checks::RESTORE,
        &guest_checks::LEASE,
        &guest_checks::KSELFTEST,
        &guest_checks::BOOST_RULES,
        &guest_checks::HEIRS,
        &guest_checks::CLASS_RULES,
        &guest_checks::WRITE_BACK,
        &guest_checks::ACCESS_RULES,
        &guest_checks::OWN_TREE,
        &cache_model::CACHE_MODEL,
        &prezero_rules::ENGINES,
        &windows::RULES,
        &guest_checks::GATE,
        &innocents::INNOCENTS,
        &innocents::ALL_INNOCENTS,
        &leak::LEAK,
        &storm::STORM,
        &package::PLAIN,
        &soak::SHORT,
        &chaos::SHORT,
        &recorded::GALLERY,
        &users_chaos::USERS_CHAOS,
        &guest_checks::PROCESSORS,
        &gallery_synthetic::FAST,
        &gallery_synthetic::THINKING,
        &gallery_synthetic::LUNCH_BREAK,
        &gallery_synthetic::EXACT,
        &gallery_real::GALLERY_REAL,
        &fallback::SELF_HOG,
        &boost::EXACT,
        &boost::TWO_PROCESSORS,
        &terminal::EXACT,
        &suites::SUITES,
        &browser::BROWSER,
        &readahead::SMALL_READS,
        &readahead::COLD_START,
        &queued_start::QUEUED_START,
        &premap::PREMAP,
        &premap::PREMAP_TIME,
        &windows::ORACLE,
        &windows::COST,
        &guest_checks::WAKE_GRAPH,
        &prezero::EXACT,
        &prezero::BACKGROUND,
        &prezero::CACHE,
        &rotation::ROTATION,
        &kill_latency::KILL_LATENCY,
        &throttle::THROTTLE,
        &rotation::RIVALS,
        &rotation::REAL,
        &rotation::REAL_EXACT,
        &day::DAY,
        &package::DESKTOP,
        &package::GNOME,
        &package::KERNEL,
        &package::OPENRC,
        &overhead::OVERHEAD,
        &scale::SCALE,
        &soak::LONG,
        &soak::FIRST,
        &chaos::SESSION,
        &chaos::SLEEP,
        &guest_checks::PROCESSORS_SLEEP,
        &chaos::LONG,
        &swap_soak::SWAP_SOAK,
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::all;

    #[test]
    fn every_scenario_has_a_unique_name_and_tasks() {
        let mut names = BTreeSet::new();
        for spec in all() {
            let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(
                !spec.name.is_empty() && spec.name.chars().all(legal),
                "{}",
                spec.name
            );
            assert!(
                names.insert(spec.name),
                "two scenarios are called {}",
                spec.name
            );
            assert!(
                !spec.about.is_empty() && spec.time_limit_s > 0,
                "{}",
                spec.name
            );
            for variant in spec.variants() {
                for arm in spec.arms(&variant) {
                    assert!(!(spec.tasks)(&variant, arm).is_empty(), "{variant} {arm}");
                }
            }
        }
    }
}
