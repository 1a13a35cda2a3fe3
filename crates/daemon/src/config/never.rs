// SPDX-License-Identifier: GPL-2.0-or-later
//! Exceptions for single apps: `[never]`, in the system's configuration and in a user's own.
//!
//! A user's file is untrusted text, which the user's session agent sends to the daemon. It may hold
//! nothing but `[never]`, and only a few short patterns, because they are compared with the names of
//! each of the user's apps.

use std::path::Path;

use limelight_core::model::never::{Never, Rules};
use limelight_core::model::pattern::Pattern;

use crate::config::keys::KEYS;
use crate::config::suggest::alike;
use crate::config::{apply, Config, ConfigError, ConfigErrors, Given, Value};

/// Section of the configuration that holds the lists.
pub(super) const SECTION: &str = "never";

/// Maximum number of patterns in a user's file.
pub const USER_PATTERNS_MAX: usize = 32;

/// Longest pattern in a user's file, in bytes.
pub const USER_PATTERN_MAX: usize = 64;

/// Patterns of apps, by what never happens to these apps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NeverLists {
    boost: Vec<String>,
    protect: Vec<String>,
    close: Vec<String>,
}

impl NeverLists {
    pub(super) fn of_mut(&mut self, never: Never) -> &mut Vec<String> {
        match never {
            Never::Boost => &mut self.boost,
            Never::Protect => &mut self.protect,
            Never::Close => &mut self.close,
        }
    }

    fn of(&self, never: Never) -> &[String] {
        match never {
            Never::Boost => &self.boost,
            Never::Protect => &self.protect,
            Never::Close => &self.close,
        }
    }

    /// The rules of these lists, each with the place where its list is set.
    pub(super) fn rules(&self, given: &[Given]) -> Rules {
        let mut rules = Rules::default();
        for never in Never::ALL {
            let mut set = given.iter().rev();
            let set = set.find(|given| (given.section, given.key) == (SECTION, never.name()));
            let origin = set.map_or_else(String::new, |given| {
                format!("{}:{}", given.file.display(), given.line)
            });
            for pattern in self.of(never) {
                rules.add(never, Pattern::new(pattern, origin.as_str()));
            }
        }
        rules
    }
}

/// Why a user's file may not have this section; `None`: it may.
fn refused(section: &str) -> Option<String> {
    if section == SECTION {
        return None;
    }
    let meant = match alike(section, [SECTION]) {
        Some(_) => " (did you mean [never]?)",
        None => "",
    };
    Some(format!(
        "`{section}`{meant}: a user's file may hold only the section [{SECTION}]; root sets the \
         other keys in {}",
        super::DEFAULT_FILE
    ))
}

