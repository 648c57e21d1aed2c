//! The messages of upstream's `client.proto`, and two more that only a peer of ours is sent.
//!
//! Read by hand because a packet is judged by its `type` and a payload of another kind reads as
//! zeros, and because data is neither copied in nor out.

use bytes::{Buf as _, Bytes};

/// The most data in a packet: upstream's programs are slow with messages above 32 KiB.
pub(crate) const MAX_DATA: usize = (32 << 10) - 64;

/// Upstream's packet types, and ours far above them: unknown ones are ignored by every version.
mod kind {
    pub(super) const DIAL_REQ: i64 = 0;
    pub(super) const DIAL_RSP: i64 = 1;
    pub(super) const CLOSE_REQ: i64 = 2;
    pub(super) const CLOSE_RSP: i64 = 3;
    pub(super) const DATA: i64 = 4;
    pub(super) const DIAL_CLS: i64 = 5;
    pub(super) const DRAIN: i64 = 6;
    pub(super) const CREDIT: i64 = 100;
    pub(super) const END_OF_DATA: i64 = 101;
}

/// The field of the payload in `Packet`, by type.
const FIELDS: [(i64, u64); 9] = [
    (kind::DIAL_REQ, 2),
    (kind::DIAL_RSP, 3),
    (kind::DATA, 4),
    (kind::CLOSE_REQ, 5),
    (kind::CLOSE_RSP, 6),
    (kind::DIAL_CLS, 7),
    (kind::DRAIN, 8),
    (kind::CREDIT, 100),
    (kind::END_OF_DATA, 101),
];

/// One message of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Packet {
    DialRequest {
        random: i64,
        protocol: String,
        address: String,
    },
    DialResponse {
        random: i64,
        id: i64,
        error: String,
    },
    CloseRequest {
        id: i64,
    },
    CloseResponse {
        id: i64,
        error: String,
    },
    Data {
        id: i64,
        data: Bytes,
    },
    DialClose {
        random: i64,
    },
    Drain,
    /// Ours: so many more bytes may be sent on that connection.
    Credit {
        id: i64,
        bytes: i64,
    },
    /// Ours: nothing more comes from this side of the connection; the other side goes on.
    EndOfData {
        id: i64,
    },
    /// Of a later version; ignored.
    Unknown,
}

/// The bytes are no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message is not a packet of the proxy's protocol")]
pub(crate) struct Malformed;

/// Names of packet types, as metrics have them.
pub(crate) const NAMES: [&str; 8] = [
    "DIAL_REQ",
    "DIAL_RSP",
    "CLOSE_REQ",
    "CLOSE_RSP",
    "DATA",
    "DIAL_CLS",
    "DRAIN",
    "Unknown",
];

impl Packet {
    /// The place of this packet's type in [`NAMES`].
    pub(crate) fn name_index(&self) -> usize {
        match self {
            Packet::DialRequest { .. } => 0,
            Packet::DialResponse { .. } => 1,
            Packet::CloseRequest { .. } => 2,
            Packet::CloseResponse { .. } => 3,
            Packet::Data { .. } => 4,
            Packet::DialClose { .. } => 5,
            Packet::Drain => 6,
            Packet::Credit { .. } | Packet::EndOfData { .. } | Packet::Unknown => 7,
        }
    }

    /// Reads a message.
    pub(crate) fn decode(message: Bytes) -> Result<Packet, Malformed> {
        let mut kind = 0;
        // Of a oneof, the last one counts.
        let mut payload = (0, Bytes::new());
        let mut rest = message;
        while let Some((field, value)) = next_field(&mut rest)? {
            match (field, value) {
                (1, Value::Number(number)) => kind = number,
                (field, Value::Text(text)) if FIELDS.iter().any(|(_, f)| *f == field) => {
                    payload = (field, text);
                }
                _ => {}
            }
        }
        let wanted = FIELDS.iter().find(|(k, _)| *k == kind).map(|(_, f)| *f);
        let body = if wanted == Some(payload.0) {
            payload.1
        } else {
            Bytes::new()
        };
        Packet::of(kind, body)
    }

    fn of(kind: i64, body: Bytes) -> Result<Packet, Malformed> {
        let body = Body::read(body)?;
        Ok(match kind {
            kind::DIAL_REQ => Packet::DialRequest {
                protocol: body.string(1)?,
                address: body.string(2)?,
                random: body.number(3),
            },
            kind::DIAL_RSP => Packet::DialResponse {
                error: body.string(1)?,
                id: body.number(2),
                random: body.number(3),
            },
            kind::CLOSE_REQ => Packet::CloseRequest { id: body.number(1) },
            kind::CLOSE_RSP => Packet::CloseResponse {
                error: body.string(1)?,
                id: body.number(2),
            },
            kind::DATA => Packet::Data {
                id: body.number(1),
                data: body.bytes(3),
            },
            kind::DIAL_CLS => Packet::DialClose {
                random: body.number(1),
            },
            kind::DRAIN => Packet::Drain,
            kind::CREDIT => Packet::Credit {
                id: body.number(1),
                bytes: body.number(2),
            },
            kind::END_OF_DATA => Packet::EndOfData { id: body.number(1) },
            _ => Packet::Unknown,
        })
    }

