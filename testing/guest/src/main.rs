// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight-guest`: one static executable for PID 1 of the lab's virtual machines and, by
//! subcommand, for the test programs that run there.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use limelight_apps::{
    background, churn, dispatch, fragment, gate, heap, heirs, init, innocents, kms, load, overhead,
    premap_rules, presenter, prezero_rules, readahead_rules, reading, rotation, self_hog, soak,
    spin, storm, swap_app, terminal, users_chaos, viewer,
};
use serde::de::DeserializeOwned;

/// Test programs for the lab's virtual machines. As PID 1, it executes /plan.json and powers the
/// machine off.
#[derive(Parser)]
#[command(name = "limelight-guest", version)]
struct Arguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// Execute /plan.json as a service of systemd or sysvinit.
    Session,
    /// Run one cell of /plan.json.
    Cell {
        /// Index of the cell, from 0.
        index: usize,
    },
    /// Run the synthetic image viewer, which reads commands from standard input.
    Viewer {
        /// Specification in JSON.
        spec: String,
    },
    /// Map and touch a library, then sleep.
    Primer {
        /// Extent of the library, in JSON.
        spec: String,
    },
    /// Run a background load.
    Load {
        /// Specification in JSON.
        spec: String,
    },
    /// Run a foreground app that is larger than memory.
    Hog {
        /// Specification in JSON.
        spec: String,
    },
    /// Run a CPU-bound app or helper.
    Spinner {
        /// Specification in JSON.
        spec: String,
    },
    /// Run a CPU-bound background load.
    SpinLoad {
        /// Kind of work, in JSON.
        spec: String,
    },
    /// Run a process of the scenario `terminal`.
    #[command(name = "terminal-part")]
    Terminal {
        /// The process, in JSON.
        spec: String,
    },
    /// Run one short-lived process of a build.
    Compiler,
    /// Run a user's app that tries to keep the values it had in the foreground.
    HeirsApp {
        /// Always `null`.
        spec: String,
    },
    /// Run a user's app that executes unprivileged operations on command.
    UsersApp {
        /// Specification in JSON.
        spec: String,
    },
    /// Allocate pages and check that every byte is zero.
    ZeroChecker {
        /// Always `null`.
        spec: String,
    },
    /// Read a file in small pieces or in random clusters.
    Reader {
        /// Specification in JSON.
        spec: String,
    },
    /// Run an app whose heap grows and shrinks.
    Heap {
        /// Specification in JSON.
        spec: String,
    },
    /// Run a task that allocates memory, touches it, computes on it, and frees it.
    Churn {
        /// Specification in JSON.
        spec: String,
    },
    /// Run a background program with a fixed amount of work.
    Background {
        /// Name of the program, in JSON.
        spec: String,
    },
    /// Run an app that grows its heap next to limits and boundaries.
    HeapRules {
        /// Always `null`.
        spec: String,
    },
    /// Fragment free memory into single pages.
    Fragmenter {
        /// Specification in JSON.
        spec: String,
    },
    /// Read the specified files, then wait for input.
    Starter {
        /// Specification in JSON.
        spec: String,
    },
    /// Run an app of the scenario soak.
    SoakApp {
        /// Specification in JSON.
        spec: String,
    },
    /// Run an app of the scenario rotation.
    RotationApp {
        /// Specification in JSON.
        spec: String,
    },
    /// Run an app of the scenarios that test kills.
    SwapApp {
        /// Specification in JSON.
        spec: String,
    },
    /// Run an app of the scenario gate.
    GateApp {
        /// Specification in JSON.
        spec: String,
    },
    /// Run an app of the scenario innocents.
    Innocent {
        /// Specification in JSON.
        spec: String,
    },
    /// Run the load of the scenario gate.
    GateLoad {
        /// Specification in JSON.
        spec: String,
    },
    /// Create short-lived processes and cgroups.
    Stormer {
        /// Specification in JSON.
        spec: String,
    },
    /// Run an app that answers key presses with frames, through kernel interfaces alone.
    Kms {
        /// Specification in JSON.
        spec: String,
    },
    /// Run an X client that shows frames only through the Present extension.
    Presenter {
        /// Specification in JSON.
        spec: String,
    },
    /// Measure the cost of page faults.
    Probe {
        /// Specification in JSON.
        spec: String,
    },
}

fn main() -> ExitCode {
    // In a container, PID 1 is an ordinary program.
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
        Part::Terminal { spec } => terminal::parts::run(&parse(&spec)?)?,
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
    serde_json::from_str(spec).with_context(|| format!("cannot parse the specification {spec}"))
}
