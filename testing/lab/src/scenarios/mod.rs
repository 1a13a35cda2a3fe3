// SPDX-License-Identifier: GPL-2.0-or-later
//! The scenarios, one file each.

pub mod aarch64;
mod access;
mod boost;
mod boot;
mod cache_model;
mod chaos;
mod classes;
mod fallback;
mod focus;
mod gallery;
mod gallery_real;
mod gallery_synthetic;
mod gate;
mod heirs;
mod innocents;
mod kill_latency;
mod leak;
mod openrc;
mod overhead;
mod own_tree;
mod package;
mod package_kernel;
mod premap;
mod prezero;
mod prezero_engines;
mod prezero_rules;
mod processors;
mod protect;
mod readahead;
mod restore;
mod rotation;
mod siblings;
mod soak;
mod starts;
mod startup;
mod storm;
mod swap_soak;
mod terms;
mod users_chaos;
mod wake_graph;
mod windows;

use crate::scenario::Scenario;

/// Every scenario that the lab knows, in the order of `limelight-lab list`.
pub fn all() -> Vec<&'static dyn Scenario> {
    vec![
        &boot::Boot,
        &startup::Startup,
        &starts::Starts,
        &protect::Protect,
        &protect::BeyondCgroups,
        &focus::Focus,
        &fallback::Fallback,
        &siblings::Siblings,
        &premap::PremapRules,
        &prezero_rules::RULES,
        &prezero_rules::SOAK,
        &readahead::Readahead,
        &restore::Restore,
        &boost::Rules,
        &heirs::Heirs,
        &classes::Rules,
        &access::Rules,
        &own_tree::OwnTree,
        &cache_model::CacheModel,
        &prezero_engines::Prezero,
        &windows::Rules,
        &gate::Gate,
        &innocents::HELD,
        &leak::Leak,
        &storm::Storm,
        &package::PLAIN,
        &soak::ShortSoak,
        &chaos::SHORT,
        &users_chaos::UsersChaos,
        &processors::SHORT,
        &innocents::OPEN,
        &gallery_synthetic::FAST,
        &gallery_synthetic::THINKING,
        &gallery_synthetic::EXACT,
        &gallery_real::GalleryReal,
        &fallback::SelfHogCost,
        &boost::Exact,
        &boost::TwoProcessors,
        &readahead::SmallReads,
        &readahead::ColdStart,
        &premap::Premap,
        &premap::PremapTime,
        &windows::Oracle,
        &windows::Cost,
        &wake_graph::WakeGraph,
        &prezero::Exact,
        &prezero::BACKGROUND,
        &prezero::CACHE,
        &rotation::Rotation,
        &kill_latency::KillLatency,
        &rotation::Rivals,
        &rotation::Real,
        &package::DESKTOP,
        &package_kernel::PackageKernel,
        &openrc::Openrc,
        &overhead::Overhead,
        &soak::Soak,
        &chaos::SESSION,
        &chaos::SLEEP,
        &processors::SLEEP,
        &chaos::LONG,
        &swap_soak::SwapSoak,
    ]
}
