// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks the table in the section "In one table" of `docs/user/swap.md` row by row. The cells must
//! match what the policy and the gate do with such an app over a range of shortages.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use limelight_core::model::apps::{AppMemory, Apps, Found, Service, Use};
use limelight_core::model::class::{Class, Reasoned};
use limelight_core::model::never::{Avoid, Exception, Exceptions, Never};
use limelight_core::model::protected::{Guarded, Protected, Why};
use limelight_core::model::shortage::{derive_thresholds, Gauge, Level, Shortage};
use limelight_core::model::snapshot::Measured;
use limelight_core::model::storage::{Area, Medium, Storage};
use limelight_core::model::{App, AppKey, Harm, Home, ProcessId, Snapshot};
use limelight_core::policy::swap::{self, order, Step};
use limelight_core::policy::Event;
use limelight_core::settings::Settings;

use crate::reconcile::gate::dependents::served;
use crate::reconcile::gate::session;
use crate::system::{Roots, System};

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 256 * MIB;
const SWAP: u64 = 128 * MIB;
const NOW: Duration = Duration::from_secs(1000);
const CLASSES: [Class; 3] = [Class::Keep, Class::Normal, Class::Disposable];

/// Numbers of the apps. The subject is the least or the most recently used app.
const SUBJECT: u64 = 1;
const FRONT: u64 = 9;
const SERVICE: u64 = 99;

/// Available memory and free swap, in MiB, and whether reclaim stalls.
fn shortages() -> impl Iterator<Item = (u64, u64, bool)> {
    let available = [0, 2, 4, 6, 12, 24, 40, 200];
    available.into_iter().flat_map(|available| {
        let swaps = [0, 1, 40, 128].into_iter();
        swaps.flat_map(move |swap| [(available, swap, false), (available, swap, true)])
    })
}

fn key(number: u64) -> AppKey {
    AppKey::Cgroup { inode: number }
}

fn app(number: u64) -> App {
    App {
        key: key(number),
        name: format!("app{number}"),
        process: None,
        home: Some(Home {
            path: format!("/app.slice/app-{number}.scope"),
            inode: number,
            own: true,
            adopted: false,
        }),
    }
}

fn memory(mib: u64) -> AppMemory {
    AppMemory {
        resident: mib * MIB,
        anonymous: mib * MIB,
        swapped: 0,
    }
}

fn found(number: u64, class: Class) -> Found {
    Found {
        started: Duration::from_secs(1),
        class: Reasoned {
            class,
            why: String::new(),
        },
        memory: memory(20),
        ..Found::new(app(number), 1000)
    }
}

/// Properties that put an app into a row of the table.
#[derive(Default, Clone)]
struct Trait {
    edit: Option<fn(&mut Found)>,
    /// It is the foreground app.
    front: bool,
    /// Time since it left the foreground.
    left: Option<Duration>,
    /// A process in its cgroup is protected for this reason.
    guarded: Option<Why>,
    no_swap: bool,
    members: Vec<ProcessId>,
}

/// Actions of the policy and the gate on the subject, over all shortages.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Outcome {
    squeezed: bool,
    stopped: bool,
    closed: Closed,
}

/// When the subject was closed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Closed {
    #[default]
    Never,
    /// Before any app of the class normal.
    First,
    /// Only when memory was exhausted and no disposable app was left, while the app in use was
    /// still open.
    NothingDisposable,
    /// Only when memory was exhausted and no other app of its class, or of a lower class, was left.
    LastOfClass,
    /// None of the above.
    Other,
}

struct Machine<'a> {
    system: &'a System,
    subject: &'a Trait,
    class: Class,
}

