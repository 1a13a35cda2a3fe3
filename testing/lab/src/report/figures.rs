// SPDX-License-Identifier: GPL-2.0-or-later
//! The committed figures, `docs/results/figures.toml`: README's table of mechanisms, the drawings in
//! `docs/results`, and the report's tables of the papers and of the losses are made from them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;

use super::chart::escape;
use crate::paths;

/// Style of the drawings on a page in dark colours. The report has them in its own page.
const DARK: &str = "@media (prefers-color-scheme: dark) { \
    .figures > rect:first-of-type { fill: #161b22 } .figures text { fill: #d8dad8 } }";

/// The file in the work tree.
pub const FILE: &str = "docs/results/figures.toml";
/// The page with the table, and the table's first line.
const README: &str = "README.md";
const TABLE_HEAD: &str =
    "| mechanism | headline figure | where it loses | stock kernel | our kernel |";

/// All committed figures, and the texts and drawings that use them.
#[derive(Debug, Deserialize)]
pub struct Figures {
    /// The figures.
    #[serde(rename = "figure")]
    pub all: Vec<Figure>,
    /// Rows of README's table.
    #[serde(rename = "mechanism")]
    mechanisms: Vec<Mechanism>,
    /// The drawings.
    #[serde(rename = "plot")]
    plots: Vec<Plot>,
    /// The papers' figures.
    #[serde(rename = "paper")]
    papers: Vec<Paper>,
    /// The cases in which Limelight loses.
    #[serde(rename = "loss")]
    losses: Vec<Loss>,
}

/// A measured figure.
#[derive(Debug, Deserialize)]
pub struct Figure {
    /// Its name in the texts, as `{name}`.
    pub name: String,
    /// The figure as people read it.
    pub shown: String,
    /// What was measured, with the unit.
    pub what: String,
    /// Number of runs; 0 for a goal, which is not measured.
    pub runs: u32,
    /// Half the interquartile range; empty if unknown.
    pub spread: String,
    /// The kernel.
    pub kernel: String,
    /// The machine and the mode.
    pub settings: String,
    /// The page in `docs/results` that has the figure.
    pub page: String,
    /// The command that reproduces it.
    pub command: String,
}

#[derive(Debug, Deserialize)]
struct Mechanism {
    name: String,
    does: String,
    stock: String,
    ours: String,
    headline: String,
    loses: String,
}

#[derive(Debug, Deserialize)]
struct Plot {
    file: String,
    title: String,
    notes: Vec<String>,
    arms: Vec<PlotArm>,
    groups: Vec<PlotGroup>,
}

#[derive(Debug, Deserialize)]
struct PlotArm {
    label: String,
    #[serde(default)]
    ours: bool,
}

#[derive(Debug, Deserialize)]
struct PlotGroup {
    label: String,
    /// A figure's name for each arm; empty if the arm was not measured here.
    bars: Vec<String>,
}

/// A bar of a drawing.
struct Bar<'a> {
    /// Place of its arm in [`Plot::arms`].
    arm: usize,
    shown: &'a str,
    value: f64,
}

#[derive(Debug, Deserialize)]
struct Paper {
    key: String,
    theirs: String,
    ours: String,
    page: String,
}

#[derive(Debug, Deserialize)]
struct Loss {
    what: String,
    cause: String,
    page: String,
}

impl Figures {
    /// Reads the figures of the work tree `root`.
    pub fn load(root: &Path) -> Result<Self> {
        let text = paths::read_lossy(&root.join(FILE))?;
        toml::from_str(&text).with_context(|| format!("{FILE} is damaged"))
    }

