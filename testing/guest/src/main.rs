// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight-guest`: PID 1 of the lab's virtual machines and every program that it starts there,
//! in one static executable.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use limelight_apps::{
    background, churn, dispatch, fragment, gate, heap, heirs, init, innocents, kms, load, overhead,
    premap_rules, presenter, prezero_rules, readahead_rules, reading, rotation, self_hog, soak,
    spin, storm, swap_app, users_chaos, viewer,
};
use serde::de::DeserializeOwned;

/// Runs inside the lab's virtual machines; as PID 1 it carries out /plan.json and powers off.
#[derive(Parser)]
#[command(name = "limelight-guest", version)]
struct Arguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// Carry out /plan.json as a service, under systemd as PID 1.
    Session,
    /// Run one cell of /plan.json.
    Cell {
        /// Index of the dispatch, from 0.
        index: usize,
    },
    /// The foreground app: takes commands on standard input.
    Viewer {
        /// Its specification in JSON.
        spec: String,
    },
    /// Map and touch a library, then sleep.
    Primer {
        /// The library's extent in JSON.
        spec: String,
    },
    /// A background load.
    Load {
        /// Its specification in JSON.
        spec: String,
    },
    /// A topmost app larger than memory.
    Hog {
        /// Its specification in JSON.
        spec: String,
    },
    /// A CPU-bound app or helper.
    Spinner {
        /// Its specification in JSON.
        spec: String,
    },
    /// A CPU-bound background load.
    SpinLoad {
        /// The kind of work, in JSON.
        spec: String,
    },
    /// One short-lived process of a build.
    Compiler,
    /// A user's app that tries to keep the privileges it had in the foreground.
    HeirsApp {
        /// Nothing, in JSON.
        spec: String,
    },
    /// A user's app that runs unprivileged operations.
    UsersApp {
        /// Its specification in JSON.
        spec: String,
    },
    /// Takes pages and checks every byte.
    ZeroChecker {
        /// Nothing, in JSON.
        spec: String,
    },
    /// Reads a file in small pieces, or in clusters.
    Reader {
        /// Its specification in JSON.
        spec: String,
    },
    /// An app with a growing and shrinking heap.
    Heap {
        /// Its specification in JSON.
        spec: String,
    },
    /// A task that allocates, touches, computes and frees.
    Churn {
        /// Its specification in JSON.
        spec: String,
    },
    /// A background program with a fixed amount of work.
    Background {
        /// The program, in JSON.
        spec: String,
    },
    /// Grows its heap next to limits and boundaries.
    HeapRules {
        /// Nothing.
        spec: String,
    },
    /// Fragments free memory into single pages.
    Fragmenter {
        /// Its specification in JSON.
        spec: String,
    },
    /// Reads the specified files, and waits.
    Starter {
        /// Its specification in JSON.
        spec: String,
    },
    /// One of soak's apps.
    SoakApp {
        /// Its specification in JSON.
        spec: String,
    },
    /// One of rotation's apps.
    RotationApp {
        /// Its specification in JSON.
        spec: String,
    },
    /// One of the killing scenarios' apps.
    SwapApp {
        /// Its specification in JSON.
        spec: String,
    },
    /// One of the gate's apps.
    GateApp {
        /// Its specification in JSON.
        spec: String,
    },
    /// An app of one of innocents' situations.
    Innocent {
        /// Its specification in JSON.
        spec: String,
    },
    /// The gate's load.
    GateLoad {
        /// Its specification in JSON.
        spec: String,
    },
    /// Makes short-lived processes and cgroups.
    Stormer {
        /// Its specification in JSON.
        spec: String,
    },
    /// An app that answers a keyboard on the kernel's display.
    Kms {
        /// Its specification in JSON.
        spec: String,
    },
    /// An X client that shows frames through Present only.
    Presenter {
        /// Its specification in JSON.
        spec: String,
    },
    /// Measures the cost of page faults.
    Probe {
        /// Its specification in JSON.
        spec: String,
    },
}

fn main() -> ExitCode {
    // A container's first process is PID 1 as well.
    if std::process::id() == 1 && std::env::var_os(gate::CONTAINED).is_none() {
        init::run();
    }
    match run(Arguments::parse().part) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("limelight-guest: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(part: Part) -> Result<u8> {
    match part {
        Part::Session => init::session(),
        Part::Cell { index } => return Ok(dispatch::run(index)? as u8),
        Part::Viewer { spec } => viewer::run(&parse(&spec)?)?,
        Part::Primer { spec } => viewer::prime(&parse(&spec)?)?,
        Part::Load { spec } => load::run(&parse(&spec)?)?,
        Part::Hog { spec } => self_hog::hog(&parse(&spec)?)?,
        Part::Spinner { spec } => spin::app(&parse(&spec)?)?,
        Part::SpinLoad { spec } => spin::load(parse(&spec)?)?,
        Part::Compiler => spin::compiler()?,
        Part::Reader { spec } => reading::reader(&parse(&spec)?)?,
        Part::Heap { spec } => heap::app(&parse(&spec)?)?,
        Part::Churn { spec } => churn::app(&parse(&spec)?)?,
        Part::Background { spec } => background::run(parse(&spec)?)?,
        Part::HeapRules { spec } => {
            let () = parse(&spec)?;
            premap_rules::app()?;
        }
        Part::HeirsApp { spec } => {
            let () = parse(&spec)?;
            heirs::app()?;
        }
        Part::UsersApp { spec } => users_chaos::app(&parse(&spec)?)?,
        Part::ZeroChecker { spec } => {
            let () = parse(&spec)?;
            prezero_rules::app()?;
        }
        Part::Fragmenter { spec } => fragment::fragmenter(&parse(&spec)?)?,
        Part::Starter { spec } => readahead_rules::starter(&parse(&spec)?)?,
        Part::SoakApp { spec } => soak::app(&parse(&spec)?)?,
        Part::RotationApp { spec } => rotation::app(&parse(&spec)?)?,
        Part::SwapApp { spec } => swap_app::app(&parse(&spec)?)?,
        Part::GateApp { spec } => gate::app(&parse(&spec)?)?,
        Part::Innocent { spec } => innocents::actor::run(&parse(&spec)?)?,
        Part::GateLoad { spec } => gate::load(&parse(&spec)?)?,
        Part::Stormer { spec } => storm::stormer(&parse(&spec)?)?,
        Part::Kms { spec } => kms::run(&parse(&spec)?)?,
        Part::Presenter { spec } => presenter::run(&parse(&spec)?)?,
        Part::Probe { spec } => overhead::probe(&parse(&spec)?)?,
    }
    Ok(0)
}

fn parse<T: DeserializeOwned>(spec: &str) -> Result<T> {
    serde_json::from_str(spec).with_context(|| format!("cannot understand {spec}"))
}