impl Machine<'_> {
    /// The other apps: an idle one of each class that can be closed, one in use, and the foreground
    /// app.
    fn company(&self) -> Vec<Found> {
        let in_use = |number, class| Found {
            uses: vec![Use::Audio],
            ..found(number, class)
        };
        vec![
            found(2, Class::Disposable),
            found(3, Class::Normal),
            in_use(4, Class::Normal),
            found(FRONT, Class::Normal),
        ]
    }

    fn found(&self, alive: &[u64]) -> Vec<Found> {
        let mut subject = found(SUBJECT, self.class);
        subject.members.clone_from(&self.subject.members);
        if let Some(edit) = self.subject.edit {
            edit(&mut subject);
        }
        let mut all = self.company();
        all.push(subject);
        all.retain(|one| alive.iter().any(|number| key(*number) == one.app.key));
        all
    }

    /// A snapshot with these apps alive. `oldest`: the subject is the least recently used app.
    fn snapshot(&self, alive: &[u64], oldest: bool, short: (u64, u64, bool)) -> Snapshot {
        let (available, swap, stalls) = short;
        let swap = if self.subject.no_swap { 0 } else { swap * MIB };
        let mut apps = Apps::default();
        for number in alive {
            let used = match (*number == SUBJECT, oldest) {
                (true, true) => 5,
                (true, false) => 500,
                _ => 100 + number,
            };
            apps.was_topmost(key(*number), Duration::from_secs(used));
        }
        for before in [2, 1] {
            apps.observe(self.found(alive), NOW - Duration::from_secs(before));
        }
        let mut shortage = Shortage::new(derive_thresholds(TOTAL, 0));
        shortage.set_swappable(100 * MIB, 0);
        let gauge = Gauge {
            at: NOW - Duration::from_secs(1),
            available: available * MIB,
            swap_free: swap,
            swap_total: if self.subject.no_swap { 0 } else { SWAP },
            ..Gauge::default()
        };
        let full = Duration::from_millis(if stalls { 500 } else { 0 });
        shortage.observe(gauge);
        shortage.observe(Gauge {
            at: NOW,
            full,
            ..gauge
        });
        let mut snapshot = Snapshot {
            apps: apps.by_use().into_iter().cloned().collect(),
            shortage,
            ..Snapshot::default()
        };
        if !self.subject.no_swap {
            let area = Area {
                medium: Medium::Flash,
                size: SWAP,
                used: SWAP - swap,
            };
            snapshot.storage = Storage {
                areas: vec![area],
                ..Storage::default()
            };
        }
        snapshot.memory.total = TOTAL;
        snapshot.memory.available = available * MIB;
        snapshot.memory.free = available * MIB / 2;
        self.place(&mut snapshot);
        snapshot
    }

    /// Sets the foreground app, the previous one, and the protected processes.
    fn place(&self, snapshot: &mut Snapshot) {
        let front = if self.subject.front { SUBJECT } else { FRONT };
        snapshot.topmost = Some(Measured {
            app: app(front),
            members: Vec::new(),
            footprint: None,
            terminal: None,
            exceptions: Exceptions::default(),
        });
        snapshot.previous = self.subject.left.map(|ago| (key(SUBJECT), NOW - ago));
        let own = app(SUBJECT).home.map(|home| home.path).unwrap_or_default();
        let guarded = self.subject.guarded.map(|why| Guarded {
            process: ProcessId {
                pid: 900,
                starttime: 1,
            },
            cgroup: own + "/inner",
            app: None,
            why,
        });
        snapshot.protected = Protected(guarded.into_iter().collect());
    }

    /// All actions on the subject, over all shortages.
    fn outcome(&self) -> Outcome {
        let mut outcome = Outcome {
            closed: self.closed(),
            ..Outcome::default()
        };
        for short in shortages() {
            // The only other app is the foreground app, so the subject is next in line for every
            // action.
            for settled in [false, true] {
                let mut machine = self.snapshot(&[SUBJECT, FRONT], true, short);
                machine.settled = settled;
                self.take_in(&machine, &mut outcome);
            }
        }
        outcome
    }

    fn take_in(&self, machine: &Snapshot, outcome: &mut Outcome) {
        for step in swap::grant(&Event::Tick, machine) {
            match step {
                Step::Squeeze { app, .. } if app == key(SUBJECT) => outcome.squeezed = true,
                // Before a freeze, the mechanism checks whether another process may be waiting for
                // the app.
                Step::Freeze { app, .. } if app == key(SUBJECT) => {
                    let dependents = served(self.system, &self.subject.members, &[], Harm::Freeze);
                    outcome.stopped |= dependents.is_none();
                    assert!(runs_again_after_two_seconds(machine));
                }
                _ => {}
            }
        }
    }

    /// Closes apps one after the other, at each shortage, until no more are closed.
    fn closed(&self) -> Closed {
        let mut seen = Vec::new();
        for (short, oldest) in shortages().flat_map(|short| [(short, true), (short, false)]) {
            let mut alive = vec![SUBJECT, 2, 3, 4, FRONT];
            loop {
                let machine = self.snapshot(&alive, oldest, short);
                let all = order::candidates(&machine);
                let held: Vec<u64> = all.iter().map(|one| one.held).collect();
                let situation = machine.shortage.situation();
                let Some(place) = order::pick(&all, &held, &situation) else {
                    break;
                };
                let picked = all[place].app;
                if picked == key(SUBJECT) {
                    seen.push((machine.shortage.level(), alive.clone()));
                }
                alive.retain(|number| key(*number) != picked);
            }
            assert!(alive.contains(&FRONT) || self.subject.front);
        }
        self.classify(&seen)
    }

    /// Classifies when the subject was closed. `seen`: the level at each close, and the apps alive
    /// then.
    fn classify(&self, seen: &[(Level, Vec<u64>)]) -> Closed {
        let exhausted = seen.iter().all(|(level, _)| *level >= Level::Exhausted);
        let always = |number| seen.iter().all(|(_, alive)| alive.contains(&number));
        let never = |number| !seen.iter().any(|(_, alive)| alive.contains(&number));
        let (disposable, normal, in_use) = (2, 3, 4);
        let last = match self.class {
            Class::Disposable => never(disposable),
            _ => never(disposable) && never(normal),
        };
        match self.class {
            _ if seen.is_empty() => Closed::Never,
            _ if exhausted && last => Closed::LastOfClass,
            Class::Disposable if always(normal) => Closed::First,
            Class::Normal if exhausted && never(disposable) && always(in_use) => {
                Closed::NothingDisposable
            }
            _ => Closed::Other,
        }
    }
}

