// SPDX-License-Identifier: GPL-2.0-or-later
//! The user's choices on the screen, and the meaning of keys and clicks.

use limelight_proto::AppReport;
use limelight_proto::Class;
use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::layout::{Position, Rect};
use ratatui::widgets::TableState;

use super::feed::Picture;
use super::order::Order;

/// Identity of an app from one refresh to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(Option<String>, Option<i32>);

impl Key {
    /// The identity of an app.
    pub fn of(app: &AppReport) -> Key {
        let own = app.app.own_cgroup;
        Key(app.app.cgroup.clone().filter(|_| own), app.app.pid)
    }
}

/// The popup on top of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Popup {
    /// No popup.
    None,
    /// The list of keys.
    Help,
    /// Details of an app.
    Explain {
        /// Name of the app.
        title: String,
        /// The details.
        text: String,
        /// Number of lines scrolled off at the top.
        scroll: u16,
    },
    /// The menu of classes for an app.
    Class {
        /// Any process of the app.
        pid: i32,
        /// Its name.
        name: String,
        /// The selected line.
        chosen: usize,
    },
}

/// Classes to choose from; `None`: the app's default.
pub const CLASSES: [Option<Class>; 4] = [
    Some(Class::Keep),
    Some(Class::Normal),
    Some(Class::Disposable),
    None,
];

/// Target of a click.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// An app, by its index in the list.
    App(usize),
    /// The head of a column.
    Head(Order),
    /// A line of the menu of classes.
    Class(usize),
    /// The name of a key in the footer; a press has the same effect as the key.
    Press(char),
}

/// An action that the view requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// Quit.
    Quit,
    /// Refresh the data.
    Refresh,
    /// Show the details of an app.
    Explain {
        /// Its main process.
        pid: i32,
        /// Its name.
        name: String,
    },
    /// Set the class of an app.
    SetClass {
        /// Any process of the app.
        pid: i32,
        /// The class; `None`: the app's default.
        class: Option<Class>,
    },
}

/// State of the screen.
#[derive(Debug)]
pub struct View {
    /// Order of apps.
    pub order: Order,
    /// The selected app.
    pub chosen: Option<Key>,
    /// Scroll position of the list.
    pub table: TableState,
    /// The popup, if any.
    pub popup: Popup,
    /// Result of the last action.
    pub said: Option<String>,
    /// Click targets of the last drawing. If targets overlap, the later one is on top.
    pub targets: Vec<(Rect, Target)>,
}

impl Default for View {
    fn default() -> Self {
        View {
            order: Order::Class,
            chosen: None,
            table: TableState::default(),
            popup: Popup::None,
            said: None,
            targets: Vec::new(),
        }
    }
}

