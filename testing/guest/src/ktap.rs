// SPDX-License-Identifier: GPL-2.0-or-later
//! Parses the results of the kernel's own tests: KUnit's on the console (KTAP version 1), and the
//! output of a selftest (TAP version 13).

/// One test, or a suite that has no tests below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// `suite.test`, followed by the parameter if there is one.
    pub name: String,
    /// The result.
    pub outcome: Outcome,
}

/// Result of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// `ok`.
    Passed,
    /// `not ok`, or a plan with more tests than ran.
    Failed,
    /// `ok ... # SKIP`.
    Skipped,
}

/// Parses all tests in `console`, which may contain other messages in between. Lines may begin with
/// a printk timestamp. Planned tests that did not end are failures: one case for each suite.
pub fn parse(console: &str) -> Vec<Case> {
    let mut reader = Reader::default();
    for line in console.lines().map(without_time) {
        reader.line(line);
    }
    reader.finish()
}

#[derive(Default)]
struct Reader {
    cases: Vec<Case>,
    /// Nested suites that have not ended, outermost first.
    levels: Vec<Level>,
}

#[derive(Default)]
struct Level {
    indent: usize,
    /// The suite's name, from `# Subtest: NAME`; the outermost level has no name.
    name: Option<String>,
    planned: Option<usize>,
    seen: usize,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let text = line.trim();
        if text.starts_with("KTAP version") || text.starts_with("TAP version") {
            self.close_deeper(indent);
            if self.levels.last().is_none_or(|level| level.indent < indent) {
                self.levels.push(Level {
                    indent,
                    ..Level::default()
                });
            }
        } else if let Some(name) = text.strip_prefix("# Subtest:") {
            self.close_deeper(indent);
            if self.levels.last().is_none_or(|level| level.indent < indent) {
                self.levels.push(Level {
                    indent,
                    ..Level::default()
                });
            }
            if let Some(level) = self.levels.last_mut() {
                level.name = Some(name.trim().to_owned());
            }
        } else if let Some(count) = text
            .strip_prefix("1..")
            .and_then(|count| count.parse().ok())
        {
            if let Some(level) = self
                .levels
                .last_mut()
                .filter(|level| level.indent == indent)
            {
                level.planned = Some(count);
            }
        } else if let Some((outcome, name)) = result(text) {
            self.result(indent, outcome, name);
        }
    }

    fn result(&mut self, indent: usize, outcome: Outcome, name: &str) {
        let mut below = 0;
        while self
            .levels
            .last()
            .is_some_and(|level| level.indent > indent)
        {
            below += self.close();
        }
        let Some(level) = self
            .levels
            .last_mut()
            .filter(|level| level.indent == indent)
        else {
            return;
        };
        level.seen += 1;
        // The last line of a suite repeats its tests' result. It is a case of its own if the suite
        // had no tests, or if the suite failed although its tests passed.
        let repeats = below > 0 && (outcome != Outcome::Failed || self.failed_below(name));
        if !repeats {
            let name = self.full_name(name);
            self.cases.push(Case { name, outcome });
        }
    }

    /// Whether a failed test of the suite `name` is already in the list.
    fn failed_below(&self, name: &str) -> bool {
        let prefix = format!("{}.", self.full_name(name));
        let mut below = self
            .cases
            .iter()
            .filter(|case| case.name.starts_with(&prefix));
        below.any(|case| case.outcome == Outcome::Failed)
    }

    fn full_name(&self, name: &str) -> String {
        let outer = self.levels.iter().filter_map(|level| level.name.as_deref());
        outer.chain([name]).collect::<Vec<_>>().join(".")
    }

    fn close_deeper(&mut self, indent: usize) {
        while self
            .levels
            .last()
            .is_some_and(|level| level.indent > indent)
        {
            self.close();
        }
    }

    /// Closes the innermost level. If planned tests did not end, adds one failure for all of them.
    /// Returns the number of the level's tests, including these.
    fn close(&mut self) -> usize {
        let missing = self.levels.last().map_or(0, |level| {
            level.planned.unwrap_or(0).saturating_sub(level.seen)
        });
        if missing > 0 {
            let name = self.full_name(&format!("({missing} planned test(s) did not end)"));
            self.cases.push(Case {
                name,
                outcome: Outcome::Failed,
            });
        }
        self.levels.pop().map_or(0, |level| level.seen + missing)
    }

    fn finish(mut self) -> Vec<Case> {
        while !self.levels.is_empty() {
            self.close();
        }
        self.cases
    }
}

