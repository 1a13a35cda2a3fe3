// SPDX-License-Identifier: GPL-2.0-or-later
//! The lab's commands.

mod aarch64;
mod bench;
mod demo;
mod dma;
mod measure;
mod record;
mod report;
mod tests;

use std::path::PathBuf;

use anyhow::{bail, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::kernel::{self, Linux};
use crate::paths::Paths;
use crate::qemu::Accelerator;
use crate::run::{self, disks, schedule, Options, Selection};
use crate::scenario::{Kernel, Kind, Mode, Spec};
use crate::scenarios;

/// Builds kernels and images, boots virtual machines, measures Limelight.
///
/// Exit codes: 0 success, 1 a check or promise failed, 2 the lab itself failed.
#[derive(Debug, Parser)]
#[command(name = "limelight-lab", version)]
pub struct Arguments {
    /// Version of the kernels `debian`, `limelight`, `unpatched` and `debug`.
    #[arg(long, global = true, default_value = "6.12")]
    pub linux: Linux,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The lab's subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build or fetch a kernel and leave it under target/lab/kernels/NAME.
    Kernel {
        /// Kernel name, as `list` shows it.
        #[arg(default_value = "limelight")]
        name: Kernel,
    },
    /// Make the disk images of a scenario in advance.
    Image {
        /// Scenario name, as `list` shows it.
        scenario: String,
    },
    /// Show kernels and scenarios.
    List,
    /// Run one scenario and print its tables and verdicts.
    Run {
        /// Scenario name, as `list` shows it.
        scenario: String,
        /// Run options.
        #[command(flatten)]
        how: How,
    },
    /// Run the kernel's own tests and every test scenario; ends with `N passed, N failed`.
    Test {
        /// Run options.
        #[command(flatten)]
        how: How,
    },
    /// Run only the kernel's own tests (KUnit); ends with `N passed, N failed`.
    Kunit {
        /// Run them on the debug kernel (KASAN, lockdep) instead of our ordinary kernel.
        #[arg(long)]
        debug: bool,
        /// Run options; only `--accel` and `--timeout` apply.
        #[command(flatten)]
        how: How,
    },
    /// Run the kernel's own tests on a RISC-V machine with a DMA controller; needs a cross compiler
    /// and the emulator. Ends with `N passed, N failed`.
    Dma,
    /// Run limelightd's diskless tests on a 64-bit ARM machine; needs the programs built by
    /// `make android`, and the emulator. Ends with `N passed, N failed`.
    Aarch64 {
        /// Run options.
        #[command(flatten)]
        how: How,
    },
    /// Run every benchmark scenario, print its tables and verdicts. Resumes after an interruption.
    Bench {
        /// Run only the cases behind the headline figures, once each.
        #[arg(long)]
        quick: bool,
        /// Start anew, even if an earlier benchmark was interrupted.
        #[arg(long)]
        restart: bool,
        /// Run options.
        #[command(flatten)]
        how: How,
    },
    /// Run the scenarios whose counters are recorded, write testing/lab/record.toml and print the
    /// difference.
    Record {
        /// Run options; selections do not apply.
        #[command(flatten)]
        how: How,
    },
    /// Run the kernel's own tests on the debug kernel, then every soak scenario; prints tables and
    /// verdicts.
    Soak {
        /// Run options.
        #[command(flatten)]
        how: How,
    },
    /// Show an image viewer under load, without and with Limelight, on Debian's kernel.
    Demo {
        /// Also run Limelight on our kernel, which is built first.
        #[arg(long)]
        our_kernel: bool,
        /// Directory of the static programs limelight-guest, limelightd and limelight. Default:
        /// those built by `make static`.
        #[arg(long, value_name = "DIR")]
        programs: Option<PathBuf>,
        /// Run options.
        #[command(flatten)]
        how: How,
    },
    /// Make target/lab/report.html from docs/results/figures.toml and the newest results.
    Report {
        /// Print tables in Markdown instead.
        #[arg(long)]
        markdown: bool,
        /// Only these scenarios.
        scenarios: Vec<String>,
    },
    /// Make README's table and the drawings in docs/results from docs/results/figures.toml.
    Figures,
}

/// Options for running scenarios.
#[derive(Debug, Args)]
pub struct How {
    /// Only variants with one of these texts in their name (`mglru/zram`), or with this name
    /// (`=mglru/zram/copy`).
    #[arg(long, value_delimiter = ',')]
    variant: Vec<String>,
    /// Only these arms (`stock`, `limelight@limelight`).
    #[arg(long, value_delimiter = ',')]
    arms: Vec<String>,
    /// Only tasks with one of these texts in their name, or with this name (`=day`).
    #[arg(long, value_delimiter = ',', value_name = "TEXT")]
    tasks: Vec<String>,
    /// Repetitions of every arm.
    #[arg(long)]
    reps: Option<u32>,
    /// Fast or exact; by default the scenario's own mode.
    #[arg(long)]
    mode: Option<ModeName>,
    /// Guests at a time; by default one per CPU, at most 8, for tests and for benchmarks in exact
    /// mode, else one.
    #[arg(short, long)]
    jobs: Option<usize>,
    /// Keep the run directories of successful machines, too.
    #[arg(long)]
    keep: bool,
    /// Emulate a guest's CPUs in turn, in one thread: slower, but without the emulator's int3
    /// fault.
    #[arg(long)]
    in_turn: bool,
    /// Factor on all time limits, for slow or busy machines.
    #[arg(long, default_value_t = 1)]
    timeout: u64,
    /// Accelerator; by default KVM where a guest boots in it, else TCG.
    #[arg(long, env = "LIMELIGHT_ACCEL")]
    accel: Option<AcceleratorName>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeName {
    Fast,
    Exact,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AcceleratorName {
    Kvm,
    Tcg,
}

impl How {
    /// The options for scenarios of `kind`; `mode` is the default mode.
    fn options(&self, kind: Kind, mode: Mode) -> Options {
        let chosen = self.mode.map(|mode| match mode {
            ModeName::Fast => Mode::Fast,
            ModeName::Exact => Mode::Exact,
        });
        Options {
            selection: Selection {
                variants: self.variant.clone(),
                arms: self.arms.clone(),
                tasks: self.tasks.clone(),
                repetitions: self.reps,
                skipped: 0,
                mode: chosen,
            },
            jobs: self
                .jobs
                .unwrap_or_else(|| run::default_jobs(kind, chosen.unwrap_or(mode))),
            keep: self.keep,
            in_turn: self.in_turn,
            patience: self.timeout.max(1),
            accelerator: self.accelerator(),
        }
    }

    fn accelerator(&self) -> Option<Accelerator> {
        self.accel.map(|name| match name {
            AcceleratorName::Kvm => Accelerator::Kvm,
            AcceleratorName::Tcg => Accelerator::Tcg,
        })
    }
}

/// Runs a command. Returns false when a check, a verdict or a machine failed.
pub fn run(paths: &Paths, command: Command) -> Result<bool> {
    match command {
        Command::Kernel { name } => {
            let bootable = kernel::get(paths, name)?;
            let image = bootable.image();
            let image = image.file_name().unwrap_or_default().to_string_lossy();
            let name = paths.linux.name_of(name);
            println!("target/lab/kernels/{name}/{image} ({})", bootable.hash);
            Ok(true)
        }
        Command::Image { scenario } => {
            let spec = find(&scenario)?;
            for variant in spec.variants() {
                disks::images(paths, &variant, &(spec.machine)(&variant))?;
            }
            Ok(true)
        }
        Command::List => {
            list();
            Ok(true)
        }
        Command::Run { scenario, how } => {
            let spec = find(&scenario)?;
            schedule::check_selection(spec, &how.options(spec.kind, spec.mode).selection)?;
            measure::run(paths, &[spec], &how)
        }
        Command::Test { how } => tests::run(paths, &how),
        Command::Kunit { debug, how } => {
            let kernel = if debug {
                Kernel::Debug
            } else {
                Kernel::Limelight
            };
            tests::run_kunit(paths, &how, kernel)
        }
        Command::Dma => dma::run(paths),
        Command::Aarch64 { how } => aarch64::run(paths, &how),
        Command::Bench {
            quick,
            restart,
            how,
        } => bench::run(paths, &how, quick, restart),
        Command::Record { how } => record::run(paths, &how),
        Command::Soak { how } => tests::run_soak(paths, &how),
        Command::Demo {
            our_kernel,
            programs,
            how,
        } => {
            let paths = Paths {
                programs_dir: programs,
                ..paths.clone()
            };
            demo::run(&paths, our_kernel, &how)
        }
        Command::Report {
            markdown,
            scenarios,
        } => report::run(paths, markdown, &scenarios).map(|()| true),
        Command::Figures => report::run_figures(paths).map(|()| true),
    }
}

fn of_kind(kind: Kind) -> Vec<&'static Spec> {
    let all = scenarios::all().iter().copied();
    all.filter(|spec| spec.kind == kind).collect()
}

fn find(name: &str) -> Result<&'static Spec> {
    let all = scenarios::all();
    if let Some(spec) = all.iter().find(|spec| spec.name == name) {
        return Ok(spec);
    }
    let names: Vec<&str> = all.iter().map(|spec| spec.name).collect();
    bail!(
        "no scenario is called {name}; the scenarios are {}",
        names.join(", ")
    )
}

fn list() {
    println!("kernels: {}", Kernel::ALL.map(Kernel::name).join(", "));
    for spec in scenarios::all() {
        let kind = match spec.kind {
            Kind::Test => "test",
            Kind::Benchmark => "benchmark",
            Kind::Soak => "soak",
            Kind::Named => "by name",
        };
        println!("\n{} ({kind}): {}", spec.name, spec.about);
        println!("{}", run::variant_list(spec));
    }
}
