// SPDX-License-Identifier: GPL-2.0-or-later
//! The situations, one entry each: the apps, what they do, and which of them takes the memory.
//!
//! About 130 MiB are free for the apps of a situation. A machine with swap has 160 MiB of swap.

use serde::{Deserialize, Serialize};

/// A group of situations that run one after the other in one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Day {
    /// Situations that were found on real machines.
    Found,
    /// Situations of a developer and of an office user.
    Work,
    /// Situations of a phone, of a family, and of the machine itself, such as an app's start.
    Home,
}

/// What an app does once it has its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Does nothing.
    Idle,
    /// Writes to all of its memory repeatedly, one page every 10 ms.
    Use,
    /// Writes to all of its memory repeatedly, as fast as it can.
    Churn,
    /// Takes `mib_per_s` MiB more each second until it has taken `to_mib` MiB; without end if
    /// `to_mib` is 0.
    Grow { mib_per_s: u32, to_mib: u32 },
    /// Writes `mib_per_s` MiB each second to a file in a tmpfs until the file has `to_mib` MiB.
    Fill { mib_per_s: u32, to_mib: u32 },
    /// Writes and reads a file of `mib` MiB on a disk repeatedly.
    Copy { mib: u32 },
    /// Starts short-lived processes with `mib` MiB each, one after the other.
    Fork { mib: u32 },
    /// Sleeps for `ms` milliseconds, and records how late it woke.
    Ring { ms: u32 },
    /// Answers the requests that its parent sends through a pipe.
    AnswerPipe,
    /// Answers the requests of the app that connects to its socket.
    AnswerSocket,
}

impl Act {
    /// Whether this act takes memory without end.
    pub fn is_greedy(self) -> bool {
        matches!(self, Act::Grow { to_mib: 0, .. })
    }

    /// Whether this act takes some time and then ends by itself.
    pub fn is_finite(self) -> bool {
        let (Act::Grow { to_mib, .. } | Act::Fill { to_mib, .. }) = self else {
            return matches!(self, Act::Ring { .. });
        };
        to_mib > 0
    }
}

