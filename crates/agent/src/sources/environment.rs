// SPDX-License-Identifier: GPL-2.0-or-later
//! Locates this session's compositor or display server: by the environment, else by the contents of
//! the runtime directory. The search is needed because a service that the user's systemd started
//! before the desktop lacks the variables.

use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Directory of the X servers' sockets.
const X11_SOCKETS: &str = "/tmp/.X11-unix";

/// systemd answers within milliseconds.
const MANAGER_PATIENCE: Duration = Duration::from_secs(1);

/// Locations and names; empty or `None` where unknown.
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
    /// Whether the locations were found by a search, instead of being named by the environment.
    pub found: bool,
    /// Whether input and frames are to be watched too.
    pub responses: bool,
}

impl Environment {
    /// Locations named by the environment.
    pub fn of_process(display: Option<&str>) -> Environment {
        Environment::named(|name| std::env::var_os(name), display)
    }

    /// Locations found by a search, for use if the environment names none that works.
    pub fn look_around(self) -> Environment {
        self.search(Path::new(X11_SOCKETS), rustix::process::getuid().as_raw())
    }

    /// Directories in which the socket of a compositor or an X server can appear.
    pub fn places(&self) -> Vec<PathBuf> {
        let hypr = self.runtime.as_ref().map(|runtime| runtime.join("hypr"));
        let x11 = Some(PathBuf::from(X11_SOCKETS));
        let places = [self.runtime.clone(), hypr, x11];
        places.into_iter().flatten().collect()
    }

    /// Locations named by these variables.
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

    /// Whether the desktop has this name.
    pub fn is_desktop(&self, name: &str) -> bool {
        let names = self.desktop.split(':');
        names.into_iter().any(|one| one.eq_ignore_ascii_case(name))
    }

    /// Replaces the locations by sockets found in the runtime directory, and by the X server. If
    /// there are several sockets of one kind, takes the newest, because dead servers leave their
    /// sockets behind. The newest X socket is used only if it belongs to this user or to root.
    fn search(self, x11: &Path, uid: u32) -> Environment {
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

/// Variables that locate or describe a display, or give access to it.
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

/// Display variables whose value in the user's systemd differs from the value in this process, or
/// that this process lacks. Desktops set them in systemd after services such as this one were
/// started. Empty if systemd cannot be queried.
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

/// The display variables that this process lacks, or has with another value.
fn news(assignments: &[String], own: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let pairs = assignments.iter().filter_map(|one| one.split_once('='));
    let pairs = pairs.filter(|(name, _)| VARIABLES.contains(name));
    pairs
        .filter(|(name, value)| own(name).as_deref() != Some(value))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The newest matching file in a directory.
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
    fn relative_names_are_in_the_runtime_directory() {
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
        // An absolute name needs no directory.
        let absolute = named(&[("WAYLAND_DISPLAY", "/tmp/w")]);
        assert_eq!(absolute.wayland, Some("/tmp/w".into()));
        assert_eq!(named(&[("WAYLAND_DISPLAY", "wayland-1")]).wayland, None);
    }

    #[test]
    fn unnamed_displays_are_searched_for() {
        let temp = tempfile::tempdir().unwrap();
        let runtime = temp.path().join("run");
        let x11 = temp.path().join("x11");
        std::fs::create_dir_all(runtime.join("hypr/sig")).unwrap();
        std::fs::create_dir(&x11).unwrap();
        std::fs::write(runtime.join("wayland-1.lock"), "").unwrap();
        let named = || named(&[("XDG_RUNTIME_DIR", runtime.to_str().unwrap())]);
        let uid = rustix::process::getuid().as_raw();
        let nothing = named().search(&x11, uid);
        assert_eq!((&nothing.wayland, &nothing.display), (&None, &None));
        let names = ["run/wayland-1", "run/sway-ipc.1000.77.sock", "x11/X3"];
        let sockets = names.map(|name| UnixListener::bind(temp.path().join(name)).unwrap());
        let found = named().search(&x11, uid);
        assert_eq!(found.wayland, Some(runtime.join("wayland-1")));
        assert_eq!(found.sway, Some(runtime.join("sway-ipc.1000.77.sock")));
        assert_eq!(found.hyprland, Some(runtime.join("hypr/sig")));
        assert_eq!(found.display.as_deref(), Some(":3"));
        assert!(found.found);
        // Another user's X server is not used, unless that user is root.
        if uid != 0 {
            assert_eq!(named().search(&x11, uid + 1).display, None);
        }
        drop(sockets);
    }

    #[test]
    fn only_changed_display_variables_are_news() {
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
