//! PEM text, read just far enough to say whether it holds what it should.
//!
//! Signatures are the signers' business; here a block counts when its label is right and its body
//! is base64 of one whole DER sequence.

use base64::Engine;
use serde_json::Value;

/// One block of a PEM text.
pub(super) struct Block {
    /// What stands after `BEGIN`.
    pub(super) label: String,
    /// Whether it starts with `Name: value` lines.
    pub(super) has_headers: bool,
    /// The bytes of its body.
    pub(super) der: Vec<u8>,
}

/// The bytes of a base64 field.
pub(super) fn bytes(value: &Value) -> Vec<u8> {
    let encoded = value.as_str().unwrap_or_default();
    base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .unwrap_or_default()
}

/// The blocks of a text; what stands between them, or does not decode, is skipped as Go does.
pub(super) fn blocks(data: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(data);
    let mut found = Vec::new();
    let mut rest = text.as_ref();
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let Some((label, body)) = after.split_once("-----") else {
            break;
        };
        let Some((body, tail)) = body.split_once(&format!("-----END {label}-----")) else {
            break;
        };
        found.extend(block(label, body));
        rest = tail;
    }
    found
}

fn block(label: &str, body: &str) -> Option<Block> {
    let is_header = |line: &&str| line.contains(':');
    let has_headers = body.lines().any(|line| is_header(&line));
    let encoded: String = body
        .lines()
        .filter(|line| !is_header(line))
        .map(str::trim)
        .collect();
    let der = base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .ok()?;
    Some(Block {
        label: label.to_owned(),
        has_headers,
        der,
    })
}

/// Whether the bytes are one DER sequence from first to last.
pub(super) fn is_der_sequence(der: &[u8]) -> bool {
    let [0x30, first, rest @ ..] = der else {
        return false;
    };
    if *first < 0x80 {
        return rest.len() == usize::from(*first);
    }
    let digits = usize::from(first & 0x7f);
    if digits == 0 || digits > 4 || rest.len() < digits {
        return false;
    }
    let length = rest[..digits]
        .iter()
        .fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
    rest.len() - digits == length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_between_other_text() {
        let text = b"hello\n-----BEGIN A B-----\nMAA=\n-----END A B-----\nmore\n-----BEGIN C-----\nX: y\n\nMAMBAf8=\n-----END C-----\n";
        let found = blocks(text);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].label.as_str(), found[0].has_headers),
            ("A B", false)
        );
        assert!(is_der_sequence(&found[0].der));
        assert!(found[1].has_headers);
        assert!(is_der_sequence(&found[1].der));
    }

    #[test]
    fn sequences_are_whole() {
        assert!(is_der_sequence(&[0x30, 0x00]));
        assert!(is_der_sequence(&[0x30, 0x81, 0x01, 0xff]));
        for bad in [
            &[][..],
            &[0x30],
            &[0x30, 0x01],
            &[0x31, 0x00],
            &[0x30, 0x80],
            &[0x30, 0x00, 0x00],
        ] {
            assert!(!is_der_sequence(bad), "{bad:?}");
        }
        assert!(blocks(b"-----BEGIN A-----\nMAA=\n").is_empty());
    }
}