/// Parses `ok 1 name # SKIP why` and `not ok 2 - name`.
fn result(text: &str) -> Option<(Outcome, &str)> {
    let (passed, rest) = match text.strip_prefix("not ok ") {
        Some(rest) => (false, rest),
        None => (true, text.strip_prefix("ok ")?),
    };
    let (number, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    number.parse::<u32>().ok()?;
    let rest = rest.trim_start_matches("- ");
    let (name, directive) = rest.split_once('#').unwrap_or((rest, ""));
    let (name, skipped) = (name.trim(), directive.trim_start().strip_prefix("SKIP"));
    let outcome = match (passed, skipped) {
        (_, Some(_)) => Outcome::Skipped,
        (true, None) => Outcome::Passed,
        (false, None) => Outcome::Failed,
    };
    // A selftest's skipped test has a reason, but no name.
    let name = match skipped {
        Some(reason) if name.is_empty() => reason.trim(),
        _ => name,
    };
    Some((outcome, name))
}

/// Strips `[    1.234567] ` and keeps the indentation after it.
fn without_time(line: &str) -> &str {
    let line = line.trim_end();
    let Some(rest) = line.strip_prefix('[') else {
        return line;
    };
    match rest.split_once("] ") {
        Some((time, text)) if time.trim().parse::<f64>().is_ok() => text,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(console: &str) -> Vec<(String, Outcome)> {
        parse(console)
            .into_iter()
            .map(|case| (case.name, case.outcome))
            .collect()
    }

    fn expect(console: &str, expected: &[(&str, Outcome)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, outcome)| ((*name).to_owned(), *outcome))
            .collect();
        assert_eq!(names(console), expected);
    }

    #[test]
    fn suites_and_tests_are_parsed_among_other_messages() {
        expect(
            "[    0.100000] Linux version 6.12\r\n\
             [    1.000000] KTAP version 1\r\n\
             [    1.000001] 1..2\r\n\
             [    1.000002]     KTAP version 1\r\n\
             [    1.000003]     # Subtest: limelight\r\n\
             [    1.000004]     # module: core\r\n\
             [    1.000005]     1..3\r\n\
             [    1.000006]     ok 1 generation_wraps\r\n\
             [    1.000007] random: crng init done\r\n\
             [    1.000008]     not ok 2 stranger\r\n\
             [    1.000009]     ok 3 budget # SKIP no memory\r\n\
             [    1.000010] # limelight: pass:1 fail:1 skip:1 total:3\r\n\
             [    1.000011] not ok 1 limelight\r\n\
             [    1.000012] ok 2 empty_suite\r\n",
            &[
                ("limelight.generation_wraps", Outcome::Passed),
                ("limelight.stranger", Outcome::Failed),
                ("limelight.budget", Outcome::Skipped),
                ("empty_suite", Outcome::Passed),
            ],
        );
    }

    #[test]
    fn parameters_are_separate_tests() {
        expect(
            "KTAP version 1\n1..1\n    KTAP version 1\n    # Subtest: s\n    1..1\n\
             \x20       KTAP version 1\n        # Subtest: t\n        ok 1 one\n        ok 2 two\n\
             \x20   ok 1 t\nok 1 s\n",
            &[("s.t.one", Outcome::Passed), ("s.t.two", Outcome::Passed)],
        );
    }

    #[test]
    fn test_that_kills_the_kernel_has_failed() {
        let console =
            "KTAP version 1\n1..1\n    KTAP version 1\n    # Subtest: s\n    1..3\n    ok 1 a\n";
        let cases = parse(&format!("{console}Kernel panic - not syncing\n"));
        assert_eq!(
            cases
                .iter()
                .filter(|case| case.outcome == Outcome::Failed)
                .count(),
            2
        );
        assert_eq!(cases[0].name, "s.a");
        assert_eq!(cases[1].name, "s.(2 planned test(s) did not end)");
    }

    #[test]
    fn failed_suite_with_passing_tests_is_a_failure() {
        expect(
            "KTAP version 1\n1..1\n    KTAP version 1\n    # Subtest: s\n    1..1\n    ok 1 a\nnot ok 1 s\n",
            &[("s.a", Outcome::Passed), ("s", Outcome::Failed)],
        );
    }

    #[test]
    fn selftest_output_is_parsed() {
        expect(
            "TAP version 13\n1..3\nok 1 an empty set ends it\n# a diagnostic\n\
             not ok 2 a child is a member\nok 3 # SKIP protect is not built in\n\
             # Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0\n",
            &[
                ("an empty set ends it", Outcome::Passed),
                ("a child is a member", Outcome::Failed),
                ("protect is not built in", Outcome::Skipped),
            ],
        );
        expect("TAP version 13\n1..0 # SKIP no /dev/limelight\n", &[]);
    }

    #[test]
    fn console_without_tests_yields_none() {
        expect("[ 0.1] ok computer\nok 1 stray\n", &[]);
    }
}