fn runs_again_after_two_seconds(machine: &Snapshot) -> bool {
    let thaws = |since: Duration| {
        let mut frozen = machine.clone();
        frozen.in_force.swapping.frozen = vec![(key(SUBJECT), NOW - since)];
        let steps = swap::withdraw(&Event::Tick, &frozen);
        let mut thaws = steps.iter();
        thaws.any(|step| matches!(step, Step::Thaw { app, .. } if *app == key(SUBJECT)))
    };
    thaws(Duration::from_secs(2)) && !thaws(Duration::from_millis(1900))
}

/// The cells of a row for apps of these traits and classes, from the observed outcomes.
fn cells(system: &System, traits: &[Trait], classes: &[Class]) -> [String; 3] {
    let of = |subject: &Trait, class| {
        let machine = Machine {
            system,
            subject,
            class,
        };
        machine.outcome()
    };
    let plain = Trait::default();
    let usual: Vec<Closed> = classes
        .iter()
        .map(|class| of(&plain, *class).closed)
        .collect();
    let mut all = traits.iter().map(|subject| {
        let outcomes: Vec<Outcome> = classes.iter().map(|class| of(subject, *class)).collect();
        // A disposable app is never squeezed, whatever its other traits.
        let swaps = classes.iter().zip(&outcomes);
        let swaps = swaps.filter(|(class, _)| classes.len() == 1 || **class > Class::Disposable);
        let swaps: Vec<&Outcome> = swaps.map(|(_, outcome)| outcome).collect();
        let closed: Vec<Closed> = outcomes.iter().map(|outcome| outcome.closed).collect();
        [
            word(swaps.iter().map(|one| one.squeezed), "yes"),
            word(swaps.iter().map(|one| one.stopped), "yes, for 2 s"),
            when(&closed, &usual, classes),
        ]
    });
    let first = all.next().expect("a row has an app");
    for other in all {
        assert_eq!(other, first, "two kinds of one row differ");
    }
    first
}

fn word(mut all: impl Iterator<Item = bool>, yes: &str) -> String {
    let first = all.next().unwrap_or_default();
    assert!(
        all.all(|one| one == first),
        "the outcome depends on the class"
    );
    String::from(if first { yes } else { "no" })
}

fn when(closed: &[Closed], usual: &[Closed], classes: &[Class]) -> String {
    let killable = closed.iter().zip(classes);
    let mut killable = killable.filter(|(_, class)| **class != Class::Keep);
    let text = if closed.iter().all(|one| *one == Closed::Never) {
        "no"
    } else if closed.len() > 1 && closed == usual {
        "as its class"
    } else if killable.all(|(one, _)| *one == Closed::LastOfClass) {
        "as the last of its class, when memory is exhausted"
    } else if closed == [Closed::NothingDisposable] {
        "when nothing disposable is left"
    } else if closed == [Closed::First] {
        "first"
    } else {
        "an outcome that the table does not describe"
    };
    text.to_owned()
}

