//! As much of SPDY/3.1 as it takes to run a command through a runtime's streaming server. Pure.
//!
//! Header blocks are compressed with one zlib stream for a whole connection. Ours holds stored blocks only, which any
//! reader understands; what the server answers is not read: it says nothing but that it agrees.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// The end of a stream.
const FIN: u8 = 1;
/// Longer frames than any server sends.
const LONGEST: usize = 1 << 24;

/// What the other side says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    /// Bytes of a stream, and whether they are its last.
    Data {
        stream: u32,
        last: bool,
        bytes: Bytes,
    },
    /// A stream was broken off.
    Reset { stream: u32 },
    /// Is anybody there?
    Ping { id: u32 },
    /// The connection ends.
    GoAway,
    /// What need not be known.
    Other,
}

/// Takes a whole frame from what has arrived, if there is one.
pub(super) fn take(arrived: &mut BytesMut) -> Option<Frame> {
    let head = arrived.get(..8)?;
    let length = usize::from(head[5]) << 16 | usize::from(head[6]) << 8 | usize::from(head[7]);
    debug_assert!(length < LONGEST);
    if arrived.len() < 8 + length {
        return None;
    }
    let head = arrived.split_to(8).freeze();
    let mut body = arrived.split_to(length).freeze();
    let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    if first >> 31 == 0 {
        return Some(Frame::Data {
            stream: first,
            last: head[4] & FIN != 0,
            bytes: body,
        });
    }
    let mut number = || (body.remaining() >= 4).then(|| body.get_u32() & 0x7fff_ffff);
    let frame = match first & 0xffff {
        3 => number().map(|stream| Frame::Reset { stream }),
        6 => number().map(|id| Frame::Ping { id }),
        7 => Some(Frame::GoAway),
        // A reply may end the stream at once.
        2 if head[4] & FIN != 0 => number().map(|stream| Frame::Data {
            stream,
            last: true,
            bytes: Bytes::new(),
        }),
        _ => None,
    };
    Some(frame.unwrap_or(Frame::Other))
}

/// Frames of one connection.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    begun: bool,
}

impl Encoder {
    /// Opens a stream with headers.
    pub(super) fn open(&mut self, stream: u32, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        block.put_u32(headers.len() as u32);
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            block.put_u32(text.len() as u32);
            block.put_slice(text.as_bytes());
        }
        let mut body = Vec::new();
        body.put_u32(stream);
        body.put_u32(0);
        body.put_u16(0);
        if !self.begun {
            // zlib, without a dictionary.
            body.put_slice(&[0x78, 0x01]);
            self.begun = true;
        }
        stored(&block, &mut body);
        // An empty block: readers flush at it.
        stored(&[], &mut body);
        control(1, 0, &body)
    }
}

fn stored(bytes: &[u8], out: &mut Vec<u8>) {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.push(0);
    out.put_u16_le(length);
    out.put_u16_le(!length);
    out.put_slice(&bytes[..usize::from(length)]);
}

fn control(kind: u16, flags: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(8 + body.len());
    frame.put_u16(0x8003);
    frame.put_u16(kind);
    frame.put_u32(u32::from(flags) << 24 | body.len() as u32);
    frame.put_slice(body);
    frame
}

/// Bytes of a stream.
pub(super) fn data(stream: u32, bytes: &[u8], last: bool) -> Vec<u8> {
    let mut frame = Vec::with_capacity(8 + bytes.len());
    frame.put_u32(stream);
    frame.put_u32(u32::from(if last { FIN } else { 0 }) << 24 | bytes.len() as u32);
    frame.put_slice(bytes);
    frame
}

/// The answer to a ping.
pub(super) fn pong(id: u32) -> Vec<u8> {
    control(6, 0, &id.to_be_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::io::Read as _;

    #[test]
    fn frames_are_taken_one_by_one_and_only_whole() {
        let mut all = Vec::new();
        all.extend(data(3, b"hello", false));
        all.extend(control(2, 0, &[0, 0, 0, 3, 1, 2, 3]));
        all.extend(pong(2));
        all.extend(control(3, 0, &[0, 0, 0, 5, 0, 0, 0, 1]));
        all.extend(data(3, b"", true));
        all.extend(control(7, 0, &[0; 8]));
        let wanted = [
            Frame::Data {
                stream: 3,
                last: false,
                bytes: Bytes::from_static(b"hello"),
            },
            Frame::Other,
            Frame::Ping { id: 2 },
            Frame::Reset { stream: 5 },
            Frame::Data {
                stream: 3,
                last: true,
                bytes: Bytes::new(),
            },
            Frame::GoAway,
        ];
        let mut arrived = BytesMut::new();
        let mut found = Vec::new();
        for byte in all {
            arrived.put_u8(byte);
            found.extend(take(&mut arrived));
        }
        assert_eq!(found, wanted);
    }

    #[test]
    fn headers_are_one_zlib_stream_that_any_reader_understands() {
        let mut encoder = Encoder::default();
        let mut zlib = Vec::new();
        for (stream, kind) in [(1, "error"), (3, "stdout")] {
            let frame = encoder.open(stream, &[("streamtype", kind)]);
            assert_eq!(frame[..4], [0x80, 3, 0, 1]);
            zlib.extend_from_slice(&frame[18..]);
        }
        // A last block ends it; the check sum is not looked at.
        let mut deflate = flate2::read::DeflateDecoder::new(&zlib[2..]);
        let mut plain = vec![0; 2 * (4 + 4 + 10 + 4) + 5 + 6];
        deflate.read_exact(&mut plain).unwrap();
        let text = String::from_utf8_lossy(&plain).into_owned();
        assert!(text.contains("streamtype") && text.contains("error") && text.ends_with("stdout"));
    }
}
