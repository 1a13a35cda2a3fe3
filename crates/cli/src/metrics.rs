// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight metrics`: all counters and gauges in Prometheus format.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use limelight_proto::Class;
use limelight_proto::{AppReport, DeviceStatus, LatencyReport, Outcome, Stall, State, Status};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::exit::Failure;
use crate::format;

/// Source data of the metrics.
pub struct Seen<'a> {
    /// The daemon's state.
    pub status: &'a Status,
    /// All apps that the daemon knows.
    pub apps: &'a [AppReport],
    /// Response times of apps.
    pub latency: &'a LatencyReport,
    /// The kernel's counters.
    pub kernel: &'a BTreeMap<String, u64>,
}

/// Prints all metrics, or replaces a file with them atomically.
pub fn print(
    seen: &Seen,
    file: Option<&Path>,
    json: bool,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let text = text(seen)?;
    match (file, json) {
        (Some(file), _) => {
            replace(file, &text).map_err(|error| Failure::Curable {
                message: format!("cannot write {}: {error}", file.display()),
                cure: "name a file in a directory that you may write to".to_owned(),
            })?;
            let message = format!("{} written", file.display());
            match json {
                true => format::json(&format::Done { message }, out),
                false => Ok(()),
            }
        }
        (None, true) => format::json(&samples(&text), out),
        (None, false) => Ok(out.write_all(text.as_bytes())?),
    }
}

/// node_exporter may read at any time, so the file is replaced atomically.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    // The collector ignores this temporary file, because its name does not end in .prom.
    name.push(format!(".{}", std::process::id()));
    let new = file.with_file_name(name);
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, file))
        .inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })
}

type Labels = Vec<(&'static str, String)>;
type Floats = Gauge<f64, AtomicU64>;

fn gauge(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let gauge = Gauge::<i64>::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    registry.register(name, help, gauge);
}

fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let counter = Counter::<u64>::default();
    counter.inc_by(value);
    registry.register(name, help, counter);
}

fn gauges(registry: &mut Registry, name: &str, help: &str, values: Vec<(Labels, u64)>) {
    let family = Family::<Labels, Gauge>::default();
    for (labels, value) in values {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        family.get_or_create(&labels).set(value);
    }
    registry.register(name, help, family);
}

fn counters(registry: &mut Registry, name: &str, help: &str, values: Vec<(Labels, u64)>) {
    let family = Family::<Labels, Counter>::default();
    for (labels, value) in values {
        family.get_or_create(&labels).inc_by(value);
    }
    registry.register(name, help, family);
}

fn floats(registry: &mut Registry, name: &str, help: &str, values: Vec<(Labels, f64)>) {
    let family = Family::<Labels, Floats>::default();
    for (labels, value) in values {
        family.get_or_create(&labels).set(value);
    }
    registry.register(name, help, family);
}

fn label(name: &'static str, value: &str) -> (&'static str, String) {
    (name, format::printable(value))
}

/// All metrics in Prometheus' text format.
pub fn text(seen: &Seen) -> Result<String, Failure> {
    let mut registry = Registry::with_prefix("limelight");
    daemon(seen.status, &mut registry);
    memory(seen.status, &mut registry);
    windows(seen, &mut registry);
    apps(seen.apps, &mut registry);
    mechanisms(seen, &mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|error| Failure::Other(error.to_string()))?;
    Ok(prometheus(&text))
}

