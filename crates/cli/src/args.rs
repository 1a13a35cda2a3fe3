// SPDX-License-Identifier: GPL-2.0-or-later
//! The command line. Doc comments here are the help texts and the manual.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use limelight_core::control::Deed;
use limelight_core::model::class::Class;

/// Talk to limelightd, which keeps the app in front fast when memory is short.
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

    /// How long to wait for the daemon's answer, 1 to 600 seconds. It takes milliseconds but on a
    /// machine that thrashes, or that is emulated.
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

    /// Print no colours. So says NO_COLOR in the environment.
    #[arg(long, global = true)]
    pub no_color: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// How long to wait for the daemon's answer.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// One command each.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show which app is in front, since when, who said so, and what protects it.
    ///
    /// Exits with 0 once the daemon is ready.
    Status,

    /// Watch who is in front, what is done for it, and what becomes of the others.
    ///
    /// Shows the app in front, how long it takes to answer input, whether it is waited for now, how
    /// much of its memory is protected, each mechanism with what it counted, what programs wait for,
    /// all apps with class, last use, memory and swap, and what was done lately and why. Keys: ? shows
    /// them. With --json, or where standard output is no terminal, everything once.
    Top {
        /// Print everything once, as text, and end.
        #[arg(long)]
        once: bool,

        /// Seconds between two looks, 1 to 60.
        #[arg(
            long,
            value_name = "SECONDS",
            default_value_t = 2,
            value_parser = clap::value_parser!(u64).range(1..=60)
        )]
        interval: u64,

        /// Leave the mouse to the terminal, to mark and copy text.
        #[arg(long)]
        no_mouse: bool,
    },

    /// Tell what was done to one process: each knob, from what to what, by which rule, and what
    /// would change it back. Or tell a decision about memory: what was seen, who was chosen, and why
    /// nobody else was.
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

    /// Say which app is in front.
    ///
    /// The claim holds until the app ends or the next claim, and ranks above what the session
    /// reports. Root may name any app, everybody else their own.
    #[command(group = ArgGroup::new("target").required(true))]
    Focus {
        /// Any process of the app.
        #[arg(group = "target", value_parser = clap::value_parser!(i32).range(1..))]
        pid: Option<i32>,

        /// The app's cgroup: a path below the cgroup v2 mount point, or an absolute one.
        #[arg(long, group = "target", value_name = "PATH")]
        cgroup: Option<String>,

        /// No app at all: the claim ends, and everything is put back.
        #[arg(long, group = "target")]
        none: bool,
    },

    /// Show how long apps take from input to the frame that answers it.
    ///
    /// Figures are of real input and frames since the daemon started, and right to 1 %.
    Latency {
        /// This app alone: its name, or any process of it.
        app: Option<String>,
    },

    /// Look at the classes of apps, which say what becomes of them when memory runs short.
    ///
    /// keep: never killed. normal: may be swapped, and killed when nothing disposable is left.
    /// disposable: killed first, the one that was in front longest ago before the others, and never
    /// swapped.
    #[command(subcommand)]
    Class(ClassCommand),

    /// Print a line for everything that a shortage of memory leads to, as it happens.
    ///
    /// How short memory is (plenty, swap, low, crowded, kill, exhausted) whenever that changes, who was squeezed,
    /// frozen, killed or brought back, and when the app in front itself takes memory without end.
    Listen,

    /// Show what was done when memory ran short: who was swapped, frozen or killed, when and why.
    ///
    /// Kills by the kernel's OOM killer are shown too. The daemon keeps the last 256 entries, over
    /// restarts in history.jsonl in its state directory.
    History {
        /// Show so many entries at the most.
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
    /// open says that input arrived, close that a frame was shown, and show changes nothing.
    /// For scripts, and for compositors that would rather run a program than write a line to the
    /// control socket, as docs/windows.md describes it. Taken from root and from the app's owner.
    Window {
        /// What happened.
        event: WindowWord,

        /// Any process of the app; without it the topmost app is meant.
        #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
        pid: Option<i32>,
    },

    /// Examine this machine: for each mechanism whether it acts, through what, and if not why and
    /// what to do.
    ///
    /// Works without the daemon. The exit code is for scripts: 0 when every mechanism acts that is
    /// switched on and that this kernel can have; 1 when one does not; 3 when limelightd does not
    /// answer (what the machine could do is told all the same). What only the Limelight kernel has
    /// is no trouble on another one, and neither is a knob that is inert beside others that act,
    /// unless --strict is given. With --json, an array: first `mechanism NAME`, then each check,
    /// with `part`, `check`, `state` (acts, ready, off, note, inert, missing), `detail` and `cure`.
    Doctor {
        /// Show every check, and not only those that want to be read.
        #[arg(long)]
        all: bool,

        /// Exit with 1 when anything at all is inert or missing.
        #[arg(long)]
        strict: bool,

        /// Examine the cgroups above this process, instead of the app in front.
        #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
        pid: Option<i32>,
    },

    /// Run a program as an app of its own.
    ///
    /// It gets a scope of systemd's (app-limelight-NAME-PID.scope), so that memory, processor and disk
    /// can be given to it and to nobody else. Where no systemd manages the session it stays in the
    /// cgroup in which it was started, and limelightd gives it one when it comes to the front, if its
    /// configuration allows ([protect] adopt).
    Run {
        /// Map its heap ahead of its page faults, by a library that is preloaded
        /// (liblimelight-premap.so). For programs that use glibc's malloc, or get memory by mmap,
        /// mprotect and sbrk. LIMELIGHT_PREMAP_MAX_KIB in the environment bounds what is mapped at
        /// once (1024 KiB); LIMELIGHT_PREMAP_LOG names a file for one line at the program's end.
        /// Needs neither the daemon nor a kernel of ours.
        #[arg(long)]
        premap: bool,

        /// Its class while it lives: keep, normal or disposable. As with limelight class set, only
        /// root may raise it. Needs the daemon, and a scope.
        #[arg(long, value_name = "CLASS", conflicts_with = "no_scope")]
        class: Option<Class>,

        /// Leave it in the cgroup of whoever runs this.
        #[arg(long)]
        no_scope: bool,

        /// The scope is there already.
        #[arg(long, hide = true)]
        inside: bool,

        /// The program and its arguments.
        #[arg(last = true, required = true, value_name = "PROGRAM")]
        program: Vec<OsString>,
    },

    /// Print everything that counts, for Prometheus.
    ///
    /// In its text format, for node_exporter's textfile collector: --output writes the file as a
    /// whole, so that it is never read half written. With --json, an object of samples.
    Metrics {
        /// Write them into this file.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },

    /// Look at the daemon's configuration.
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
    /// Whichever was taken last.
    Any,
    /// An app was to give up memory.
    Squeeze,
    /// An app was to be stopped.
    Freeze,
    /// An app was to be killed.
    Kill,
}

impl DecisionWord {
    /// What was decided; `None`: anything.
    pub fn deed(self) -> Option<Deed> {
        match self {
            DecisionWord::Any => None,
            DecisionWord::Squeeze => Some(Deed::Squeeze),
            DecisionWord::Freeze => Some(Deed::Freeze),
            DecisionWord::Kill => Some(Deed::Kill),
        }
    }
}

/// What happened to a response window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WindowWord {
    /// Input for the app arrived.
    Open,
    /// The app has shown a frame.
    Close,
    /// Nothing: show the window that is open, how they went, and who tells of them.
    Show,
}

