// SPDX-License-Identifier: GPL-2.0-or-later
//! The path of a user's own configuration.

use std::ffi::OsString;
use std::path::PathBuf;

/// The file below the user's configuration directory.
const FILE: &str = "limelight/limelight.toml";

/// Path of this process's user's own configuration: `limelight/limelight.toml` in
/// `$XDG_CONFIG_HOME`, else in `~/.config`. `None` without either variable.
pub fn path() -> Option<PathBuf> {
    path_from(|name| std::env::var_os(name))
}

fn path_from(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The specification says that a relative path is to be ignored.
    let absolute = |name: &str| {
        let path = variable(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let directory = absolute("XDG_CONFIG_HOME");
    let directory = directory.or_else(|| Some(absolute("HOME")?.join(".config")));
    Some(directory?.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_follows_the_environment() {
        let of = |xdg: Option<&str>, home: Option<&str>| {
            let found = path_from(|name| match name {
                "XDG_CONFIG_HOME" => xdg.map(OsString::from),
                _ => home.map(OsString::from),
            });
            found.map(|path| path.to_string_lossy().into_owned())
        };
        let in_home = Some("/home/u/.config/limelight/limelight.toml".to_owned());
        assert_eq!(of(None, Some("/home/u")), in_home);
        assert_eq!(of(Some("relative"), Some("/home/u")), in_home);
        assert_eq!(
            of(Some("/cfg"), Some("/home/u")),
            Some("/cfg/limelight/limelight.toml".to_owned())
        );
        assert_eq!(of(None, None), None);
    }
}