fn daemon(status: &Status, registry: &mut Registry) {
    let built = vec![label("version", &status.version)];
    gauges(
        registry,
        "build_info",
        "Version of limelightd",
        vec![(built, 1)],
    );
    let uptime = Floats::default();
    uptime.set(status.uptime_ms as f64 / 1e3);
    registry.register("uptime_seconds", "Time since limelightd started", uptime);
    gauge(
        registry,
        "dry_run",
        "1 if limelightd runs with --dry-run and changes nothing",
        status.dry_run.into(),
    );
    gauge(
        registry,
        "paused",
        "1 while limelightd is paused and changes nothing",
        status.paused.is_some().into(),
    );
    if let Some(ms) = status.paused.and_then(|pause| pause.left_ms) {
        let left = Floats::default();
        left.set(ms as f64 / 1e3);
        let help = "Time until the pause ends by itself";
        registry.register("pause_left_seconds", help, left);
    }
    let topmost = status.topmost.as_ref().map(|topmost| {
        let labels = vec![
            label("app", &topmost.app.name),
            label("source", &topmost.source),
        ];
        (labels, 1)
    });
    gauges(
        registry,
        "foreground_info",
        "The foreground app, and the source that reported it",
        topmost.into_iter().collect(),
    );
    let sources = status.sources.iter().map(|source| {
        let active = source.state == State::Active;
        (vec![label("source", &source.name)], active.into())
    });
    gauges(
        registry,
        "source_active",
        "1 for each active source of the foreground app",
        sources.collect(),
    );
    let device = matches!(status.device, DeviceStatus::Open { .. });
    gauge(
        registry,
        "device_open",
        "1 while /dev/limelight is used",
        device.into(),
    );
}

fn memory(status: &Status, registry: &mut Registry) {
    let memory = &status.memory;
    for (name, help, value) in [
        (
            "protected_bytes",
            "Memory reserved for the foreground app through its cgroup",
            memory.protected,
        ),
        (
            "locked_bytes",
            "Shared file pages locked for the foreground app",
            memory.locked,
        ),
        (
            "protect_budget_bytes",
            "Maximum that protect may reserve",
            memory.budget,
        ),
        (
            "protect_lowered_steps",
            "Steps by which protection is lowered because no other memory was left",
            memory.lowered_steps.into(),
        ),
        (
            "memory_available_bytes",
            "MemAvailable of /proc/meminfo",
            memory.available,
        ),
    ] {
        gauge(registry, name, help, value);
    }
    if let Some(level) = memory.level {
        gauge(
            registry,
            "memory_level",
            "How short memory is: 0 plenty, 1 swap, 2 low, 3 crowded, 4 kill, 5 exhausted",
            level as u64,
        );
    }
    if let Some(thresholds) = memory.thresholds {
        let each = [("swap", thresholds.swap), ("kill", thresholds.kill)];
        let each = each.map(|(level, bytes)| (vec![label("level", level)], bytes));
        gauges(
            registry,
            "memory_threshold_bytes",
            "Available memory below which apps are swapped or killed",
            each.into(),
        );
    }
    let stalls = [
        ("cpu", status.stalls.cpu),
        ("memory", status.stalls.memory),
        ("io", status.stalls.io),
    ];
    let mut values = Vec::new();
    for (resource, stall) in stalls {
        let Some(Stall { some, full }) = stall else {
            continue;
        };
        for (kind, percent) in [("some", Some(some)), ("full", full)] {
            if let Some(percent) = percent {
                let labels = vec![label("resource", resource), label("kind", kind)];
                values.push((labels, percent / 100.0));
            }
        }
    }
    floats(
        registry,
        "stalled_ratio",
        "Share of the last 10 s in which some or all programs waited (PSI)",
        values,
    );
}

fn windows(seen: &Seen, registry: &mut Registry) {
    let window = &seen.status.window;
    let all = &window.tallies;
    let results = [
        ("answered", all.answered),
        ("late", all.late),
        ("unanswered", all.unanswered),
        ("moved", all.moved),
        ("abandoned", all.abandoned),
    ];
    let results = results.map(|(result, times)| (vec![label("result", result)], times));
    counter(
        registry,
        "windows_opened",
        "Response windows that opened",
        all.opened,
    );
    counters(
        registry,
        "windows",
        "Response windows by result",
        results.into(),
    );
    gauge(
        registry,
        "window_open",
        "1 while a response window is open",
        window.open.is_some().into(),
    );
    let reported = [
        ("opened", window.kernel.opened),
        ("closed", window.kernel.closed),
        ("failed", window.kernel.failed),
    ];
    let reported = reported.map(|(what, times)| (vec![label("what", what)], times));
    counters(
        registry,
        "kernel_windows",
        "Response windows reported to the kernel, by event",
        reported.into(),
    );
    let mut times = Vec::new();
    let mut answers = Vec::new();
    for app in &seen.latency.apps {
        let name = label("app", &app.name);
        for (quantile, us) in [
            ("0.5", app.p50_us),
            ("0.95", app.p95_us),
            ("0.99", app.p99_us),
            ("1", app.max_us),
        ] {
            let labels = vec![name.clone(), label("quantile", quantile)];
            times.push((labels, us as f64 / 1e6));
        }
        answers.push((vec![name], app.answers));
    }
    floats(
        registry,
        "response_seconds",
        "Time from input to the frame that answers it, since limelightd started",
        times,
    );
    counters(
        registry,
        "responses",
        "Response windows that a frame answered",
        answers,
    );
}

