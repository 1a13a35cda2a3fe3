// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds an app's desktop id in the name of its systemd unit.
//!
//! Desktops, sandboxes and terminals put each app into a unit of its own. The unit's name contains
//! the app's desktop id (systemd's "Desktop Environment Integration", snap's and Flatpak's own
//! schemes):
//!
//! ```text
//! app-gnome-org.gnome.eog-4242.scope          launcher, id, number
//! app-firefox\x2desr-77.scope                 a "-" inside an id is escaped
//! app-org.kde.dolphin@abc.service             id, instance
//! app-flatpak-org.gimp.GIMP-7.scope
//! dbus-:1.2-org.gnome.Nautilus@0.service      started by the message bus
//! snap.firefox.firefox-3b1c....scope          package, app, number
//! vte-spawn-1f...scope, run-u12.scope         no id
//! ```

/// What started the app, according to the name of its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// A launcher, at the user's request.
    Launcher,
    /// The session's autostart, at login.
    Autostart,
    /// The message bus, because a client called the app.
    Bus,
    /// A terminal, `systemd-run`, or other software.
    Other,
}

/// An app's unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Possible desktop ids without `.desktop`, most likely first. If a launcher does not escape
    /// the "-" in an id, it is ambiguous where the id begins.
    pub ids: Vec<String>,
    /// What started the app.
    pub starter: Starter,
}

/// Name prefixes of the units that desktops, terminals and sandboxes create for one app.
const PREFIXES: [&str; 6] = ["app-", "vte-spawn-", "dbus-", "snap.", "flatpak-", "run-"];

/// Length of a UUID, as in the units of snaps.
const UUID: usize = 36;

/// Whether a cgroup's name is that of a unit created for one app.
pub fn is_app(name: &str) -> bool {
    let unit = name.ends_with(".scope") || name.ends_with(".service");
    unit && PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Parses the name of an app's unit; `None` for any other name.
pub fn parse(name: &str) -> Option<Unit> {
    if !is_app(name) {
        return None;
    }
    let (stem, kind) = name.rsplit_once('.')?;
    let service = kind == "service";
    let unit = if let Some(rest) = stem.strip_prefix("app-") {
        let autostart = service && rest.ends_with("@autostart");
        Unit {
            ids: after_launcher(numbered(rest, service)),
            starter: match autostart {
                true => Starter::Autostart,
                false => Starter::Launcher,
            },
        }
    } else if let Some(rest) = stem.strip_prefix("flatpak-") {
        Unit {
            ids: after_launcher(numbered(rest, service)),
            starter: Starter::Launcher,
        }
    } else if let Some(rest) = stem.strip_prefix("dbus-") {
        // The requesting connection, then the requested name.
        let rest = numbered(rest, true);
        let id = match rest.starts_with(':') {
            true => rest.split_once('-').map_or("", |(_, id)| id),
            false => rest,
        };
        Unit {
            ids: known_ids([unescape(id)]),
            starter: Starter::Bus,
        }
    } else if let Some(rest) = stem.strip_prefix("snap.") {
        Unit {
            ids: snap(rest),
            starter: Starter::Launcher,
        }
    } else {
        Unit {
            ids: Vec::new(),
            starter: Starter::Other,
        }
    };
    Some(unit)
}

/// Strips the instance of a service, or the number of a scope.
fn numbered(stem: &str, service: bool) -> &str {
    let split = match service {
        true => stem.split_once('@'),
        false => stem.rsplit_once('-'),
    };
    split.map_or(stem, |(id, _)| id)
}

/// Possible ids in `[LAUNCHER-]ID`: not all launchers escape a "-" in the id.
fn after_launcher(text: &str) -> Vec<String> {
    let whole = Some(text);
    let last = text.rsplit_once('-').map(|(_, id)| id);
    let first = text.split_once('-').map(|(_, id)| id);
    known_ids([last, first, whole].into_iter().flatten().map(unescape))
}

/// Desktop id of a snap: snapd names desktop entries `PACKAGE_APP`.
fn snap(text: &str) -> Vec<String> {
    let Some((package, app)) = text.split_once('.') else {
        return Vec::new();
    };
    // `APP-UUID`, in older versions of snapd `APP.UUID`; for a service only `APP`.
    let number = app.len().checked_sub(UUID).and_then(|at| app.get(at..));
    let is_number = |text: &str| text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit());
    let app = match number {
        Some(number) if is_number(number) => {
            app.trim_end_matches(number).trim_end_matches(['-', '.'])
        }
        _ => app,
    };
    known_ids([format!("{}_{}", unescape(package), unescape(app))])
}

/// Drops duplicate ids, and ids that would be unsafe as part of a path.
fn known_ids(ids: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut known = Vec::new();
    for id in ids {
        let harmless = !id.is_empty()
            && id.len() <= 255
            && !id.starts_with('.')
            && !id.chars().any(|c| c == '/' || c.is_control());
        if harmless && !known.contains(&id) {
            known.push(id);
        }
    }
    known
}

