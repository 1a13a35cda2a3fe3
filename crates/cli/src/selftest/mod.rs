// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight selftest`: swipe times of a small photo viewer beside a load, without and with
//! protection. Viewer and load run below a cgroup with a memory limit, so that only their own
//! memory is reclaimed.

mod files;
mod parts;
mod place;
mod preflight;
mod protection;
pub mod report;
mod stop;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use limelight_sys::proc::Proc;

use crate::exit::Failure;
use files::Files;
use parts::Part;
use place::Place;
use protection::Protection;
use report::{Phase, Report};
use stop::Stop;

const MIB: u64 = 1 << 20;
/// Memory limit of viewer, load and this program together, in bytes.
const LIMIT: u64 = 64 * MIB;
/// Size of the viewer's photos: well below the daemon's default budget, 60 % of the limit.
const PHOTOS: u64 = 24 * MIB;
/// Size of the load's file: more than the limit, so that each pass over it needs reclaim.
const LOAD: u64 = 72 * MIB;
/// Number of photos. A swipe shows one of them, in turn.
const PHOTO_COUNT: u64 = 16;
/// Swipes in a phase. A phase ends earlier after one [`PHASE_PART`]th of the remaining time.
const SWIPES: u32 = PHOTO_COUNT as u32;
const PHASE_PART: u32 = 3;
/// Longest pause before a swipe. A pause ends when the load has read its whole file once.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// Passes of the load before the first swipe of a phase.
const WARM_UP_PASSES: u32 = 2;
/// Time after the limit of [`Wish`] at which the guard or systemd ends the test, if this program
/// has not.
const GRACE: Duration = Duration::from_secs(15);

/// What this process does in the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Conducts the test inside the systemd scope that already exists.
    Inside,
    /// Maps the photos and shows them on request.
    Viewer,
    /// Reads its file again and again.
    Load,
    /// Removes the cgroups when the test's main process has ended.
    Guard,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Role::Inside => "inside",
            Role::Viewer => "viewer",
            Role::Load => "load",
            Role::Guard => "guard",
        }
    }
}

/// Options of the test.
#[derive(Debug)]
pub struct Wish<'a> {
    /// Directory for the files.
    pub directory: Option<&'a Path>,
    /// The daemon's socket.
    pub socket: &'a Path,
    /// Timeout for the daemon's answers.
    pub patience: Duration,
    /// Longest run of the whole test.
    pub limit: Duration,
    /// Whether to print JSON, and no progress.
    pub json: bool,
}

impl Wish<'_> {
    /// Time after which the test is ended from outside.
    fn lifetime(&self) -> Duration {
        self.limit + GRACE
    }
}

/// Runs the test, or a part of it: `role` and its argument are this program's own.
pub fn run(
    wish: &Wish,
    role: Option<Role>,
    argument: Option<&str>,
    out: &mut Vec<u8>,
) -> Result<bool, Failure> {
    let argument = argument.unwrap_or_default();
    match role {
        Some(Role::Viewer) => parts::view(argument).map(|()| true),
        Some(Role::Load) => parts::read_on(argument).map(|()| true),
        Some(Role::Guard) => place::guard(argument, wish.lifetime()).map(|()| true),
        Some(Role::Inside) => conduct(wish, Place::inside_scope, out),
        None => {
            let proc = Proc::open("/proc").map_err(failed)?;
            preflight::check(&proc, &directory(wish))?;
            place::enter_scope(wish)?;
            conduct(wish, Place::own_tree, out)
        }
    }
}

fn directory(wish: &Wish) -> PathBuf {
    let environment = |name| std::env::var_os(name).map(PathBuf::from);
    let chosen = wish.directory.map(Path::to_owned);
    let home = environment("HOME").map(|home| home.join(".cache"));
    chosen
        .or_else(|| environment("XDG_CACHE_HOME").filter(|path| path.is_absolute()))
        .or_else(|| home.filter(|path| path.is_dir()))
        .unwrap_or_else(|| PathBuf::from("/var/tmp"))
}

fn failed(error: limelight_sys::Error) -> Failure {
    Failure::Other(error.to_string())
}

/// Conducts the test. Returns whether it showed the effect of protection.
fn conduct(
    wish: &Wish,
    place: fn(&Wish) -> Result<Place, Failure>,
    out: &mut Vec<u8>,
) -> Result<bool, Failure> {
    let stop = Stop::new(wish.limit)?;
    let place = place(wish)?;
    // A signal to the process group ends viewer and load too: then the signal is the reason.
    let report = measure(wish, &place, &stop);
    let report = report.map_err(|failure| stop.check().err().unwrap_or(failure));
    // The cgroups are removed before the result is printed.
    let removed = place.remove();
    let report = report?;
    removed?;
    report.print(wish.json, out)?;
    Ok(report.shows_protection())
}

fn measure(wish: &Wish, place: &Place, stop: &Stop) -> Result<Report, Failure> {
    let say = |what: &str| {
        if !wish.json {
            eprintln!("{what} ...");
        }
    };
    let directory = directory(wish);
    say(&format!(
        "writing {} MiB to {}",
        (PHOTOS + LOAD) / MIB,
        directory.display()
    ));
    let files = Files::write(&directory, stop)?;
    let mut viewer = Part::start(Role::Viewer, &files.photos, place.viewer())?;
    say("swiping without a load");
    viewer.ask("visit", stop)?;
    let idle = phase(&mut viewer, None, stop)?;
    say("swiping beside the load, without protection");
    let load = Part::start(Role::Load, &files.load, place.load())?;
    let without = phase(&mut viewer, Some(load), stop)?;
    viewer.ask("visit", stop)?;
    let protection = Protection::begin(wish, &viewer, place.viewer(), stop)?;
    say("swiping beside the load, with protection");
    let load = Part::start(Role::Load, &files.load, place.load())?;
    let with = phase(&mut viewer, Some(load), stop)?;
    let by = protection.end(place.viewer())?;
    Ok(Report {
        limit_bytes: LIMIT,
        disk_bytes: PHOTOS + LOAD,
        idle,
        without,
        with,
        protected_by: by.name,
        why_not_limelightd: by.why_not,
    })
}

/// Swipes, beside a load if there is one, which ends with the phase.
fn phase(viewer: &mut Part, mut load: Option<Part>, stop: &Stop) -> Result<Phase, Failure> {
    let end = Instant::now() + stop.remaining() / PHASE_PART;
    let mut phase = Phase::default();
    if let Some(load) = &mut load {
        load.say("go")?;
        for _ in 0..WARM_UP_PASSES {
            load.hear_within(PAUSE_MAX, stop)?;
        }
    }
    for swipe in 0..SWIPES {
        if let Some(load) = &mut load {
            load.skip_heard(stop)?;
            load.hear_within(PAUSE_MAX, stop)?;
        }
        let before = viewer.major_faults()?;
        let answer = viewer.ask(&format!("swipe {swipe}"), stop)?;
        let us = answer.parse();
        let us = us.map_err(|_| Failure::Other(format!("the viewer answered {answer:?}")))?;
        phase.add(us, viewer.major_faults()?.saturating_sub(before));
        if Instant::now() > end {
            break;
        }
    }
    Ok(phase)
}
