// SPDX-License-Identifier: GPL-2.0-or-later
//! Protects the viewer: through limelightd, as the foreground app, or through the same memory knob
//! by hand.

use std::thread::sleep;
use std::time::{Duration, Instant};

use limelight_proto::{FocusTarget, Request, Response};
use limelight_sys::cgroup::{Cgroup, Limit, MemoryKnob};
use limelight_sys::dir::Dir;
use limelight_sys::lru_gen::Reclaim;

use super::parts::Part;
use super::stop::Stop;
use super::{failed, Wish, MIB, PHOTOS};
use crate::client::Client;
use crate::exit::Failure;

/// Reservation by hand: the photos, and the viewer's other memory.
const RESERVATION: u64 = PHOTOS + 8 * MIB;
/// Longest wait for limelightd's reservation.
const RESERVED_MAX: Duration = Duration::from_secs(3);

/// The protection in force.
#[derive(Debug)]
pub struct Protection {
    /// limelightd's connection, whose end gives the foreground back; or why limelightd does not
    /// protect the viewer.
    by: Result<Client, String>,
}

/// What protected the viewer.
#[derive(Debug)]
pub struct By {
    /// `limelightd` or the knob's name.
    pub name: String,
    /// Why limelightd did not.
    pub why_not: Option<String>,
}

impl Protection {
    /// Protects the viewer until [`Protection::end`].
    pub fn begin(
        wish: &Wish,
        viewer: &Part,
        cgroup: &Cgroup,
        stop: &Stop,
    ) -> Result<Protection, Failure> {
        let asked = ask_daemon(wish, viewer.pid(), cgroup);
        stop.check()?;
        let by = asked.map_err(|failure| failure.parts().0);
        if by.is_err() {
            cgroup
                .set_limit(knob()?, Limit::Bytes(RESERVATION))
                .map_err(failed)?;
        }
        Ok(Protection { by })
    }

    /// Gives the foreground back. Fails if the viewer lost it during the test.
    pub fn end(self, cgroup: &Cgroup) -> Result<By, Failure> {
        let reserved = is_reserved(cgroup);
        if !reserved {
            return Err(Failure::Curable {
                message: "another app came to the foreground during the test".to_owned(),
                cure: "try again, and leave windows and keyboard alone meanwhile".to_owned(),
            });
        }
        Ok(match self.by {
            Ok(_) => By {
                name: "limelightd".to_owned(),
                why_not: None,
            },
            Err(why_not) => By {
                name: knob()?.file().to_owned(),
                why_not: Some(why_not),
            },
        })
    }
}

/// The knob that acts under this kernel's page reclaim.
fn knob() -> Result<MemoryKnob, Failure> {
    let reclaim = Dir::open("/sys")
        .and_then(|sys| Reclaim::read(&sys))
        .map_err(failed)?;
    Ok(match reclaim.is_multi_gen() {
        true => MemoryKnob::Min,
        false => MemoryKnob::Low,
    })
}

/// Asks limelightd to treat the viewer as the foreground app until the connection ends, and waits
/// for its reservation.
fn ask_daemon(wish: &Wish, pid: i32, cgroup: &Cgroup) -> Result<Client, Failure> {
    let mut client = Client::connect(wish.socket, wish.patience)?;
    let claim = Request::Focus {
        target: FocusTarget::Pid(pid),
        source: "selftest".to_owned(),
        hold: true,
    };
    let message = match client.ask(&claim)? {
        Response::Ok { message } => message,
        other => return Err(Failure::unexpected(&other)),
    };
    let deadline = Instant::now() + RESERVED_MAX;
    while !is_reserved(cgroup) {
        if Instant::now() > deadline {
            return Err(Failure::Other(format!(
                "limelightd did not protect the viewer: {message}"
            )));
        }
        sleep(Duration::from_millis(50));
    }
    Ok(client)
}

fn is_reserved(cgroup: &Cgroup) -> bool {
    let knobs = [MemoryKnob::Min, MemoryKnob::Low];
    let reserves = |knob| cgroup.limit(knob).is_ok_and(|limit| limit != Limit::ZERO);
    knobs.into_iter().any(reserves)
}
