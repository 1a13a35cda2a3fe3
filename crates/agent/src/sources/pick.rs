// SPDX-License-Identifier: GPL-2.0-or-later
//! Selects the source of the focus for this session: the first one that works. Records why each
//! earlier one was skipped.

use limelight_proto::PassedOver;

use super::environment::Environment;
use super::{hyprland, i3, kwin, mutter, niri, sway, wlr, x11, Source};

/// A kind of source, and how to connect to it.
pub struct Kind {
    /// Its name. All but `wlr-foreign-toplevel` have a module of the same name.
    pub name: &'static str,
    connect: fn(&Environment) -> Result<Box<dyn Source>, NotHere>,
}

/// All kinds, in the order in which they are tried:
///
/// 1. `sway`, `hyprland`, `niri` and `kwin`: the own interfaces of one compositor each.
/// 2. `wlr-foreign-toplevel`, which can only guess a window's process.
/// 3. `mutter`. It comes after `wlr-foreign-toplevel`, because a compositor based on wlroots may
///    also offer an interface by which mutter is recognised.
/// 4. `x11`. It comes after all Wayland sources, because Xwayland's display does not show native
///    Wayland windows.
/// 5. `i3`. `x11` comes before it, because `x11` also works with i3 and reports input and frames.
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

/// Error: a source does not work in this session. Contains the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotHere(String);

impl NotHere {
    /// An error with this reason.
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
    /// The skipped sources, in the order of the attempts, and why each does not work.
    pub passed_over: Vec<PassedOver>,
}

/// Tries all kinds in turn until one works. `wanted`: tries only the kind with this name.
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
