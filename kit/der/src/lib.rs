//! The little of DER that writing certificates and public keys takes, and PEM around it.
//!
//! Certificates are written with this and not by rcgen because its names hold one value per attribute, and a
//! client certificate has as many organisations as its user has groups.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::tz::TimeZone;

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// Any value: tag, length, content.
pub fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short @ 0..=0x7f) => out.push(short),
        _ => {
            let length = content.len().to_be_bytes();
            let significant = trim_zeros(&length);
            // At most eight bytes, because a usize has no more.
            out.push(0x80 | u8::try_from(significant.len()).unwrap_or(8));
            out.extend_from_slice(significant);
        }
    }
    out.extend_from_slice(content);
    out
}

fn trim_zeros(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros..]
}

/// These values, in this order.
pub fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    value(SEQUENCE, &parts.concat())
}

/// These values, in DER's order.
pub fn set(mut parts: Vec<Vec<u8>>) -> Vec<u8> {
    parts.sort_unstable();
    value(SET, &parts.concat())
}

/// A value under a context tag of its own, such as a certificate's version.
pub fn explicit(tag: u8, content: &[u8]) -> Vec<u8> {
    value(0xa0 | tag, content)
}

/// The truth.
pub fn boolean_true() -> Vec<u8> {
    value(BOOLEAN, &[0xff])
}

/// A number that is not negative, from its big-endian bytes.
pub fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let significant = trim_zeros(bytes);
    let mut content = Vec::with_capacity(significant.len() + 1);
    if significant.first().is_none_or(|first| *first >= 0x80) {
        content.push(0);
    }
    content.extend_from_slice(significant);
    value(INTEGER, &content)
}

/// Bytes.
pub fn octets(content: &[u8]) -> Vec<u8> {
    value(OCTET_STRING, content)
}

/// Whole bytes as a bit string.
pub fn bit_string(bytes: &[u8]) -> Vec<u8> {
    value(BIT_STRING, &[&[0], bytes].concat())
}

/// Flags as a bit string without trailing zeros; bit 0 of `flags` is the first.
pub fn named_bits(flags: u16) -> Vec<u8> {
    let bits = 16 - flags.leading_zeros();
    let bytes = flags.reverse_bits().to_be_bytes();
    let length = usize::try_from(bits.div_ceil(8)).unwrap_or(0);
    let unused = u8::try_from((8 - bits % 8) % 8).unwrap_or(0);
    value(BIT_STRING, &[&[unused], &bytes[..length]].concat())
}

/// An object identifier, from its numbers.
pub fn oid(arcs: &[u64]) -> Vec<u8> {
    let (first, rest) = match arcs {
        [a, b, rest @ ..] => (a * 40 + b, rest),
        _ => (0, arcs),
    };
    let mut content = Vec::new();
    for arc in std::iter::once(first).chain(rest.iter().copied()) {
        base128(arc, &mut content);
    }
    value(OID, &content)
}

fn base128(arc: u64, out: &mut Vec<u8>) {
    let groups = (64 - arc.leading_zeros()).div_ceil(7).max(1);
    for group in (0..groups).rev() {
        let low = u8::try_from((arc >> (7 * group)) & 0x7f).unwrap_or(0);
        out.push(if group == 0 { low } else { low | 0x80 });
    }
}

/// A text, as PrintableString where that can hold it (as Go writes names).
pub fn text(text: &str) -> Vec<u8> {
    let printable = |c: char| c.is_ascii_alphanumeric() || " '()+,-./:=?".contains(c);
    let tag = if text.chars().all(printable) {
        PRINTABLE_STRING
    } else {
        UTF8_STRING
    };
    value(tag, text.as_bytes())
}

/// A point in time, to the second; RFC 5280 wants the short form before 2050.
pub fn time(at: Timestamp) -> Vec<u8> {
    let utc = at.to_zoned(TimeZone::UTC);
    let (tag, format) = if (1950..2050).contains(&utc.year()) {
        (UTC_TIME, "%y%m%d%H%M%SZ")
    } else {
        (GENERALIZED_TIME, "%Y%m%d%H%M%SZ")
    };
    value(tag, utc.strftime(format).to_string().as_bytes())
}

/// A PEM block.
pub fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        out.push_str(line);
        out.push('\n');
        rest = after;
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn values_are_written_as_x690_says() {
        for (written, expected) in [
            (unsigned(&[0]), vec![2, 1, 0]),
            (unsigned(&[0, 0, 5]), vec![2, 1, 5]),
            (unsigned(&[0x80]), vec![2, 2, 0, 0x80]),
            (oid(&[2, 5, 4, 10]), vec![6, 3, 0x55, 4, 10]),
            (
                oid(&[1, 2, 840, 113_549]),
                vec![6, 6, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d],
            ),
            (named_bits(0b1), vec![3, 2, 7, 0x80]),
            (named_bits(0b101), vec![3, 2, 5, 0xa0]),
            (named_bits(0b1_0000_0000), vec![3, 3, 7, 0, 0x80]),
            (named_bits(0), vec![3, 1, 0]),
            (text("ab"), vec![0x13, 2, b'a', b'b']),
            (text("a@"), vec![0x0c, 2, b'a', b'@']),
            (set(vec![vec![5], vec![3]]), vec![0x31, 2, 3, 5]),
        ] {
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn a_pem_block_has_lines_of_64_characters() {
        let text = pem("A B", &[0; 49]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "-----BEGIN A B-----");
        assert_eq!((lines[1].len(), lines[2]), (64, "AA=="));
        assert_eq!(lines[3], "-----END A B-----");
        assert_eq!(pem("X", &[]), "-----BEGIN X-----\n-----END X-----\n");
    }

    #[test]
    fn long_contents_have_long_lengths() {
        assert_eq!(value(4, &[7; 0x7f])[..2], [4, 0x7f]);
        assert_eq!(value(4, &[7; 0x80])[..3], [4, 0x81, 0x80]);
        assert_eq!(value(4, &[7; 0x1234])[..4], [4, 0x82, 0x12, 0x34]);
    }

    #[test]
    fn times_change_form_in_2050() {
        let at = |text: &str| time(text.parse().unwrap());
        assert_eq!(&at("2049-12-31T23:59:59Z")[2..], b"491231235959Z");
        assert_eq!(&at("2050-01-01T00:00:00Z")[2..], b"20500101000000Z");
    }
}
