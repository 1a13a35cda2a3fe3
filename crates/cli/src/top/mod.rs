// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight top`: shows the foreground app, the mechanisms that act for it, the shortage of
//! memory, and the state of the other apps, updated periodically. The data comes from the control
//! socket and from the kernel's counters.

mod apps;
pub mod feed;
mod fit;
mod front;
mod mechanisms;
mod order;
mod popup;
mod recent;
mod screen;
mod theme;
mod view;

use std::io::{self, stdout, IsTerminal, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use limelight_proto::{Request, Response};
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture};
use ratatui::crossterm::execute;
use ratatui::text::Span;
use ratatui::{DefaultTerminal, Terminal};
use signal_hook::consts::TERM_SIGNALS;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::class;
use crate::exit::Failure;
use crate::explain;
use crate::format::{self, Paper};
use feed::{Feed, Picture};
use theme::Theme;
use view::{Popup, View, Wish};

/// Display options.
#[derive(Debug)]
pub struct Wishes {
    /// Print once, as text.
    pub once: bool,
    /// Time between two refreshes.
    pub interval: Duration,
    /// Whether to handle mouse clicks.
    pub mouse: bool,
}

/// Columns of the text form without a terminal.
const COLUMNS: u16 = 100;

/// Shows the screen until the user quits; without a terminal, prints it once as text.
pub fn run(
    socket: &Path,
    patience: Duration,
    wishes: &Wishes,
    json: bool,
    paper: &Paper,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let mut feed = Feed::new(socket.to_owned(), patience);
    let picture = feed.picture()?;
    if json {
        return format::json(&picture, out);
    }
    if wishes.once || !stdout().is_terminal() {
        let columns = paper.width.and_then(|width| u16::try_from(width).ok());
        return Ok(write!(
            out,
            "{}",
            text(&picture, columns.unwrap_or(COLUMNS))?
        )?);
    }
    let theme = Theme {
        colour: paper.colour,
    };
    let mouse = wishes.mouse;
    restore_on_signal(mouse)?;
    let mut terminal = ratatui::try_init()?;
    let result = match mouse {
        true => execute!(stdout(), EnableMouseCapture),
        false => Ok(()),
    };
    let result = result
        .map_err(Failure::from)
        .and_then(|()| watch(&mut terminal, &mut feed, picture, wishes.interval, theme));
    restore(mouse);
    result
}

/// Restores the terminal when a signal terminates the program.
fn restore_on_signal(mouse: bool) -> io::Result<()> {
    let mut signals = Signals::new(TERM_SIGNALS)?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            restore(mouse);
            // Terminates with the signal's default action.
            let _ = emulate_default_handler(signal);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}

fn restore(mouse: bool) {
    if mouse {
        let _ = execute!(stdout(), DisableMouseCapture);
    }
    ratatui::restore();
}

/// Redraws after each refresh and each key.
fn watch(
    terminal: &mut DefaultTerminal,
    feed: &mut Feed,
    mut picture: Picture,
    interval: Duration,
    theme: Theme,
) -> Result<(), Failure> {
    let mut view = View::default();
    let mut trouble: Option<String> = None;
    let mut next = Instant::now() + interval;
    loop {
        terminal.draw(|frame| {
            screen::draw(frame, &picture, &mut view, theme, trouble.as_deref());
        })?;
        let wish = loop {
            if !event::poll(next.saturating_duration_since(Instant::now()))? {
                break Some(Wish::Refresh);
            }
            if let Some(wish) = view.event(&event::read()?, &picture) {
                break wish;
            }
        };
        match wish {
            None => continue,
            Some(Wish::Quit) => return Ok(()),
            Some(Wish::Refresh) => {}
            Some(Wish::Explain { pid, name }) => match explained(feed, pid) {
                Ok(text) => {
                    view.popup = Popup::Explain {
                        title: name,
                        text,
                        scroll: 0,
                    };
                    continue;
                }
                Err(failure) => view.said = Some(failure.to_string()),
            },
            Some(Wish::SetClass { pid, class }) => {
                view.said = Some(
                    match feed.ask(&Request::Class {
                        pid,
                        class,
                        save: false,
                    }) {
                        Ok(Response::Ok { message }) => message,
                        Ok(_) => Failure::another_version().to_string(),
                        Err(failure) => failure.to_string(),
                    },
                );
            }
        }
        match feed.picture() {
            Ok(new) => {
                picture = new;
                trouble = None;
            }
            // The daemon may be restarting: keep the last data on the screen, with the error.
            Err(failure) => trouble = Some(failure.to_string()),
        }
        next = Instant::now() + interval;
    }
}

/// The output of `class why` and `explain` for an app.
fn explained(feed: &mut Feed, pid: i32) -> Result<String, Failure> {
    let Response::Apps { apps, .. } = feed.ask(&Request::Apps { pid: Some(pid) })? else {
        return Err(Failure::another_version());
    };
    let Response::Explain(report) = feed.ask(&Request::Explain { pid })? else {
        return Err(Failure::another_version());
    };
    let mut text = Vec::new();
    class::why(&apps, false, &mut text)?;
    writeln!(text)?;
    explain::print(&report, false, &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The screen as text, with enough rows for all parts.
fn text(picture: &Picture, columns: u16) -> Result<String, Failure> {
    let rows = screen::rows(picture, columns);
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, rows));
    let theme = Theme { colour: false };
    let mut view = View::default();
    let drawn = terminal.draw(|frame| {
        screen::draw_all(frame, picture, &mut view, theme);
    });
    let Ok(drawn) = drawn;
    Ok(lines(drawn.buffer))
}

/// The characters of a buffer, without trailing blanks.
fn lines(buffer: &Buffer) -> String {
    let area = buffer.area;
    let mut text = String::new();
    for y in area.top()..area.bottom() {
        let mut line = String::new();
        let mut x = area.left();
        while x < area.right() {
            let sign = buffer[(x, y)].symbol();
            line.push_str(sign);
            // A wide character also covers the next cell.
            x += u16::try_from(Span::raw(sign).width()).unwrap_or(1).max(1);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests;
