// SPDX-License-Identifier: GPL-2.0-or-later
//! Users' requests to the daemon, and the answers that they get.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, Context, Result};
use serde_json::{json, Value};

use super::{name, PLACES, SEATED, USERS};
use crate::access_rules::become_user;
use crate::daemon::{self, SOCKET};
use crate::random::Random;

const PATIENCE: Duration = Duration::from_secs(60);
/// Members of answers that change with time or with the state of the machine; they are ignored.
const PASSING: [&str; 7] = [
    "uptime_ms",
    "for_ms",
    "demoted_in_ms",
    "memory",
    "stalls",
    "mechanisms",
    "sources",
];

/// Sends lines as a user, and returns the answers.
fn ask(uid: u32, lines: Vec<String>) -> Result<Vec<String>> {
    let talk = move || -> Result<Vec<String>> {
        become_user(uid, uid)?;
        let mut stream = UnixStream::connect(SOCKET).context("limelightd does not listen")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut answers = BufReader::new(stream.try_clone()?);
        let mut heard = Vec::new();
        for line in lines {
            stream.write_all(format!("{line}\n").as_bytes())?;
            let mut answer = String::new();
            let read = answers.read_line(&mut answer);
            read.with_context(|| format!("no answer to {line}; {}", daemon::state()))?;
            heard.push(answer);
        }
        Ok(heard)
    };
    let talking = thread::spawn(talk).join();
    talking.map_err(|_| anyhow!("a user's thread has panicked"))?
}

/// Claims the focus for `pid` as a user; returns the answer.
pub fn focus_as(uid: u32, pid: i32) -> Result<String> {
    let line = json!({"op": "focus", "target": {"pid": pid}, "source": "chaos"});
    Ok(ask(uid, vec![line.to_string()])?.concat())
}

/// The name of another user's app that `text` contains, if any.
fn betrayed(watcher: usize, text: &str) -> Option<String> {
    let others = (0..USERS.len()).filter(|user| *user != watcher);
    let names = others.flat_map(|user| (0..PLACES.len()).map(move |place| name(user, place)));
    names.into_iter().find(|name| text.contains(name))
}

/// Sends a random request as a user; its claims may be false. Returns a message if the answer names
/// another user's app.
pub fn random_request(
    random: &mut Random,
    user: usize,
    own: [i32; 2],
    all: &[i32],
) -> Result<Option<String>> {
    let number = random.below(1 << 20) as usize;
    let pid = match number % 3 {
        0 => all[number % all.len()],
        _ => own[number % 2],
    };
    let on = random.below(2) == 0;
    let source = ["sway", "x\nkilled: all", "cli"][number % 3];
    let class = ["keep", "normal", "disposable"][number % 3];
    let lines = [
        json!({"op": "focus", "target": {"pid": pid}, "source": source, "hold": on}),
        json!({"op": "focus", "target": {"pid": pid}, "source": "chaos", "hold": false}),
        json!({"op": "focus", "target": "none", "source": "chaos", "hold": on}),
        json!({"op": "window", "event": "open", "pid": pid, "at_us": number, "source": "chaos"}),
        json!({"op": "window", "event": "close", "source": "chaos"}),
        json!({"op": "class", "pid": pid, "class": class}),
        json!({"op": "in-use", "pid": pid, "use": "unsaved", "on": on}),
        json!({"op": "agent", "source": source, "detail": "lies"}),
        json!({"op": "explain", "pid": pid}),
        json!({"op": "apps"}),
        json!({"op": "history"}),
        json!({"op": "decision"}),
    ];
    let line = lines[random.below(lines.len() as u64) as usize].to_string();
    let answer = ask(USERS[user], vec![line.clone()])?.concat();
    let told = betrayed(user, &answer);
    Ok(told.map(|name| {
        let uid = USERS[user];
        format!("the answer to {line} tells uid {uid} about {name}: {answer}")
    }))
}

/// The daemon's state as a user sees it: as values without the members in [`PASSING`], and as text.
fn view(watcher: usize) -> Result<(Vec<Value>, String)> {
    let lines = ["status", "latency", "decision"].map(|op| json!({ "op": op }).to_string());
    let heard = ask(USERS[watcher], lines.to_vec())?;
    let text = heard.concat();
    let values = heard.iter().map(|answer| {
        let mut value: Value = serde_json::from_str(answer)?;
        forget(&mut value);
        Ok(value)
    });
    Ok((values.collect::<Result<_>>()?, text))
}

/// Has the user at the screen change apps, get input or get a frame. Returns a message for each
/// trace of that event which another user sees.
pub fn watch(random: &mut Random, own: [i32; 2]) -> Result<Vec<String>> {
    let watcher = 1 + random.below(2) as usize;
    let uid = USERS[watcher];
    // No other user of this scenario can have the foreground.
    focus_as(USERS[SEATED], own[0])?;
    let (before, _) = view(watcher)?;
    let change = match random.below(3) {
        0 => json!({"op": "focus", "target": {"pid": own[1]}, "source": "chaos"}),
        1 => json!({"op": "window", "event": "open", "source": "chaos"}),
        _ => json!({"op": "window", "event": "close", "source": "chaos"}),
    };
    ask(USERS[SEATED], vec![change.to_string()])?;
    let (after, text) = view(watcher)?;
    let mut wrong = Vec::new();
    let answered = |answer: &Value| answer["code"] != "busy";
    if before.iter().chain(&after).all(answered) && before != after {
        wrong.push(format!(
            "answers to uid {uid} changed after {change}: {after:?}, before {before:?}"
        ));
    }
    if let Some(name) = betrayed(watcher, &text) {
        wrong.push(format!("answers tell uid {uid} about {name}: {text}"));
    }
    Ok(wrong)
}

fn forget(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !PASSING.contains(&name.as_str()));
            members.values_mut().for_each(forget);
        }
        Value::Array(values) => values.iter_mut().for_each(forget),
        _ => {}
    }
}
