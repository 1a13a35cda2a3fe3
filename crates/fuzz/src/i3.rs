// SPDX-License-Identifier: GPL-2.0-or-later
//! i3's and sway's sockets: messages in whatever pieces, and what they say of the focus.

use limelight_compositor::i3::{decode, encode, Focus, Node, EVENT};

/// However the bytes come in pieces, the same messages are in them, each of which is written as it was
/// read; and whatever they say, what is known of the focus afterwards does not depend on the pieces.
pub fn run(data: &[u8]) {
    // The first byte says where the pieces are cut.
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

/// The messages, the focus after them, and how many bytes they had.
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
                        // The tree is the only answer that says anything of the focus.
                        0 => _ = focus.look(&payload),
                        _ => focus.note(kind, &payload),
                    }
                    messages.push((kind, payload));
                }
                Ok(None) => break,
                // Another protocol: the connection ends.
                Err(_) => break 'all,
            }
        }
    }
    (messages, focus.known().cloned(), taken)
}
