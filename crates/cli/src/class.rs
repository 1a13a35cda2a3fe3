// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight class`: lists apps, their classes, and the reasons.

use std::io::Write;
use std::time::Duration;

use limelight_proto::Use;
use limelight_proto::{AppReport, Never, Request, Response, Role};
use limelight_sys::clock;

use crate::args::{ClassCommand, ClassWord};
use crate::exit::Failure;
use crate::format::{self, printable, Table};

/// Runs a command; `ask` sends a request to the daemon.
pub fn run(
    command: &ClassCommand,
    ask: impl Fn(Request) -> Result<Response, Failure>,
    json: bool,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let answer = |pid| match ask(Request::Apps { pid })? {
        Response::Apps { apps, hidden } => Ok((apps, hidden)),
        other => Err(Failure::unexpected(&other)),
    };
    let apps = |pid| answer(pid).map(|(apps, _)| apps);
    match command {
        ClassCommand::List => {
            let (apps, hidden) = answer(None)?;
            list(&apps, hidden.as_deref(), json, out)
        }
        ClassCommand::Why { app } => {
            let chosen = match app.parse() {
                Ok(pid) => apps(Some(pid))?,
                Err(_) => named(apps(None)?, app)?,
            };
            why(&chosen, json, out)
        }
        ClassCommand::Set { app, class, save } => {
            let class = match class {
                ClassWord::Is(class) => Some(*class),
                ClassWord::Unset => None,
            };
            let pids: Vec<i32> = match app.parse() {
                Ok(pid) => vec![pid],
                Err(_) => {
                    let chosen = named(apps(None)?, app)?;
                    chosen.iter().filter_map(|app| app.app.pid).collect()
                }
            };
            let save = *save;
            for pid in pids {
                crate::acknowledged(ask(Request::Class { pid, class, save })?, json, out)?;
            }
            Ok(())
        }
    }
}

/// The apps with this name.
fn named(apps: Vec<AppReport>, name: &str) -> Result<Vec<AppReport>, Failure> {
    let last = |path: &Option<String>| Some(path.as_ref()?.rsplit('/').next()?.to_owned());
    let goes_by = |app: &AppReport| {
        let names = [
            Some(app.app.name.clone()),
            app.desktop_id.clone(),
            app.package.clone(),
            last(&app.executable),
            last(&app.app.cgroup),
        ];
        let mut names = names.iter().flatten();
        names.any(|known| known.to_lowercase() == name.to_lowercase())
    };
    let chosen: Vec<AppReport> = apps.into_iter().filter(goes_by).collect();
    match chosen.is_empty() {
        true => Err(Failure::NotFound {
            message: format!("no app is called {name:?}"),
            cure: "limelight class list shows all running apps; a pid works as well".to_owned(),
        }),
        false => Ok(chosen),
    }
}

/// When an app was last in the foreground, for display. `now`: time since boot.
pub fn used(app: &AppReport, now: Duration) -> String {
    let ago = |at_ms: u64| format::span(now.saturating_sub(Duration::from_millis(at_ms)));
    match (app.role, app.last_topmost_ms) {
        (Role::Topmost, _) => "foreground".to_owned(),
        (_, Some(at)) => ago(at),
        (_, None) => "never".to_owned(),
    }
}

fn word(what: Use) -> &'static str {
    match what {
        Use::Audio => "sound",
        Use::Video => "video",
        Use::Inhibitor => "lock",
        Use::Visible => "visible",
        Use::Unsaved => "unsaved",
        Use::Packages => "packages",
        Use::Machine => "virtual machine",
    }
}

/// Whether a rule says that this never happens to the app.
fn never(app: &AppReport, what: Never) -> bool {
    app.never.iter().any(|one| one.never == what)
}

/// Further properties of an app, one or two words each.
pub fn marks(app: &AppReport) -> String {
    let mut marks: Vec<&str> = app.uses.iter().map(|what| word(*what)).collect();
    for (is, mark) in [
        (app.frozen, "frozen"),
        (app.exempt, "not swapped"),
        (app.untouchable.is_some(), "never touched"),
        (never(app, Never::Boost), "never boosted"),
        (never(app, Never::Protect), "never protected"),
        (never(app, Never::Close), "never closed"),
        (app.avoid.is_some(), "closed last of its class"),
        (!app.app.own_cgroup, "no own cgroup"),
    ] {
        if is {
            marks.push(mark);
        }
    }
    marks.join(", ")
}

