// SPDX-License-Identifier: GPL-2.0-or-later
//! Sources of response windows without a session agent or a compositor that reports them.

use std::path::Path;

use limelight_sys::dir::Dir;
use limelight_sys::proc::Proc;
use limelight_sys::tracefs::Tracefs;

use super::Findings;

/// The tracepoint of a frame that reached the display.
const FRAME: (&str, &str) = ("drm", "drm_vblank_event_delivered");

/// Checks input devices and the display's frames. Neither is needed if another source reports.
pub fn examine(proc: &Proc, input: &Path, findings: &mut Findings) {
    const TELL: &str = "an agent or a compositor has to tell";
    let devices = Dir::open(input).and_then(|dir| dir.names());
    let devices = devices.map(|names| {
        names
            .iter()
            .filter(|name| name.starts_with("event"))
            .count()
    });
    let shown = input.display();
    match devices {
        Ok(0) => findings.note("input devices", format!("none in {shown}: {TELL}")),
        Ok(count) => findings.acts(
            "input devices",
            format!("{count} in {shown}; asked when something is pressed, never what"),
        ),
        Err(error) => findings.note("input devices", format!("{error}: {TELL}")),
    }
    let (system, event) = FRAME;
    match Tracefs::find(proc) {
        Ok(tracefs) if tracefs.has_event(system, event) => findings.acts(
            "display frames",
            format!("the kernel tells of them ({system}:{event})"),
        ),
        Ok(_) => findings.note(
            "display frames",
            format!("no tracepoint {system}:{event} here (no display driver, or not root): {TELL}"),
        ),
        Err(error) => findings.note("display frames", format!("{error}: {TELL}")),
    }
}
