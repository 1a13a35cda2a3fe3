// SPDX-License-Identifier: GPL-2.0-or-later
//! All keys of the configuration: their allowed values and setters.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use limelight_core::model::class::Class;
use limelight_core::model::never::Never;
use limelight_core::model::prezero::Extent;
use limelight_core::settings::EngineChoice;
use toml::de::DeValue;
use toml::Spanned;

use crate::config::aliases::{self, EXPERT};
use crate::config::classes::SECTION;
use crate::config::never;
use crate::config::suggest::{alike, meant};
use crate::config::{AccessGroup, Adopt, Config, EvdevSource, OomScoreAdjSource, UseDevice};

/// The allowed values of a key, and the setter that stores the value.
enum Kind {
    Bool(fn(&mut Config, bool)),
    /// Smallest and largest value.
    Integer(i64, i64, fn(&mut Config, u32)),
    /// Smallest and largest value, or "auto", which the setter gets as 0.
    Auto(i64, i64, fn(&mut Config, u32)),
    /// The allowed words; the setter receives the index of the configured word.
    Word(&'static [&'static str], fn(&mut Config, usize)),
    /// An absolute path.
    Path(fn(&mut Config, &str)),
    /// A group's name or number.
    Group(fn(&mut Config, AccessGroup)),
    /// Names of programs, as in `/proc/PID/comm`.
    Names(fn(&mut Config, Vec<String>)),
    /// Patterns of names and paths.
    Patterns(fn(&mut Config, Vec<String>)),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Bool(_) => f.write_str("true or false"),
            Kind::Integer(least, most, _) => write!(f, "a whole number from {least} to {most}"),
            Kind::Auto(least, most, _) => {
                write!(f, "\"auto\", or a whole number from {least} to {most}")
            }
            Kind::Word(words, _) => write!(f, "\"{}\"", words.join("\", \"")),
            Kind::Path(_) => f.write_str("an absolute path"),
            Kind::Group(_) => f.write_str("the name or number of a group, or \"\" for none"),
            Kind::Names(_) => write!(f, "a list of names of 1 to {COMM_MAX} bytes each"),
            Kind::Patterns(_) => write!(f, "a list of patterns of 1 to {PATTERN_MAX} bytes each"),
        }
    }
}

pub(super) struct Key {
    pub section: &'static str,
    pub name: &'static str,
    kind: Kind,
}

/// Longest program name that the kernel keeps (`comm`), in bytes.
const COMM_MAX: usize = 15;

/// Longest pattern, in bytes.
const PATTERN_MAX: usize = 1024;

/// Parses a list of strings of 1 to `most` bytes each; `None` if the value is anything else.
fn texts(value: &DeValue<'_>, most: usize) -> Option<Vec<String>> {
    let DeValue::Array(items) = value else {
        return None;
    };
    let name = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
        DeValue::String(name) if (1..=most).contains(&name.len()) => Some(name.to_string()),
        _ => None,
    };
    items.iter().map(name).collect()
}

pub(super) fn ms(value: u32) -> Duration {
    Duration::from_millis(u64::from(value))
}

fn mib(value: u32) -> u64 {
    u64::from(value) << 20
}

/// Parses a group: a name of at most 32 bytes, as useradd accepts it, or a number.
fn group(value: &DeValue<'_>) -> Option<AccessGroup> {
    const NAME_MAX: usize = 32;
    match value {
        DeValue::String(name) if name.is_empty() => Some(AccessGroup::Off),
        DeValue::String(name) => match name.parse() {
            Ok(number) => numbered(number),
            Err(_) => {
                let fits = name.len() <= NAME_MAX && !name.contains([':', ',', '\n', ' ']);
                fits.then(|| AccessGroup::Name(name.to_string()))
            }
        },
        DeValue::Integer(number) if number.radix() == 10 => {
            numbered(number.as_str().replace('_', "").parse().ok()?)
        }
        _ => None,
    }
}