    /// Writes README's table and the drawings. Returns the files that have changed.
    pub fn write(&self, root: &Path) -> Result<Vec<String>> {
        let mut changed = Vec::new();
        for (file, text) in self.files(root)? {
            let path = root.join(&file);
            if std::fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                paths::write(&path, text)?;
                changed.push(file);
            }
        }
        Ok(changed)
    }

    /// The files that are made from the figures, with the contents that they must have.
    fn files(&self, root: &Path) -> Result<BTreeMap<String, String>> {
        let readme = paths::read_lossy(&root.join(README))?;
        let mut files = BTreeMap::from([(README.to_owned(), self.with_table(&readme)?)]);
        for plot in &self.plots {
            files.insert(format!("docs/results/{}", plot.file), self.drawing(plot)?);
        }
        Ok(files)
    }

    /// `text` with every `{name}` replaced by the figure of that name.
    fn fill(&self, text: &str) -> Result<String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after
                .split_once('}')
                .with_context(|| format!("{FILE}: a brace is not closed in {text:?}"))?;
            filled.push_str(before);
            filled.push_str(&self.figure(name)?.shown);
            rest = after;
        }
        Ok(filled + rest)
    }

    fn figure(&self, name: &str) -> Result<&Figure> {
        let found = self.all.iter().find(|figure| figure.name == name);
        found.with_context(|| format!("{FILE} has no figure {name:?}"))
    }

    /// README with its table of mechanisms replaced.
    fn with_table(&self, readme: &str) -> Result<String> {
        let Some(start) = readme.find(TABLE_HEAD) else {
            bail!("{README} has no table that begins with {TABLE_HEAD:?}");
        };
        let table = &readme[start..];
        let end = table.find("\n\n").map_or(table.len(), |end| end + 1);
        let mut text = format!("{TABLE_HEAD}\n|---|---|---|---|---|\n");
        for row in &self.mechanisms {
            let name = &row.name;
            text.push_str(&format!(
                "| [{name}](docs/user/{name}.md): {} | {} ([results](docs/results/{name}.md)) | {} | {} \
                 | {} |\n",
                row.does,
                self.fill(&row.headline)?,
                self.fill(&row.loses)?,
                row.stock,
                row.ours,
            ));
        }
        Ok(format!("{}{text}{}", &readme[..start], &table[end..]))
    }

    /// A drawing with a group of bars for each case. Its colours suit pages of any background, and
    /// it is narrow enough to be read on a phone.
    fn drawing(&self, plot: &Plot) -> Result<String> {
        const WIDTH: f64 = 500.0;
        const LEFT: f64 = 194.0;
        const LONGEST: f64 = 252.0;
        const ROW: f64 = 19.0;
        const THICK: f64 = 15.0;
        // From one group to the next, without the rows.
        const GAP: f64 = 36.0;
        // Characters of the title's size, and of a note's, that fit into the width.
        const TITLE: usize = 58;
        const NOTE: usize = 78;
        const OTHERS: [&str; 3] = ["#b9bdc4", "#868c96", "#6b7280"];
        const OURS: [&str; 2] = ["#4c9a2a", "#6fb04f"];
        let mut colours = Vec::new();
        for (index, arm) in plot.arms.iter().enumerate() {
            let palette: &[&str] = if arm.ours { &OURS } else { &OTHERS };
            let same = plot.arms[..index]
                .iter()
                .filter(|other| other.ours == arm.ours);
            colours.push(palette[same.count() % palette.len()]);
        }
        let groups = self.bars(plot)?;
        let values = groups.iter().flat_map(|(_, bars)| bars);
        let largest = values
            .map(|bar| bar.value)
            .fold(f64::MIN_POSITIVE, f64::max);
        let title = self.fill(&plot.title)?;
        let notes = plot.notes.iter().map(|note| self.fill(note));
        let notes = notes.collect::<Result<Vec<_>>>()?;
        ensure!(
            title.chars().count() <= TITLE && notes.iter().all(|note| note.chars().count() <= NOTE),
            "{}: the title or a note is too long for the drawing",
            plot.file
        );
        let title = escape(&title);
        let rows: usize = groups.iter().map(|(_, bars)| bars.len()).sum();
        let below = 44.0 + ROW * rows as f64 + GAP * groups.len() as f64;
        let height = below + 12.0 + 17.0 * notes.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"figures\" \
             viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\"\n     font-family=\"sans-serif\" \
             font-size=\"13.5\" role=\"img\" aria-labelledby=\"title\">\n  <title id=\"title\">{}\
             </title>\n  <style>{DARK}</style>\n  <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"8\" fill=\"#ffffff\"/>\n  \
             <text x=\"16\" y=\"28\" font-size=\"16\" font-weight=\"bold\" fill=\"#222222\">{title}\
             </text>\n",
            escape(&self.description(plot, &groups)?),
        );
        let mut y = 44.0;
        for (label, bars) in &groups {
            svg.push_str(&format!(
                "  <text x=\"16\" y=\"{}\" font-weight=\"bold\" fill=\"#222222\">{}</text>\n",
                y + 18.0,
                escape(label)
            ));
            y += 26.0;
            for bar in bars {
                let length = bar.value / largest * LONGEST;
                svg.push_str(&format!(
                    "  <text x=\"{}\" y=\"{}\" fill=\"#444444\" text-anchor=\"end\">{}</text>\n  \
                     <rect x=\"{LEFT}\" y=\"{y}\" width=\"{length:.1}\" height=\"{THICK}\" \
                     fill=\"{}\"/>\n  <text x=\"{:.1}\" y=\"{}\" fill=\"#222222\">{}</text>\n",
                    LEFT - 8.0,
                    y + 12.0,
                    escape(&self.fill(&plot.arms[bar.arm].label)?),
                    colours[bar.arm],
                    LEFT + length + 6.0,
                    y + 12.0,
                    bar.shown,
                ));
                y += ROW;
            }
            y += GAP - 26.0;
        }
        for (place, note) in notes.iter().enumerate() {
            svg.push_str(&format!(
                "  <text x=\"16\" y=\"{}\" font-size=\"12\" fill=\"#666666\">{}</text>\n",
                below + 14.0 + 17.0 * place as f64,
                escape(note)
            ));
        }
        Ok(svg + "</svg>\n")
    }

    /// The groups of a drawing: their labels and bars.
    fn bars<'a>(&'a self, plot: &'a Plot) -> Result<Vec<(&'a str, Vec<Bar<'a>>)>> {
        let mut groups = Vec::new();
        for group in &plot.groups {
            ensure!(
                group.bars.len() == plot.arms.len(),
                "{}: {} needs a figure, or an empty name, for each arm",
                plot.file,
                group.label
            );
            let mut bars = Vec::new();
            for (arm, name) in group.bars.iter().enumerate() {
                if name.is_empty() {
                    continue;
                }
                let shown = &self.figure(name)?.shown;
                let value = shown.parse();
                bars.push(Bar {
                    arm,
                    shown,
                    value: value.with_context(|| format!("{name} is no number to draw"))?,
                });
            }
            groups.push((group.label.as_str(), bars));
        }
        Ok(groups)
    }

    /// A drawing in words, for screen readers.
    fn description(&self, plot: &Plot, groups: &[(&str, Vec<Bar>)]) -> Result<String> {
        let mut text = format!("{}.", self.fill(&plot.title)?);
        for (label, bars) in groups {
            let mut values = Vec::new();
            for bar in bars {
                let arm = self.fill(&plot.arms[bar.arm].label)?;
                values.push(format!("{arm} {}", bar.shown));
            }
            text.push_str(&format!(" {label}: {}.", values.join("; ")));
        }
        Ok(text)
    }

    /// The report's sections of committed figures, in HTML: the drawings, the losses, the papers,
    /// and every figure with its runs, spread, kernel, settings and command.
    pub fn html(&self) -> Result<String> {
        let mut page = String::from("<h2 id=\"headlines\">Headlines</h2>\n");
        for plot in &self.plots {
            page.push_str(&format!(
                "<figure class=\"wide\">{}</figure>\n",
                self.drawing(plot)?
            ));
        }
        page.push_str("<h2 id=\"losses\">Where we lose</h2>\n<dl>\n");
        for loss in &self.losses {
            page.push_str(&format!(
                "<dt>{}</dt><dd>Cause: {} <span class=\"small\">docs/results/{}</span></dd>\n",
                escape(&self.fill(&loss.what)?),
                escape(&self.fill(&loss.cause)?),
                escape(&loss.page)
            ));
        }
        page.push_str(
            "</dl>\n<h2 id=\"papers\">The papers' figures beside ours</h2>\n<p>The machines \
             differ, so only the direction can be compared.</p>\n",
        );
        let mut rows = Vec::new();
        for paper in &self.papers {
            let ours = self.fill(&paper.ours)?;
            let (key, theirs) = (paper.key.clone(), self.fill(&paper.theirs)?);
            rows.push(vec![
                key,
                theirs,
                ours,
                format!("docs/results/{}", paper.page),
            ]);
        }
        page.push_str(&prose_table(
            &["paper", "its figure", "ours", "page"],
            &rows,
        ));
        page.push_str(
            "<h2 id=\"figures\">Every figure above</h2>\n<p>Commands are run as <code>cargo run -p \
             limelight-lab -- ...</code>.</p>\n",
        );
        let measured = self.all.iter().filter(|figure| figure.runs > 0);
        let rows: Vec<Vec<String>> = measured
            .map(|figure| {
                let spread = match figure.spread.as_str() {
                    "" => String::new(),
                    spread => format!(" ± {spread}"),
                };
                vec![
                    figure.what.clone(),
                    format!("{}{spread}", figure.shown),
                    figure.runs.to_string(),
                    figure.kernel.clone(),
                    figure.settings.clone(),
                    figure.command.clone(),
                ]
            })
            .collect();
        let head = ["what", "figure", "runs", "kernel", "settings", "command"];
        page.push_str(&prose_table(&head, &rows));
        // A figure and its unit stay on one line.
        Ok(page
            .replace(" %", "\u{a0}%")
            .replace(" ×", "\u{a0}×")
            .replace(" ms", "\u{a0}ms"))
    }
}

