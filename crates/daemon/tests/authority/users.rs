// SPDX-License-Identifier: GPL-2.0-or-later
//! Three users send random requests over the real socket to the real daemon, and take other random
//! actions that need no privilege. No user changes a value of another user's processes, or learns
//! another user's foreground app or when that user's input occurred. After the daemon's end, no
//! changed value remains.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use limelight_proto::{ErrorCode, Response};
use serde_json::{json, Value};

use super::forget_time;
use crate::common::{App, Client, Machine, Running};
use crate::random::Random;

const USERS: [u32; 3] = [54_331, 54_332, 54_333];
/// Sequences in one run; set `LIMELIGHT_USERS_SEQUENCES` for more.
const SEQUENCES: u64 = 6;
/// In each sequence, every user watches once while the others take this many steps.
const STEPS: usize = 12;
/// Longer than the daemon's interval between two scans for apps, which is 500 ms.
const SETTLED: Duration = Duration::from_millis(700);
const UNITS: usize = 2;

/// Possible contents of logind's file of a user's session.
const SESSIONS: [&str; 5] = [
    "ACTIVE=1\nSEAT=seat0\nCLASS=user\n",
    "ACTIVE=0\nSEAT=seat0\nCLASS=user\n",
    "ACTIVE=1\nSEAT=seat1\nCLASS=user\n",
    "ACTIVE=1\nREMOTE=1\nCLASS=user\n",
    "ACTIVE=1\nCLASS=manager\n",
];

fn unit(user: usize, at: usize) -> String {
    format!("u{user}/app-own{user}x{at}-1.scope")
}

struct World<'a> {
    machine: &'a Machine,
    random: Random,
    apps: Vec<(usize, String, App)>,
    trail: Vec<String>,
}

