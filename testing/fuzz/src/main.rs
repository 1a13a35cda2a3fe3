// SPDX-License-Identifier: GPL-2.0-or-later
//! libFuzzer driver for the target that `LIMELIGHT_FUZZ` names. All arguments go to libFuzzer.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

fn chosen() -> fn(&[u8]) {
    let name = std::env::var("LIMELIGHT_FUZZ").unwrap_or_default();
    limelight_fuzz::target(&name).unwrap_or_else(|| {
        let names = limelight_fuzz::TARGETS.map(|(name, _)| name).join(", ");
        eprintln!("LIMELIGHT_FUZZ is {name:?}: set it to one of {names}");
        std::process::exit(2);
    })
}

fuzz_target!(|data: &[u8]| {
    TARGET.get_or_init(chosen)(data);
});