/// Undoes systemd's escapes (`\x2d`). All other text stays as it is.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        let code = after.get(..2);
        // from_str_radix would accept a sign.
        let code = code.filter(|code| code.bytes().all(|b| b.is_ascii_hexdigit()));
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.extend_from_slice(b"\\x");
                rest = after;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn first(name: &str) -> Option<String> {
        parse(name)?.ids.into_iter().next()
    }

    #[test]
    fn unit_names_of_real_systems_are_parsed() {
        for (name, id) in [
            ("app-gnome-org.gnome.eog-4242.scope", "org.gnome.eog"),
            (r"app-firefox\x2desr-77.scope", "firefox-esr"),
            (r"app-gnome-firefox\x2desr-77.scope", "firefox-esr"),
            ("app-org.kde.dolphin@abc.service", "org.kde.dolphin"),
            ("app-org.kde.dolphin.service", "org.kde.dolphin"),
            ("app-flatpak-org.gimp.GIMP-7.scope", "org.gimp.GIMP"),
            ("flatpak-org.gimp.GIMP-7.scope", "org.gimp.GIMP"),
            (
                "dbus-:1.2-org.gnome.Nautilus@0.service",
                "org.gnome.Nautilus",
            ),
            ("dbus-org.gnome.Nautilus@0.service", "org.gnome.Nautilus"),
            (r"dbus-:1.142-org.x\x2dy.Z@12.service", "org.x-y.Z"),
            (
                "snap.firefox.firefox-3b1c0d8e-3c3b-4a8e-9a52-0d0a7ad3f1cd.scope",
                "firefox_firefox",
            ),
            (
                "snap.code.url-handler.3b1c0d8e-3c3b-4a8e-9a52-0d0a7ad3f1cd.scope",
                "code_url-handler",
            ),
            ("snap.cups.cupsd.service", "cups_cupsd"),
            ("app-notes-3.scope", "notes"),
            ("app-notes.scope", "notes"),
        ] {
            assert_eq!(first(name).as_deref(), Some(id), "{name}");
        }
        for name in ["vte-spawn-1f.scope", "run-u12.scope", "run-r0.service"] {
            assert!(parse(name).unwrap().ids.is_empty(), "{name}");
        }
        for name in ["session-2.scope", "gdm.service", "app-x", "app.slice", ""] {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    #[test]
    fn unescaped_launcher_prefix_gives_both_ids() {
        let unit = parse("app-firefox-esr-1234.scope").unwrap();
        assert_eq!(unit.ids, ["esr", "firefox-esr"]);
    }

    #[test]
    fn starter_follows_from_the_name() {
        for (name, starter) in [
            ("app-org.kde.dolphin@abc.service", Starter::Launcher),
            (
                "app-org.kde.kdeconnect@autostart.service",
                Starter::Autostart,
            ),
            ("dbus-:1.2-org.gnome.Nautilus@0.service", Starter::Bus),
            ("vte-spawn-1f.scope", Starter::Other),
        ] {
            assert_eq!(parse(name).unwrap().starter, starter, "{name}");
        }
    }

    #[test]
    fn text_that_is_not_an_escape_stays() {
        for (text, plain) in [
            (r"a\x2db", "a-b"),
            (r"a\x2", r"a\x2"),
            (r"a\x+1b", r"a\x+1b"),
            (r"\xc3\xa9", "é"),
            (r"\x5cx2d", r"\x2d"),
        ] {
            assert_eq!(unescape(text), plain, "{text}");
        }
    }

    /// Escapes like systemd-escape, for the characters of an id.
    fn escape(id: &str) -> String {
        let mut text = String::new();
        for byte in id.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b':' => {
                    text.push(char::from(byte));
                }
                byte => text.push_str(&format!("\\x{byte:02x}")),
            }
        }
        text
    }

    proptest! {
        #[test]
        fn no_name_panics_and_no_id_is_a_path(
            name in "(app-|dbus-|snap\\.|flatpak-|)[a-z\\-@:.\\\\x0-9/é]{0,60}(\\.scope|\\.service|)"
        ) {
            for id in parse(&name).map(|unit| unit.ids).unwrap_or_default() {
                prop_assert!(!id.contains('/') && !id.starts_with('.') && !id.is_empty());
            }
        }

        /// Every id that a launcher escapes correctly is read back.
        #[test]
        fn escaped_ids_round_trip(
            id in "[a-zA-Z0-9_][a-zA-Z0-9_.é@ -]{0,40}",
            launcher in "(gnome-|flatpak-|)",
            number in "[a-z0-9]{1,8}",
        ) {
            let scope = format!("app-{launcher}{}-{number}.scope", escape(&id));
            prop_assert_eq!(first(&scope), Some(id.clone()));
            let service = format!("app-{launcher}{}@{number}.service", escape(&id));
            prop_assert_eq!(first(&service), Some(id));
        }
    }
}
