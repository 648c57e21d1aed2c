//! Large documents made of parts that are compressed once: a change costs the part that changed.
//!
//! A part is a piece of text as a run of deflate blocks that ends at a byte and refers to nothing before it. Such runs one
//! after the other are one stream, and checksums can be combined, so parts make a gzip text without being looked at again.

use std::io::Read as _;

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};

/// A magic number, deflate, no name, no time, unknown system.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// A last block with nothing in it.
const LAST: [u8; 2] = [3, 0];
/// How much is unpacked at once.
const PIECE: usize = 64 << 10;

/// A piece of text, compressed.
#[derive(Debug)]
pub(crate) struct Part {
    blocks: Box<[u8]>,
    crc: Crc,
}

impl Part {
    pub(crate) fn new(text: &[u8]) -> Part {
        let mut crc = Crc::new();
        crc.update(text);
        let mut deflate = Compress::new(Compression::default(), false);
        let mut blocks = Vec::with_capacity(text.len() / 8 + 64);
        loop {
            let done = usize::try_from(deflate.total_in()).unwrap_or(usize::MAX);
            let status = deflate.compress_vec(&text[done..], &mut blocks, FlushCompress::Sync);
            let room = blocks.capacity() - blocks.len();
            // A flush is over when it leaves room behind itself.
            match status {
                Ok(Status::Ok | Status::BufError) if room == 0 => blocks.reserve(PIECE),
                _ => break,
            }
        }
        Part {
            blocks: blocks.into(),
            crc,
        }
    }
}

/// Parts one after the other, as gzip.
pub(crate) fn gzip<'p>(parts: impl Iterator<Item = &'p Part> + Clone) -> Bytes {
    let size: usize = parts.clone().map(|part| part.blocks.len()).sum();
    let mut out = Vec::with_capacity(HEAD.len() + size + LAST.len() + 8);
    let mut crc = Crc::new();
    out.extend(HEAD);
    for part in parts {
        out.extend_from_slice(&part.blocks);
        crc.combine(&part.crc);
    }
    out.extend(LAST);
    out.extend(crc.sum().to_le_bytes());
    out.extend(crc.amount().to_le_bytes());
    out.into()
}

/// The text of what [`gzip`] made, a piece at a time.
pub(crate) fn unpacked(gzip: Bytes) -> impl Iterator<Item = Bytes> + Send {
    let mut reader = flate2::read::GzDecoder::new(std::io::Cursor::new(gzip));
    std::iter::from_fn(move || {
        let mut piece = Vec::with_capacity(PIECE);
        let read = (&mut reader).take(PIECE as u64).read_to_end(&mut piece);
        (read.is_ok() && !piece.is_empty()).then(|| piece.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(gzip: &Bytes) -> String {
        let mut text = String::new();
        // Any reader, not ours alone: this one checks the sums.
        flate2::read::GzDecoder::new(&gzip[..])
            .read_to_string(&mut text)
            .expect("a good stream");
        text
    }

    #[test]
    fn parts_make_one_text() {
        let words: String = (0..200_000).map(|n| format!("{n} ")).collect();
        for texts in [vec!["a", "", "bcd"], vec![], vec!["x", &words, "y"]] {
            let parts: Vec<Part> = texts.iter().map(|t| Part::new(t.as_bytes())).collect();
            let packed = gzip(parts.iter());
            assert_eq!(text(&packed), texts.concat());
            let pieces: Vec<Bytes> = unpacked(packed).collect();
            assert_eq!(pieces.concat(), texts.concat().as_bytes());
        }
    }
}
