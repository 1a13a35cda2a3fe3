// SPDX-License-Identifier: GPL-2.0-or-later
//! Photos for real image viewers: valid PNG files of noise. Their deflate blocks are stored
//! uncompressed, so a file is as large as its pixels.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::random::Random;

/// Largest stored block of deflate, in bytes.
const STORED_MAX: usize = 0xffff;
/// Modulus of Adler-32: the largest prime below 2^16.
const ADLER: u32 = 65521;
/// Filter byte of an unfiltered row.
const NO_FILTER: [u8; 1] = [0];

/// Writes one photo of `width` x `height` pixels in true colour.
pub fn write(path: &Path, width: u32, height: u32, seed: u64) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&encode(width, height, seed))?;
    file.into_inner()?.sync_all()
}

fn encode(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = Vec::with_capacity(13);
    header.extend(width.to_be_bytes());
    header.extend(height.to_be_bytes());
    // 8 bits per channel, RGB, deflate, adaptive filters, not interlaced.
    header.extend([8, 2, 0, 0, 0]);
    chunk(&mut png, b"IHDR", &header);
    chunk(&mut png, b"IDAT", &stored(&pixels(width, height, seed)));
    chunk(&mut png, b"IEND", &[]);
    png
}

/// Rows of pixels, each after its filter byte (0: none).
fn pixels(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let row_len = width as usize * 3;
    let mut data = Vec::with_capacity((row_len + 1) * height as usize);
    for _ in 0..height {
        data.extend(NO_FILTER);
        let end = data.len() + row_len;
        while data.len() < end {
            let word = random.word().to_le_bytes();
            let count = (end - data.len()).min(word.len());
            data.extend(&word[..count]);
        }
    }
    data
}

/// A zlib stream with `data` in stored blocks.
fn stored(data: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let mut blocks = data.chunks(STORED_MAX).peekable();
    while let Some(block) = blocks.next() {
        let len = block.len() as u16;
        stream.push(u8::from(blocks.peek().is_none()));
        stream.extend(len.to_le_bytes());
        stream.extend((!len).to_le_bytes());
        stream.extend(block);
    }
    let (mut a, mut b) = (1u32, 0u32);
    for &byte in data {
        a = (a + u32::from(byte)) % ADLER;
        b = (b + a) % ADLER;
    }
    stream.extend((b << 16 | a).to_be_bytes());
    stream
}

fn chunk(png: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    png.extend((data.len() as u32).to_be_bytes());
    let start = png.len();
    png.extend(kind);
    png.extend(data);
    let sum = crc(&png[start..]);
    png.extend(sum.to_be_bytes());
}

/// PNG's CRC-32.
fn crc(data: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|index| {
        (0..8).fold(index as u32, |c, _| {
            if c & 1 != 0 {
                0xedb8_8320 ^ (c >> 1)
            } else {
                c >> 1
            }
        })
    });
    !data.iter().fold(!0u32, |c, &byte| {
        table[((c ^ u32::from(byte)) & 0xff) as usize] ^ (c >> 8)
    })
}

#[cfg(test)]
mod tests {
    use super::{crc, encode, stored};

    #[test]
    fn crc_matches_published_values() {
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
        // The last four bytes of every PNG: the checksum of an empty IEND.
        assert!(encode(1, 1, 1).ends_with(&[0xae, 0x42, 0x60, 0x82]));
    }

    #[test]
    fn stored_data_is_split_into_blocks() {
        let stream = stored(&[7u8; 0x1_0001]);
        assert_eq!(stream[..7], [0x78, 0x01, 0, 0xff, 0xff, 0, 0]);
        let second = 2 + 5 + 0xffff;
        assert_eq!(stream[second..second + 5], [1, 2, 0, 0xfd, 0xff]);
        // Adler-32 of "Wikipedia", from its article.
        assert!(stored(b"Wikipedia").ends_with(&[0x11, 0xe6, 0x03, 0x98]));
    }
}
