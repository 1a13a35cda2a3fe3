// SPDX-License-Identifier: GPL-2.0-or-later
//! When the test ends early: at a signal, or at its time limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::Failure;

/// Signals that end the test, and its time limit.
#[derive(Debug)]
pub struct Stop {
    signalled: Arc<AtomicBool>,
    deadline: Instant,
}

impl Stop {
    /// Catches SIGINT, SIGTERM and SIGHUP, so that the test can clean up. The time limit starts.
    pub fn new(limit: Duration) -> Result<Stop, Failure> {
        let signalled = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&signalled))?;
        }
        let deadline = Instant::now() + limit;
        Ok(Stop {
            signalled,
            deadline,
        })
    }

    /// Time until the time limit.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Fails if the test must end now.
    pub fn check(&self) -> Result<(), Failure> {
        if self.signalled.load(Ordering::Relaxed) {
            return Err(Failure::Other(
                "interrupted: the test's processes, cgroups and files are removed".to_owned(),
            ));
        }
        if Instant::now() > self.deadline {
            return Err(Failure::Curable {
                message: "the test did not end within its time limit, so it shows nothing"
                    .to_owned(),
                cure: "give it more time (--limit 180), or name a directory on a faster disk \
                       (--directory)"
                    .to_owned(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_and_time_limit_end_the_test() {
        let stop = Stop::new(Duration::from_secs(600)).unwrap();
        assert!(stop.check().is_ok());
        stop.signalled.store(true, Ordering::Relaxed);
        assert!(stop
            .check()
            .unwrap_err()
            .to_string()
            .contains("interrupted"));
        let over = Stop::new(Duration::ZERO).unwrap();
        assert!(over.check().unwrap_err().to_string().contains("time limit"));
    }
}
