// SPDX-License-Identifier: GPL-2.0-or-later
//! Where this session's compositor or display server is: what the environment says, else what lies in
//! the runtime directory. A service that the user's systemd started before the desktop has no
//! variables that would tell.

use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where X servers put their sockets.
const X11_SOCKETS: &str = "/tmp/.X11-unix";

/// systemd answers within milliseconds.
const MANAGER_PATIENCE: Duration = Duration::from_secs(1);

/// Places and names, each as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// `$XDG_RUNTIME_DIR`.
    pub runtime: Option<PathBuf>,
    /// `$XDG_CURRENT_DESKTOP`, such as `ubuntu:GNOME`.
    pub desktop: String,
    /// The Wayland compositor's socket.
    pub wayland: Option<PathBuf>,
    /// The X11 display.
    pub display: Option<String>,
    /// `$SWAYSOCK`.
    pub sway: Option<PathBuf>,
    /// `$I3SOCK`.
    pub i3: Option<PathBuf>,
    /// Hyprland's directory.
    pub hyprland: Option<PathBuf>,
    /// `$NIRI_SOCKET`.
    pub niri: Option<PathBuf>,
    /// The places were not named but found.
    pub found: bool,
    /// Input and frames are to be watched, too.
    pub responses: bool,
}

impl Environment {
    /// What the environment says.
    pub fn of_process(display: Option<&str>) -> Environment {
        Environment::named(|name| std::env::var_os(name), display)
    }

    /// What is found instead, where that names no display or none that answers.
    pub fn look_around(self) -> Environment {
        self.look(Path::new(X11_SOCKETS), rustix::process::getuid().as_raw())
    }

    /// The directories in which the socket of a compositor or an X server can come.
    pub fn places(&self) -> Vec<PathBuf> {
        let hypr = self.runtime.as_ref().map(|runtime| runtime.join("hypr"));
        let x11 = Some(PathBuf::from(X11_SOCKETS));
        let places = [self.runtime.clone(), hypr, x11];
        places.into_iter().flatten().collect()
    }

    /// What these variables say.
    fn named(variable: impl Fn(&str) -> Option<OsString>, display: Option<&str>) -> Environment {
        let variable = |name| variable(name).filter(|value: &OsString| !value.is_empty());
        let path = |name| variable(name).map(PathBuf::from);
        let text = |name| variable(name).map(|value| value.to_string_lossy().into_owned());
        let runtime = path("XDG_RUNTIME_DIR");
        let within = |name: PathBuf| match &runtime {
            Some(runtime) => Some(runtime.join(name)),
            None => name.is_absolute().then_some(name),
        };
        let hyprland = path("HYPRLAND_INSTANCE_SIGNATURE");
        Environment {
            desktop: text("XDG_CURRENT_DESKTOP").unwrap_or_default(),
            wayland: path("WAYLAND_DISPLAY").and_then(within),
            display: display.map(str::to_owned).or_else(|| text("DISPLAY")),
            sway: path("SWAYSOCK"),
            i3: path("I3SOCK"),
            hyprland: hyprland.and_then(|name| within(Path::new("hypr").join(name))),
            niri: path("NIRI_SOCKET"),
            runtime,
            found: false,
            responses: false,
        }
    }

    /// Whether this desktop calls itself so.
    pub fn is_desktop(&self, name: &str) -> bool {
        let names = self.desktop.split(':');
        names.into_iter().any(|one| one.eq_ignore_ascii_case(name))
    }

    /// Adds what lies in the runtime directory, and the X servers of this user or of root. Of several
    /// the newest, because dead ones leave theirs behind.
    fn look(self, x11: &Path, uid: u32) -> Environment {
        let runtime = self.runtime.as_deref();
        let socket = |begin: &str, end: &str| newest(runtime?, begin, end, |kind| kind.is_socket());
        let hypr = runtime.map(|runtime| runtime.join("hypr"));
        let display = newest(x11, "X", "", |kind| kind.is_socket())
            .filter(|path| path.metadata().is_ok_and(|m| [0, uid].contains(&m.uid())))
            .and_then(|path| Some(format!(":{}", path.file_name()?.to_str()?.get(1..)?)));
        Environment {
            wayland: socket("wayland-", ""),
            sway: socket("sway-ipc.", ".sock"),
            niri: socket("niri.", ".sock"),
            hyprland: hypr.and_then(|hypr| newest(&hypr, "", "", |kind| kind.is_dir())),
            display,
            found: true,
            ..self
        }
    }
}

/// Variables that say where a display is and how to reach it.
const VARIABLES: [&str; 8] = [
    "WAYLAND_DISPLAY",
    "DISPLAY",
    "XAUTHORITY",
    "SWAYSOCK",
    "I3SOCK",
    "HYPRLAND_INSTANCE_SIGNATURE",
    "NIRI_SOCKET",
    "XDG_CURRENT_DESKTOP",
];