/// A table of texts in HTML, which narrow screens scroll.
fn prose_table(head: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |tag: &str, cells: &mut dyn Iterator<Item = &str>| -> String {
        cells
            .map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)))
            .collect()
    };
    let mut text = format!(
        "<div class=\"wide\"><table class=\"prose\">\n<tr>{}</tr>\n",
        cells("th", &mut head.iter().copied())
    );
    for row in rows {
        let row = cells("td", &mut row.iter().map(String::as_str));
        text.push_str(&format!("<tr>{row}</tr>\n"));
    }
    text + "</table></div>\n"
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn committed() -> Figures {
        Figures::load(&root()).unwrap()
    }

    #[test]
    fn readme_and_drawings_are_made_from_the_figures() {
        for (file, expected) in committed().files(&root()).unwrap() {
            let found = std::fs::read_to_string(root().join(&file)).unwrap_or_default();
            assert!(
                found == expected,
                "{file} differs from {FILE}: run make figures"
            );
        }
    }

    #[test]
    fn every_figure_is_on_its_page_and_measured_ones_can_be_reproduced() {
        for figure in committed().all {
            let page = root().join("docs/results").join(&figure.page);
            let text = std::fs::read_to_string(&page).unwrap();
            // A figure may be followed by more digits on its page, such as 185.39, but not preceded.
            let found = text.match_indices(&figure.shown).any(|(at, _)| {
                !text[..at].ends_with(|c: char| c.is_ascii_digit() || c == '.' || c == ',')
            });
            assert!(
                found,
                "{} ({}) is not in {}",
                figure.name, figure.shown, figure.page
            );
            if figure.runs > 0 {
                let mut words = figure.command.split(' ');
                let known = match (words.next(), words.next(), words.next()) {
                    (Some("limelight-lab"), Some("demo"), None) => true,
                    (Some("limelight-lab"), Some("run"), Some(scenario)) => crate::scenarios::all()
                        .iter()
                        .any(|spec| spec.name == scenario),
                    _ => false,
                };
                assert!(known, "{}: {}", figure.name, figure.command);
                assert!(!figure.kernel.is_empty() && !figure.settings.is_empty());
            }
        }
    }

    #[test]
    fn names_are_unique_and_all_are_used() {
        let text = std::fs::read_to_string(root().join(FILE)).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for figure in committed().all {
            assert!(
                seen.insert(figure.name.clone()),
                "{} is there twice",
                figure.name
            );
            let used = text.contains(&format!("{{{}}}", figure.name))
                || text.matches(&format!("\"{}\"", figure.name)).count() > 1;
            assert!(used, "{} is not used", figure.name);
        }
    }

    #[test]
    fn unknown_figures_and_open_braces_are_errors() {
        let mut figures = committed();
        let mut all = figures.all.iter_mut();
        let figure = all.find(|figure| figure.name == "swap-times-swap-all");
        figure.unwrap().shown = "0.61".to_owned();
        assert!(figures.fill("{no-such-figure}").is_err());
        assert!(figures.fill("an open { brace").is_err());
        assert_eq!(figures.fill("{swap-times-swap-all} ×").unwrap(), "0.61 ×");
    }

    #[test]
    fn readme_without_a_table_is_an_error() {
        assert!(committed().with_table("# Limelight\n").is_err());
    }

    #[test]
    fn page_has_losses_papers_and_commands() {
        let page = committed().html().unwrap();
        for part in [
            "Where we lose",
            "FMP",
            "SWAP",
            "limelight-lab run gallery-exact",
            "<svg",
        ] {
            assert!(page.contains(part), "{part}");
        }
        let page = page.replace(DARK, "");
        assert!(!page.contains('{'), "a figure is not filled in");
    }
}
