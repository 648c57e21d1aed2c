//! The bytes of the log: frames of records.
//!
//! A frame is one group commit and the unit of survival: it is read back whole or not at all.
//! Layout, all numbers little-endian, frames padded with zeros to a multiple of eight bytes:
//!
//! ```text
//! magic u32 | payload length u32 | sequence u64 | first revision u64 | payload crc u32 | header crc u32
//! payload: records, one after another
//!   put     1u8 | key length u32 | value length u32 | deadline u64 | key | value
//!   delete  2u8 | key length u32 | key
//!   compact 3u8 | revision u64
//! ```
//!
//! Puts and deletes take the revisions from the first one upward. The header checksum is seeded with
//! a random number that the segment's own header holds, so that a value which happens to contain the
//! bytes of a frame is never taken for one.

use crate::Revision;

/// The length of a frame's header.
pub(crate) const HEADER: usize = 32;
/// Frames start at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;

const MAGIC: u32 = u32::from_le_bytes(*b"KyFr");
const PUT: u8 = 1;
const DELETE: u8 = 2;
const COMPACT: u8 = 3;

/// A change as the log holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// A key got a value; the deadline is in milliseconds since the Unix epoch, 0 for none.
    Put {
        key: &'a str,
        value: &'a [u8],
        deadline: u64,
    },
    /// A key was removed.
    Delete { key: &'a str },
    /// The history before a revision was forgotten. Takes no revision itself.
    Compact { revision: Revision },
}

/// A frame under construction.
#[derive(Debug)]
pub(crate) struct Builder {
    bytes: Vec<u8>,
    first_revision: Revision,
    /// How many zeros the last `finish` put behind the payload.
    padding: usize,
}

impl Builder {
    /// An empty frame whose first put or delete has `first_revision`.
    pub(crate) fn new(first_revision: Revision) -> Self {
        Self {
            bytes: vec![0; HEADER],
            first_revision,
            padding: 0,
        }
    }

    /// The revision of the first put or delete.
    pub(crate) fn first_revision(&self) -> Revision {
        self.first_revision
    }

    /// The length the finished frame will have.
    pub(crate) fn finished_len(&self) -> usize {
        self.payload_end().next_multiple_of(ALIGNMENT)
    }

    /// Adds a record.
    pub(crate) fn push(&mut self, record: Record<'_>) {
        let bytes = &mut self.bytes;
        match record {
            Record::Put {
                key,
                value,
                deadline,
            } => {
                bytes.push(PUT);
                bytes.extend_from_slice(&length(key.as_bytes()));
                bytes.extend_from_slice(&length(value));
                bytes.extend_from_slice(&deadline.to_le_bytes());
                bytes.extend_from_slice(key.as_bytes());
                bytes.extend_from_slice(value);
            }
            Record::Delete { key } => {
                bytes.push(DELETE);
                bytes.extend_from_slice(&length(key.as_bytes()));
                bytes.extend_from_slice(key.as_bytes());
            }
            Record::Compact { revision } => {
                bytes.push(COMPACT);
                bytes.extend_from_slice(&revision.to_le_bytes());
            }
        }
    }

    /// Adds bytes that need not be a record.
    #[cfg(test)]
    pub(crate) fn push_raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes to write. May be called again with another place in the log, as after a failure.
    pub(crate) fn finish(&mut self, sequence: u64, nonce: u32) -> &[u8] {
        self.bytes.truncate(self.payload_end());
        self.padding = 0;
        let payload = &self.bytes[HEADER..];
        let payload_crc = crc32fast::hash(payload);
        let payload_len = length(payload);
        let header = &mut self.bytes[..HEADER];
        header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[4..8].copy_from_slice(&payload_len);
        header[8..16].copy_from_slice(&sequence.to_le_bytes());
        header[16..24].copy_from_slice(&self.first_revision.to_le_bytes());
        header[24..28].copy_from_slice(&payload_crc.to_le_bytes());
        let header_crc = seeded_crc(nonce, &header[..28]);
        header[28..32].copy_from_slice(&header_crc.to_le_bytes());
        let len = self.finished_len();
        self.padding = len - self.bytes.len();
        self.bytes.resize(len, 0);
        &self.bytes
    }

    fn payload_end(&self) -> usize {
        self.bytes.len() - self.padding
    }
}

/// A frame read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// Its place in the log.
    pub(crate) sequence: u64,
    /// The revision of its first put or delete.
    pub(crate) first_revision: Revision,
    /// How many bytes it takes in the segment, padding included.
    pub(crate) len: usize,
    payload: &'a [u8],
}