fn untouchable(found: &mut Found) {
    found.untouchable = Some("exempt".to_owned());
}

fn starts_slowly(found: &mut Found) {
    found.started = NOW - Duration::from_secs(5);
    found.cpu = Duration::from_secs(60);
}

fn never_closed(found: &mut Found) {
    let exception = Exception {
        never: Never::Close,
        why: "a rule".to_owned(),
        by_owner: false,
    };
    found.exceptions = [exception].into_iter().collect();
}

fn avoided(found: &mut Found) {
    found.avoid = Some(Avoid {
        why: "a wish".to_owned(),
        by_owner: false,
    });
}

fn guarded(why: Why) -> Trait {
    Trait {
        guarded: Some(why),
        ..Trait::default()
    }
}

fn edited(edit: fn(&mut Found)) -> Trait {
    Trait {
        edit: Some(edit),
        ..Trait::default()
    }
}

/// Apps that the row describes, and the classes for which it holds.
type Row = (Vec<Trait>, Vec<Class>);

/// Rows that depend on the app's place: foreground, session or class.
fn rows_of_places() -> BTreeMap<&'static str, Row> {
    let front = Trait {
        front: true,
        ..Trait::default()
    };
    let tab = edited(|found| found.part_of = Some(key(FRONT)));
    let left = Trait {
        left: Some(Duration::from_secs(9)),
        ..guarded(Why::Previous)
    };
    let all = CLASSES.to_vec();
    let of_class = |class| (vec![Trait::default()], vec![class]);
    let slow = edited(starts_slowly);
    BTreeMap::from([
        (
            "the foreground app, its terminal tabs, its children",
            (vec![front, tab, guarded(Why::Topmost)], all.clone()),
        ),
        (
            "the app that left the foreground less than 10 s ago",
            (vec![left], all.clone()),
        ),
        (
            "the processes from which the foreground app descends",
            (vec![guarded(Why::Ancestor)], all.clone()),
        ),
        (
            "compositor, display and sound server, bus, session leader, login, panel, screen locker, input method",
            (vec![guarded(Why::Session), edited(untouchable)], all.clone()),
        ),
        (
            "an app that was never in the foreground, while its session is locked",
            (vec![edited(untouchable)], all.clone()),
        ),
        (
            "a terminal's scope in which root or a multiplexer that root installed (tmux, screen) runs",
            (vec![edited(untouchable)], all),
        ),
        ("an app of class `keep`", of_class(Class::Keep)),
        (
            "an app with a rule in `[never] close`, or with `ManagedOOMPreference=omit`",
            (vec![edited(never_closed)], CLASSES.to_vec()),
        ),
        (
            "an app with `ManagedOOMPreference=avoid`",
            (vec![edited(avoided)], CLASSES.to_vec()),
        ),
        ("an app of class `normal`", of_class(Class::Normal)),
        ("an app of class `disposable`", of_class(Class::Disposable)),
        (
            "a disposable app whose start takes three times as long as reading it back from swap",
            (vec![slow], vec![Class::Disposable]),
        ),
    ])
}

/// Rows about an app's activity or missing features of the machine; `servers` are processes that
/// accept connections.
fn rows_of_traits(servers: Vec<ProcessId>) -> BTreeMap<&'static str, Row> {
    let uses: [fn(&mut Found); 7] = [
        |found| found.uses = vec![Use::Audio],
        |found| found.uses = vec![Use::Video],
        |found| found.uses = vec![Use::Inhibitor],
        |found| found.uses = vec![Use::Visible],
        |found| found.uses = vec![Use::Unsaved],
        |found| found.uses = vec![Use::Packages],
        |found| found.uses = vec![Use::Machine],
    ];
    let serves = Trait {
        members: servers,
        ..Trait::default()
    };
    let no_swap = Trait {
        no_swap: true,
        ..Trait::default()
    };
    let all = CLASSES.to_vec();
    BTreeMap::from([
        (
            "an app in use: sound, screen or camera, inhibitor, visible, unsaved work, package manager, virtual machine",
            (uses.map(edited).to_vec(), all.clone()),
        ),
        (
            "an app that accepts connections, holds `/dev/fuse` or `/dev/kvm`, or has a pipe to the foreground app",
            (vec![serves], all.clone()),
        ),
        ("any app on a machine without swap", (vec![no_swap], all)),
    ])
}

