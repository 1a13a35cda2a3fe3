// SPDX-License-Identifier: GPL-2.0-or-later
//! Requests about apps: the list of apps, their class, their use.

use limelight_core::model::apps::{Known, Use};
use limelight_core::model::class::Class;
use limelight_core::model::AppKey;
use limelight_proto::{AppReport, ErrorCode, Response, Role};

use crate::control::socket::{ControlSource, RequestLine};
use crate::control::visibility::Viewer;
use crate::reconcile::{Model, Reconciler};
use crate::sources::apps::saved::NotSaved;
use crate::sources::apps::{AppsSource, Override};
use crate::system::access::Speaker;
use crate::system::authorization;
use crate::system::identify::{no_process, Refusal};

/// Error for a process that belongs to no known app.
fn no_app(pid: i32) -> Refusal {
    Refusal::new(
        ErrorCode::NotAnApp,
        format!(
            "pid {pid} belongs to no known app: it has no unit and was never in the foreground"
        ),
        format!(
            "name a process of an app (limelight class list), or make its app known: limelight \
             focus {pid}"
        ),
    )
}

/// Answer to `apps` for this user.
pub(super) fn list(
    reconciler: &mut Reconciler,
    speaker: Speaker,
    pid: Option<i32>,
) -> Result<Response, Refusal> {
    let only = match pid {
        Some(pid) => {
            Viewer::new(speaker, reconciler).may_ask_of(pid)?;
            let key = reconciler.known_app_of(pid).ok_or_else(|| no_app(pid))?;
            let owner = reconciler.model.apps.get(key).map(|known| known.found.uid);
            if owner.is_some_and(|owner| !speaker.sees(owner)) {
                return Err(Viewer::new(speaker, reconciler).not_shown(pid));
            }
            Some(key)
        }
        None => None,
    };
    reconciler.look_at_apps();
    let all = reconciler.model.apps.by_use().into_iter().rev();
    let chosen = all
        .filter(|known| speaker.sees(known.found.uid) && only.is_none_or(|key| known.key() == key));
    Ok(Response::Apps {
        apps: chosen.map(|known| app_report(reconciler, known)).collect(),
        hidden: Viewer::new(speaker, reconciler).hidden(),
    })
}

fn app_report(reconciler: &Reconciler, known: &Known) -> AppReport {
    let key = known.key();
    let found = &known.found;
    let swapping = &reconciler.mechanisms.shared.in_force.swapping;
    let identity = reconciler
        .scan
        .source
        .identity(key)
        .cloned()
        .unwrap_or_default();
    AppReport {
        app: (&found.app).into(),
        uid: found.uid,
        role: role_of(&reconciler.model, key),
        class: found.class.class,
        why: found.class.why.clone(),
        set_by: {
            let source = &reconciler.scan.source;
            let set = source.override_of(key).map(|set| set.uid);
            set.or_else(|| source.saved_by(key))
        },
        last_topmost_ms: known.last_topmost.map(|at| at.as_millis() as u64),
        started_ms: known.appeared.as_millis() as u64,
        uses: found.uses.clone(),
        untouchable: found.untouchable.clone(),
        never: found.exceptions.iter().cloned().collect(),
        avoid: found.avoid.clone(),
        processes: found.members.len() as u32,
        resident: found.memory.resident,
        anonymous: found.memory.anonymous,
        swapped: found.memory.swapped,
        frozen: swapping.frozen.iter().any(|(app, _)| *app == key),
        exempt: swapping.is_exempt(key),
        desktop_id: identity.desktop_id,
        executable: identity.executable,
        package: identity.package,
        categories: identity.categories,
    }
}

fn role_of(model: &Model, key: AppKey) -> Role {
    let front = model.front().map(|app| app.key);
    let previous = model.topmost.previous().map(|app| app.key);
    match key {
        key if front == Some(key) => Role::Topmost,
        key if previous == Some(key) => Role::Previous,
        _ => Role::Background,
    }
}

/// A request for a class.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClassWish {
    /// Any process of the app.
    pub pid: i32,
    /// The class; `None`: withdraw it.
    pub class: Option<Class>,
    /// Whether it outlives the app and the daemon.
    pub save: bool,
}