/// What the user's systemd knows by now and this process does not: desktops import their variables
/// there after services such as this one were started. Nothing where that cannot be asked.
pub fn news_of_manager() -> Vec<(String, String)> {
    let ask = || -> zbus::Result<Vec<String>> {
        let bus = zbus::blocking::connection::Builder::session()?
            .method_timeout(MANAGER_PATIENCE)
            .build()?;
        let answer = bus.call_method(
            Some("org.freedesktop.systemd1"),
            "/org/freedesktop/systemd1",
            Some("org.freedesktop.DBus.Properties"),
            "Get",
            &("org.freedesktop.systemd1.Manager", "Environment"),
        )?;
        let value: zbus::zvariant::OwnedValue = answer.body().deserialize()?;
        Ok(Vec::try_from(value)?)
    };
    news(&ask().unwrap_or_default(), |name| std::env::var(name).ok())
}

/// Those of the variables that are known there otherwise than here.
fn news(assignments: &[String], own: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let pairs = assignments.iter().filter_map(|one| one.split_once('='));
    let pairs = pairs.filter(|(name, _)| VARIABLES.contains(name));
    pairs
        .filter(|(name, value)| own(name).as_deref() != Some(value))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The newest file of that kind in a directory.
fn newest(
    directory: &Path,
    begin: &str,
    end: &str,
    is_kind: impl Fn(&std::fs::FileType) -> bool,
) -> Option<PathBuf> {
    let files = std::fs::read_dir(directory).ok()?.flatten();
    let fitting = files.filter(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.starts_with(begin)
            && name.ends_with(end)
            && file.file_type().is_ok_and(|kind| is_kind(&kind))
    });
    let dated = fitting.filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file)));
    let newest = dated.max_by_key(|(at, file)| (*at, file.file_name()));
    newest.map(|(_, file)| file.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::os::unix::net::UnixListener;

    fn named(variables: &[(&str, &str)]) -> Environment {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        Environment::named(|name| variables.get(name).map(OsString::from), None)
    }

    #[test]
    fn names_are_places_in_the_runtime_directory() {
        let environment = named(&[
            ("XDG_RUNTIME_DIR", "/run/user/7"),
            ("WAYLAND_DISPLAY", "wayland-1"),
            ("HYPRLAND_INSTANCE_SIGNATURE", "abc_1"),
            ("XDG_CURRENT_DESKTOP", "ubuntu:GNOME"),
            ("SWAYSOCK", ""),
        ]);
        assert_eq!(environment.wayland, Some("/run/user/7/wayland-1".into()));
        assert_eq!(environment.hyprland, Some("/run/user/7/hypr/abc_1".into()));
        assert_eq!(environment.sway, None);
        assert!(environment.is_desktop("gnome") && !environment.is_desktop("KDE"));
        // An absolute name is one already, and needs no directory.
        let absolute = named(&[("WAYLAND_DISPLAY", "/tmp/w")]);
        assert_eq!(absolute.wayland, Some("/tmp/w".into()));
        assert_eq!(named(&[("WAYLAND_DISPLAY", "wayland-1")]).wayland, None);
    }

    #[test]
    fn what_is_not_named_is_looked_for() {
        let temp = tempfile::tempdir().unwrap();
        let runtime = temp.path().join("run");
        let x11 = temp.path().join("x11");
        std::fs::create_dir_all(runtime.join("hypr/sig")).unwrap();
        std::fs::create_dir(&x11).unwrap();
        std::fs::write(runtime.join("wayland-1.lock"), "").unwrap();
        let named = || named(&[("XDG_RUNTIME_DIR", runtime.to_str().unwrap())]);
        let uid = rustix::process::getuid().as_raw();
        let nothing = named().look(&x11, uid);
        assert_eq!((&nothing.wayland, &nothing.display), (&None, &None));
        let names = ["run/wayland-1", "run/sway-ipc.1000.77.sock", "x11/X3"];
        let sockets = names.map(|name| UnixListener::bind(temp.path().join(name)).unwrap());
        let found = named().look(&x11, uid);
        assert_eq!(found.wayland, Some(runtime.join("wayland-1")));
        assert_eq!(found.sway, Some(runtime.join("sway-ipc.1000.77.sock")));
        assert_eq!(found.hyprland, Some(runtime.join("hypr/sig")));
        assert_eq!(found.display.as_deref(), Some(":3"));
        assert!(found.found);
        // A stranger's X server is not ours, unless the stranger is root.
        if uid != 0 {
            assert_eq!(named().look(&x11, uid + 1).display, None);
        }
        drop(sockets);
    }

    #[test]
    fn only_what_concerns_displays_and_is_not_known_is_news() {
        let there = [
            "DISPLAY=:1",
            "WAYLAND_DISPLAY=wayland-1",
            "PATH=/bin",
            "LANG=a=b",
        ];
        let there = there.map(str::to_owned);
        let own = |name: &str| (name == "DISPLAY").then(|| ":1".to_owned());
        let wayland = ("WAYLAND_DISPLAY".to_owned(), "wayland-1".to_owned());
        assert_eq!(news(&there, own), [wayland]);
        assert_eq!(news(&[], own), []);
    }
}
