// SPDX-License-Identifier: GPL-2.0-or-later
//! Frequency of an emulated CPU's time stamp counter. The guest gets it on its kernel command line
//! and does not calibrate the counter itself. Calibration counts the ticks between timer
//! interrupts, which are late on a busy host: clocks that were wrong by a factor of up to 3.4 were
//! observed.

use crate::scenario::Mode;

/// Frequency of an emulated x86-64 CPU's counter in kHz. `None` if it is unknown: in fast mode, on
/// a host that is not x86-64.
pub fn emulated_khz(mode: Mode) -> Option<u32> {
    match mode {
        // In exact mode, each instruction takes one nanosecond and advances the counter by one.
        Mode::Exact => Some(1_000_000),
        // QEMU gives the guest the host's counter, plus an offset.
        Mode::Fast => host_khz(),
    }
}

#[cfg(target_arch = "x86_64")]
fn host_khz() -> Option<u32> {
    static KHZ: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    Some(*KHZ.get_or_init(measure_khz))
}

#[cfg(not(target_arch = "x86_64"))]
fn host_khz() -> Option<u32> {
    None
}

/// Measures the frequency of the host's counter in kHz against the host's clock, over 100 ms.
#[cfg(target_arch = "x86_64")]
fn measure_khz() -> u32 {
    use std::time::Duration;

    let (since, at) = moment();
    std::thread::sleep(Duration::from_millis(100));
    let (until, then) = moment();
    let micros = (then - at).as_secs_f64() * 1e6;
    ((until - since) as f64 * 1000.0 / micros).round() as u32
}

/// Reads the counter and the clock at nearly the same time. Each attempt reads the counter, the
/// clock, and the counter again, and takes the mean of the two counter values. Of 16 attempts, the
/// one with the shortest interval counts: a preemption would make the interval longer.
#[cfg(target_arch = "x86_64")]
fn moment() -> (u64, std::time::Instant) {
    use std::arch::x86_64::_rdtsc;
    use std::time::Instant;

    // SAFETY: every x86-64 processor has this instruction, and Linux lets programs execute it.
    let read = || unsafe { _rdtsc() };
    let pairs = (0..16).map(|_| {
        let (before, now, after) = (read(), Instant::now(), read());
        (after - before, before + (after - before) / 2, now)
    });
    let (_, counter, clock) = pairs
        .min_by_key(|&(gap, _, _)| gap)
        .expect("there are sixteen pairs");
    (counter, clock)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn two_measurements_of_the_host_agree() {
        let (a, b) = (f64::from(measure_khz()), f64::from(measure_khz()));
        assert!((a / b - 1.0).abs() < 0.01, "{a} kHz, then {b} kHz");
        assert!(a > 100_000.0, "{a} kHz");
    }
}