impl<'a> World<'a> {
    fn new(machine: &'a Machine, seed: u64) -> World<'a> {
        let mut world = World {
            machine,
            random: Random::new(seed),
            apps: Vec::new(),
            trail: vec![format!("seed {seed:#x}")],
        };
        for (user, uid) in USERS.iter().enumerate() {
            let how = world.random.one_of(&SESSIONS);
            let session = format!("UID={uid}\nSTATE=online\n{how}");
            world.trail.push(format!("user {user}: {how:?}"));
            machine.write(&format!("sessions/{user}"), &session);
            machine.make_cgroup(&format!("u{user}"));
            for at in 0..UNITS {
                machine.make_cgroup(&unit(user, at));
                machine.use_memory(&unit(user, at), 20 + 10 * at as u64);
                world.start(user, at);
            }
        }
        world
    }

    fn start(&mut self, user: usize, at: usize) -> i32 {
        let cgroup = unit(user, at);
        let app = self.machine.spawn(&cgroup);
        self.machine.give(&app, USERS[user]);
        let pid = app.pid;
        self.apps.push((user, cgroup, app));
        pid
    }

    fn pids(&self, user: usize) -> Vec<i32> {
        let own = self.apps.iter().filter(|(owner, ..)| *owner == user);
        own.map(|(_, _, app)| app.pid).collect()
    }

    fn any_pid(&mut self, user: usize) -> i32 {
        // A third of the time this is another user's pid, or one that does not exist.
        let user = match self.random.below(3) {
            0 => self.random.below(USERS.len()),
            _ => user,
        };
        let mut all = self.pids(user);
        all.push(1);
        let at = self.random.below(all.len() - usize::from(all.len() > 1));
        all[at]
    }

    /// A random request of a client, valid or not.
    fn request(&mut self, user: usize) -> String {
        let pid = self.any_pid(user);
        let on = self.random.below(2) == 0;
        let source = self
            .random
            .one_of(&["cli", "sway", "x\nkilled: all", "wake-graph", ""]);
        let class = self.random.one_of(&["keep", "normal", "disposable"]);
        let what = self.random.one_of(&["visible", "audio", "unsaved"]);
        let event = self.random.one_of(&["open", "close"]);
        let never = self.random.one_of(&[
            "[never]\nboost = [\"*\"]\nprotect = [\"*\"]\nclose = [\"*\"]",
            "[class]\nkeep = [\"*\"]",
            "",
        ]);
        let owner = self.random.below(USERS.len());
        let at = self.random.below(UNITS);
        let path = format!("/{}", unit(owner, at));
        let time = self.random.one_of(&[0_u64, 1, u64::MAX]);
        let lines = [
            json!({"op": "focus", "target": {"pid": pid}, "source": "sway", "hold": on}),
            json!({"op": "focus", "target": {"pid": pid}, "source": source, "hold": on}),
            json!({"op": "focus", "target": {"cgroup": path}, "source": "test", "hold": on}),
            json!({"op": "focus", "target": "none", "source": "test", "hold": on}),
            json!({"op": "window", "event": event, "source": "test"}),
            json!({"op": "window", "event": event, "pid": pid, "at_us": time, "source": source}),
            json!({"op": "class", "pid": pid, "class": class}),
            json!({"op": "in-use", "pid": pid, "use": what, "on": on}),
            json!({"op": "agent", "source": source, "detail": "lies"}),
            json!({"op": "never", "file": "/f", "text": never}),
            json!({"op": "listen"}),
            json!({"op": "explain", "pid": pid}),
            json!({"op": "focus", "target": {"pid": pid}, "source": "test", "uid": 0}),
        ];
        lines[self.random.below(lines.len())].to_string()
    }

    /// A random action of a user, without a request to the daemon.
    fn act(&mut self, user: usize) {
        let own = self.pids(user);
        let pid = own[self.random.below(own.len())];
        let score = format!("proc/{pid}/oom_score_adj");
        let what = self.random.below(4);
        self.trail
            .push(format!("user {user} pid {pid} acts: {what}"));
        match what {
            0 if self.apps.len() < 12 => {
                // A child inherits its parent's score.
                let at = self.random.below(UNITS);
                let child = self.start(user, at);
                let inherited = self.machine.read(&score);
                self.machine
                    .write(&format!("proc/{child}/oom_score_adj"), &inherited);
            }
            1 => {
                let now: i32 = self.machine.read(&score).parse().unwrap();
                let higher = (now + 1 + self.random.below(200) as i32).min(1000);
                self.machine.write(&score, &format!("{higher}\n"));
            }
            2 => {
                let text = self.machine.read(&format!("proc/{pid}/stat"));
                let name = self.random.one_of(&["Xorg", "systemd", "x\nkilled: all"]);
                let (head, rest) = (text.find('(').unwrap(), text.rfind(')').unwrap());
                let text = format!("{}({name}{}\n", &text[..head], &text[rest..]);
                self.machine.write(&format!("proc/{pid}/stat"), &text);
            }
            3 => {
                let to = self.random.below(UNITS);
                self.move_to(pid, &unit(user, to));
            }
            _ => {}
        }
    }

    fn move_to(&mut self, pid: i32, to: &str) {
        let app = self.apps.iter_mut().find(|(_, _, app)| app.pid == pid);
        let from = std::mem::replace(&mut app.unwrap().1, to.to_owned());
        for group in [&from, &to.to_owned()] {
            let inside = self.apps.iter().filter(|(_, at, _)| at == group);
            let text: String = inside.map(|(_, _, app)| format!("{}\n", app.pid)).collect();
            self.machine
                .write(&format!("cgroup/{group}/cgroup.procs"), &text);
        }
        self.machine
            .write(&format!("proc/{pid}/cgroup"), &format!("0::/{to}\n"));
    }

    /// The current values of all settings of one user that the daemon can change.
    fn values(&self, user: usize) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for pid in self.pids(user) {
            let score = format!("proc/{pid}/oom_score_adj");
            all.insert(score.clone(), self.machine.read(&score));
        }
        for group in (0..UNITS)
            .map(|at| unit(user, at))
            .chain([format!("u{user}")])
        {
            let directory = format!("cgroup/{group}");
            for entry in fs::read_dir(self.machine.path(&directory)).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                let counts = name.starts_with("memory.") || name == "cgroup.freeze";
                if counts && entry.file_type().unwrap().is_file() {
                    let file = format!("{directory}/{name}");
                    all.insert(file.clone(), self.machine.read(&file));
                }
            }
        }
        all
    }

    /// Text that would reveal another user's apps, unless the caller's own request contains it.
    fn marks(&self, watcher: usize) -> Vec<String> {
        let others = (0..USERS.len()).filter(|user| *user != watcher);
        let mut marks: Vec<String> = Vec::new();
        for user in others {
            marks.extend(self.pids(user).iter().map(|pid| format!("\"pid\":{pid},")));
            marks.push(format!("own{user}x"));
            marks.push(format!("\"uid\":{}", USERS[user]));
        }
        marks
    }

    fn questions(&self, watcher: usize) -> Vec<String> {
        let ask = |op: &str| json!({ "op": op }).to_string();
        let all = ["status", "apps", "latency", "decision", "history"];
        let own = self.pids(watcher).into_iter().take(2);
        let own = own.map(|pid| json!({"op": "explain", "pid": pid}).to_string());
        all.into_iter().map(ask).chain(own).collect()
    }

    fn fail(&self, what: &str) -> ! {
        panic!("{what}\n{:#?}", self.trail);
    }
}

