// SPDX-License-Identifier: GPL-2.0-or-later
//! Handles the results of the guard and the swapper, and describes them to the user.

use std::time::Duration;

use limelight_core::model::{AppKey, Harm};
use limelight_proto::MemoryAction;

use crate::mechanisms::shared::Shared;
use crate::mechanisms::swap::guard::{Report, Spared};
use crate::mechanisms::swap::swapper::Done;
use crate::mechanisms::swap::{pass_over, MemoryNotice, Swap};

impl Swap {
    /// Turns the guard's kill reports into notices.
    pub fn take_kills(&mut self) {
        let Some(guard) = &self.guard else {
            return;
        };
        for report in guard.reports() {
            // Memory ran short at some moment between `before` and `crossed`. Times count from the
            // earlier one.
            let since = |then: Duration| then.saturating_sub(report.before);
            let done = report.freed.unwrap_or(report.killed);
            tracing::debug!(
                "guard: due after {:?}, killed after {:?}, free after {:?}; {:?}",
                since(report.crossed),
                since(report.killed),
                report.freed.map(since),
                report.how
            );
            self.notices.push(MemoryNotice::Did {
                at: report.crossed,
                action: MemoryAction::Kill,
                app: report.candidate.app,
                bytes: report.bytes,
                took: Some(since(done)),
                reason: why_killed(&report),
                gauge: Some((report.level, report.gauge)),
            });
        }
    }

    /// Notes the victims that the guard spared. Those that the gate protects are skipped for a while.
    pub fn take_spared(&mut self, shared: &mut Shared, at: Duration) {
        let spared = self.guard.as_ref().map(|guard| guard.spared());
        for (app, why) in spared.into_iter().flatten() {
            match why {
                Spared::Refused => {
                    let why = "it contains a protected process";
                    tracing::info!("an app was not killed: {why}");
                    pass_over(shared, app, Harm::Kill, why.to_owned(), at);
                }
                Spared::NoShortage => tracing::info!(
                    "an app that was asked to exit is not killed: memory is no longer short"
                ),
                Spared::Paused => tracing::info!(
                    "an app that was asked to exit is not killed: limelightd is paused"
                ),
            }
        }
    }

    /// Handles the finished jobs of the swapper's threads.
    pub fn take_done(&mut self, shared: &mut Shared) {
        let done = match &self.swapper {
            Some(swapper) => swapper.answers().take(),
            None => return,
        };
        for done in done {
            match done {
                Done::Squeezed {
                    app,
                    at,
                    took,
                    swapped,
                    freed,
                    lean,
                    failed,
                } => {
                    let in_force = &mut shared.in_force.swapping;
                    in_force.squeezing = None;
                    note_squeeze(&mut in_force.squeezed, app, at + took);
                    if lean && !in_force.lean.contains(&app) {
                        in_force.lean.push(app);
                    }
                    if let Some(why) = &failed {
                        tracing::warn!("an app could not be squeezed: {why}");
                    }
                    if freed > 0 || std::mem::take(&mut self.squeezing_service) {
                        self.notices.push(MemoryNotice::Did {
                            at,
                            action: MemoryAction::Squeeze,
                            app,
                            bytes: freed,
                            took: Some(took),
                            reason: format!(
                                "{}; {} MiB of its memory went to swap",
                                self.squeezing_for,
                                swapped >> 20
                            ),
                            gauge: None,
                        });
                    }
                }
                Done::WrittenBack {
                    app,
                    at,
                    took,
                    bytes,
                    failed,
                } => {
                    let in_force = &mut shared.in_force.swapping;
                    in_force.writing_back = None;
                    in_force.written_back.retain(|(known, _)| *known != app);
                    in_force.written_back.push((app, at + took));
                    if let Some(why) = &failed {
                        tracing::warn!("an app's pages could not be written back: {why}");
                    }
                    if bytes > 0 {
                        self.notices.push(MemoryNotice::Did {
                            at,
                            action: MemoryAction::WriteBack,
                            app,
                            bytes,
                            took: Some(took),
                            reason: self.writing_back_for.clone(),
                            gauge: None,
                        });
                    }
                }
                Done::Learnt { app, working_set } => learn(shared, app, working_set),
                Done::Returned {
                    app,
                    at,
                    took,
                    swapped,
                    files,
                    failed,
                } => {
                    self.returns.push((swapped, took));
                    if let Some(why) = &failed {
                        tracing::warn!("an app's memory could not be brought back: {why}");
                    }
                    if swapped > 0 {
                        self.notices.push(MemoryNotice::Did {
                            at,
                            action: MemoryAction::Return,
                            app,
                            bytes: swapped,
                            took: Some(took),
                            reason: format!(
                                "the app is in the foreground again; {} MiB of its files were requested, too",
                                files >> 20
                            ),
                            gauge: None,
                        });
                    }
                }
            }
        }
    }

