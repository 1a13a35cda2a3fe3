// SPDX-License-Identifier: GPL-2.0-or-later
//! Pictures of the screen for the documentation, drawn by the real code from sample data. A test
//! compares them with the files; `make pictures` writes them.

use std::path::Path;

use limelight_proto::Use;
use ratatui::style::Modifier;

use super::*;

/// Pixels of a character cell.
const CELL: (usize, usize) = (9, 19);

/// Colours of a terminal's scheme: background, foreground, dim foreground, and the sixteen colours
/// that the screen uses.
struct Scheme {
    name: &'static str,
    back: &'static str,
    fore: &'static str,
    dim: &'static str,
    green: &'static str,
    yellow: &'static str,
    red: &'static str,
}

const SCHEMES: [Scheme; 2] = [
    Scheme {
        name: "dark",
        back: "#1d1f21",
        fore: "#d8dad8",
        dim: "#8b908d",
        green: "#8fc15c",
        yellow: "#e6c15c",
        red: "#f07a6a",
    },
    Scheme {
        name: "light",
        back: "#ffffff",
        fore: "#24292e",
        dim: "#6c737a",
        green: "#2e7d1f",
        yellow: "#8a5a00",
        red: "#b3261e",
    },
];

impl Scheme {
    fn colour(&self, colour: Color, default: &'static str) -> &'static str {
        match colour {
            Color::Reset => default,
            Color::Green => self.green,
            Color::Yellow => self.yellow,
            Color::Red => self.red,
            Color::Black => "#000000",
            other => panic!("the screen uses a colour that the picture lacks: {other:?}"),
        }
    }
}

/// A desktop short of memory: a browser in front, six other apps, two actions.
fn scene() -> Picture {
    let mut scene = picture();
    let name = |one: &mut AppReport, uses: &[Use], swapped: u64| {
        one.uses = uses.to_vec();
        one.swapped = swapped << 20;
    };
    let browser = app("firefox", 2211);
    scene.status.topmost = Some(TopmostStatus {
        app: browser,
        source: "sway".to_owned(),
        for_ms: 754_000,
        members: 9,
        demoted_in_ms: None,
    });
    let mut front = report("firefox", 2211, Class::Normal, Some(99_000), 1_240);
    front.role = Role::Topmost;
    name(&mut front, &[], 0);
    let mut mail = report("thunderbird", 2388, Class::Normal, Some(61_000), 402);
    name(&mut mail, &[], 88);
    let mut editor = report("gedit", 2690, Class::Keep, Some(52_000), 61);
    name(&mut editor, &[Use::Unsaved], 0);
    let mut player = report("rhythmbox", 2702, Class::Disposable, Some(34_000), 145);
    name(&mut player, &[Use::Audio], 0);
    let mut maps = report("gnome-maps", 3120, Class::Normal, Some(20_000), 310);
    name(&mut maps, &[], 240);
    maps.frozen = true;
    scene.apps = vec![front, mail, editor, player, maps];
    let mut seen = answers();
    seen.name = "firefox".to_owned();
    (seen.p50_us, seen.p95_us, seen.p99_us, seen.max_us) = (9_100, 21_400, 38_000, 61_000);
    seen.answers = 1_204;
    seen.recent_us = [
        9, 8, 14, 7, 9, 30, 11, 8, 9, 15, 9, 7, 22, 10, 8, 9, 61, 12, 9, 8,
    ]
    .map(|ms| ms * 1000)
    .to_vec();
    scene.status.window.topmost = Some(seen.clone());
    scene.latency.apps = vec![seen];
    if let Some(open) = &mut scene.status.window.open {
        open.app = "firefox".to_owned();
    }
    let counters: [(&str, u64); 6] = [
        ("locked_bytes", 92 << 20),
        ("boosted", 14),
        ("streams", 31),
        ("mapped", 0),
        ("zeroed", 0),
        ("squeezed_bytes", 328 << 20),
    ];
    let states = [
        State::Active,
        State::Active,
        State::Idle,
        State::Unavailable,
        State::Unavailable,
        State::Active,
    ];
    let details = [
        "memory.min of the app's cgroup",
        "cpu.weight, nice values",
        "streams, scattered reads, starts",
        "needs the Limelight kernel",
        "needs the Limelight kernel",
        "swap limits, reclaim, freeze, kill",
    ];
    let each = scene.status.mechanisms.iter_mut();
    for (((one, (counter, value)), state), detail) in each.zip(counters).zip(states).zip(details) {
        one.counters = [(counter.to_owned(), value)].into();
        one.state = state;
        one.detail = detail.to_owned();
        one.short = detail.to_owned();
    }
    scene.counters.clear();
    scene.status.uptime_ms = 4_380_000;
    scene.at = Duration::from_secs(4_400);
    scene.wall = Duration::from_secs(4_400);
    let used_s = [4_400, 3_600, 2_912, 2_520, 610];
    for (app, used_s) in scene.apps.iter_mut().zip(used_s) {
        app.last_topmost_ms = Some(used_s * 1000);
    }
    scene.status.memory.level = Some(Level::Low);
    scene.status.memory.available = 410 << 20;
    scene.status.memory.protected = 1_310 << 20;
    scene.status.stalls = Stalls {
        cpu: Some(Stall {
            some: 12.0,
            full: None,
        }),
        memory: Some(Stall {
            some: 6.0,
            full: None,
        }),
        io: Some(Stall {
            some: 3.0,
            full: None,
        }),
    };
    scene.status.changes = vec![knob(
        "/app.slice/app-firefox-2211.scope/memory.min",
        4_340_000,
    )];
    scene.status.changes[0].to = (1_310_u64 << 20).to_string();
    scene.status.changes[0].rule = "protect: working set and a quarter".to_owned();
    scene.history[0].unix_ms = 4_388_000;
    scene.history[0].reason = "disposable, and used longest ago".to_owned();
    scene.history[0].app = Some(app("newsflash", 2950));
    scene
}

/// The parts of a line between gaps of two and more spaces, each with the number of characters
/// before it. Browsers merge the spaces of such a gap and stretch the rest of the text over it.
fn columns_of(line: &str) -> Vec<(usize, &str)> {
    let mut columns = Vec::new();
    let mut at = 0;
    for part in line.split("  ") {
        let words = part.trim();
        if !words.is_empty() {
            let blank = part.chars().count() - part.trim_start().chars().count();
            columns.push((at + blank, words));
        }
        at += part.chars().count() + 2;
    }
    columns
}

#[test]
fn text_in_the_pictures_has_no_gaps_that_browsers_merge() {
    assert_eq!(columns_of(" a b   c  "), [(1, "a b"), (7, "c")]);
    assert_eq!(columns_of("   "), []);
    for scheme in &SCHEMES {
        let drawn = svg(&scene(), 92, 25, scheme);
        let merged = drawn
            .lines()
            .find(|line| line.starts_with("<text") && line.contains("  "));
        assert_eq!(merged, None);
    }
}

/// A screen as SVG.
fn svg(picture: &Picture, columns: u16, rows: u16, scheme: &Scheme) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let theme = Theme { colour: true };
    let mut view = View::default();
    let done = terminal
        .draw(|frame| screen::draw(frame, picture, &mut view, theme, None))
        .unwrap();
    let (wide, high) = CELL;
    let (width, height) = (
        usize::from(columns) * wide + 20,
        usize::from(rows) * high + 20,
    );
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" aria-labelledby=\"title\">\n\
         <title id=\"title\">limelight top with sample data</title>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{}\"/>\n\
         <g font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"15\">\n",
        scheme.back
    );
    let buffer = done.buffer;
    for y in 0..rows {
        let mut x = 0;
        while x < columns {
            // Neighbours with the same style are one piece of text.
            let first = &buffer[(x, y)];
            let same = (x..columns).take_while(|at| buffer[(*at, y)].style() == first.style());
            let piece: Vec<u16> = same.collect();
            let words: String = piece.iter().map(|at| buffer[(*at, y)].symbol()).collect();
            let (left, top) = (usize::from(x) * wide + 10, usize::from(y) * high + 10);
            if first.bg != Color::Reset {
                text.push_str(&format!(
                    "<rect x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{high}\" fill=\"{}\"/>\n",
                    piece.len() * wide,
                    scheme.colour(first.bg, scheme.back)
                ));
            }
            let dim = first.modifier.contains(Modifier::DIM);
            let bold = match first.modifier.contains(Modifier::BOLD) {
                true => " font-weight=\"bold\"",
                false => "",
            };
            for (before, words) in columns_of(&words) {
                text.push_str(&format!(
                    "<text x=\"{}\" y=\"{}\" textLength=\"{}\" fill=\"{}\"{bold}>{}</text>\n",
                    left + before * wide,
                    top + 15,
                    words.chars().count() * wide,
                    scheme.colour(first.fg, if dim { scheme.dim } else { scheme.fore }),
                    words.replace('&', "&amp;").replace('<', "&lt;")
                ));
            }
            x += piece.len() as u16;
        }
    }
    text + "</g>\n</svg>\n"
}

#[test]
fn pictures_in_the_documentation_show_the_real_screen() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/user");
    let write = std::env::var_os("LIMELIGHT_PICTURES").is_some();
    for scheme in &SCHEMES {
        let file = docs.join(format!("top-{}.svg", scheme.name));
        let drawn = svg(&scene(), 92, 25, scheme);
        if write {
            std::fs::write(&file, &drawn).unwrap();
        }
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        let name = file.display();
        assert!(
            kept == drawn,
            "{name} is outdated: `make pictures` writes it"
        );
    }
}

#[test]
fn pictures_can_be_drawn_at_other_sizes() {
    for (columns, rows) in [(80, 24), (160, 50)] {
        for scheme in &SCHEMES {
            let drawn = svg(&scene(), columns, rows, scheme);
            assert!(drawn.contains(">firefox<"), "{drawn}");
            if let Some(dir) = std::env::var_os("LIMELIGHT_PICTURES_DIR") {
                let name = format!("top-{columns}x{rows}-{}.svg", scheme.name);
                std::fs::write(Path::new(&dir).join(name), drawn).unwrap();
            }
        }
    }
}
