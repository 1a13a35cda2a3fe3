// SPDX-License-Identifier: GPL-2.0-or-later
//! Which source serves this session: the first that works, in an order in which those that know the
//! process come before those that have to guess. What was passed over is kept with the reason.

use limelight_core::control::PassedOver;

use super::environment::Environment;
use super::{hyprland, i3, kwin, mutter, niri, sway, wlr, x11, Source};

/// A source that there could be.
pub struct Kind {
    /// Its name, and that of its module.
    pub name: &'static str,
    connect: fn(&Environment) -> Result<Box<dyn Source>, NotHere>,
}

/// All of them, in the order in which they are tried. Compositors of wlroots may offer what mutter is
/// known by, hence mutter after them; a display that is only Xwayland's shows a part
/// of what there is, hence X11 after everything of Wayland.
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

/// Why a source is not to be had here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotHere(String);

impl NotHere {
    /// Because of this.
    pub fn because(why: impl Into<String>) -> NotHere {
        NotHere(why.into())
    }
}

impl From<String> for NotHere {
    fn from(why: String) -> NotHere {
        NotHere(why)
    }
}

/// The source that was picked, and those before it.
pub struct Pick {
    /// It; `None`: none works.
    pub source: Option<Box<dyn Source>>,
    /// Those that do not work here, and why.
    pub passed_over: Vec<PassedOver>,
}

/// Tries them in turn; with a name that one alone.
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
    fn the_first_that_works_is_taken_and_the_others_are_named() {
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
    fn nothing_is_found_where_nothing_is_named() {
        let pick = pick(&Environment::default(), None);
        assert!(pick.source.is_none());
        assert_eq!(pick.passed_over.len(), KINDS.len());
        assert!(pick.passed_over.iter().all(|one| !one.why.is_empty()));
    }
}
