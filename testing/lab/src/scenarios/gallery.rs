// SPDX-License-Identifier: GPL-2.0-or-later
//! Shared parts of the scenarios around the synthetic gallery, a program that behaves like a photo
//! viewer: loads by name, machine sizes, metrics. Other scenarios use some of them, too.

use limelight_apps::scenario::{Access, Family, Footprint, Gallery, Load, Pause};

use super::terms::*;

pub const INDEX_READ: &str = "index-read";
pub const INDEX_MAPPING: &str = "index-mapping";
pub const GROW: &str = "grow";
pub const COPY: &str = "copy";
pub const ROUNDS: &str = "rounds";

/// Each page replacement algorithm, with the load under which the viewer suffers most from it.
pub const HURTING: &[Product] = &[
    (&[Lru::TwoList], &[SwapKind::Disk], &[INDEX_READ]),
    (&[Lru::Mglru], &[SwapKind::Disk], &[INDEX_MAPPING]),
];

/// Size of a background file in MiB: more than twice the guest's memory.
const FILE_MIB: u32 = 400;
/// Size of the hog in MiB. Together with the viewer's 56 MiB, that is more than [`FREE_MIB`]. With
/// zram, which compresses the hog to about half its size, both fit.
const GROW_MIB: u32 = 104;

/// Size in MiB of the program with periodic work, and its rest. The program fits into the machine's
/// memory without the viewer, but not beside the viewer.
const ROUNDS_MIB: u32 = 96;
const ROUNDS_REST_MS: u32 = 60_000;

/// Free memory in MiB in a guest of 160 MiB with our kernel. With other kernels, less is free.
pub const FREE_MIB: u32 = 124;

/// The load with this name, as the list that [`Gallery::loads`] takes. Panics if there is none.
pub fn loads(name: &str) -> Vec<Load> {
    let index = |access| Load::Index {
        access,
        mib: FILE_MIB,
    };
    vec![match name {
        INDEX_READ => index(Access::Read),
        INDEX_MAPPING => index(Access::Mapping),
        GROW => Load::Grow { mib: GROW_MIB },
        COPY => Load::Copy { mib: FILE_MIB },
        ROUNDS => Load::Rounds {
            mib: ROUNDS_MIB,
            rest_ms: ROUNDS_REST_MS,
        },
        other => panic!("no load is called {other}"),
    }]
}

/// The synthetic gallery beside a load, with short pauses only.
pub fn brief(load: &str) -> Gallery {
    Gallery {
        footprint: Footprint::SMALL,
        loads: loads(load),
        load_nice: 0,
        app_realtime: false,
        settle_ms: 1000,
        warm_up_ms: 6000,
        pauses: vec![Pause {
            ms: 200,
            swipes: 12,
        }],
        swipe_percent: 25,
        app_cgroup: true,
        family: Family::Single,
        windows: false,
        config: String::new(),
    }
}

/// A machine with too little memory for both the viewer and a load. Its disk has room for the
/// viewer's files, the file that a load reads, and the target of the load `copy`.
pub fn machine(swap_mib: u32) -> MachineSize {
    MachineSize {
        memory_mib: 160,
        data_mib: 640,
        swap_mib,
        ..MachineSize::default()
    }
}

/// [`machine`] with the same free memory on each kernel, so that times and counters can be compared
/// between kernels.
pub fn comparable_machine(swap_mib: u32) -> MachineSize {
    MachineSize {
        // With either kernel, at least FREE_MIB remains beside the kernel and the programs in the
        // initramfs. The guest locks what is left above it.
        memory_mib: 224,
        free_mib: Some(FREE_MIB),
        ..machine(swap_mib)
    }
}

/// The metrics of each scenario that runs the synthetic gallery, most important first.
pub const METRICS: &[Metric] = &[
    Metric::lower("major_faults", "major faults"),
    Metric::lower("own_major_faults", "major faults without the library"),
    Metric::lower("read_miss_pages", "pages read again"),
    Metric::lower("response_us", "response"),
    Metric::lower("response_mean_us", "mean response"),
    Metric::higher("load_copy_kib_per_s", "throughput of the copy"),
    Metric::higher("load_index_read_kib_per_s", "throughput of index-read"),
    Metric::higher(
        "load_index_mapping_kib_per_s",
        "throughput of index-mapping",
    ),
    Metric::higher("load_grow_kib_per_s", "throughput of the hog"),
    Metric::higher("load_grow_alive", "hog alive at the end (0 or 1)"),
    Metric::lower("oom_kills", "OOM kills"),
];