/// Sets or withdraws an app's class, as `class` requests, and returns the answer.
pub(super) fn set_class(
    reconciler: &mut Reconciler,
    speaker: Speaker,
    wish: ClassWish,
) -> Result<Response, Refusal> {
    let ClassWish { pid, class, save } = wish;
    let uid = speaker.uid;
    authorization::may_speak(&reconciler.system, &reconciler.access, speaker)?;
    authorization::owns_process(&reconciler.system, uid, pid)?;
    let key = reconciler.known_app_of(pid).ok_or_else(|| no_app(pid))?;
    // Owning one process in another user's app does not mean owning the app.
    let known = reconciler.model.apps.get(key).ok_or_else(|| no_app(pid))?;
    let pids: Vec<i32> = known.found.members.iter().map(|id| id.pid).collect();
    authorization::owns_all(&reconciler.system, uid, &pids)?;
    let name = known.found.app.name.clone();
    let before = reconciler.scan.source.override_of(key);
    if uid != 0 {
        may_lower(&reconciler.scan.source, key, &name, before, class)?;
    }
    let set = class.map(|class| Override { class, uid });
    let source = &mut reconciler.scan.source;
    if save {
        source.save_class(key, uid, class).map_err(|error| {
            let code = match error {
                NotSaved::TooMany => ErrorCode::Busy,
                NotSaved::DryRun | NotSaved::Nameless => ErrorCode::NotAllowed,
                NotSaved::Write { .. } => ErrorCode::Internal,
            };
            let message = format!("the class of {name} is not saved: {error}");
            Refusal::new(code, message, "set it without --save")
        })?;
    }
    // A saved class needs no override.
    source.set_override(key, set.filter(|_| !save));
    reconciler.look_at_apps();
    let now = reconciler
        .model
        .apps
        .get(key)
        .map(|known| &known.found.class);
    let now = now.ok_or_else(|| no_app(pid))?;
    Ok(Response::Ok {
        message: format!("{name} is {}: {}", now.class, now.why),
    })
}

/// Checks what an app's owner may set: no class above the class that the app has without an
/// override. If root has set or saved a class, the owner may set none.
fn may_lower(
    source: &AppsSource,
    key: AppKey,
    name: &str,
    before: Option<Override>,
    class: Option<Class>,
) -> Result<(), Refusal> {
    if before.is_some_and(|set| set.uid == 0) || source.saved_by(key) == Some(0) {
        return Err(Refusal::new(
            ErrorCode::NotAllowed,
            format!("root set the class of {name}"),
            "ask root to withdraw that (limelight class set)",
        ));
    }
    let given = source.given_class(key).unwrap_or_default();
    match class {
        Some(class) if class > given.class => Err(Refusal::new(
            ErrorCode::NotAllowed,
            format!(
                "{name} is {}, and only root may raise it to {class}: {}",
                given.class, given.why
            ),
            "set it as root, or add it to [class] in /etc/limelight/limelight.toml",
        )),
        _ => Ok(()),
    }
}

/// Adds or removes an announcement, as `in-use` requests, and returns the answer.
pub(super) fn in_use(
    control: &mut ControlSource,
    reconciler: &mut Reconciler,
    line: &RequestLine,
    (pid, what, on): (i32, Use, bool),
) -> Result<Response, Refusal> {
    let uid = line.peer.uid;
    let mut may_speak = Ok(());
    if on {
        let Reconciler { system, access, .. } = &*reconciler;
        authorization::owns_process(system, uid, pid)?;
        let speaker = control.speaker(access, line.client, line.peer);
        may_speak = authorization::may_speak(system, access, speaker);
        let process = system.process(pid);
        let (id, _) = process.map_err(|error| no_process(pid, error))?;
        let user = (uid, control.groups_of(line.client));
        let announced = &mut reconciler.scan.announced;
        if !announced.add(line.client, user, id, what, may_speak.is_ok()) {
            return Err(Refusal::new(
                ErrorCode::Busy,
                "this connection has announced too many processes as in use",
                "withdraw the announcements for processes that have ended",
            ));
        }
    } else {
        // A connection can only remove its own announcements.
        reconciler.scan.announced.remove(line.client, pid, what);
    }
    let holds = reconciler.scan.announced.says(line.client);
    control.set_announcing(line.client, holds);
    let message = match on {
        true => format!("pid {pid} {}, until this connection closes", what.clause()),
        false => format!("the announcement for pid {pid} is withdrawn"),
    };
    // The refusal is temporary: the announcement counts once the session is active. The client need
    // not repeat it.
    may_speak.map(|()| Response::Ok { message })
}
