// SPDX-License-Identifier: GPL-2.0-or-later
//! The demo for new users: swipes in an image viewer while files are copied and indexed in the
//! background, on the distribution's kernel and with Limelight.

use limelight_apps::scenario::{Access, Family, Footprint, Gallery, Load, Pause};

use super::gallery::{self, FREE_MIB};
use super::terms::*;
use crate::report::chart::escape;
use crate::results::table::{Table, Unit};

const TASK: &str = "swipe";
/// The pauses before a swipe, and how many swipes follow a pause of each length.
const PAUSES: [Pause; 2] = [
    Pause {
        ms: 300,
        swipes: 20,
    },
    Pause {
        ms: 3000,
        swipes: 3,
    },
];

/// The `demo` scenario.
pub const DEMO: Spec = Spec {
    name: "demo",
    about: "an image viewer while files are copied and indexed in the background",
    variants: &[(&[Lru::Mglru], &[SwapKind::Zram], &["copy-and-index"])],
    arms: &[IDLE, STOCK, EARLYOOM, ON_DEBIAN],
    further_arms: &[LIMELIGHT],
    machine: |_| MachineSize {
        data_mib: 1024,
        ..gallery::comparable_machine(128)
    },
    tasks: |_, _| vec![Task::new(TASK, Work::GallerySynthetic(viewing()))],
    // A swipe beside the loads takes seconds on a busy host.
    time_limit_s: 900,
    must_hold: |aggregates| {
        Seen::each_arm(aggregates, TASK, |seen, arm| {
            let faults = |arm| seen.median(arm, "major_faults");
            let (stock, ours) = (faults(STOCK)?, faults(arm)?);
            Some(Verdict::new(
                format!("{arm}: at most 5 % of the waits for the disk on stock"),
                ours <= stock * 0.05,
                format!("{stock} without Limelight, {ours} with it"),
            ))
        })
    },
    metrics: &[&[
        Metric::lower("major_faults", "major faults"),
        Metric::lower("response_us", "response"),
        Metric::lower("response_mean_us", "mean response"),
    ]],
    repetitions: 1,
    ..Spec::BENCHMARK
};

fn viewing() -> Gallery {
    Gallery {
        footprint: Footprint::SMALL,
        loads: vec![
            Load::Copy { mib: 256 },
            Load::Index {
                access: Access::Mapping,
                mib: 320,
            },
        ],
        load_nice: 0,
        app_realtime: false,
        settle_ms: 1000,
        warm_up_ms: 5000,
        pauses: PAUSES.to_vec(),
        swipe_percent: 20,
        app_cgroup: true,
        family: Family::Single,
        windows: false,
        config: String::new(),
    }
}

/// The arms with our kernel, which the demo runs on request.
pub const WITH_OUR_KERNEL: [ArmOn; 5] = [IDLE, STOCK, EARLYOOM, ON_DEBIAN, LIMELIGHT];

/// The figures of one arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// What runs.
    pub name: &'static str,
    /// Whether this is an arm with limelightd.
    pub ours: bool,
    /// The median swipe, in microseconds.
    pub typical_us: f64,
    /// The longest swipe, in microseconds.
    pub worst_us: f64,
    /// Number of times that the viewer waited for the disk (major faults).
    pub waits: f64,
}

/// The figures of all arms that ran.
pub fn lines(aggregates: &Aggregates) -> Vec<Line> {
    let variant = DEMO.variants().remove(0);
    let line = |arm: ArmOn| {
        let mut swipes: Vec<f64> = Vec::new();
        for pause in PAUSES {
            let series = format!("pause_{}_response_us", pause.ms);
            swipes.extend(aggregates.series(&variant, arm, TASK, &series));
        }
        swipes.sort_by(f64::total_cmp);
        Some(Line {
            name: match arm {
                IDLE => "nothing else running",
                STOCK => "copy + index, stock Debian",
                EARLYOOM => "copy + index, earlyoom",
                ON_DEBIAN => "copy + index, Limelight",
                _ => "copy + index, Limelight on our kernel",
            },
            ours: arm.is_ours(),
            typical_us: *swipes.get(swipes.len() / 2)?,
            worst_us: *swipes.last()?,
            waits: aggregates.median(&variant, arm, TASK, "major_faults")?,
        })
    };
    WITH_OUR_KERNEL.into_iter().filter_map(line).collect()
}