/// Sends a request until the daemon's rate limit admits it.
fn ask(daemon: &mut Running, client: &mut Client, line: &str) -> Response {
    loop {
        match daemon.ask_over(client, line) {
            Response::Error {
                code: ErrorCode::Busy,
                retry_ms,
                ..
            } => sleep(Duration::from_millis(retry_ms.unwrap_or(50))),
            answer => return answer,
        }
    }
}

fn view(daemon: &mut Running, client: &mut Client, question: &str) -> Value {
    let mut value = serde_json::to_value(ask(daemon, client, question)).unwrap();
    forget_time(&mut value);
    // Ignored: this detail contains the number of apps, which `/proc` shows to all users anyway.
    for mechanism in value["mechanisms"].as_array_mut().into_iter().flatten() {
        if mechanism["name"] == "swap" {
            mechanism["detail"].take();
        }
    }
    value
}

/// Paths of the JSON members that differ.
fn differences(path: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for name in before.keys().chain(after.keys()) {
                let (one, other) = (before.get(name), after.get(name));
                let none = &Value::Null;
                differences(
                    &format!("{path}.{name}"),
                    one.unwrap_or(none),
                    other.unwrap_or(none),
                    found,
                );
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (at, (one, other)) in before.iter().zip(after).enumerate() {
                differences(&format!("{path}[{at}]"), one, other, found);
            }
        }
        _ if before == after => {}
        _ => found.push(format!("{path}: {before} -> {after}")),
    }
}

fn settle(daemon: &mut Running) {
    let until = Instant::now() + SETTLED;
    daemon.until("settled", |_| Instant::now() > until);
}

/// Owner of the topmost app, from root's view.
fn front(daemon: &mut Running, world: &World) -> Option<usize> {
    let pid = daemon.topmost()?;
    let of = world.apps.iter().find(|(_, _, app)| app.pid == pid);
    of.map(|(user, ..)| *user)
}

