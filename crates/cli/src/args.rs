// SPDX-License-Identifier: GPL-2.0-or-later
//! The command line. Doc comments here are the help texts and the manual.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use limelight_proto::Class;
use limelight_proto::MemoryAction;

/// Control limelightd, which keeps the foreground app fast when memory is short.
#[derive(Debug, Parser)]
#[command(
    name = "limelight",
    version,
    after_help = "Exit codes: 0 done; 1 failed, or doctor found a mechanism that does not act; 2 wrong \
                  usage; 3 the daemon does not run; 4 the daemon refused; 5 no such process or cgroup."
)]
pub struct Args {
    /// The daemon's control socket.
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        default_value = "/run/limelight/control.sock"
    )]
    pub socket: PathBuf,

    /// How long to wait for the daemon's answer, 1 to 600 seconds. It takes milliseconds except on
    /// a machine that thrashes or is emulated.
    #[arg(
        long,
        global = true,
        value_name = "SECONDS",
        default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=600)
    )]
    pub timeout: u64,

    /// Print JSON, for programs.
    #[arg(long, global = true)]
    pub json: bool,

    /// Print no colours. NO_COLOR in the environment has the same effect.
    #[arg(long, global = true)]
    pub no_color: bool,

    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// Timeout for the daemon's answer.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the foreground app, since when, its source, and what protects it.
    ///
    /// Exits with 0 once the daemon is ready.
    Status,

    /// Watch the foreground app, what is done for it, and the state of the other apps.
    ///
    /// Shows the foreground app, its response times, whether it owes a frame now, how much of its
    /// memory is protected, each mechanism with its counters, what programs wait for, all apps with
    /// class, last use, memory and swap, and recent actions with their reasons. Press ? for the
    /// keys. With --json, or if standard output is not a terminal, prints everything once.
    Top {
        /// Print everything once, as text, and exit.
        #[arg(long)]
        once: bool,

        /// Seconds between two refreshes, 1 to 60.
        #[arg(
            long,
            value_name = "SECONDS",
            default_value_t = 2,
            value_parser = clap::value_parser!(u64).range(1..=60)
        )]
        interval: u64,

        /// Leave the mouse to the terminal, to select and copy text.
        #[arg(long)]
        no_mouse: bool,
    },

    /// Explain the changes for one process: each knob with its old and new value, the rule, and
    /// what would undo it. Or explain a decision about memory: the measurements, the chosen app,
    /// and why no other app was chosen.
    #[command(group = ArgGroup::new("what").required(true))]
    Explain {
        /// The process.
        #[arg(group = "what", value_parser = clap::value_parser!(i32).range(1..))]
        pid: Option<i32>,

        /// The last decision about memory, of all or of one kind: --last=kill.
        #[arg(
            long,
            group = "what",
            value_name = "KIND",
            num_args = 0..=1,
            require_equals = true,
            default_missing_value = "any"
        )]
        last: Option<DecisionWord>,
    },

    /// Set the foreground app.
    ///
    /// The claim holds until the app ends or the next claim, and ranks above the session's reports.
    /// Root may name any app, other users their own.
    #[command(group = ArgGroup::new("target").required(true))]
    Focus {
        /// Any process of the app.
        #[arg(group = "target", value_parser = clap::value_parser!(i32).range(1..))]
        pid: Option<i32>,

        /// The app's cgroup: a path below the cgroup v2 mount point, or an absolute one.
        #[arg(long, group = "target", value_name = "PATH")]
        cgroup: Option<String>,

        /// No app at all: the claim ends, and all changes are undone.
        #[arg(long, group = "target")]
        none: bool,
    },

    /// Show the apps' response times, from input to the frame that answers it.
    ///
    /// The times are of real input and frames since the daemon started, and accurate to 1 %.
    Latency {
        /// Only this app: its name, or any process of it.
        app: Option<String>,
    },

    /// Show or set the classes of apps, which decide what is done to them when memory is short.
    ///
    /// keep: never killed. normal: may be swapped, and killed when nothing disposable is left.
    /// disposable: killed first, the least recently used one before the others, and never swapped.
    #[command(subcommand)]
    Class(ClassCommand),

    /// Print a line for every action on a shortage of memory, as it happens.
    ///
    /// The level of shortage (plenty, swap, low, crowded, kill, exhausted) whenever it changes, the
    /// apps that were squeezed, frozen, killed or read back, and a warning when the foreground app
    /// itself grows without bound.
    Listen,

    /// Show past actions on shortages of memory: which apps were swapped, frozen or killed, when
    /// and why.
    ///
    /// Kills by the kernel's OOM killer are shown too. The daemon keeps the last 256 entries,
    /// across restarts in history.jsonl in its state directory.
    History {
        /// Maximum number of entries.
        #[arg(
            long,
            value_name = "N",
            default_value_t = 20,
            value_parser = clap::value_parser!(u16).range(1..)
        )]
        last: u16,
    },

    /// Open, close or show the response window: from input for the topmost app to its frame.
    ///
    /// open reports input, close reports a shown frame, and show changes nothing. For scripts, and
    /// for compositors that run a program instead of writing a line to the control socket, as
    /// described in docs/windows.md. Accepted from root and from the app's owner.
    Window {
        /// The event.
        event: WindowWord,

        /// Any process of the app; without it: the topmost app.
        #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
        pid: Option<i32>,
    },

    /// Examine this machine: whether each mechanism acts, by which means, and if not, why and what
    /// to do.
    ///
    /// Works without the daemon. The exit code is for scripts: 0 if every mechanism acts that is
    /// switched on and that this kernel supports; 1 if one does not; 3 if limelightd does not
    /// answer (the output then shows what the machine supports). A feature that only the Limelight
    /// kernel has is no trouble on another one, and neither is a knob that is inert beside others
    /// that act, unless --strict is given. With --json, an array: first `mechanism NAME`, then each
    /// check, with `part`, `check`, `state` (acts, ready, off, note, inert, missing), `detail` and
    /// `cure`.
    Doctor {
        /// Show every check, and not only those that need attention.
        #[arg(long)]
        all: bool,

        /// Exit with 1 if any check is inert or missing.
        #[arg(long)]
        strict: bool,

        /// Examine the cgroups above this process, instead of the foreground app's.
        #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
        pid: Option<i32>,
    },

    /// Run a program as an app of its own.
    ///
    /// It gets a systemd scope (app-limelight-NAME-PID.scope), so that memory, processor and disk
    /// can be given to it and to no other process. If no systemd manages the session, it stays in
    /// the caller's cgroup, and limelightd moves it into one of its own when it comes to the
    /// foreground, if the configuration allows that ([protect] adopt).
    Run {
        /// Map its heap ahead of its page faults, with a preloaded library
        /// (liblimelight-premap.so). For programs that use glibc's malloc, or get memory by mmap,
        /// mprotect and sbrk. LIMELIGHT_PREMAP_MAX_KIB in the environment limits what is mapped at
        /// once (default: 1024 KiB); LIMELIGHT_PREMAP_LOG names a file for one line at the
        /// program's exit. Needs neither the daemon nor the Limelight kernel.
        #[arg(long)]
        premap: bool,

        /// Its class until it ends: keep, normal or disposable. As with limelight class set, only
        /// root may raise it. Needs the daemon, and a scope.
        #[arg(long, value_name = "CLASS", conflicts_with = "no_scope")]
        class: Option<Class>,

        /// Leave it in the caller's cgroup.
        #[arg(long)]
        no_scope: bool,

        /// The scope exists already.
        #[arg(long, hide = true)]
        inside: bool,

        /// The program and its arguments.
        #[arg(last = true, required = true, value_name = "PROGRAM")]
        program: Vec<OsString>,
    },

    /// Print all metrics, for Prometheus.
    ///
    /// In its text format, for node_exporter's textfile collector: --output replaces the file
    /// atomically. With --json, an object of samples.
    Metrics {
        /// Write the metrics to this file.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },

    /// Check or show the daemon's configuration.
    #[command(subcommand)]
    Config(ConfigCommand),

    /// Print a completion script for a shell.
    ///
    /// For one shell by hand: eval "$(limelight completions bash)".
    Completions {
        /// The shell.
        shell: Shell,
    },

    /// Write the manual pages into a directory.
    #[command(hide = true)]
    Man {
        /// The directory, which must exist.
        directory: PathBuf,
    },
}

