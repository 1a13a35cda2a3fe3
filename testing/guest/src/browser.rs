// SPDX-License-Identifier: GPL-2.0-or-later
//! `browser`: Debian's chromium on Xvfb, where systemd is PID 1. chromedriver clicks and types, and
//! the browser's own Event Timing measures each interaction. `cp`, recoll's indexer and a growing
//! tab run beside it.

mod webdriver;

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::cgroup::Cgroup;
use crate::counters::{keyed, Counters, ServingCpu};
use crate::daemon::{self, Daemon};
use crate::dispatch::Stage;
use crate::gallery_real::{
    graphical, load_name, load_script, log_path, wait_for_pressure, COPY_MIB, DISPLAY,
};
use crate::guest_setup;
use crate::knobs;
use crate::plan::Arm;
use crate::process::{Process, Start};
use crate::record::Reporter;
use crate::response::quantile;
use crate::rotation::rival::Rival;
use crate::scenario::{Browser, RealLoad};
use crate::store::Store;
use crate::systemd;

use self::webdriver::Session;

const SCREEN: &str = "1024x768x24";
const DRIVER: (&str, &str) = ("--port=9515", "http://127.0.0.1:9515");
const DEBUGGER: (&str, &str) = ("--remote-debugging-port=9222", "127.0.0.1:9222");
const PAGE: (&str, &str) = ("page.html", include_str!("browser/page.html"));
const GROWING: (&str, &str) = ("growing.html", include_str!("browser/growing.html"));
/// The browser's flags. `--no-sandbox`: chromium refuses to run as root with its sandbox, and the
/// lab's programs run as root.
const FLAGS: [&str; 8] = [
    "--no-sandbox",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--password-store=basic",
    "--user-data-dir=/root/profile",
    DEBUGGER.0,
    "about:blank",
];
/// Longest time for the browser to start on an emulated machine.
const START_LIMIT: Duration = Duration::from_secs(300);
/// Longest time from an input to the frame that shows its effect.
const FRAME_LIMIT: Duration = Duration::from_secs(60);
/// Time for the rest of an interaction's events after its first one.
const REST: Duration = Duration::from_millis(300);
/// Longest wait for memory to fill.
const FILL_LIMIT: Duration = Duration::from_secs(120);
/// Programs beside the browser.
const LOADS: [RealLoad; 2] = [RealLoad::Copy, RealLoad::Index];
const SETTLE: Duration = Duration::from_secs(3);

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &Browser) -> Result<()> {
    let mut store = stage.store()?;
    store.file("background", COPY_MIB)?;
    let Store::Directory(directory) = &store else {
        bail!("browser needs a data disk with a file system");
    };
    let data = directory.to_string_lossy().into_owned();
    for (name, text) in [PAGE, GROWING] {
        fs::write(directory.join(name), text)?;
    }
    systemd::start_user()?;
    guest_setup::drop_caches()?;
    let display = Cgroup::create(&format!("{}/display.scope", systemd::SESSION))?;
    let app = Cgroup::create(&format!("{}/app-chromium-1.scope", systemd::APPS))?;
    let arguments = [DISPLAY, "-screen", "0", SCREEN, "-ac", "-nolisten", "tcp"];
    let _server = start("Xvfb", &arguments, Some(&display))?;
    stage.reporter.progress("starting the browser")?;
    let grow_mib = (stage.arm != Arm::Idle).then_some(work.grow_mib);
    let (mut browser, person) = Person::open(&app, &data, grow_mib)?;

    // These must exist before the daemon starts, because its end is compared with that state.
    let load_cgroup = |load: &RealLoad| {
        Cgroup::create(&format!(
            "{}/app-{}-1.scope",
            systemd::APPS,
            load_name(*load)
        ))
    };
    let cgroups: Vec<Cgroup> = LOADS.iter().map(load_cgroup).collect::<Result<_>>()?;
    knobs::set(stage.arm, Some(&app), app.number("memory.current")?)?;
    if stage.arm == Arm::BestStock {
        app.set_chain("cpu.weight", "10000")?;
    }
    let rival = Rival::of(stage.arm)?;
    let daemon = match stage.arm {
        Arm::LimelightOnDebian | Arm::Limelight => {
            daemon::write_config("")?;
            Some(Daemon::start_with_topmost(browser.pid())?)
        }
        _ => None,
    };
    sleep(SETTLE);
    let wanted = match stage.arm {
        Arm::Idle => &[],
        _ => &LOADS[..],
    };
    let mut loads: Vec<Process> = wanted
        .iter()
        .zip(&cgroups)
        .map(|(load, cgroup)| start_load(*load, cgroup, &data))
        .collect::<Result<_>>()?;
    if !loads.is_empty() {
        stage
            .reporter
            .progress("waiting until the loads fill the memory")?;
        wait_for_pressure(FILL_LIMIT)?;
    }
    let faults = || keyed(&app.path().join("memory.stat"), "pgmajfault");
    let (counters, serving, faults_before) = (
        Counters::now()?,
        ServingCpu::now(daemon.as_ref())?,
        faults()?,
    );
    let mut times = Vec::new();
    for step in 0..work.interactions {
        sleep(Duration::from_millis(work.think_ms.into()));
        let ms = person.interact(step)?;
        stage.reporter.sample("interaction_us", ms * 1000.0);
        times.push(ms * 1000.0);
    }
    stage
        .reporter
        .value("major_faults", faults()? - faults_before);
    serving.report(&mut stage.reporter.values);
    counters.report(&mut stage.reporter.values)?;
    stage.report_all_oom_kills()?;
    report(&times, &mut stage.reporter);
    stage.reporter.value("browser_alive", browser.alive());
    let alive = loads.iter_mut().map(|load| u64::from(load.alive()));
    stage.reporter.value("loads_alive", alive.sum::<u64>());
    drop(loads);
    Rival::end(rival, &stage.reporter)?;
    if let Some(daemon) = daemon {
        daemon.stop(&stage.reporter)?;
    }
    stage.reporter.finish()
}