    /// The message as what goes first and what follows it uncopied.
    pub(crate) fn encode(self) -> (Vec<u8>, Bytes) {
        let mut tail = Bytes::new();
        let mut body = Vec::with_capacity(32);
        let kind = match self {
            Packet::DialRequest {
                random,
                protocol,
                address,
            } => {
                put_text(&mut body, 1, &protocol);
                put_text(&mut body, 2, &address);
                put_number(&mut body, 3, random);
                kind::DIAL_REQ
            }
            Packet::DialResponse { random, id, error } => {
                put_text(&mut body, 1, &error);
                put_number(&mut body, 2, id);
                put_number(&mut body, 3, random);
                kind::DIAL_RSP
            }
            Packet::CloseRequest { id } => {
                put_number(&mut body, 1, id);
                kind::CLOSE_REQ
            }
            Packet::CloseResponse { id, error } => {
                put_text(&mut body, 1, &error);
                put_number(&mut body, 2, id);
                kind::CLOSE_RSP
            }
            Packet::Data { id, data } => {
                put_number(&mut body, 1, id);
                put_varint(&mut body, 3 << 3 | 2);
                put_varint(&mut body, data.len() as u64);
                tail = data;
                kind::DATA
            }
            Packet::DialClose { random } => {
                put_number(&mut body, 1, random);
                kind::DIAL_CLS
            }
            Packet::Drain => kind::DRAIN,
            Packet::Credit { id, bytes } => {
                put_number(&mut body, 1, id);
                put_number(&mut body, 2, bytes);
                kind::CREDIT
            }
            Packet::EndOfData { id } => {
                put_number(&mut body, 1, id);
                kind::END_OF_DATA
            }
            Packet::Unknown => return (Vec::new(), tail),
        };
        let field = FIELDS.iter().find(|(k, _)| *k == kind).map(|(_, f)| *f);
        let field = field.expect("every type has a field");
        let mut head = Vec::with_capacity(body.len() + 12);
        put_number(&mut head, 1, kind);
        put_varint(&mut head, field << 3 | 2);
        put_varint(&mut head, (body.len() + tail.len()) as u64);
        head.extend_from_slice(&body);
        (head, tail)
    }
}

/// The fields of a payload; none has more than three.
#[derive(Default)]
struct Body {
    numbers: [i64; 4],
    texts: [Bytes; 4],
}

impl Body {
    fn read(mut bytes: Bytes) -> Result<Body, Malformed> {
        let mut body = Body::default();
        while let Some((field, value)) = next_field(&mut bytes)? {
            let Some(place) = usize::try_from(field).ok().filter(|f| *f < 4) else {
                continue;
            };
            match value {
                Value::Number(number) => body.numbers[place] = number,
                Value::Text(text) => body.texts[place] = text,
                Value::Other => {}
            }
        }
        Ok(body)
    }

    fn number(&self, field: usize) -> i64 {
        self.numbers[field]
    }

    fn bytes(&self, field: usize) -> Bytes {
        self.texts[field].clone()
    }

    fn string(&self, field: usize) -> Result<String, Malformed> {
        let text = std::str::from_utf8(&self.texts[field]).map_err(|_| Malformed)?;
        Ok(text.to_owned())
    }
}

enum Value {
    Number(i64),
    Text(Bytes),
    Other,
}

fn next_field(bytes: &mut Bytes) -> Result<Option<(u64, Value)>, Malformed> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let tag = take_varint(bytes)?;
    let field = tag >> 3;
    if field == 0 {
        return Err(Malformed);
    }
    let value = match tag & 7 {
        0 => Value::Number(take_varint(bytes)?.cast_signed()),
        1 => skip(bytes, 8)?,
        2 => {
            let length = usize::try_from(take_varint(bytes)?).map_err(|_| Malformed)?;
            if length > bytes.len() {
                return Err(Malformed);
            }
            Value::Text(bytes.split_to(length))
        }
        5 => skip(bytes, 4)?,
        _ => return Err(Malformed),
    };
    Ok(Some((field, value)))
}

fn skip(bytes: &mut Bytes, count: usize) -> Result<Value, Malformed> {
    if count > bytes.len() {
        return Err(Malformed);
    }
    bytes.advance(count);
    Ok(Value::Other)
}

fn take_varint(bytes: &mut Bytes) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        if bytes.is_empty() {
            return Err(Malformed);
        }
        let byte = bytes.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

// Zeros and empty strings do not travel in proto3.
fn put_number(out: &mut Vec<u8>, field: u64, value: i64) {
    if value != 0 {
        put_varint(out, field << 3);
        put_varint(out, value.cast_unsigned());
    }
}

fn put_text(out: &mut Vec<u8>, field: u64, text: &str) {
    if !text.is_empty() {
        put_varint(out, field << 3 | 2);
        put_varint(out, text.len() as u64);
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests;
