//! SubjectPublicKeyInfo as DER: key ids are hashes of it.

use ::der::{bit_string, sequence, unsigned};

use super::Curve;

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
    let key = sequence(&[unsigned(modulus), unsigned(exponent)]);
    info(RSA, &key)
}

/// SubjectPublicKeyInfo of a point on a curve.
pub(super) fn ec_info(curve: Curve, point: &[u8]) -> Vec<u8> {
    info(&sequence(&[EC.to_vec(), curve_id(curve).to_vec()]), point)
}

/// An uncompressed point.
pub(super) fn point(x: &[u8], y: &[u8]) -> Vec<u8> {
    [&[4][..], x, y].concat()
}

fn info(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    sequence(&[algorithm.to_vec(), bit_string(key)])
}