/// An app's cgroup and its parent process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In its own scope, as a desktop creates it.
    Scope,
    /// In the scope of a terminal's tab, as a child of the named app.
    Tab(&'static str),
    /// In the scope of a terminal's tab, but not a child of any app.
    Detached,
    /// In the cgroup of the named app, as its child.
    With(&'static str),
    /// In its own scope, as a child of the named app, with pipes to and from that app.
    Piped(&'static str),
    /// In a system service; not an app for the daemon.
    Service,
    /// In a container's scope; not an app for the daemon.
    Container,
}

/// Why an app counts as in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InUse {
    /// The app has announced unsaved work.
    Unsaved,
    /// The app holds logind's inhibitor lock against sleep.
    Inhibitor,
}

/// An app of a situation.
#[derive(Debug, Clone, Copy)]
pub struct Cast {
    pub name: &'static str,
    pub mib: u32,
    pub class: &'static str,
    pub uid: u32,
    pub place: Place,
    pub act: Act,
    /// Name of the app's program if that matters, else empty.
    pub program: &'static str,
    pub in_use: Option<InUse>,
    /// Whether the app sends requests: to the app with [`Act::AnswerSocket`], if the situation has
    /// one, else to its child with [`Place::Piped`].
    pub asks: bool,
    /// Whether the daemon must not freeze the app even for a moment.
    pub never_stopped: bool,
    /// Whether the app starts only when the other apps begin to act.
    pub fresh: bool,
    /// Whether the app's memory is in swap at first.
    pub asleep: bool,
}

/// A normal, idle app of user 1000 with `mib` MiB.
const fn app(name: &'static str, mib: u32) -> Cast {
    Cast {
        name,
        mib,
        class: crate::swap_app::NORMAL,
        uid: 1000,
        place: Place::Scope,
        act: Act::Idle,
        program: "",
        in_use: None,
        asks: false,
        never_stopped: false,
        fresh: false,
        asleep: false,
    }
}

impl Cast {
    const fn of(self, class: &'static str) -> Cast {
        Cast { class, ..self }
    }
    const fn by(self, uid: u32) -> Cast {
        Cast { uid, ..self }
    }
    const fn at(self, place: Place) -> Cast {
        Cast { place, ..self }
    }
    const fn does(self, act: Act) -> Cast {
        Cast { act, ..self }
    }
    const fn runs(self, program: &'static str) -> Cast {
        Cast { program, ..self }
    }
    const fn in_use(self, how: InUse) -> Cast {
        let in_use = Some(how);
        Cast {
            in_use,
            never_stopped: true,
            ..self
        }
    }
    const fn asks(self) -> Cast {
        Cast { asks: true, ..self }
    }
    const fn never_stopped(self) -> Cast {
        let never_stopped = true;
        Cast {
            never_stopped,
            ..self
        }
    }
    const fn fresh(self) -> Cast {
        Cast {
            fresh: true,
            ..self
        }
    }
    const fn asleep(self) -> Cast {
        Cast {
            asleep: true,
            ..self
        }
    }
}

/// One situation.
#[derive(Debug, Clone, Copy)]
pub struct Situation {
    pub name: &'static str,
    pub day: Day,
    /// Whether the situation needs the machine with swap.
    pub swap: bool,
    /// The apps; the first one is in the foreground.
    pub cast: &'static [Cast],
    /// Time in milliseconds after which the named app comes to the foreground.
    pub then: Option<(u64, &'static str)>,
    /// UID of the user whose session is locked.
    pub locked: Option<u32>,
}

/// A situation on the machine without swap.
const fn plain(day: Day, name: &'static str, cast: &'static [Cast]) -> Situation {
    Situation {
        name,
        day,
        swap: false,
        cast,
        then: None,
        locked: None,
    }
}

/// A situation on the machine with swap.
const fn swaps(day: Day, name: &'static str, cast: &'static [Cast]) -> Situation {
    Situation {
        swap: true,
        ..plain(day, name, cast)
    }
}

impl Situation {
    const fn then(self, after_ms: u64, name: &'static str) -> Situation {
        let then = Some((after_ms, name));
        Situation { then, ..self }
    }
    const fn locked(self, uid: u32) -> Situation {
        let locked = Some(uid);
        Situation { locked, ..self }
    }
}

const KEEP: &str = crate::swap_app::KEEP;
const DISPOSABLE: &str = crate::swap_app::DISPOSABLE;
use Act::{AnswerPipe, AnswerSocket, Churn, Idle, Use};
use Day::{Found, Home, Work};
use Place::{Container, Detached, Piped, Service, Tab, With};

const fn grow(mib_per_s: u32, to_mib: u32) -> Act {
    Act::Grow { mib_per_s, to_mib }
}

/// Takes 16 MiB each second without end.
const LEAK: Act = grow(16, 0);

/// All situations.
pub const ALL: [Situation; 29] = [
    // Found on real machines (issue 18).
    plain(
        Found,
        "greedy",
        &[
            app("greedy", 16).does(LEAK),
            app("idle0", 6),
            app("idle1", 6),
            app("idle2", 6),
            app("idle3", 6),
            app("idle4", 6),
            app("idle5", 6),
            app("idle6", 6),
            app("idle7", 6),
        ],
    ),
    plain(
        Found,
        "locker",
        &[
            app("front", 24).does(Use),
            app("lock", 32).of(DISPOSABLE).runs("i3lock"),
            app("news", 16).of(DISPOSABLE),
            app("taker", 1).does(LEAK),
        ],
    ),
    swaps(
        Found,
        "build",
        &[
            app("terminal", 24).does(Use),
            app("build", 8).at(Tab("terminal")).does(grow(16, 180)),
            app("mail", 20),
        ],
    ),
    swaps(
        Found,
        "tab",
        &[
            app("terminal", 12).does(Use),
            app("shell", 24)
                .at(Tab("terminal"))
                .does(Use)
                .never_stopped(),
            app("load", 150).at(Service).does(Churn),
        ],
    ),
    swaps(
        Found,
        "server",
        &[
            app("client", 24).asks(),
            app("server", 24)
                .at(Piped("client"))
                .does(AnswerPipe)
                .never_stopped(),
            app("load", 150).at(Service).does(Churn),
        ],
    ),
    // A developer's day.
    swaps(
        Work,
        "linker",
        &[
            app("editor", 20).does(Use),
            app("terminal", 8),
            app("linker", 4).at(Tab("terminal")).does(grow(24, 110)),
            app("browser", 30),
            app("chat", 15),
        ],
    ),
    swaps(
        Work,
        "container-build",
        &[
            app("editor", 20).does(Use),
            app("build", 130).at(Container).does(Churn),
            app("docs", 16),
            app("chat", 12).of(DISPOSABLE),
        ],
    ),
    plain(
        Work,
        "language-server",
        &[
            app("editor", 16).does(Use).asks(),
            app("server", 36)
                .at(With("editor"))
                .does(AnswerSocket)
                .never_stopped(),
            app("chat", 8),
            app("sync", 4).does(LEAK),
        ],
    ),
    swaps(
        Work,
        "machine",
        &[
            app("browser", 16).does(Use),
            app("machine", 40)
                .runs("qemu-system-x86")
                .does(Use)
                .never_stopped(),
            app("mail", 12),
            app("load", 110).at(Service).does(Churn),
        ],
    ),
    plain(
        Work,
        "debuggee",
        &[
            app("ide", 30).does(Use),
            app("debuggee", 8).at(With("ide")).does(LEAK),
            app("mail", 10),
            app("chat", 10).of(DISPOSABLE),
        ],
    ),
    swaps(
        Work,
        "test-suite",
        &[
            app("editor", 24).does(Use),
            app("suite", 8)
                .at(Tab("editor"))
                .does(Act::Fork { mib: 24 })
                .never_stopped(),
            app("browser", 40),
            app("mail", 20),
            app("chat", 12).of(DISPOSABLE),
        ],
    ),
    plain(
        Work,
        "database",
        &[
            app("client", 12).asks().does(Use),
            app("database", 36)
                .at(Container)
                .does(AnswerSocket)
                .never_stopped(),
            app("chat", 10),
            app("import", 4).does(LEAK),
        ],
    ),
    swaps(
        Work,
        "multiplexer",
        &[
            app("browser", 30).does(Use),
            app("tmux", 6)
                .at(Detached)
                .runs("tmux: server")
                .never_stopped(),
            app("compiler", 4)
                .at(With("tmux"))
                .does(grow(16, 100))
                .never_stopped(),
            app("mail", 20),
        ],
    ),
    // An office user's day.
    plain(
        Work,
        "unsaved",
        &[
            app("browser", 20).does(Use),
            app("letter", 36).in_use(InUse::Unsaved),
            app("mail", 10),
            app("sheet", 4).does(LEAK),
        ],
    ),
    plain(
        Work,
        "print-job",
        &[
            app("letter", 24).does(Use),
            app("spooler", 4).at(Service).does(grow(12, 60)),
            app("mail", 16),
            app("player", 10).of(DISPOSABLE),
        ],
    ),
    swaps(
        Work,
        "call-behind",
        &[
            app("notes", 16).does(Use),
            app("call", 30)
                .of(DISPOSABLE)
                .in_use(InUse::Inhibitor)
                .does(Use),
            app("mail", 16),
            app("sheet", 8).does(grow(20, 120)),
        ],
    ),
    swaps(
        Work,
        "upgrade",
        &[
            app("letter", 24).does(Use),
            app("dpkg", 8)
                .runs("dpkg")
                .does(grow(16, 100))
                .never_stopped(),
            app("mail", 24),
        ],
    ),
    swaps(
        Work,
        "backup",
        &[
            app("letter", 24).does(Use),
            app("backup", 4).at(Service).does(Act::Copy { mib: 160 }),
            app("mail", 24),
            app("browser", 40),
        ],
    ),
    // A phone.
    plain(
        Home,
        "apps-in-turn",
        &[
            app("game", 12).does(Use),
            app("messenger", 10).of(KEEP),
            app("map", 12),
            app("shop", 12).of(DISPOSABLE),
            app("bank", 12),
            app("photos", 12),
            app("news", 12).of(DISPOSABLE),
            app("radio", 8).of(DISPOSABLE),
        ],
    )
    .then(3000, "map"),
    plain(
        Home,
        "player-behind",
        &[
            app("game", 16).does(LEAK),
            app("player", 24)
                .of(DISPOSABLE)
                .in_use(InUse::Inhibitor)
                .does(Use),
            app("messenger", 10).of(KEEP),
            app("mail", 12),
        ],
    ),
    swaps(
        Home,
        "alarm",
        &[
            app("reader", 16).does(Use),
            app("clock", 16).does(Act::Ring { ms: 6000 }),
            app("game", 120).does(Churn),
        ],
    ),
    swaps(
        Home,
        "navigation",
        &[
            app("phone", 16).does(Use),
            app("map", 36).of(KEEP).in_use(InUse::Inhibitor).does(Use),
            app("shop", 8).does(grow(20, 120)),
        ],
    )
    .then(4000, "map"),
    // A kiosk.
    plain(
        Home,
        "kiosk",
        &[
            app("kiosk", 16).asks().does(grow(12, 0)),
            app("helper", 24)
                .at(Piped("kiosk"))
                .does(AnswerPipe)
                .never_stopped(),
        ],
    ),
    // A family's machine, with two sessions or with a guest.
    plain(
        Home,
        "switched-away",
        &[
            app("game", 20).does(LEAK),
            app("letter", 24).by(1001).in_use(InUse::Unsaved),
            app("browser", 24).by(1001),
            app("locker", 8).by(1001).of(DISPOSABLE),
        ],
    )
    .locked(1001),
    swaps(
        Home,
        "guest",
        &[
            app("letter", 20).does(Use),
            app("mail", 16),
            app("photos", 24).of(DISPOSABLE),
            app("mine", 8).by(1002).does(grow(32, 0)),
        ],
    ),
    // The machine itself: files in memory, copies, a long sleep, an app's start.
    plain(
        Home,
        "tmpfs",
        &[
            app("letter", 20).does(Use),
            app("mail", 16),
            app("upload", 4).at(Service).does(Act::Fill {
                mib_per_s: 16,
                to_mib: 60,
            }),
        ],
    ),
    swaps(
        Home,
        "copies",
        &[
            app("files", 16).does(Act::Copy { mib: 160 }),
            app("letter", 40),
            app("browser", 40),
            app("news", 12).of(DISPOSABLE),
        ],
    ),
    swaps(
        Home,
        "long-sleep",
        &[
            app("browser", 24).does(Use),
            app("letter", 50).asleep(),
            app("photos", 8).does(grow(20, 110)),
            app("idle", 10).does(Idle),
        ],
    )
    .then(3000, "letter"),
    plain(
        Home,
        "start",
        &[
            app("mail", 20).does(Use),
            app("music", 16).of(DISPOSABLE),
            app("notes", 16),
            app("game", 4).fresh().does(grow(24, 56)),
        ],
    )
    .then(1500, "game"),
];
