// SPDX-License-Identifier: GPL-2.0-or-later
//! The command line. Doc comments here are the help texts and the manual.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use limelight_proto::Class;
use limelight_proto::{MemoryAction, PAUSE_MAX_MS};

use crate::selftest::Role;

/// Control limelightd, which keeps the foreground app fast when memory is short.
#[derive(Debug, Parser)]
#[command(
    name = "limelight",
    version,
    after_help = "Exit codes: 0 done; 1 failed, or doctor found a mechanism that does not act; 2 \
                  wrong usage; 3 the daemon does not answer; 4 the daemon refused; 5 not found: \
                  the process, app, cgroup, program, library or file."
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

    /// Longest wait for the daemon's answer, 1 to 600 seconds. The daemon answers within
    /// milliseconds unless the machine thrashes or is emulated.
    #[arg(
        long,
        global = true,
        value_name = "SECONDS",
        default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=600)
    )]
    pub timeout: u64,

    /// Print JSON, for use by programs.
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
    /// Show the foreground app: since when, which source reported it, and what protects it.
    ///
    /// The exit code is 0 if the daemon is ready, so scripts can wait for it.
    Status,

    /// Watch the foreground app, the mechanisms that act for it, and the state of all other apps.
    ///
    /// Shows the foreground app with its response times, whether the user waits for a frame now,
    /// and how much of its memory is protected. Below that, it shows the mechanisms with their
    /// counters, the share of time that programs wait for processor, memory and disk (PSI), all
    /// apps with class, last use, memory and swap, and recent actions with their reasons. Press ?
    /// for the keys. With --json, or if standard output is not a terminal, prints everything once.
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

        /// Do not capture the mouse, so that the terminal can select and copy text.
        #[arg(long)]
        no_mouse: bool,
    },

    /// Explain the changes for one process, or a decision about memory.
    ///
    /// With a pid: each knob with its old and new value, the rule, and what would undo it; and what
    /// is not done for the app, and why. With --last: the measurements, the chosen app, and why no
    /// other app was chosen.
    #[command(group = ArgGroup::new("what").required(true))]
    Explain {
        /// Explain the changes for this process.
        #[arg(group = "what", value_parser = clap::value_parser!(i32).range(1..))]
        pid: Option<i32>,

        /// Explain the last decision about memory: of any kind, or of one kind, as in --last=kill.
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
    /// The claim holds until the app ends or the same user sets another app. It ranks above the
    /// reports of that user's sessions; a claim by root ranks above everything. Root may name any
    /// app, other users only their own.
    #[command(group = ArgGroup::new("target").required(true))]
    Focus {
        /// Any process of the app.
        #[arg(group = "target", value_parser = clap::value_parser!(i32).range(1..))]
        pid: Option<i32>,

        /// The app's cgroup: a path below the cgroup v2 mount point, or an absolute path.
        #[arg(long, group = "target", value_name = "PATH")]
        cgroup: Option<String>,

        /// Withdraw the claim; root withdraws the claims of all users. If no other source reports
        /// an app, all changes are undone.
        #[arg(long, group = "target")]
        none: bool,
    },

    /// Undo all changes, and make none for a while.
    ///
    /// No app is protected, boosted, swapped, frozen or closed meanwhile, however short memory is.
    /// Frozen apps run again. Memory that is in swap already stays there until it is used. The pause
    /// ends with its time, with limelight resume, or when limelightd is restarted. Another
    /// limelight pause replaces the time. Only root and the members of the group in [access] group
    /// may pause.
    Pause {
        /// Length: a number with s, m, h or d, such as 90s, 10m or 2h; a number alone is seconds. At
        /// most 7d. Default: until limelight resume.
        #[arg(value_name = "TIME", value_parser = pause_length)]
        time: Option<Duration>,
    },

    /// End a pause, and put all changes in force again.
    Resume,

    /// Show the apps' response times, from input to the frame that answers it.
    ///
    /// The times are measured from real input and frames since the daemon started, and accurate to
    /// 1 %.
    Latency {
        /// Show only this app: its name, or the pid of any of its processes.
        app: Option<String>,
    },

    /// Show or set the class of an app, which decides what happens to it when memory is short.
    ///
    /// keep: may be swapped, never killed. normal: may be swapped, and is killed when no disposable
    /// app is left. disposable: killed first, least recently used app first; swapped only if its
    /// start costs much more than reading it back ([swap] by_cost).
    #[command(subcommand)]
    Class(ClassCommand),

    /// Print a line for every action against a memory shortage, as it happens.
    ///
    /// Prints the level of shortage (plenty, swap, low, crowded, kill, exhausted) at most every
    /// 10 s while memory is short, and when the shortage is over. Also prints which apps were
    /// squeezed, frozen, killed or read back, and a warning when the foreground app itself grows
    /// without bound.
    Listen {
        /// Also print each change of the foreground app.
        #[arg(long)]
        foreground: bool,
    },

    /// Show past actions against memory shortages: which apps were swapped, frozen or killed, when
    /// and why.
    ///
    /// Includes kills by the kernel's OOM killer. The daemon keeps the last 256 entries; they
    /// survive restarts in history.jsonl in its state directory.
    History {
        /// Maximum number of entries.
        #[arg(
            long,
            short = 'n',
            value_name = "N",
            default_value_t = 20,
            value_parser = clap::value_parser!(u16).range(1..)
        )]
        entries: u16,

        /// The old name of --entries. An argument of its own, so that errors name it.
        #[arg(
            long,
            hide = true,
            value_name = "N",
            conflicts_with = "entries",
            value_parser = clap::value_parser!(u16).range(1..)
        )]
        last: Option<u16>,
    },

    /// Open, close or show the response window: the time from input for the foreground app to its
    /// frame.
    ///
    /// open reports input, close reports that a frame was shown, and show changes nothing. This is
    /// for scripts, and for compositors that run a program instead of writing a line to the control
    /// socket (docs/user/windows.md). Only root and the app's owner may report.
    Window {
        /// The event.
        event: WindowWord,

        /// Any process of the app. Default: the foreground app.
        #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
        pid: Option<i32>,
    },

    /// Examine this machine: whether each mechanism acts, by which means, and if not, why and what
    /// to do.
    ///
    /// Works without the daemon. The exit code is 0 if every mechanism that is switched on and
    /// supported by this kernel acts; 1 if any of these mechanisms does not act; 3 if limelightd
    /// does not answer (the output then shows what the machine supports and the configuration
    /// allows). Features that only the Limelight kernel has do not count on another kernel. An
    /// inert knob does not count if other knobs of its mechanism act, unless --strict is given.
    /// With --json, prints an array: first `mechanism NAME`, then each check, with `part`, `check`,
    /// `state` (acts, ready, off, note, inert, missing), `detail` and `cure`.
    Doctor {
        /// Show every check, not only those that need attention.
        #[arg(long)]
        all: bool,

        /// Exit with 1 if any check is inert or missing.
        #[arg(long)]
        strict: bool,

        /// Examine the cgroups above this process instead of those above the foreground app.
        #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
        pid: Option<i32>,
    },

    /// Run a program as an app of its own.
    ///
    /// The program gets a systemd scope (app-limelight-NAME-PID.scope), so that limelightd can give
    /// memory, processor and disk to it alone. If no systemd manages the session, the program stays
    /// in the caller's cgroup. limelightd then moves it into a cgroup of its own when it comes to
    /// the foreground, if the configuration allows that ([protect] adopt).
    Run {
        /// Map the program's heap ahead of its page faults, with a preloaded library
        /// (liblimelight-premap.so). Works for programs that use glibc's malloc, or that get memory
        /// by mmap, mprotect and sbrk. LIMELIGHT_PREMAP_MAX_KIB in the environment limits how much
        /// is mapped at once (default: 1024 KiB). LIMELIGHT_PREMAP_LOG names a file to which one
        /// line is appended when the program exits. Needs neither the daemon nor the Limelight
        /// kernel.
        #[arg(long)]
        premap: bool,

        /// The program's class until it ends: keep, normal or disposable. Only root may raise it
        /// above the default, as with `limelight class set`. Needs the daemon and a scope.
        #[arg(
            long,
            value_name = "CLASS",
            conflicts_with = "no_scope",
            value_parser = PossibleValuesParser::new(CLASSES)
                .try_map(|class| class.parse::<Class>())
        )]
        class: Option<Class>,

        /// Leave the program in the caller's cgroup.
        #[arg(long)]
        no_scope: bool,

        /// Run inside the scope that already exists (internal).
        #[arg(long, hide = true)]
        inside: bool,

        /// The program and its arguments.
        #[arg(last = true, required = true, value_name = "PROGRAM")]
        program: Vec<OsString>,
    },

    /// Measure on this machine what protection does, within a minute and without harm.
    ///
    /// A small photo viewer swipes through its photos beside a program that reads a large file:
    /// first alone, then beside this load without protection, then with it. Prints the swipe times
    /// and how often a swipe waited for the disk. If limelightd runs, it protects the viewer as the
    /// foreground app; otherwise the test sets the same memory knob itself. Viewer and load share a
    /// cgroup limited to 64 MiB, so no other app loses memory. The test writes 96 MiB to the disk,
    /// and leaves no process, cgroup or file behind, even if it is killed. Needs a systemd session,
    /// or root. The exit code is 0 if protection had an effect; otherwise the output says why the
    /// test shows nothing.
    Selftest {
        /// Directory for the test's files, on a disk. Default: $XDG_CACHE_HOME, ~/.cache or
        /// /var/tmp.
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,

        /// Longest run of the test in seconds, 20 to 600. A slow disk may need more.
        #[arg(
            long,
            value_name = "SECONDS",
            default_value_t = 60,
            value_parser = clap::value_parser!(u64).range(20..=600)
        )]
        limit: u64,

        /// The part of the test that this process plays (internal).
        #[arg(long, hide = true)]
        role: Option<Role>,

        /// The part's argument (internal).
        #[arg(long, hide = true, requires = "role")]
        argument: Option<String>,
    },

    /// Write one report for a bug report, without private data.
    ///
    /// Contains versions, distribution, kernel and memory settings, the configuration with its
    /// origins, doctor's findings, the daemon's status, apps, last decisions and metrics, facts
    /// about cgroups, and the end of the daemon's log, if you may read it. Titles of windows, names
    /// of documents and arguments of programs are not in it. Names of users and of the machine,
    /// paths of files and names of apps are replaced. Works without the daemon. Read the report
    /// before you post it.
    Report {
        /// Write the report to this file instead of standard output.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,

        /// Name apps by their ids, such as org.gnome.Maps. Default: apps are numbered.
        #[arg(long)]
        apps: bool,
    },

    /// Print all metrics for Prometheus.
    ///
    /// Prints Prometheus' text format. --output replaces a file atomically, for node_exporter's
    /// textfile collector. With --json, prints an object of samples.
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
    /// To load it into a running shell: eval "$(limelight completions bash)".
    Completions {
        /// The shell.
        shell: Shell,
    },

    /// Write the manual pages into a directory.
    #[command(hide = true)]
    Man {
        /// Write only the page of the configuration file, limelight.toml(5).
        #[arg(long)]
        configuration: bool,

        /// The directory, which must exist.
        directory: PathBuf,
    },
}