fn apps(apps: &[AppReport], registry: &mut Registry) {
    let each = |value: fn(&AppReport) -> u64| {
        [Class::Keep, Class::Normal, Class::Disposable]
            .map(|class| {
                let of_class = apps.iter().filter(|app| app.class == class);
                let labels = vec![label("class", &class.to_string())];
                (labels, of_class.map(value).sum())
            })
            .to_vec()
    };
    gauges(registry, "apps", "Apps by class", each(|_| 1));
    gauges(
        registry,
        "apps_resident_bytes",
        "Resident memory of apps, by class",
        each(|app| app.resident),
    );
    gauges(
        registry,
        "apps_swapped_bytes",
        "Memory of apps in swap, by class",
        each(|app| app.swapped),
    );
    gauges(
        registry,
        "apps_frozen",
        "Frozen apps, by class",
        each(|app| app.frozen.into()),
    );
}

fn mechanisms(seen: &Seen, registry: &mut Registry) {
    let status = seen.status;
    let states = status.mechanisms.iter().map(|mechanism| {
        let acts = matches!(mechanism.state, State::Active | State::Idle);
        (vec![label("mechanism", &mechanism.name)], acts.into())
    });
    gauges(
        registry,
        "mechanism_acts",
        "1 for each mechanism that acts on this machine",
        states.collect(),
    );
    let mut knobs: BTreeMap<(String, &'static str), u64> = BTreeMap::new();
    for change in &status.changes {
        let outcome = match change.outcome {
            Outcome::Applied => "applied",
            Outcome::Planned => "planned",
            Outcome::Inert { .. } => "inert",
            Outcome::Failed { .. } => "failed",
        };
        let knob = change.knob.rsplit('/').next().unwrap_or_default();
        *knobs.entry((knob.to_owned(), outcome)).or_default() += 1;
    }
    let knobs = knobs.into_iter().map(|((knob, outcome), count)| {
        let labels = vec![label("knob", &knob), label("outcome", outcome)];
        (labels, count)
    });
    gauges(
        registry,
        "knobs",
        "Knobs that are changed now, by outcome",
        knobs.collect(),
    );
    for mechanism in &status.mechanisms {
        for (name, value) in &mechanism.counters {
            counter(
                registry,
                &format!("{}_{name}", mechanism.name),
                &format!(
                    "{} of {}, since limelightd started",
                    name.replace('_', " "),
                    mechanism.name
                ),
                *value,
            );
        }
    }
    for (name, value) in seen.kernel {
        let name = name.strip_prefix("limelight_").unwrap_or(name);
        counter(
            registry,
            &format!("kernel_{name}"),
            &format!("limelight_{name} of /proc/vmstat"),
            *value,
        );
    }
}

/// Converts the encoder's OpenMetrics to the older text format, which node_exporter reads. In
/// OpenMetrics only a counter's samples have the suffix `_total`; in the text format its HELP and
/// TYPE lines have it too.
fn prometheus(open_metrics: &str) -> String {
    let counters: Vec<&str> = open_metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut lines: Vec<String> = Vec::new();
    // Start of the current metric's samples, which the encoder writes in any order.
    let mut begin = 0;
    for line in open_metrics.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let line = match words.as_slice() {
            ["#", "EOF"] => continue,
            ["#", kind, name, rest] if counters.contains(name) => {
                format!("# {kind} {name}_total {rest}")
            }
            _ => line.to_owned(),
        };
        if line.starts_with('#') {
            lines[begin..].sort();
            begin = lines.len() + 1;
        }
        lines.push(line);
        begin = begin.min(lines.len());
    }
    lines[begin..].sort();
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Samples by name with labels.
pub type Samples = BTreeMap<String, f64>;

fn samples(text: &str) -> Samples {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}