impl View {
    /// Index of the selected app in the list.
    pub fn place(&self, apps: &[&AppReport]) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        apps.iter().position(|app| Key::of(app) == *chosen)
    }

    /// Handles a key, click or resize. `None`: no redraw is needed.
    pub fn event(&mut self, event: &Event, picture: &Picture) -> Option<Option<Wish>> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                self.said = None;
                Some(self.key(*key, picture))
            }
            Event::Mouse(mouse) => self.mouse(*mouse, picture),
            Event::Resize(..) => Some(None),
            _ => None,
        }
    }

    fn key(&mut self, key: KeyEvent, picture: &Picture) -> Option<Wish> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Some(Wish::Quit),
            KeyCode::Char(_) if control => return None,
            _ => {}
        }
        match &mut self.popup {
            Popup::None => self.key_of_list(key.code, picture),
            Popup::Help => {
                self.popup = Popup::None;
                None
            }
            Popup::Explain { scroll, .. } => {
                match key.code {
                    KeyCode::Down | KeyCode::Char('j') => *scroll = scroll.saturating_add(1),
                    KeyCode::Up | KeyCode::Char('k') => *scroll = scroll.saturating_sub(1),
                    KeyCode::PageDown | KeyCode::Char(' ') => *scroll = scroll.saturating_add(10),
                    KeyCode::PageUp => *scroll = scroll.saturating_sub(10),
                    _ => self.popup = Popup::None,
                }
                None
            }
            Popup::Class { chosen, .. } => {
                match key.code {
                    KeyCode::Down | KeyCode::Char('j') => {
                        *chosen = (*chosen + 1).min(CLASSES.len() - 1);
                    }
                    KeyCode::Up | KeyCode::Char('k') => *chosen = chosen.saturating_sub(1),
                    KeyCode::Enter | KeyCode::Char(' ') => {
                        let chosen = *chosen;
                        return self.take_class(chosen);
                    }
                    _ => self.popup = Popup::None,
                }
                None
            }
        }
    }

    fn key_of_list(&mut self, key: KeyCode, picture: &Picture) -> Option<Wish> {
        const PAGE: isize = 10;
        match key {
            KeyCode::Char('q') => return Some(Wish::Quit),
            KeyCode::Esc if self.chosen.is_none() => return Some(Wish::Quit),
            KeyCode::Esc => self.chosen = None,
            KeyCode::Char('r') => return Some(Wish::Refresh),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.popup = Popup::Help,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Down | KeyCode::Char('j') => self.step(1, picture),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1, picture),
            KeyCode::PageDown => self.step(PAGE, picture),
            KeyCode::PageUp => self.step(-PAGE, picture),
            KeyCode::Home => self.step(isize::MIN / 2, picture),
            KeyCode::End => self.step(isize::MAX / 2, picture),
            KeyCode::Enter | KeyCode::Char('e') => return self.explain(picture),
            KeyCode::Char('c') => self.choose_class(picture),
            _ => {}
        }
        None
    }

    /// Moves the selection. If nothing is selected, selects the first or the last app.
    fn step(&mut self, by: isize, picture: &Picture) {
        let apps = self.order.sorted(picture);
        let last = apps.len().saturating_sub(1);
        let place = match self.place(&apps) {
            Some(place) => place.saturating_add_signed(by).min(last),
            None if by > 0 => 0,
            None => last,
        };
        self.chosen = apps.get(place).map(|app| Key::of(app));
    }

    /// The selected app. If none is selected, selects the foreground app, or else the first app.
    fn app<'a>(&mut self, picture: &'a Picture) -> Option<&'a AppReport> {
        let apps = self.order.sorted(picture);
        if self.place(&apps).is_none() {
            let front = picture.status.topmost.as_ref().map(|topmost| &topmost.app);
            let first = apps
                .iter()
                .find(|app| Some(&app.app) == front)
                .or_else(|| apps.first());
            self.chosen = first.map(|app| Key::of(app));
        }
        self.place(&apps).map(|place| apps[place])
    }

    fn explain(&mut self, picture: &Picture) -> Option<Wish> {
        let app = self.app(picture)?;
        let name = app.app.name.clone();
        match app.app.pid {
            Some(pid) => Some(Wish::Explain { pid, name }),
            None => {
                self.said = Some(format!("{name} no longer has a process"));
                None
            }
        }
    }

    fn choose_class(&mut self, picture: &Picture) {
        let Some(app) = self.app(picture) else {
            return;
        };
        if let Some(pid) = app.app.pid {
            let class = Some(app.class);
            let chosen = CLASSES.iter().position(|one| *one == class).unwrap_or(0);
            let name = app.app.name.clone();
            self.popup = Popup::Class { pid, name, chosen };
        }
    }

    fn take_class(&mut self, chosen: usize) -> Option<Wish> {
        let Popup::Class { pid, .. } = self.popup else {
            return None;
        };
        self.popup = Popup::None;
        let class = *CLASSES.get(chosen)?;
        Some(Wish::SetClass { pid, class })
    }

    fn mouse(&mut self, mouse: MouseEvent, picture: &Picture) -> Option<Option<Wish>> {
        let press = |code| KeyEvent::new(code, KeyModifiers::NONE);
        match mouse.kind {
            MouseEventKind::ScrollDown => Some(self.key(press(KeyCode::Down), picture)),
            MouseEventKind::ScrollUp => Some(self.key(press(KeyCode::Up), picture)),
            MouseEventKind::Down(MouseButton::Left) => {
                self.said = None;
                let at = Position::new(mouse.column, mouse.row);
                let mut targets = self.targets.iter().rev();
                let target = targets.find(|(place, _)| place.contains(at));
                let target = target.map(|(_, target)| *target);
                Some(self.click(target, picture))
            }
            _ => None,
        }
    }

    fn click(&mut self, target: Option<Target>, picture: &Picture) -> Option<Wish> {
        match target {
            Some(Target::Class(line)) => return self.take_class(line),
            _ if self.popup != Popup::None => self.popup = Popup::None,
            Some(Target::App(place)) => {
                let apps = self.order.sorted(picture);
                let key = apps.get(place).map(|app| Key::of(app));
                if key.is_some() && key == self.chosen {
                    return self.explain(picture);
                }
                self.chosen = key;
            }
            Some(Target::Head(order)) => self.order = order,
            Some(Target::Press(key)) => {
                let key = match key {
                    '\n' => KeyCode::Enter,
                    key => KeyCode::Char(key),
                };
                return self.key(KeyEvent::new(key, KeyModifiers::NONE), picture);
            }
            None => {}
        }
        None
    }
}
