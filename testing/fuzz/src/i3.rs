// SPDX-License-Identifier: GPL-2.0-or-later
//! Sockets of i3 and sway: fragmented messages, and the focus that they report.

use limelight_compositor::i3::{decode, encode, Focus, Node, EVENT};

/// The messages and the resulting focus do not depend on how the bytes are fragmented. The decoded
/// messages encode to the same bytes.
pub fn run(data: &[u8]) {
    // The first byte determines where the input is split.
    let Some((&cut, data)) = data.split_first() else {
        return;
    };
    let cut = usize::from(cut).min(data.len());
    let whole = read(&[data]);
    assert_eq!(read(&[&data[..cut], &data[cut..]]), whole);
    let (messages, _, taken) = &whole;
    let written: Vec<u8> = messages
        .iter()
        .flat_map(|(kind, payload)| encode(*kind, payload))
        .collect();
    assert_eq!(&data[..*taken], written);
}

type Read = (Vec<(u32, Vec<u8>)>, Option<Option<Node>>, usize);

/// The messages, the focus after them, and the number of bytes consumed.
fn read(pieces: &[&[u8]]) -> Read {
    let (mut unread, mut messages, mut focus) = (Vec::new(), Vec::new(), Focus::default());
    let mut taken = 0;
    'all: for piece in pieces {
        unread.extend_from_slice(piece);
        loop {
            let before = unread.len();
            match decode(&mut unread) {
                Ok(Some((kind, payload))) => {
                    taken += before - unread.len();
                    match kind & EVENT {
                        // Of all answers, only the tree contains the focus.
                        0 => _ = focus.look(&payload),
                        _ => focus.note(kind, &payload),
                    }
                    messages.push((kind, payload));
                }
                Ok(None) => break,
                // Not i3's protocol: the agent ends the connection.
                Err(_) => break 'all,
            }
        }
    }
    (messages, focus.known().cloned(), taken)
}