/// What stands at a place of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decoded<'a> {
    /// A whole frame.
    Frame(Frame<'a>),
    /// Only zeros, or nothing: the log has not come this far.
    Blank,
    /// Something else; the reason it is no frame.
    Damaged(&'static str),
}

/// Reads the frame at the start of `bytes`.
pub(crate) fn decode(bytes: &[u8], nonce: u32) -> Decoded<'_> {
    let Some(header) = bytes.get(..HEADER) else {
        return match is_zero(bytes) {
            true => Decoded::Blank,
            false => Decoded::Damaged("the header of a record is cut short"),
        };
    };
    if is_zero(header) {
        return Decoded::Blank;
    }
    if u32_at(header, 0) != MAGIC || u32_at(header, 28) != seeded_crc(nonce, &header[..28]) {
        return Decoded::Damaged("the header of a record has a wrong checksum");
    }
    let payload_end = HEADER + u32_at(header, 4) as usize;
    let len = payload_end.next_multiple_of(ALIGNMENT);
    let Some(frame) = bytes.get(..len) else {
        return Decoded::Damaged("a record is cut short");
    };
    let payload = &frame[HEADER..payload_end];
    if crc32fast::hash(payload) != u32_at(header, 24) || !is_zero(&frame[payload_end..]) {
        return Decoded::Damaged("a record has a wrong checksum");
    }
    Decoded::Frame(Frame {
        sequence: u64_at(header, 8),
        first_revision: u64_at(header, 16),
        len,
        payload,
    })
}

/// The offset of the first whole frame at or after `from`, if there is one.
pub(crate) fn find(bytes: &[u8], from: usize, nonce: u32) -> Option<usize> {
    (from.next_multiple_of(ALIGNMENT)..bytes.len().saturating_sub(HEADER - 1))
        .step_by(ALIGNMENT)
        .filter(|&at| u32_at(bytes, at) == MAGIC)
        .find(|&at| matches!(decode(&bytes[at..], nonce), Decoded::Frame(_)))
}

impl<'a> Frame<'a> {
    /// The records, in order. An `Err` says that a frame with a right checksum holds something
    /// this version cannot read; nothing follows it.
    pub(crate) fn records(&self) -> impl Iterator<Item = Result<Record<'a>, &'static str>> {
        let mut rest = self.payload;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let record = take_record(&mut rest);
            if record.is_err() {
                rest = &[];
            }
            Some(record)
        })
    }
}

fn take_record<'a>(rest: &mut &'a [u8]) -> Result<Record<'a>, &'static str> {
    match take(rest, 1)?[0] {
        PUT => {
            let key_len = take_u32(rest)?;
            let value_len = take_u32(rest)?;
            let deadline = take_u64(rest)?;
            let key = take_str(rest, key_len)?;
            let value = take(rest, value_len)?;
            Ok(Record::Put {
                key,
                value,
                deadline,
            })
        }
        DELETE => {
            let key_len = take_u32(rest)?;
            let key = take_str(rest, key_len)?;
            Ok(Record::Delete { key })
        }
        COMPACT => Ok(Record::Compact {
            revision: take_u64(rest)?,
        }),
        _ => Err("a record is of a kind this version does not know"),
    }
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], &'static str> {
    let (taken, left) = rest
        .split_at_checked(len)
        .ok_or("a record is longer than its frame")?;
    *rest = left;
    Ok(taken)
}

fn take_str<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a str, &'static str> {
    std::str::from_utf8(take(rest, len)?).map_err(|_| "a key is not UTF-8")
}

fn take_u32(rest: &mut &[u8]) -> Result<usize, &'static str> {
    take(rest, 4).map(|bytes| u32_at(bytes, 0) as usize)
}

fn take_u64(rest: &mut &[u8]) -> Result<u64, &'static str> {
    take(rest, 8).map(|bytes| u64_at(bytes, 0))
}

/// The length of a part as it stands in the log.
fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len())
        .expect("the engine refuses writes and ends batches far below four gigabytes")
        .to_le_bytes()
}

/// The little-endian number at an offset; the caller has checked that it is inside.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The little-endian number at an offset; the caller has checked that it is inside.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A checksum that only whoever knows the seed can compute.
pub(crate) fn seeded_crc(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(bytes);
    hasher.finalize()
}

/// Whether every byte is zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}
