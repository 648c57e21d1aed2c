//! Frames of RFC 9113.

use bytes::{BufMut as _, BytesMut};

pub(super) const HEAD: usize = 9;
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

pub(super) const SETTING_ENABLE_PUSH: u16 = 2;
pub(super) const SETTING_MAX_STREAMS: u16 = 3;
pub(super) const SETTING_INITIAL_WINDOW: u16 = 4;
pub(super) const SETTING_MAX_FRAME: u16 = 5;

/// Why a stream or a connection is ended; the RFC's codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Code {
    NoError = 0,
    Protocol = 1,
    FlowControl = 3,
    FrameSize = 6,
    RefusedStream = 7,
    Cancel = 8,
    Compression = 9,
    EnhanceYourCalm = 11,
}

/// The nine bytes before every frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Head {
    pub(super) fn read(bytes: &[u8; HEAD]) -> Head {
        let [a, b, c, kind, flags, s0, s1, s2, s3] = *bytes;
        Head {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff,
        }
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn write(self, out: &mut BytesMut) {
        let length = u32::try_from(self.length).expect("a frame is at most 16 MiB");
        out.reserve(HEAD);
        out.put_slice(&length.to_be_bytes()[1..]);
        out.put_u8(self.kind);
        out.put_u8(self.flags);
        out.put_u32(self.stream);
    }
}

/// Appends a whole frame.
pub(super) fn put(out: &mut BytesMut, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = payload.len();
    Head {
        length,
        kind,
        flags,
        stream,
    }
    .write(out);
    out.put_slice(payload);
}

/// Appends a header block, in as many frames as the peer's limit asks for.
pub(super) fn put_headers(
    out: &mut BytesMut,
    stream: u32,
    block: &[u8],
    end_stream: bool,
    max_frame: usize,
) {
    let mut kind = HEADERS;
    let mut rest = block;
    loop {
        let (piece, after) = rest.split_at(rest.len().min(max_frame));
        rest = after;
        let mut flags = if rest.is_empty() { END_HEADERS } else { 0 };
        if kind == HEADERS && end_stream {
            flags |= END_STREAM;
        }
        put(out, kind, flags, stream, piece);
        if rest.is_empty() {
            return;
        }
        kind = CONTINUATION;
    }
}

/// The payload without padding and priority, or `None` where its own numbers contradict it.
pub(super) fn body(head: Head, payload: &[u8]) -> Option<&[u8]> {
    let mut body = payload;
    let mut padding = 0;
    if head.has(PADDED) {
        let (length, rest) = body.split_first()?;
        padding = usize::from(*length);
        body = rest;
    }
    if head.kind == HEADERS && head.has(PRIORITY) {
        body = body.get(5..)?;
    }
    body.get(..body.len().checked_sub(padding)?)
}

/// The number in the first four bytes.
pub(super) fn number(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|four| u32::from_be_bytes(*four))
}
