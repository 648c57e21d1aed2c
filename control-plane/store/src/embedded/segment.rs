//! A segment: one file of the log. Its name and header say where in the log it begins.
//!
//! ```text
//! magic 8 bytes | first sequence u64 | first revision u64 | nonce u32 | header crc u32 | frames
//! ```
//!
//! The file is longer than what was written to it (space is reserved in steps, so that a commit does
//! not have to change the file's length); the zeros behind the last frame are its end.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

use super::frame::{self, Decoded, Frame};
use crate::Revision;

/// The length of a segment's header.
pub(crate) const HEADER: usize = 32;

const MAGIC: &[u8; 8] = b"KyanLog\x01";

/// The head of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The sequence number of its first frame.
    pub(crate) first_sequence: u64,
    /// The revision its first frame starts with.
    pub(crate) first_revision: Revision,
    /// The seed of its frames' checksums.
    pub(crate) nonce: u32,
}

impl Header {
    /// A header with a fresh nonce.
    pub(crate) fn new(first_sequence: u64, first_revision: Revision) -> Self {
        Self {
            first_sequence,
            first_revision,
            // The standard library's hash keys are random; truncation is all we want of them.
            nonce: RandomState::new().build_hasher().finish() as u32,
        }
    }

    /// The bytes at the start of the file.
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.first_sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first_revision.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.nonce.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..28]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header; `None` if it is damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER)?;
        let whole =
            &bytes[..8] == MAGIC && frame::u32_at(bytes, 28) == crc32fast::hash(&bytes[..28]);
        whole.then(|| Self {
            first_sequence: frame::u64_at(bytes, 8),
            first_revision: frame::u64_at(bytes, 16),
            nonce: frame::u32_at(bytes, 24),
        })
    }
}

/// Where the segment that starts with a sequence number lies.
pub(crate) fn path(dir: &Path, first_sequence: u64) -> PathBuf {
    dir.join(format!("log-{first_sequence:016x}.seg"))
}

/// The sequence number in a segment's file name; `None` for other files.
pub(crate) fn sequence_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log-")?.strip_suffix(".seg")?;
    u64::from_str_radix(digits, 16).ok()
}

/// How the readable part of a segment ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// With blank space or the end of the file.
    Blank,
    /// With bytes that are no frame and that no frame follows: a write that was cut off.
    Torn(&'static str),
    /// With bytes that are no frame, although a whole frame follows at this offset.
    Damaged {
        /// What is wrong with the bytes.
        reason: &'static str,
        /// Where the next whole frame is.
        next: usize,
    },
}

/// Calls `visit` for each frame of a segment up to and without sequence number `until`. Returns the
/// offset behind the last frame visited and what stands there.
pub(crate) fn scan<'a, E>(
    bytes: &'a [u8],
    header: &Header,
    until: u64,
    mut visit: impl FnMut(usize, Frame<'a>) -> Result<(), E>,
) -> Result<(usize, End), E> {
    let mut sequence = header.first_sequence;
    let mut offset = HEADER;
    while sequence < until {
        let rest = bytes.get(offset..).unwrap_or_default();
        let reason = match frame::decode(rest, header.nonce) {
            Decoded::Frame(frame) if frame.sequence == sequence => {
                visit(offset, frame)?;
                offset += frame.len;
                sequence += 1;
                continue;
            }
            Decoded::Frame(_) => "a record is out of sequence",
            Decoded::Blank if frame::is_zero(rest) => return Ok((offset, End::Blank)),
            Decoded::Blank => "a record is missing",
            Decoded::Damaged(reason) => reason,
        };
        let end = match frame::find(bytes, offset, header.nonce) {
            Some(next) => End::Damaged { reason, next },
            None => End::Torn(reason),
        };
        return Ok((offset, end));
    }
    Ok((offset, End::Blank))
}
