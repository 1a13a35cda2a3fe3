// SPDX-License-Identifier: GPL-2.0-or-later
//! niri's event stream.

use limelight_compositor::lines;
use limelight_compositor::niri::Windows;
use limelight_compositor::Seen;

/// The resulting focus does not depend on how the bytes are fragmented. Its window is a number, and
/// its PID is positive.
pub fn run(data: &[u8]) {
    let Some((&cut, data)) = data.split_first() else {
        return;
    };
    let cut = usize::from(cut).min(data.len());
    let seen = read(&[data]);
    assert_eq!(read(&[&data[..cut], &data[cut..]]), seen);
    let Ok(seen) = seen else {
        return;
    };
    match &seen.window {
        Some(window) => assert!(window.parse::<u64>().is_ok(), "{window}"),
        None => assert_eq!(seen.pid, None),
    }
    assert!(seen.pid.is_none_or(|pid| pid > 0), "{:?}", seen.pid);
}

fn read(pieces: &[&[u8]]) -> Result<Seen, String> {
    let (mut unread, mut windows) = (Vec::new(), Windows::default());
    for piece in pieces {
        unread.extend_from_slice(piece);
        for line in lines::take(&mut unread) {
            windows.take(&line).map_err(|error| error.to_string())?;
        }
    }
    Ok(windows.seen())
}
