// SPDX-License-Identifier: GPL-2.0-or-later
//! Colours: the terminal's own sixteen, so that they fit the user's scheme. A character or a word
//! always repeats the meaning of a colour.

use limelight_proto::Class;
use limelight_proto::Level;
use limelight_proto::{MemoryAction, State};
use ratatui::style::{Color, Modifier, Style};

/// Whether colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    /// Colours are on.
    pub colour: bool,
}

impl Theme {
    fn of(self, colour: Color) -> Style {
        match self.colour {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    /// The title line.
    pub fn title(self) -> Style {
        match self.colour {
            true => Style::new().fg(Color::Black).bg(Color::Green),
            false => Style::new().add_modifier(Modifier::REVERSED),
        }
    }

    /// The foreground app.
    pub fn front(self) -> Style {
        self.of(Color::Green).add_modifier(Modifier::BOLD)
    }

    /// A state that is as it should be.
    pub fn good(self) -> Style {
        self.of(Color::Green)
    }

    /// Labels and less important text. Dim, not grey: a terminal with eight colours shows grey as
    /// black.
    pub fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// A state that needs attention.
    pub fn warn(self) -> Style {
        self.of(Color::Yellow)
    }

    /// An error, or an irreversible action.
    pub fn bad(self) -> Style {
        self.of(Color::Red)
    }

    /// Headings and keys.
    pub fn strong(self) -> Style {
        self.of(Color::Reset).add_modifier(Modifier::BOLD)
    }

    /// The selected app.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The level of shortage.
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

    /// A past action.
    pub fn action(self, action: MemoryAction) -> Style {
        match action {
            MemoryAction::Kill | MemoryAction::ForeignKill => self.bad(),
            MemoryAction::Squeeze
            | MemoryAction::WriteBack
            | MemoryAction::Throttle
            | MemoryAction::Freeze
            | MemoryAction::Ask
            | MemoryAction::Pause => self.warn(),
            MemoryAction::Thaw | MemoryAction::Return | MemoryAction::Resume => self.good(),
        }
    }

    /// A share of time spent waiting, in percent.
    pub fn share(self, percent: f64) -> Style {
        match percent {
            share if share >= 20.0 => self.bad(),
            share if share >= 5.0 => self.warn(),
            _ => Style::new(),
        }
    }

    /// A mechanism's state, with its character.
    pub fn state(self, state: State) -> (&'static str, Style) {
        match state {
            State::Active => ("●", self.good()),
            State::Idle => ("○", self.good()),
            State::Off => ("-", self.dim()),
            State::Unavailable => ("×", self.warn()),
        }
    }
}