fn list(
    apps: &[AppReport],
    hidden: Option<&str>,
    json: bool,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    if json {
        return format::json(&apps, out);
    }
    if let (true, Some(why)) = (apps.is_empty(), hidden) {
        writeln!(out, "none of your apps is known; {}", printable(why))?;
        return Ok(());
    }
    if apps.is_empty() {
        writeln!(
            out,
            "no app is known: none has a unit, and none has been in the foreground"
        )?;
        return Ok(());
    }
    let head = ["app", "class", "used", "memory", "in swap", ""].map(str::to_owned);
    let mut rows = vec![head];
    rows.extend(apps.iter().map(|app| {
        [
            format::app(&app.app),
            app.class.to_string(),
            used(app, clock::boottime()),
            format::bytes(app.resident),
            format::bytes(app.swapped),
            marks(app),
        ]
    }));
    format::columns(&rows, &[3, 4], out)
}

/// Prints the reasons for the classes of these apps, and their other properties.
pub fn why(apps: &[AppReport], json: bool, out: &mut Vec<u8>) -> Result<(), Failure> {
    if json {
        return format::json(&apps, out);
    }
    for (at, app) in apps.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        let mut table = Table::default();
        table.line("app", format::app(&app.app));
        table.line("class", format!("{}: {}", app.class, printable(&app.why)));
        table.line("used", used(app, clock::boottime()));
        if !app.uses.is_empty() {
            let clauses: Vec<&str> = app.uses.iter().map(|what| what.clause()).collect();
            table.line("in use", format!("it {}", clauses.join(", it ")));
        }
        if let Some(why) = &app.untouchable {
            table.line("never touched", printable(why));
        }
        for rule in &app.never {
            let owner = match (rule.by_owner, rule.never) {
                (true, Never::Close) => {
                    "; a rule of the app's owner, in force only while no other user has apps"
                }
                (true, _) => "; a rule of the app's owner",
                (false, _) => "",
            };
            let name = format!("never {}", rule.never.participle());
            table.line(&name, format!("{}{owner}", printable(&rule.why)));
        }
        if let Some(wish) = &app.avoid {
            let owner = match wish.by_owner {
                true => "; a wish of the app's owner, in force only while no other user has apps",
                false => "",
            };
            table.line(
                "closed last of its class",
                format!("{}{owner}", printable(&wish.why)),
            );
        }
        table.line("memory", memory(app));
        let texts = [
            ("desktop id", app.desktop_id.clone()),
            ("program", app.executable.clone()),
            ("package", app.package.clone()),
            ("cgroup", app.app.cgroup.clone()),
            (
                "categories",
                (!app.categories.is_empty()).then(|| app.categories.join(", ")),
            ),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                table.line(name, printable(&text));
            }
        }
        table.print(out)?;
    }
    Ok(())
}

