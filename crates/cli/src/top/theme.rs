// SPDX-License-Identifier: GPL-2.0-or-later
//! Colours: the terminal's own sixteen, so that they fit what its user has chosen. Each means
//! something that a sign or a word says too.

use limelight_core::control::{Deed, State};
use limelight_core::model::class::Class;
use limelight_core::model::shortage::Level;
use ratatui::style::{Color, Modifier, Style};

/// Whether there are colours at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    /// They are.
    pub colour: bool,
}

impl Theme {
    fn of(self, colour: Color) -> Style {
        match self.colour {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    /// The line on top.
    pub fn title(self) -> Style {
        match self.colour {
            true => Style::new().fg(Color::Black).bg(Color::Green),
            false => Style::new().add_modifier(Modifier::REVERSED),
        }
    }

    /// The app in front.
    pub fn front(self) -> Style {
        self.of(Color::Green).add_modifier(Modifier::BOLD)
    }

    /// What is well.
    pub fn good(self) -> Style {
        self.of(Color::Green)
    }

    /// What names other things, and what matters less. No grey: on a terminal of eight colours that
    /// is black.
    pub fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// What wants to be looked at.
    pub fn warn(self) -> Style {
        self.of(Color::Yellow)
    }

    /// What is wrong, or cannot be taken back.
    pub fn bad(self) -> Style {
        self.of(Color::Red)
    }

    /// Headings and keys.
    pub fn strong(self) -> Style {
        self.of(Color::Reset).add_modifier(Modifier::BOLD)
    }

    /// The app that is chosen.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// How short memory is.
    pub fn level(self, level: Level) -> Style {
        match level {
            Level::Plenty => self.good(),
            Level::Swap | Level::Low => self.warn(),
            Level::Crowded | Level::Kill | Level::Exhausted => self.bad(),
        }
    }

    /// A class.
    pub fn class(self, class: Class) -> Style {
        match class {
            Class::Keep => self.good(),
            Class::Normal => Style::new(),
            Class::Disposable => self.warn(),
        }
    }

    /// Something that was done.
    pub fn deed(self, deed: Deed) -> Style {
        match deed {
            Deed::Kill | Deed::ForeignKill => self.bad(),
            Deed::Squeeze | Deed::Freeze | Deed::Ask => self.warn(),
            Deed::Thaw | Deed::Return => self.good(),
        }
    }

    /// A share of time that was waited, in percent.
    pub fn share(self, percent: f64) -> Style {
        match percent {
            share if share >= 20.0 => self.bad(),
            share if share >= 5.0 => self.warn(),
            _ => Style::new(),
        }
    }

    /// A mechanism's state, with its sign.
    pub fn state(self, state: State) -> (&'static str, Style) {
        match state {
            State::Active => ("●", self.good()),
            State::Idle => ("○", self.good()),
            State::Off => ("-", self.dim()),
            State::Unavailable => ("×", self.warn()),
        }
    }
}
