// SPDX-License-Identifier: GPL-2.0-or-later
//! Properties of an app that its unit, its desktop entry and its main process reveal.

use limelight_core::model::class::{Class, Identity};
use limelight_core::model::never::{Avoid, Exception, Exceptions, Never};
use limelight_core::model::unit::{Starter, Unit};
use limelight_sys::cgroup::Cgroup;
use limelight_sys::process::Process;

use crate::sources::apps::desktop::{Desktop, Entry};
use crate::sources::apps::sight::Sighted;
use crate::system::own_memory;

/// The environment variable and the cgroup attribute by which an app asks for a class.
const ASKS_VARIABLE: &str = "LIMELIGHT_CLASS";
const ASKS_ATTRIBUTE: &str = "user.limelight.class";

/// The cgroup attributes with which systemd passes a unit's `ManagedOOMPreference` to systemd-oomd,
/// and the setting's value.
const OMIT: (&str, &str) = ("user.oomd_omit", "omit");
const AVOID: (&str, &str) = ("user.oomd_avoid", "avoid");

/// The words that systemd reads as true.
const TRUE: [&str; 6] = ["1", "yes", "y", "true", "t", "on"];

/// Root, the owner of the cgroups of system units.
const ROOT: u32 = 0;

/// Identity of an app, from its unit and its desktop entry.
pub fn identity(
    desktop: &Desktop,
    unit: Option<&Unit>,
    entry: Option<&Entry>,
    cgroup: Option<String>,
) -> Identity {
    let first_id = unit.and_then(|unit| unit.ids.first()).cloned();
    let desktop_id = entry.map(|entry| entry.id.clone()).or(first_id);
    let mut categories = entry.map_or_else(Vec::new, |entry| entry.categories.clone());
    if let Some(id) = &desktop_id {
        categories.extend(desktop.appstream_categories(id));
    }
    Identity {
        desktop_id,
        cgroup,
        categories,
        ..Identity::default()
    }
}

/// Whether root's service manager started the app: only root makes units in `/system.slice`.
pub fn is_of_system(app: &Sighted) -> bool {
    let home = app.home.as_ref();
    home.is_some_and(|home| home.path.starts_with("/system.slice/"))
}

/// Why a unit without a menu entry counts as a service of the session (a settings daemon, a key
/// ring), not as an app that a person started. Only the unit's name is considered.
pub fn service(unit: &Unit) -> Option<String> {
    let by = match unit.starter {
        Starter::Autostart => "it was started with the session",
        Starter::Bus => "it was started by the message bus",
        Starter::Launcher | Starter::Other => return None,
    };
    Some(format!("{by} and is in no menu: a session service"))
}

/// Why a process is exempt: the kernel's OOM killer may not kill it either.
pub fn exempt(process: &Process) -> Option<String> {
    let exempt = process.oom_score_adj().is_ok_and(|score| score == -1000);
    exempt.then(|| "its oom_score_adj is -1000".to_owned())
}

pub fn executable(process: &Process) -> Option<String> {
    let (_, path) = process.program().ok()?;
    let path = path.to_string_lossy().into_owned();
    Some(
        path.strip_suffix(" (deleted)")
            .map_or(path.clone(), str::to_owned),
    )
}

/// The package of an Android app. The app runs in a copy of the zygote, which takes the package's
/// name.
pub fn package(process: &Process, executable: Option<&str>) -> Option<String> {
    let zygote = executable?.rsplit('/').next()?.starts_with("app_process");
    let arguments = zygote.then(|| own_memory::arguments(process)).flatten()?;
    let name = arguments.into_iter().next()?;
    // Android services run in processes of their own: `PACKAGE:SERVICE`.
    let package = name.split(':').next()?.to_owned();
    (package.contains('.') && !package.contains('/')).then_some(package)
}

/// The class that an app asks for, and how. The attribute of its cgroup, which may change, takes
/// precedence over its environment.
pub fn asks(group: Option<&Cgroup>, variable: Option<Class>) -> Option<(Class, String)> {
    let attribute = group.and_then(|group| group.attribute(ASKS_ATTRIBUTE));
    let attribute = attribute.and_then(|text| word(&text));
    let attribute = attribute.map(|class| (class, ASKS_ATTRIBUTE));
    let (class, how) = attribute.or(variable.map(|class| (class, ASKS_VARIABLE)))?;
    Some((class, how.to_owned()))
}

/// What a unit's `ManagedOOMPreference` says about closing an app.
#[derive(Debug, Default)]
pub struct OomPreference {
    /// `omit`, as an exception.
    pub omit: Exceptions,
    /// `avoid`.
    pub avoid: Option<Avoid>,
}

/// The preference that is set on the cgroup of an app of user `uid`. `omit` precedes `avoid`, as for
/// systemd-oomd. The attributes of a cgroup that belongs neither to root nor to this user do not
/// count.
pub fn oom_preference(group: Option<&Cgroup>, uid: u32) -> OomPreference {
    let group = group.and_then(|group| Some((group, group.owner_uid().ok()?)));
    let Some((group, owner)) = group.filter(|(_, owner)| [ROOT, uid].contains(owner)) else {
        return OomPreference::default();
    };
    let by_owner = owner != ROOT;
    let why = |(attribute, preference): (&str, &str)| {
        let value = group.attribute(attribute)?.trim().to_ascii_lowercase();
        let set = TRUE.contains(&value.as_str());
        set.then(|| format!("its cgroup has ManagedOOMPreference={preference} ({attribute})"))
    };
    match why(OMIT) {
        Some(why) => OomPreference {
            omit: Exceptions::from_iter([Exception {
                never: Never::Close,
                why,
                by_owner,
            }]),
            avoid: None,
        },
        None => OomPreference {
            omit: Exceptions::default(),
            avoid: why(AVOID).map(|why| Avoid { why, by_owner }),
        },
    }
}

/// The class that the process's environment asks for.
pub fn variable(process: &Process) -> Option<Class> {
    word(&own_memory::variable(process, ASKS_VARIABLE)?)
}

/// The class that a word names; `None` if it names no class.
fn word(text: &str) -> Option<Class> {
    text.trim().parse().ok()
}
