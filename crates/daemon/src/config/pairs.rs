// SPDX-License-Identifier: GPL-2.0-or-later
//! Pairs of keys whose values may contradict each other.

use limelight_core::model::shortage::{derive_thresholds, Thresholds};
use limelight_sys::proc::Proc;
use limelight_sys::watermarks::Watermarks;

use crate::config::aliases::EXPERT;
use crate::config::{Config, ConfigError, Given};

/// A pair of keys of which the first one's value must not be above the second one's.
struct Pair {
    section: &'static str,
    /// The keys.
    keys: [&'static str; 2],
    /// Their values, in the unit of the keys; `None`: chosen by the daemon, which fits any value.
    values: fn(&Config) -> [Option<u128>; 2],
}

/// All pairs.
const PAIRS: [Pair; 2] = [
    Pair {
        section: "swap",
        keys: ["kill_percent", "swap_percent"],
        values: |config| {
            let swap = &config.settings.swap;
            let percent = |percent: u8| (percent > 0).then(|| u128::from(percent));
            [percent(swap.kill_percent), percent(swap.swap_percent)]
        },
    },
    Pair {
        section: EXPERT,
        keys: ["window_deadline_ms", "window_deadline_max_ms"],
        values: |config| {
            let window = &config.settings.window;
            [window.deadline, window.deadline_max].map(|time| Some(time.as_millis()))
        },
    },
];

/// An error for each pair of keys whose values contradict each other, at the key that was set last.
pub(super) fn contradictions(config: &Config, given: &[Given]) -> Vec<ConfigError> {
    let contradiction = |pair: &Pair| {
        let [Some(low), Some(high)] = (pair.values)(config) else {
            return None;
        };
        if low <= high {
            return None;
        }
        let [low_key, high_key] = pair.keys;
        let places = pair.keys.map(|key| {
            let is = |given: &&Given| (given.section, given.key) == (pair.section, key);
            given.iter().rposition(|given| is(&given))
        });
        let place = |at: Option<usize>| match at.and_then(|at| given.get(at)) {
            Some(given) => {
                let profile = given.profile.map(|name| format!("profile {name}, "));
                let (profile, file) = (profile.unwrap_or_default(), given.file.display());
                format!("{profile}{file}:{}", given.line)
            }
            None => "the default".to_owned(),
        };
        let [low_at, high_at] = places;
        let last = given.get(places.into_iter().flatten().max()?)?;
        Some(ConfigError {
            file: last.file.clone(),
            line: last.line,
            message: format!(
                "`{low_key}` in [{}] is {low} ({}), above `{high_key}`, which is {high} ({})",
                pair.section,
                place(low_at),
                place(high_at)
            ),
        })
    };
    PAIRS.iter().filter_map(contradiction).collect()
}

/// The default thresholds of this machine, of all its memory. Zeroes if `/proc` cannot be read.
pub(super) fn default_thresholds() -> Thresholds {
    let Ok(proc) = Proc::open("/proc") else {
        return Thresholds::default();
    };
    let high = Watermarks::read(&proc).map_or(0, |marks| marks.most_high_bytes());
    let total = proc.meminfo().ok().and_then(|memory| memory.total_bytes);
    total.map_or_else(Thresholds::default, |total| derive_thresholds(total, high))
}

/// The error if one of the thresholds is set, the other one is chosen by the daemon, and apps would
/// be closed before any is swapped.
pub(super) fn early_kill(
    config: &Config,
    given: &[Given],
    machine: &Thresholds,
) -> Option<ConfigError> {
    let swap = &config.settings.swap;
    let of = |percent: u64| machine.total / 100 * percent;
    let clash = |key: &str, percent: u64, other: &str, chosen: u64, cure: String| {
        let is = |given: &&Given| (given.section, given.key) == ("swap", key);
        let last = given.iter().rfind(is)?;
        Some(ConfigError {
            file: last.file.clone(),
            line: last.line,
            message: format!(
                "`{key}` in [swap] is {percent}, {} MiB of this machine's memory, so apps would be \
                 closed before any is swapped: `{other}` is \"auto\", {} MiB here. Set {cure}",
                of(percent) >> 20,
                chosen >> 20,
            ),
        })
    };
    match (swap.kill_percent.into(), swap.swap_percent.into()) {
        _ if machine.total == 0 => None,
        (kill @ 1.., 0) if of(kill) >= machine.swap => {
            let most = (1..kill).rev().find(|less| of(*less) < machine.swap);
            let instead = match most {
                Some(most) => format!("less than {}", most + 1),
                None => "\"auto\"".to_owned(),
            };
            let cure =
                format!("`swap_percent` to more than {kill}, or `kill_percent` to {instead}");
            clash("kill_percent", kill, "swap_percent", machine.swap, cure)
        }
        (0, swap @ 1..) if of(swap) <= machine.kill => {
            let least = (swap..100).find(|more| of(*more) > machine.kill);
            let cure = format!("`swap_percent` to at least {}", least.unwrap_or(100));
            clash("swap_percent", swap, "kill_percent", machine.kill, cure)
        }
        _ => None,
    }
}