/// The demo's table: each arm's median and longest swipe, and its major faults.
pub fn table(lines: &[Line]) -> Table {
    let time = |us: f64| format!("{} ms", Unit::Micros.number(us));
    let row = |line: &Line| {
        vec![
            line.name.to_owned(),
            time(line.typical_us),
            time(line.worst_us),
            Unit::Count.number(line.waits),
        ]
    };
    Table {
        title: title(),
        head: ["", "typical swipe", "worst swipe", "waits for the disk"]
            .map(Into::into)
            .to_vec(),
        rows: lines.iter().map(row).collect(),
    }
}

fn title() -> String {
    format!("Swiping through photos (emulated machine, {FREE_MIB} MiB of free memory)")
}

/// The table as a picture in SVG, with a bar for each arm's typical and worst swipe.
pub fn picture(lines: &[Line]) -> String {
    const WIDTH: f64 = 760.0;
    const LEFT: f64 = 270.0;
    const BAR: f64 = 400.0;
    const ROW: f64 = 56.0;
    const TOP: f64 = 76.0;
    let largest = lines.iter().map(|line| line.worst_us).fold(1.0, f64::max);
    let height = TOP + ROW * lines.len() as f64 + 34.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"14\" \
         role=\"img\" aria-labelledby=\"title\">\n\
         <title id=\"title\">{}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"8\" fill=\"#ffffff\"/>\n\
         <text x=\"20\" y=\"30\" font-size=\"17\" font-weight=\"bold\" fill=\"#222222\">\
         Time of one swipe, in milliseconds</text>\n\
         <text x=\"20\" y=\"54\" fill=\"#444444\">upper bar: typical, lower bar: worst</text>\n",
        title()
    );
    for (number, line) in lines.iter().enumerate() {
        let top = TOP + ROW * number as f64;
        svg.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#444444\">{}</text>\n",
            LEFT - 12.0,
            top + 24.0,
            escape(line.name)
        ));
        let colours = match line.ours {
            true => ["#4c9a2a", "#9ccb86"],
            false => ["#7d828a", "#c4c8ce"],
        };
        let bars = [line.typical_us, line.worst_us].into_iter().zip(colours);
        for (which, (us, colour)) in bars.enumerate() {
            let y = top + 20.0 * which as f64;
            // A bar is at least one pixel wide, so that it can be seen.
            let width = (us / largest * BAR).max(1.0);
            svg.push_str(&format!(
                "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"17\" \
                 fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{:.1}\" fill=\"#222222\">{}</text>\n",
                LEFT + width + 6.0,
                y + 13.0,
                Unit::Micros.number(us)
            ));
        }
    }
    svg.push_str(&format!(
        "<text x=\"20\" y=\"{:.1}\" font-size=\"12\" fill=\"#666666\">Emulated machine, {FREE_MIB} \
         MiB of free memory, beside a file copy and an indexer. Times depend on this host.</text>\n\
         </svg>\n",
        height - 12.0
    ));
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &'static str, typical_us: f64, worst_us: f64) -> Line {
        Line {
            name,
            ours: false,
            typical_us,
            worst_us,
            waits: 3.0,
        }
    }

    #[test]
    fn picture_and_table_have_every_arm() {
        let lines = [
            line("idle & alone", 1_400.0, 2_000.0),
            line("stock", 75_000.0, 900_000.0),
        ];
        let picture = picture(&lines);
        assert!(picture.contains("idle &amp; alone") && picture.contains("stock"));
        // The worst swipe of all has the longest bar.
        assert!(picture.contains("width=\"400.0\""), "{picture}");
        assert_eq!(picture.matches("<rect").count(), 1 + 2 * lines.len());
        let table = table(&lines).text();
        assert!(
            table.contains("stock") && table.contains("900 ms"),
            "{table}"
        );
    }

    #[test]
    fn our_kernel_runs_only_on_request() {
        let variant = DEMO.variants().remove(0);
        let arms = DEMO.arms(&variant);
        assert!(
            arms.iter().all(|arm| arm.kernel == Kernel::Debian),
            "{arms:?}"
        );
        let further = WITH_OUR_KERNEL.iter().filter(|arm| !arms.contains(arm));
        assert!(further.eq(DEMO.further_arms));
    }
}