/// Reports the durations of the interactions, in microseconds.
fn report(times: &[f64], reporter: &mut Reporter) {
    reporter.value("inp_us", quantile(times, 0.98));
    reporter.value("interaction_p50_us", quantile(times, 0.5));
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    reporter.value("interaction_mean_us", mean);
}

fn start(program: &str, arguments: &[&str], cgroup: Option<&Cgroup>) -> Result<Process> {
    let command = graphical(program, arguments, program)?;
    Start::in_cgroup(cgroup).program(command, program)
}

fn start_load(load: RealLoad, cgroup: &Cgroup, data: &str) -> Result<Process> {
    start("sh", &["-c", &load_script(load, data, "")?], Some(cgroup))
}

/// The person at the browser.
struct Person {
    session: Session,
    _driver: Process,
}

impl Person {
    /// Number of kinds of interactions.
    const KINDS: u32 = 4;

    /// Starts the browser in its cgroup, with the page in front, and behind it a tab that grows to
    /// `grow_mib`, if given.
    fn open(app: &Cgroup, data: &str, grow_mib: Option<u32>) -> Result<(Process, Person)> {
        let browser = start("chromium", &FLAGS, Some(app))?;
        let driver = start("chromedriver", &[DRIVER.0], None)?;
        let session = Session::attach(DRIVER.1, DEBUGGER.1, START_LIMIT).with_context(|| {
            let [browser, driver] = ["chromium", "chromedriver"]
                .map(|name| fs::read_to_string(log_path(name)).unwrap_or_default());
            format!("chromium: {browser}\nchromedriver: {driver}")
        })?;
        let page = session.tab()?;
        session.load(&format!("file://{data}/{}", PAGE.0))?;
        session.open_tab()?;
        session.load(&format!("file://{data}/{}", GROWING.0))?;
        if let Some(mib) = grow_mib {
            session.run(&format!("grow({mib})"))?;
        }
        session.switch_to(&page)?;
        let person = Person {
            session,
            _driver: driver,
        };
        // Each kind of interaction once, as on a page that has been open for a while.
        for step in 0..Person::KINDS {
            person.interact(step)?;
        }
        Ok((browser, person))
    }

    /// Does the next interaction; returns its duration in milliseconds, as the browser measures it.
    fn interact(&self, step: u32) -> Result<f64> {
        let session = &self.session;
        session.run("take()")?;
        match step % Self::KINDS {
            0 => session.click(&session.find(&format!("#item{}", step / Self::KINDS % 12))?)?,
            1 => session.type_into(&session.find("#filter")?, "e")?,
            2 => session.click(&session.find("#agree")?)?,
            _ => session.click(&session.find("#send")?)?,
        }
        let ms = self.measured()?;
        if step % Self::KINDS == 1 {
            // An empty filter shows all items again.
            session.run(
                "const filter = document.getElementById('filter'); filter.value = ''; \
                 filter.dispatchEvent(new Event('input'))",
            )?;
        }
        Ok(ms)
    }

    /// Waits for the frame after an interaction.
    fn measured(&self) -> Result<f64> {
        let taken = || -> Result<f64> {
            let taken = self.session.run("return take()")?;
            taken.as_f64().context("take() returns no number")
        };
        let deadline = Instant::now() + FRAME_LIMIT;
        loop {
            sleep(REST);
            let first = taken()?;
            if first > 0.0 {
                sleep(REST);
                return Ok(first.max(taken()?));
            }
            if Instant::now() > deadline {
                bail!(
                    "no frame within {FRAME_LIMIT:?} of an interaction, or one within 16 ms, which \
                     Event Timing does not report"
                );
            }
        }
    }
}