    /// Returns of memory since the last call: bytes read from swap, and the time that each took.
    pub fn take_returns(&mut self) -> Vec<(u64, Duration)> {
        std::mem::take(&mut self.returns)
    }
}

/// How long a squeeze or a refusal is remembered: much longer than the policy waits after one.
pub(super) const REMEMBERED: Duration = Duration::from_secs(60);

/// Notes when an app or a service was squeezed. Past squeezes are dropped, because nothing reports
/// the end of a service.
fn note_squeeze(squeezed: &mut Vec<(AppKey, Duration)>, app: AppKey, at: Duration) {
    squeezed.retain(|(key, then)| *key != app && at.saturating_sub(*then) < REMEMBERED);
    squeezed.push((app, at));
}

/// Stores an app's working set, in bytes. 0 is left out: nothing is known yet. An app that is kept
/// out of swap is left out, too: only missing pages are measured, so the app would seem to need
/// little.
fn learn(shared: &mut Shared, app: AppKey, working_set: u64) {
    let in_force = &mut shared.in_force.swapping;
    let unseen = in_force.is_exempt(app);
    if working_set > 0 && !unseen {
        in_force.working_sets.retain(|(known, _)| *known != app);
        in_force.working_sets.push((app, working_set));
    }
}

/// The reason for this kill, as a clause.
fn why_killed(report: &Report) -> String {
    let gauge = &report.gauge;
    let candidate = &report.candidate;
    let who = match (candidate.leaks, report.burst) {
        (true, _) => {
            let grown = report.held.saturating_sub(candidate.least);
            format!(
                "its memory grows without end, by {} MiB to {} MiB within a minute",
                grown >> 20,
                report.held >> 20
            )
        }
        (false, Some(grown)) => format!("it grew by {} MiB just now", grown >> 20),
        (false, None) => format!(
            "of the apps of class {}, it was used longest ago",
            candidate.class
        ),
    };
    let end = match (report.asked, report.how) {
        (Some(asked), None) => {
            let took = report.killed.saturating_sub(asked).as_millis();
            format!("; asked to exit, it did so within {took} ms")
        }
        (Some(asked), Some(_)) => {
            let waited = report.killed.saturating_sub(asked).as_millis();
            format!("; asked to exit, it had not done so after {waited} ms")
        }
        (None, _) => String::new(),
    };
    let late = match report.freed {
        Some(_) => "",
        None => "; its memory was not free after a second",
    };
    format!(
        "{} MiB available and {} MiB of swap free ({}); {who}{end}{late}",
        gauge.available >> 20,
        gauge.swap_free >> 20,
        report.level.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing reports the end of a service, and any user can start services.
    #[test]
    fn past_squeezes_are_forgotten() {
        let mut squeezed = Vec::new();
        for second in 0..1000 {
            let app = AppKey::Cgroup { inode: second };
            note_squeeze(&mut squeezed, app, Duration::from_secs(second));
        }
        assert!(squeezed.len() < 100, "{}", squeezed.len());
        let latest = (AppKey::Cgroup { inode: 999 }, Duration::from_secs(999));
        assert_eq!(squeezed.last(), Some(&latest));
    }
}