/// Parses the length of a pause.
fn pause_length(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|one: char| one.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..) {
        Some("" | "s") => Some(1),
        Some("m" | "min") => Some(60),
        Some("h") => Some(3600),
        Some("d") => Some(86_400),
        _ => None,
    };
    let seconds = digits.parse::<u64>().ok().zip(unit);
    let seconds = seconds.and_then(|(number, unit)| number.checked_mul(unit));
    seconds
        .filter(|seconds| (1..=PAUSE_MAX_MS / 1000).contains(seconds))
        .map(Duration::from_secs)
        .ok_or_else(|| "a number with s, m, h or d, from 1s to 7d, such as 10m".to_owned())
}

/// A kind of decision about memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DecisionWord {
    /// The last decision of any kind.
    Any,
    /// Make an app give up memory.
    Squeeze,
    /// Write an app's pages from compressed memory to a disk.
    WriteBack,
    /// Freeze an app.
    Freeze,
    /// Kill an app.
    Kill,
}

impl DecisionWord {
    /// The action, or `None` for any action.
    pub fn action(self) -> Option<MemoryAction> {
        match self {
            DecisionWord::Any => None,
            DecisionWord::Squeeze => Some(MemoryAction::Squeeze),
            DecisionWord::WriteBack => Some(MemoryAction::WriteBack),
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
    /// No event. Shows the open window, the counts, and the sources.
    Show,
}

/// Commands for classes.
#[derive(Debug, Subcommand)]
pub enum ClassCommand {
    /// List all apps with their class, their last time in the foreground, and their memory.
    ///
    /// Lists every app with a unit made by a desktop, a sandbox or a terminal, and every running
    /// app that has been in the foreground.
    List,
    /// Set the class of a running app until it ends, or with --save for good.
    ///
    /// Root may set any class. Other users may set the class of their own apps, but not above the
    /// app's default. If several apps have the name, all of them get the class.
    Set {
        /// The app: the pid of any of its processes, its name, its desktop id, its package, or the
        /// name of its program or its unit.
        app: String,
        /// keep, normal or disposable; auto restores the default.
        #[arg(value_parser = PossibleValuesParser::new(CLASS_WORDS)
            .try_map(|word| class_word(&word)))]
        class: ClassWord,
        /// Remember the class for each later start of the app, also after a restart of the daemon.
        /// The daemon recognises the app by its Android package, else its desktop id, else its
        /// program's path, and keeps the class in classes.json in its state directory
        /// (/var/lib/limelight). Root's class applies to all users' apps, a user's only to own
        /// apps. With auto, forget the class that you saved.
        #[arg(long)]
        save: bool,
    },
    /// Explain an app's class, and show its other properties.
    Why {
        /// The app: the pid of any of its processes, its name, its desktop id, its package, or the
        /// name of its program or its unit.
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

/// The names of the classes, for completion.
const CLASSES: [&str; 3] = ["keep", "normal", "disposable"];
const CLASS_WORDS: [&str; 4] = ["keep", "normal", "disposable", "auto"];

fn class_word(text: &str) -> Result<ClassWord, String> {
    match text {
        "auto" => Ok(ClassWord::Unset),
        text => text.parse().map(ClassWord::Is),
    }
}

/// Commands for the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// List every error with file and line. The exit code is 1 if there are any.
    ///
    /// Also checks your own exceptions in ~/.config/limelight/limelight.toml.
    Check {
        /// Read only this file, instead of /etc/limelight/limelight.toml and its drop-ins.
        file: Option<PathBuf>,
    },
    /// Print every key with its value, and the file and line that set it.
    ///
    /// Your own exceptions, from ~/.config/limelight/limelight.toml, come last.
    Show {
        /// Read only this file, instead of /etc/limelight/limelight.toml and its drop-ins.
        file: Option<PathBuf>,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::shown_commands;

    #[test]
    fn command_lines_in_the_documentation_are_valid() {
        shown_commands::assert_valid(&Args::command(), 100);
    }

    #[test]
    fn length_of_a_pause_has_a_unit() {
        let seconds = |text| pause_length(text).map(|time| time.as_secs()).ok();
        for (text, expected) in [
            ("90", Some(90)),
            ("90s", Some(90)),
            ("10m", Some(600)),
            ("10min", Some(600)),
            ("2h", Some(7200)),
            ("7d", Some(604_800)),
            ("8d", None),
            ("0", None),
            ("", None),
            ("m", None),
            ("-5s", None),
            ("1.5h", None),
            ("5 m", None),
            ("99999999999999999999d", None),
            ("18446744073709551615d", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