/// A user's own rules, and the values of their keys. `file` is the file's path, for display.
pub fn of_user(file: &Path, text: &str) -> Result<(Rules, Vec<Value>), ConfigErrors> {
    let mut config = Config::default();
    let mut given = Vec::new();
    let mut errors = apply(&mut config, text, refused, &mut |key, value, line, _| {
        given.push(Given {
            section: key.section,
            key: key.name,
            value: value.to_owned(),
            file: file.to_owned(),
            line,
            profile: None,
            warning: None,
        });
    });
    let lists = &config.never_lists;
    let line_of = |never: Never| {
        let set = given.iter().find(|given| given.key == never.name());
        set.map_or(0, |given| given.line)
    };
    let mut count = 0;
    for never in Never::ALL {
        let list = lists.of(never);
        let long = list.iter().find(|one| one.len() > USER_PATTERN_MAX);
        if let Some(long) = long {
            errors.push((
                line_of(never),
                format!(
                    "\"{long}\" in `{never}` is longer than {USER_PATTERN_MAX} bytes, the most in \
                     a user's file"
                ),
            ));
        }
        count += list.len();
        if count > USER_PATTERNS_MAX && count - list.len() <= USER_PATTERNS_MAX {
            let message = format!("a user's file may have at most {USER_PATTERNS_MAX} patterns");
            errors.push((line_of(never), message));
        }
    }
    errors.sort();
    if !errors.is_empty() {
        let errors = errors.into_iter().map(|(line, message)| ConfigError {
            file: file.to_owned(),
            line,
            message,
        });
        return Err(ConfigErrors(errors.collect()));
    }
    let keys = KEYS.iter().filter(|key| key.section == SECTION);
    let values = keys.filter_map(|key| {
        let given = given.iter().find(|given| given.is(key))?;
        Some(Value {
            section: key.section,
            key: key.name,
            value: Some(given.value.clone()),
            origin: Some((given.file.clone(), given.line)),
            profile: None,
        })
    });
    Ok((lists.rules(&given), values.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use limelight_core::model::class::Identity;
    use proptest::prelude::*;

    fn of(text: &str) -> Result<Rules, Vec<String>> {
        let found = of_user(Path::new("/home/u/limelight.toml"), text);
        let lines = |errors: ConfigErrors| errors.0.iter().map(ToString::to_string).collect();
        found.map(|(rules, _)| rules).map_err(lines)
    }

    #[test]
    fn file_of_a_user_gives_rules_with_their_lines() {
        let text = "[never]\nboost = []\nclose = [\"org.x.*\", \"/usr/bin/x\"]\n";
        let (rules, values) = of_user(Path::new("/home/u/limelight.toml"), text).unwrap();
        let identity = Identity {
            desktop_id: Some("org.x.Notes".to_owned()),
            ..Identity::default()
        };
        let found = rules.of(&identity, true);
        assert_eq!(found.iter().count(), 1);
        assert_eq!(
            found.of(Never::Close).unwrap().why,
            "its app id org.x.Notes matches \"org.x.*\" (/home/u/limelight.toml:3)"
        );
        let keys: Vec<&str> = values.iter().map(|value| value.key).collect();
        assert_eq!(keys, ["boost", "close"]);
        assert!(of("").unwrap().is_empty());
    }

    #[test]
    fn file_of_a_user_may_hold_nothing_else() {
        let file = "/home/u/limelight.toml";
        let only = "a user's file may hold only the section [never]; root sets the other keys in \
                    /etc/limelight/limelight.toml";
        let long = "x".repeat(USER_PATTERN_MAX + 1);
        let many = "\"x\", ".repeat(USER_PATTERNS_MAX);
        for (text, expected) in [
            (
                "[class]\nkeep = [\"x\"]\n[nevr]\n".to_owned(),
                vec![
                    format!("{file}:1: `class`: {only}"),
                    format!("{file}:3: `nevr` (did you mean [never]?): {only}"),
                ],
            ),
            (
                "profile = \"phone\"\n[never]\nclose = 1\nkill = []\n".to_owned(),
                vec![
                    format!("{file}:1: `profile`: {only}"),
                    format!(
                        "{file}:3: `close` in [never] is 1; allowed: a list of patterns of 1 to \
                         1024 bytes each"
                    ),
                    format!(
                        "{file}:4: unknown key `kill` in [never] (did you mean the key of \
                         [swap]?); known keys: `boost`, `protect`, `close`"
                    ),
                ],
            ),
            (
                format!("[never]\n\nprotect = [\"{long}\"]\n"),
                vec![format!(
                    "{file}:3: \"{long}\" in `protect` is longer than 64 bytes, the most in a \
                     user's file"
                )],
            ),
            (
                format!("[never]\nboost = [\"x\"]\nprotect = [{many}]\nclose = [\"x\"]\n"),
                vec![format!(
                    "{file}:3: a user's file may have at most 32 patterns"
                )],
            ),
        ] {
            assert_eq!(of(&text).unwrap_err(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_of_a_user_panics(text in "(\\[never\\]\n)?[a-z_]{0,8} ?=? ?[-0-9a-z\"._\\[{]{0,10}\n?.*") {
            let _ = of(&text);
        }
    }
}