/// One user watches while the others take random steps.
fn watch(daemon: &mut Running, world: &mut World, clients: &mut [Client], watcher: usize) -> usize {
    settle(daemon);
    let questions = world.questions(watcher);
    let ours = &mut daemon.connect_as(USERS[watcher]);
    let before: Vec<Value> = questions
        .iter()
        .map(|question| view(daemon, ours, question))
        .collect();
    let values = world.values(watcher);
    let mut compared = 0;
    for _ in 0..STEPS {
        let actor = (watcher + 1 + world.random.below(2)) % USERS.len();
        let had_front = front(daemon, world) == Some(watcher);
        match world.random.below(4) {
            0 => world.act(actor),
            1 if world.random.below(4) == 0 => {
                world.trail.push(format!("user {actor} reconnects"));
                clients[actor] = daemon.connect_as(USERS[actor]);
            }
            _ => {
                let line = world.request(actor);
                world.trail.push(format!("user {actor}: {line}"));
                let answer = ask(daemon, &mut clients[actor], &line);
                let answer = serde_json::to_string(&answer).unwrap();
                let told = world.marks(actor).into_iter();
                let told: Vec<String> = told.filter(|mark| answer.contains(mark)).collect();
                if !told.is_empty()
                    && !told
                        .iter()
                        .all(|mark| line.contains(mark.trim_end_matches(',')))
                {
                    world.fail(&format!("user {actor} receives {told:?}: {answer}"));
                }
            }
        }
        let at = world.random.below(questions.len());
        let after = view(daemon, ours, &questions[at]);
        let text = after.to_string();
        if let Some(mark) = world
            .marks(watcher)
            .iter()
            .find(|mark| text.contains(*mark))
        {
            world.fail(&format!("user {watcher} sees {mark}: {after:#}"));
        }
        if had_front {
            // A user who has lost the foreground to another user may see that.
            if front(daemon, world) != Some(watcher) {
                return compared;
            }
            continue;
        }
        if after != before[at] {
            let mut found = Vec::new();
            differences("", &before[at], &after, &mut found);
            world.fail(&format!("user {watcher} sees a change: {found:#?}"));
        }
        if world.values(watcher) != values {
            let now = world.values(watcher);
            let changed = now
                .iter()
                .filter(|(file, value)| values.get(*file) != Some(value));
            let changed: Vec<_> = changed.collect();
            world.fail(&format!("values of user {watcher} change: {changed:?}"));
        }
        compared += 1;
    }
    compared
}

/// Runs one sequence; returns the number of compared steps.
fn sequence(machine: &Machine, seed: u64, logind: bool) -> usize {
    let mut world = World::new(machine, seed);
    let originals: Vec<_> = (0..USERS.len()).map(|user| world.values(user)).collect();
    let mut daemon = machine.start_with(|options| {
        if logind {
            options.roots.sessions = machine.path("sessions");
        }
    });
    let mut clients: Vec<Client> = USERS.iter().map(|uid| daemon.connect_as(*uid)).collect();
    let mut compared = 0;
    for watcher in 0..USERS.len() {
        // The watcher acts first.
        for _ in 0..3 {
            let line = world.request(watcher);
            world.trail.push(format!("user {watcher}: {line}"));
            ask(&mut daemon, &mut clients[watcher], &line);
            world.act(watcher);
        }
        compared += watch(&mut daemon, &mut world, &mut clients, watcher);
    }
    drop(clients);
    if seed.is_multiple_of(2) {
        daemon.stop();
    } else {
        // Without a watcher process, the next start restores a dead daemon's changes.
        daemon.crash();
        machine.start().stop();
    }
    for (user, original) in originals.iter().enumerate() {
        for (file, now) in world.values(user) {
            let was = original.get(&file).map_or("0", String::as_str);
            let own = now.parse::<i64>().is_ok_and(|now| now > 0) && file.starts_with("proc");
            if now != was && !own {
                world.fail(&format!("after the end {file} is {now}, was {was}"));
            }
        }
    }
    compared
}

#[test]
fn users_neither_affect_nor_observe_each_other() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: speaking as other users requires root");
        return;
    }
    let sequences = std::env::var("LIMELIGHT_USERS_SEQUENCES");
    let sequences = sequences.map_or(SEQUENCES, |text| text.parse().unwrap());
    let mut compared = 0;
    for number in 0..sequences {
        let machine = Machine::new();
        let seed = 0x3a5f_19c7_4d2e_8b61 ^ (number + 1).wrapping_mul(0x9e37_79b9);
        compared += sequence(&machine, seed, number % 4 != 3);
    }
    let least = sequences as usize * STEPS;
    assert!(
        compared >= least,
        "{compared} steps compared, {least} wanted"
    );
}