/// The rows of the documented table, by first cell.
fn documented() -> BTreeMap<String, [String; 3]> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/user/swap.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once("\n## In one table\n").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let rows = rows.map(|line| {
        let mut cells = line
            .trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned());
        let mut next = || cells.next().expect("four cells");
        (next(), [next(), next(), next()])
    });
    rows.collect()
}

/// A process that accepts connections; killed on drop.
struct Server(Child);

impl Server {
    fn start() -> Server {
        use std::os::fd::OwnedFd;
        use std::os::unix::net::UnixListener;
        let temp = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(temp.path().join("socket")).unwrap();
        let mut command = Command::new("sleep");
        command
            .arg("100")
            .stdin(Stdio::from(OwnedFd::from(listener)));
        Server(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn system() -> (tempfile::TempDir, System) {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir(temp.path().join("cgroup")).unwrap();
    std::fs::write(temp.path().join("cgroup/cgroup.procs"), "").unwrap();
    let system = System::open(Roots {
        cgroup: Some(temp.path().join("cgroup")),
        ..Roots::default()
    });
    (temp, system.unwrap())
}

const NO_APP: &str = "not an app: a service, a container, a nightly build";

#[test]
fn documented_table_matches_policy_and_gate() {
    let (_temp, system) = system();
    let server = Server::start();
    let id = system.process(server.0.id() as i32).unwrap().0;
    let mut rows = rows_of_places();
    rows.extend(rows_of_traits(vec![id]));
    let mut documented = documented();
    let no_app = documented.remove(NO_APP).expect("a row about services");
    assert_eq!(no_app, cells_of_services(&system), "{NO_APP}");
    for (what, (traits, classes)) in rows {
        let row = documented.remove(what);
        assert_eq!(row, Some(cells(&system, &traits, &classes)), "{what}");
    }
    assert!(documented.is_empty(), "rows without a test: {documented:?}");
}

/// The cells for a large service beside an idle app, over all shortages.
fn cells_of_services(system: &System) -> [String; 3] {
    let subject = Trait::default();
    let machine = Machine {
        system,
        subject: &subject,
        class: Class::Normal,
    };
    let service = Service {
        app: app(SERVICE),
        memory: memory(100),
        grown: 0,
    };
    let (mut squeezed, mut stopped, mut closed, mut before) = (false, false, false, true);
    for short in shortages() {
        let mut snapshot = machine.snapshot(&[SUBJECT, 2, 3, FRONT], true, short);
        snapshot.services = vec![service.clone()];
        let steps = swap::grant(&Event::Tick, &snapshot);
        let of = |step: &Step| match step {
            Step::Squeeze { app, .. } | Step::Freeze { app, .. } => Some(*app),
            _ => None,
        };
        let freezes = |step: &&Step| matches!(step, Step::Freeze { .. });
        squeezed |= steps
            .iter()
            .any(|step| matches!(step, Step::Squeeze { .. }) && of(step) == Some(key(SERVICE)));
        stopped |= steps
            .iter()
            .filter(freezes)
            .any(|step| of(step) == Some(key(SERVICE)));
        before &= short.1 == 0 || steps.iter().all(|step| !freezes(&step));
        let order = order::candidates(&snapshot);
        closed |= order.iter().any(|one| one.app == key(SERVICE));
    }
    let squeezed = match (squeezed, before) {
        (true, true) => "yes, before any app is stopped",
        (true, false) => "yes",
        _ => "no",
    };
    let word = |yes: bool| String::from(if yes { "yes" } else { "no" });
    [squeezed.to_owned(), word(stopped), word(closed)]
}

/// The lists contain the session programs that the table's rows name.
#[test]
fn programs_in_the_documented_table_are_listed() {
    let helpers = Settings::default().boost.helpers;
    let listed =
        |name: &str| helpers.iter().any(|helper| helper == name) || session::is_needed(name);
    for name in [
        "sway",
        "Xorg",
        "pipewire",
        "dbus-daemon",
        "systemd",
        "login",
        "xfce4-panel",
        "swaylock",
        "fcitx5",
    ] {
        assert!(listed(name), "{name} is not listed");
    }
    assert!(session::is_multiplexer("tmux: server") && session::is_multiplexer("screen"));
}