/// What to do with classes.
#[derive(Debug, Subcommand)]
pub enum ClassCommand {
    /// List all apps with their class, when they were in front last, and their memory.
    ///
    /// Apps are those for which a desktop, a sandbox or a terminal made a unit, and whatever was in
    /// front and still lives.
    List,
    /// Set the class of an app for as long as it lives.
    ///
    /// Root may set any class; everybody else, for their own apps, none that is higher than the one
    /// that the app has by itself. For good, it belongs into [class] in limelight.toml.
    Set {
        /// Any process of the app.
        #[arg(value_parser = clap::value_parser!(i32).range(1..))]
        pid: i32,
        /// keep, normal or disposable; auto takes back what was set.
        #[arg(value_parser = class_word)]
        class: ClassWord,
    },
    /// Tell where an app's class comes from, and what else is known of it.
    Why {
        /// Any process of the app, its name, its desktop id, or the name of its program or its unit.
        app: String,
    },
}

/// What an app's class is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassWord {
    /// This.
    Is(Class),
    /// Nothing: it is again what it is by itself.
    Unset,
}

fn class_word(text: &str) -> Result<ClassWord, String> {
    match text {
        "auto" => Ok(ClassWord::Unset),
        text => text.parse().map(ClassWord::Is),
    }
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// List every mistake with file and line; exit with 1 when there is one.
    Check {
        /// This file alone, instead of /etc/limelight/limelight.toml and its drop-ins.
        file: Option<PathBuf>,
    },
    /// Print every key with its value, and the file and line that set it.
    Show {
        /// This file alone, instead of /etc/limelight/limelight.toml and its drop-ins.
        file: Option<PathBuf>,
    },
}