/// The group with this number. `None` for `u32::MAX`, which the kernel reads as "no group".
fn numbered(number: u32) -> Option<AccessGroup> {
    (number != u32::MAX).then_some(AccessGroup::Id(number))
}

/// The key with this name in this section, by their present names.
pub(super) fn known(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter()
        .find(|key| (key.section, key.name) == (section, name))
}

/// All keys.
pub(super) const KEYS: &[Key] = &[
    Key {
        section: "foreground",
        name: "gap_ms",
        kind: Kind::Integer(0, 60_000, |c, v| c.settings.topmost.gap = ms(v)),
    },
    Key {
        section: "sources",
        name: "oom_score_adj",
        kind: Kind::Word(&["auto", "tracepoint", "scan", "off"], |c, at| {
            use OomScoreAdjSource::{Auto, Off, Scan, Tracepoint};
            c.oom_score_adj = pick(&[Auto, Tracepoint, Scan, Off], at);
        }),
    },
    Key {
        section: "sources",
        name: "top_app",
        kind: Kind::Bool(|c, v| c.top_app = v),
    },
    Key {
        section: "sources",
        name: "evdev",
        kind: Kind::Word(&["auto", "on", "off"], |c, at| {
            c.evdev = pick(&[EvdevSource::Auto, EvdevSource::On, EvdevSource::Off], at);
        }),
    },
    Key {
        section: "sources",
        name: "wake_graph",
        kind: Kind::Bool(|c, v| c.wake_graph = v),
    },
    Key {
        section: "protect",
        name: "enabled",
        kind: Kind::Bool(|c, v| c.settings.protect.enabled = v),
    },
    Key {
        section: "protect",
        name: "budget_percent",
        kind: Kind::Integer(1, 90, |c, v| c.settings.protect.budget_percent = v as u8),
    },
    Key {
        section: "protect",
        name: "oom_score_adj_points",
        kind: Kind::Integer(0, 1000, |c, v| c.settings.protect.oom_points = v as u16),
    },
    Key {
        section: "protect",
        name: "lock_shared",
        kind: Kind::Bool(|c, v| c.settings.protect.lock_shared = v),
    },
    Key {
        section: "protect",
        name: "adopt",
        kind: Kind::Word(&["auto", "on", "off"], |c, at| {
            c.adopt = pick(&[Adopt::Auto, Adopt::Always, Adopt::Never], at);
        }),
    },
    Key {
        section: "protect",
        name: "own_scopes",
        kind: Kind::Bool(|c, v| c.own_scopes = v),
    },
    Key {
        section: "boost",
        name: "enabled",
        kind: Kind::Bool(|c, v| c.settings.boost.enabled = v),
    },
    Key {
        section: "boost",
        name: "cpu_weight",
        kind: Kind::Integer(100, 10_000, |c, v| c.settings.boost.cpu_weight = v),
    },
    Key {
        section: "boost",
        name: "nice_points",
        kind: Kind::Integer(0, 39, |c, v| c.settings.boost.nice_points = v as u8),
    },
    Key {
        section: "boost",
        name: "io_weight",
        kind: Kind::Integer(100, 10_000, |c, v| c.settings.boost.io_weight = v),
    },
    Key {
        section: "boost",
        name: "starting",
        kind: Kind::Bool(|c, v| c.settings.boost.starting = v),
    },
    Key {
        section: "boost",
        name: "terminal",
        kind: Kind::Bool(|c, v| c.settings.boost.terminal = v),
    },
    Key {
        section: "boost",
        name: "helpers",
        kind: Kind::Names(|c, v| c.settings.boost.helpers = v),
    },
    Key {
        section: "boost",
        name: "extra_helpers",
        kind: Kind::Names(|c, v| c.extra_helpers = v),
    },
    Key {
        section: "premap",
        name: "enabled",
        kind: Kind::Bool(|c, v| c.settings.premap.enabled = v),
    },
    Key {
        section: "readahead",
        name: "enabled",
        kind: Kind::Bool(|c, v| c.settings.readahead.enabled = v),
    },
    Key {
        section: "readahead",
        name: "rate_mib",
        kind: Kind::Integer(1, 65_536, |c, v| c.settings.readahead.rate = mib(v)),
    },
    Key {
        section: "readahead",
        name: "cold_start",
        kind: Kind::Bool(|c, v| c.settings.readahead.cold_start = v),
    },
    Key {
        section: "readahead",
        name: "record_mib",
        kind: Kind::Integer(1, 65_536, |c, v| c.settings.readahead.record_bytes = mib(v)),
    },
    Key {
        section: "readahead",
        name: "records",
        kind: Kind::Integer(1, 4096, |c, v| c.settings.readahead.records = v),
    },
    Key {
        section: "readahead",
        name: "directory",
        kind: Kind::Path(|c, v| c.cold_start_directory = v.into()),
    },
    Key {
        section: "prezero",
        name: "enabled",
        kind: Kind::Bool(|c, v| c.settings.prezero.enabled = v),
    },
    Key {
        section: "prezero",
        name: "most_percent",
        kind: Kind::Integer(1, 8, |c, v| c.settings.prezero.most_percent = v as u8),
    },
    Key {
        section: "swap",
        name: "enabled",
        kind: Kind::Bool(|c, v| c.settings.swap.enabled = v),
    },
    Key {
        section: "swap",
        name: "kill_percent",
        kind: Kind::Auto(1, 50, |c, v| c.settings.swap.kill_percent = v as u8),
    },
    Key {
        section: "swap",
        name: "swap_percent",
        kind: Kind::Auto(1, 80, |c, v| c.settings.swap.swap_percent = v as u8),
    },
    Key {
        section: "swap",
        name: "write_budget_mib",
        kind: Kind::Integer(0, 16_777_216, |c, v| c.settings.swap.write_budget = mib(v)),
    },
    Key {
        section: "swap",
        name: "by_cost",
        kind: Kind::Bool(|c, v| c.settings.swap.by_cost = v),
    },
    Key {
        section: "swap",
        name: "write_back",
        kind: Kind::Bool(|c, v| c.settings.swap.write_back = v),
    },
    Key {
        section: "swap",
        name: "ask",
        kind: Kind::Bool(|c, v| c.settings.swap.ask = v),
    },
    Key {
        section: "swap",
        name: "throttle",
        kind: Kind::Bool(|c, v| c.settings.swap.throttle = v),
    },
    Key {
        section: "swap",
        name: "services",
        kind: Kind::Bool(|c, v| c.settings.swap.services = v),
    },
    Key {
        section: "swap",
        name: "freeze",
        kind: Kind::Bool(|c, v| c.settings.swap.freeze = v),
    },
    Key {
        section: "swap",
        name: "kill",
        kind: Kind::Bool(|c, v| c.settings.swap.kill = v),
    },
    Key {
        section: "swap",
        name: "grace_ms",
        kind: Kind::Integer(0, 10_000, |c, v| c.settings.swap.grace = ms(v)),
    },
    Key {
        section: "swap",
        name: "prefault_mib",
        kind: Kind::Integer(0, 65_536, |c, v| c.settings.swap.prefault = mib(v)),
    },
    Key {
        section: "window",
        name: "enabled",
        kind: Kind::Bool(|c, v| c.settings.window.enabled = v),
    },
    Key {
        section: "window",
        name: "apps",
        kind: Kind::Integer(1, 4096, |c, v| c.settings.window.apps = v),
    },
    Key {
        section: SECTION,
        name: "keep",
        kind: Kind::Patterns(|c, v| *c.class_lists.of_mut(Class::Keep) = v),
    },
    Key {
        section: SECTION,
        name: "normal",
        kind: Kind::Patterns(|c, v| *c.class_lists.of_mut(Class::Normal) = v),
    },
    Key {
        section: SECTION,
        name: "disposable",
        kind: Kind::Patterns(|c, v| *c.class_lists.of_mut(Class::Disposable) = v),
    },
    Key {
        section: never::SECTION,
        name: "boost",
        kind: Kind::Patterns(|c, v| *c.never_lists.of_mut(Never::Boost) = v),
    },
    Key {
        section: never::SECTION,
        name: "protect",
        kind: Kind::Patterns(|c, v| *c.never_lists.of_mut(Never::Protect) = v),
    },
    Key {
        section: never::SECTION,
        name: "close",
        kind: Kind::Patterns(|c, v| *c.never_lists.of_mut(Never::Close) = v),
    },
    Key {
        section: "access",
        name: "group",
        kind: Kind::Group(|c, v| c.access_group = v),
    },
    Key {
        section: "kernel",
        name: "device",
        kind: Kind::Word(&["auto", "on", "off"], |c, at| {
            c.device = pick(&[UseDevice::Auto, UseDevice::Require, UseDevice::Off], at);
        }),
    },
    Key {
        section: EXPERT,
        name: "scan_interval_ms",
        kind: Kind::Integer(100, 60_000, |c, v| c.scan_interval = ms(v)),
    },
    Key {
        section: EXPERT,
        name: "protect_interval_ms",
        kind: Kind::Integer(100, 10_000, |c, v| c.settings.protect.interval = ms(v)),
    },
    Key {
        section: EXPERT,
        name: "protect_ageing",
        kind: Kind::Bool(|c, v| c.settings.protect.ageing = v),
    },
    Key {
        section: EXPERT,
        name: "boost_slice_us",
        kind: Kind::Integer(0, 100_000, |c, v| {
            // The kernel's shortest slice is 100 µs.
            c.settings.boost.slice_us = if v == 0 { 0 } else { v.max(100) };
        }),
    },
    Key {
        section: EXPERT,
        name: "boost_io_level",
        kind: Kind::Integer(0, 7, |c, v| c.settings.boost.io_level = v as u8),
    },
    Key {
        section: EXPERT,
        name: "premap_window_pages",
        kind: Kind::Integer(1, 512, |c, v| c.settings.premap.window_pages = v as u16),
    },
    Key {
        section: EXPERT,
        name: "prezero_engine",
        kind: Kind::Word(&["auto", "cpu", "dma", "block"], |c, at| {
            use EngineChoice::{Auto, Block, Cpu, Dma};
            c.settings.prezero.engine = pick(&[Auto, Cpu, Dma, Block], at);
        }),
    },
    Key {
        section: EXPERT,
        name: "prezero_block_device",
        kind: Kind::Path(|c, v| block(c).device = v.into()),
    },
    Key {
        section: EXPERT,
        name: "prezero_block_offset_mib",
        kind: Kind::Integer(0, 1 << 31, |c, v| block(c).offset = mib(v)),
    },
    Key {
        section: EXPERT,
        name: "prezero_block_mib",
        kind: Kind::Integer(1, 65_536, |c, v| block(c).len = mib(v)),
    },
    Key {
        section: EXPERT,
        name: "prezero_block_trusted",
        kind: Kind::Bool(|c, v| block(c).trusted = v),
    },
    Key {
        section: EXPERT,
        name: "readahead_factor",
        kind: Kind::Integer(1, 64, |c, v| c.settings.readahead.factor = v as u8),
    },
    Key {
        section: EXPERT,
        name: "readahead_record_s",
        kind: Kind::Integer(1, 60, |c, v| {
            c.settings.readahead.record = ms(v * 1000);
        }),
    },
    Key {
        section: EXPERT,
        name: "window_deadline_ms",
        kind: Kind::Integer(10, 10_000, |c, v| c.settings.window.deadline = ms(v)),
    },
    Key {
        section: EXPERT,
        name: "window_deadline_max_ms",
        kind: Kind::Integer(10, 10_000, |c, v| c.settings.window.deadline_max = ms(v)),
    },
];