/// A kind of decision about memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DecisionWord {
    /// The last decision of any kind.
    Any,
    /// Make an app give up memory.
    Squeeze,
    /// Freeze an app.
    Freeze,
    /// Kill an app.
    Kill,
}

impl DecisionWord {
    /// The action; `None`: any.
    pub fn action(self) -> Option<MemoryAction> {
        match self {
            DecisionWord::Any => None,
            DecisionWord::Squeeze => Some(MemoryAction::Squeeze),
            DecisionWord::Freeze => Some(MemoryAction::Freeze),
            DecisionWord::Kill => Some(MemoryAction::Kill),
        }
    }
}

/// An event of a response window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WindowWord {
    /// Input for the app arrived.
    Open,
    /// The app showed a frame.
    Close,
    /// No event: show the open window, the counts, and the sources.
    Show,
}

/// Commands for classes.
#[derive(Debug, Subcommand)]
pub enum ClassCommand {
    /// List all apps with their class, their last time in the foreground, and their memory.
    ///
    /// Apps are those with a unit made by a desktop, a sandbox or a terminal, and all that were in
    /// the foreground and still run.
    List,
    /// Set the class of an app until it ends.
    ///
    /// Root may set any class; other users, for their own apps, only classes up to the app's
    /// default. For a permanent setting, use [class] in limelight.toml.
    Set {
        /// Any process of the app.
        #[arg(value_parser = clap::value_parser!(i32).range(1..))]
        pid: i32,
        /// keep, normal or disposable; auto restores the default.
        #[arg(value_parser = class_word)]
        class: ClassWord,
    },
    /// Explain an app's class, and show its other properties.
    Why {
        /// Any process of the app, its name, its desktop id, or the name of its program or its
        /// unit.
        app: String,
    },
}

/// Argument for an app's class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassWord {
    /// This class.
    Is(Class),
    /// The app's default.
    Unset,
}

fn class_word(text: &str) -> Result<ClassWord, String> {
    match text {
        "auto" => Ok(ClassWord::Unset),
        text => text.parse().map(ClassWord::Is),
    }
}

/// Commands for the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// List every error with file and line; exit with 1 if there is one.
    Check {
        /// Only this file, instead of /etc/limelight/limelight.toml and its drop-ins.
        file: Option<PathBuf>,
    },
    /// Print every key with its value, and the file and line that set it.
    Show {
        /// Only this file, instead of /etc/limelight/limelight.toml and its drop-ins.
        file: Option<PathBuf>,
    },
}
