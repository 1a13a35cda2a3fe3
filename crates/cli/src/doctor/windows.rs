// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks the kernel's sources of response windows: input devices and the display's frames. They
//! are used where neither a session agent nor a compositor reports windows.

use std::path::Path;

use limelight_sys::dir::Dir;
use limelight_sys::proc::Proc;
use limelight_sys::tracefs::Tracefs;

use super::Findings;

/// The tracepoint of a frame that reached the display.
const FRAME: (&str, &str) = ("drm", "drm_vblank_event_delivered");

/// Checks input devices and the display's frames. Neither is needed if another source reports
/// windows.
pub fn examine(proc: &Proc, input: &Path, findings: &mut Findings) {
    const OTHERWISE: &str = "an agent or a compositor has to report windows";
    let devices = Dir::open(input).and_then(|dir| dir.names());
    let devices = devices.map(|names| {
        names
            .iter()
            .filter(|name| name.starts_with("event"))
            .count()
    });
    let shown = input.display();
    match devices {
        Ok(0) => findings.note("input devices", format!("none in {shown}: {OTHERWISE}")),
        Ok(count) => findings.acts(
            "input devices",
            format!("{count} in {shown}; used for the time of input, never for its content"),
        ),
        Err(error) => findings.note("input devices", format!("{error}: {OTHERWISE}")),
    }
    let (system, event) = FRAME;
    match Tracefs::find(proc) {
        Ok(tracefs) if tracefs.has_event(system, event) => findings.acts(
            "display frames",
            format!("the kernel reports them ({system}:{event})"),
        ),
        Ok(_) => findings.note(
            "display frames",
            format!(
                "no tracepoint {system}:{event} here (no display driver, or not root): {OTHERWISE}"
            ),
        ),
        Err(error) => findings.note("display frames", format!("{error}: {OTHERWISE}")),
    }
}