/// The extent of zeroes on a disk. The first key that sets a part of it creates it with defaults.
fn block(config: &mut Config) -> &mut Extent {
    config.settings.prezero.block.get_or_insert_with(|| Extent {
        device: PathBuf::new(),
        offset: 0,
        len: mib(4),
        trusted: false,
    })
}

fn pick<T: Copy + Default>(values: &[T], at: usize) -> T {
    values.get(at).copied().unwrap_or_default()
}

/// Sets one key. Returns a warning if the value is an old name of another one, or an error message
/// if it is invalid.
pub(super) fn set(
    config: &mut Config,
    key: &Key,
    value: &Spanned<DeValue<'_>>,
) -> Result<Option<String>, String> {
    let value = value.get_ref();
    let wrong = || Err(invalid(key, value));
    let integer = |least: i64, most: i64| {
        let integer = value.as_integer()?;
        let digits = integer.as_str().replace('_', "");
        let number = i64::from_str_radix(&digits, integer.radix()).ok()?;
        let fits = (least..=most).contains(&number);
        u32::try_from(number).ok().filter(|_| fits)
    };
    match (&key.kind, value) {
        (Kind::Bool(set), DeValue::Boolean(value)) => set(config, *value),
        (Kind::Integer(least, most, set), _) => match integer(*least, *most) {
            Some(number) => set(config, number),
            None => return wrong(),
        },
        (Kind::Auto(_, _, set), DeValue::String(word)) if word == "auto" => set(config, 0),
        (Kind::Auto(least, most, set), _) => match (integer(*least, *most), integer(0, 0)) {
            (Some(number), _) => set(config, number),
            (None, Some(zero)) => {
                set(config, zero);
                return Ok(Some(renamed_value(key, "0", "auto")));
            }
            (None, None) => return wrong(),
        },
        (Kind::Word(words, set), DeValue::String(word)) => {
            let new = aliases::word(key, word);
            let chosen = new.unwrap_or(word);
            let Some(at) = words.iter().position(|known| *known == chosen) else {
                return wrong();
            };
            set(config, at);
            return Ok(new.map(|new| renamed_value(key, &format!("\"{word}\""), new)));
        }
        (Kind::Path(set), DeValue::String(path)) if Path::new(path.as_ref()).is_absolute() => {
            set(config, path.as_ref());
        }
        (Kind::Group(set), value) => match group(value) {
            Some(group) => set(config, group),
            None => return wrong(),
        },
        (Kind::Names(set), value) => match texts(value, COMM_MAX) {
            Some(names) => set(config, names),
            None => return wrong(),
        },
        (Kind::Patterns(set), value) => match texts(value, PATTERN_MAX) {
            Some(patterns) => set(config, patterns),
            None => return wrong(),
        },
        _ => return wrong(),
    }
    Ok(None)
}

/// The warning that a value has another name now.
fn renamed_value(key: &Key, old: &str, new: &str) -> String {
    let Key { section, name, .. } = key;
    format!("`{name}` in [{section}]: {old} is now called \"{new}\"")
}

/// The error message for an invalid value.
fn invalid(key: &Key, value: &DeValue<'_>) -> String {
    let given = match value {
        DeValue::String(text) => format!("\"{text}\""),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(value) => value.to_string(),
        value => format!("a value of type {}", value.type_str()),
    };
    let meant = match (&key.kind, value) {
        (Kind::Word(words, _), DeValue::String(text)) => {
            meant(alike(text, words.iter().copied()), '"')
        }
        _ => String::new(),
    };
    format!(
        "`{}` in [{}] is {given}{meant}; allowed: {}",
        key.name, key.section, key.kind
    )
}
