// SPDX-License-Identifier: GPL-2.0-or-later
//! Selects the source for this session: the first one that works. The reasons for skipping a source
//! are kept.

use limelight_proto::PassedOver;

use super::environment::Environment;
use super::{hyprland, i3, kwin, mutter, niri, sway, wlr, x11, Source};

/// A kind of source.
pub struct Kind {
    /// Its name. All but `wlr-foreign-toplevel` have a module of the same name.
    pub name: &'static str,
    connect: fn(&Environment) -> Result<Box<dyn Source>, NotHere>,
}

/// All kinds, in the order of the attempts. `wlr-foreign-toplevel` only guesses the process of a
/// window, so the compositors' own interfaces come before it. mutter still comes after all
/// compositors based on wlroots, because those may offer the interfaces that identify mutter. X11
/// comes after all Wayland sources, because a display of Xwayland shows only some of the windows.
pub const KINDS: [Kind; 8] = [
    kind("sway", sway::connect),
    kind("hyprland", hyprland::connect),
    kind("niri", niri::connect),
    kind("kwin", kwin::connect),
    kind("wlr-foreign-toplevel", wlr::connect),
    kind("mutter", mutter::connect),
    kind("x11", x11::connect),
    kind("i3", i3::connect),
];

const fn kind(
    name: &'static str,
    connect: fn(&Environment) -> Result<Box<dyn Source>, NotHere>,
) -> Kind {
    Kind { name, connect }
}

/// Why a source is not available here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotHere(String);

impl NotHere {
    /// Error with this reason.
    pub fn because(why: impl Into<String>) -> NotHere {
        NotHere(why.into())
    }
}

impl<E: std::error::Error> From<E> for NotHere {
    fn from(error: E) -> NotHere {
        NotHere(error.to_string())
    }
}

impl std::fmt::Display for NotHere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The selected source, and the sources skipped before it.
pub struct Pick {
    /// The source; `None` if none works.
    pub source: Option<Box<dyn Source>>,
    /// Sources that do not work here, and why.
    pub passed_over: Vec<PassedOver>,
}

/// Tries all kinds in turn, or only the one with this name.
pub fn pick(environment: &Environment, wanted: Option<&str>) -> Pick {
    pick_of(&KINDS, environment, wanted)
}

fn pick_of(kinds: &[Kind], environment: &Environment, wanted: Option<&str>) -> Pick {
    let mut passed_over = Vec::new();
    for kind in kinds {
        if wanted.is_some_and(|wanted| wanted != kind.name) {
            continue;
        }
        match (kind.connect)(environment) {
            Ok(source) => {
                return Pick {
                    source: Some(source),
                    passed_over,
                }
            }
            Err(NotHere(why)) => passed_over.push(PassedOver {
                name: kind.name.to_owned(),
                why,
            }),
        }
    }
    Pick {
        source: None,
        passed_over,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::{FocusBy, Gone, Seen};
    use std::os::fd::BorrowedFd;

    struct Quiet(&'static str);

    impl Source for Quiet {
        fn name(&self) -> &'static str {
            self.0
        }

        fn detail(&self) -> String {
            "a test".to_owned()
        }

        fn fds(&self) -> Vec<BorrowedFd<'_>> {
            Vec::new()
        }

        fn observe(&mut self) -> Result<Seen, Gone> {
            Ok(Seen::nothing(FocusBy::Compositor))
        }
    }

    const FEW: [Kind; 3] = [
        kind("absent", |_| Err(NotHere::because("no socket"))),
        kind("first", |_| Ok(Box::new(Quiet("first")))),
        kind("second", |_| Ok(Box::new(Quiet("second")))),
    ];

    #[test]
    fn first_working_source_is_picked_and_skipped_ones_are_listed() {
        let pick = pick_of(&FEW, &Environment::default(), None);
        assert_eq!(pick.source.map(|source| source.name()), Some("first"));
        assert_eq!(pick.passed_over.len(), 1);
        assert_eq!(pick.passed_over[0].name, "absent");
        let asked = pick_of(&FEW, &Environment::default(), Some("second"));
        assert_eq!(asked.source.map(|source| source.name()), Some("second"));
        let absent = pick_of(&FEW, &Environment::default(), Some("absent"));
        assert!(absent.source.is_none());
        assert_eq!(absent.passed_over[0].why, "no socket");
    }

    #[test]
    fn no_source_works_in_an_empty_environment() {
        let pick = pick(&Environment::default(), None);
        assert!(pick.source.is_none());
        assert_eq!(pick.passed_over.len(), KINDS.len());
        assert!(pick.passed_over.iter().all(|one| !one.why.is_empty()));
    }
}
