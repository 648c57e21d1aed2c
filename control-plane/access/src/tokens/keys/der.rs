//! Just enough DER to write a SubjectPublicKeyInfo: key ids are hashes of it.

use super::Curve;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;

/// AlgorithmIdentifier of RSA keys: rsaEncryption, NULL.
const RSA: &[u8] = &[
    0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];
/// Object identifier of EC keys: id-ecPublicKey.
const EC: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];

fn curve_id(curve: Curve) -> &'static [u8] {
    match curve {
        Curve::P256 => &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
        Curve::P384 => &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22],
        Curve::P521 => &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23],
    }
}

/// SubjectPublicKeyInfo of an RSA key.
pub(super) fn rsa_info(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let key = element(SEQUENCE, &[integer(modulus), integer(exponent)].concat());
    info(RSA, &key)
}

/// SubjectPublicKeyInfo of a point on a curve.
pub(super) fn ec_info(curve: Curve, point: &[u8]) -> Vec<u8> {
    info(&element(SEQUENCE, &[EC, curve_id(curve)].concat()), point)
}

/// An uncompressed point.
pub(super) fn point(x: &[u8], y: &[u8]) -> Vec<u8> {
    [&[4][..], x, y].concat()
}

fn info(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    let bits = element(BIT_STRING, &[&[0][..], key].concat());
    element(SEQUENCE, &[algorithm, &bits].concat())
}

/// A positive integer: the sign byte is written where the first bit is set.
fn integer(bytes: &[u8]) -> Vec<u8> {
    let negative = bytes.first().is_none_or(|first| first & 0x80 != 0);
    let sign: &[u8] = if negative { &[0] } else { &[] };
    element(INTEGER, &[sign, bytes].concat())
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        length @ 0..=127 => out.push(length as u8),
        length => {
            let bytes = length.to_be_bytes();
            let used = &bytes[bytes.iter().take_while(|b| **b == 0).count()..];
            out.push(0x80 | used.len() as u8);
            out.extend_from_slice(used);
        }
    }
    out.extend_from_slice(content);
    out
}