fn memory(app: &AppReport) -> String {
    let mut text = format!(
        "{} in memory ({} anonymous: reclaim can only swap it out); {} in swap",
        format::bytes(app.resident),
        format::bytes(app.anonymous),
        format::bytes(app.swapped)
    );
    if app.exempt {
        text.push_str("; kept out of swap");
    }
    if app.frozen {
        text.push_str("; frozen: it thaws after at most 2 s, or when it comes to the foreground");
    }
    if !app.app.own_cgroup {
        text.push_str(
            "\nno cgroup of its own: it can be squeezed and closed process by process, but not \
             kept out of swap or frozen",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use limelight_proto::{AppStatus, Avoid, Class, Exception};

    fn report(name: &str, pid: i32) -> AppReport {
        AppReport {
            app: AppStatus {
                name: name.to_owned(),
                pid: Some(pid),
                cgroup: Some(format!("/app.slice/app-{name}-{pid}.scope")),
                own_cgroup: true,
            },
            uid: 1000,
            class: Class::Keep,
            why: "it is of the category Office".to_owned(),
            uses: vec![Use::Audio, Use::Unsaved],
            processes: 1,
            resident: 40 << 20,
            anonymous: 30 << 20,
            exempt: true,
            desktop_id: Some("org.x.Notes".to_owned()),
            executable: Some("/usr/bin/notes-bin".to_owned()),
            categories: vec!["Office".to_owned()],
            ..AppReport::default()
        }
    }

    fn text(print: impl FnOnce(&mut Vec<u8>) -> Result<(), Failure>) -> String {
        let mut out = Vec::new();
        print(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn app_is_found_by_each_of_its_names() {
        let all = || vec![report("Notes", 7), report("chat", 8)];
        for name in ["notes", "org.x.Notes", "notes-bin", "app-Notes-7.scope"] {
            let found = named(all(), name).unwrap();
            assert_eq!(found[0].app.pid, Some(7), "{name}");
        }
        assert_eq!(named(all(), "org.x.Notes").unwrap().len(), 2);
        let failure = named(all(), "bank").unwrap_err().to_string();
        assert!(failure.contains("class list"), "{failure}");
    }

    #[test]
    fn class_is_set_for_each_app_of_the_name() {
        let asked = std::cell::RefCell::new(Vec::new());
        let ask = |request: Request| {
            asked.borrow_mut().push(request.clone());
            Ok(match request {
                Request::Apps { .. } => Response::Apps {
                    apps: vec![report("Notes", 7), report("chat", 8), report("notes", 9)],
                    hidden: None,
                },
                _ => Response::Ok {
                    message: "done".to_owned(),
                },
            })
        };
        let set = |app: &str, save: bool| {
            let command = ClassCommand::Set {
                app: app.to_owned(),
                class: ClassWord::Is(Class::Keep),
                save,
            };
            run(&command, ask, false, &mut Vec::new()).map(|()| asked.take())
        };
        let of = |pid: i32, save: bool| Request::Class {
            pid,
            class: Some(Class::Keep),
            save,
        };
        let list = Request::Apps { pid: None };
        assert_eq!(
            set("notes", true).unwrap(),
            [list, of(7, true), of(9, true)]
        );
        // A pid needs no list.
        assert_eq!(set("8", false).unwrap(), [of(8, false)]);
        assert!(set("bank", true).is_err());
    }

    #[test]
    fn list_has_one_line_per_app() {
        let text = text(|out| list(&[report("no\ntes", 7)], None, false, out));
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("no\\ntes (pid 7)"), "{text}");
        assert!(text.contains("sound, unsaved, not swapped"), "{text}");
    }

    #[test]
    fn why_names_the_rules_of_an_app() {
        let mut app = report("Notes", 7);
        app.never = vec![Exception {
            never: Never::Close,
            why: "its app id org.x.Notes matches \"org.x.*\" (/f:3)".to_owned(),
            by_owner: true,
        }];
        assert!(marks(&app).contains("never closed"));
        app.avoid = Some(Avoid {
            why: "its cgroup has ManagedOOMPreference=avoid (user.oomd_avoid)".to_owned(),
            by_owner: false,
        });
        assert!(marks(&app).contains("closed last of its class"));
        let text = text(|out| why(&[app], false, out));
        let wish = "closed last of its class  its cgroup has ManagedOOMPreference=avoid";
        assert!(text.contains(wish), "{text}");
        let expected =
            "never closed  its app id org.x.Notes matches \"org.x.*\" (/f:3); a rule of \
                        the app's owner, in force only while no other user has apps";
        let flat: Vec<&str> = text.split_whitespace().collect();
        let expected: Vec<&str> = expected.split_whitespace().collect();
        assert!(flat.join(" ").contains(&expected.join(" ")), "{text}");
    }

    #[test]
    fn why_names_the_source_of_the_class() {
        let text = text(|out| why(&[report("Notes", 7)], false, out));
        for part in [
            "keep: it is of the category Office",
            "it plays or records sound, it has unsaved work",
            "kept out of swap",
            "org.x.Notes",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
