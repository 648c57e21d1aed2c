//! PKCS #12 (RFC 7292) without a password: a key and its chain in the one file that Windows and .NET read. Nothing in it
//! is encrypted, as nobody would know a password; its MAC is that of the empty one, which readers ask for.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;

const DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1];
const KEY_BAG: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 10, 1, 1];
const CERT_BAG: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 10, 1, 3];
const X509: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 22, 1];
const SHA_256: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];

/// How often the password is hashed; what the parts of the MAC's key are filled up to (appendix B.2).
const ROUNDS: u16 = 2048;
const BLOCK: usize = 64;

const INTEGER: u8 = 2;
const OCTETS: u8 = 4;
const NULL: u8 = 5;
const OID: u8 = 6;
const SEQUENCE: u8 = 0x30;
/// `[0]`, around something.
const FIRST: u8 = 0xa0;

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut out = vec![tag];
    match content.len() {
        short if short < 128 => out.push(short as u8),
        long => {
            let bytes = long.to_be_bytes();
            let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(0);
            out.push(0x80 | (bytes.len() - first) as u8);
            out.extend(&bytes[first..]);
        }
    }
    out.extend(content);
    out
}

fn contained(content: &[u8]) -> Vec<u8> {
    let inside = der(FIRST, &[&der(OCTETS, &[content])]);
    der(SEQUENCE, &[&der(OID, &[DATA]), &inside])
}

fn bag(kind: &[u8], value: &[u8]) -> Vec<u8> {
    der(SEQUENCE, &[&der(OID, &[kind]), &der(FIRST, &[value])])
}

fn certificate(one: &[u8]) -> Vec<u8> {
    let value = der(FIRST, &[&der(OCTETS, &[one])]);
    bag(CERT_BAG, &der(SEQUENCE, &[&der(OID, &[X509]), &value]))
}

/// The key of the MAC: the third of the password's keys.
fn mac_key(salt: &[u8]) -> Vec<u8> {
    // The empty password is the zero that ends it.
    let salted: Vec<u8> = salt.iter().copied().cycle().take(BLOCK).collect();
    let mut key = [vec![3; BLOCK], salted, vec![0; BLOCK]].concat();
    for _ in 0..ROUNDS {
        key = digest(&SHA256, &key).as_ref().to_vec();
    }
    key
}

/// A key in PKCS #8 and the chain of its certificate.
pub(super) fn packed(key: &[u8], chain: &[Vec<u8>]) -> Vec<u8> {
    let certificates: Vec<Vec<u8>> = chain.iter().map(|one| certificate(one)).collect();
    let certificates: Vec<&[u8]> = certificates.iter().map(Vec::as_slice).collect();
    let safes = der(
        SEQUENCE,
        &[
            &contained(&der(SEQUENCE, &certificates)),
            &contained(&der(SEQUENCE, &[&bag(KEY_BAG, key)])),
        ],
    );
    // The same content has the same salt: nothing here is kept secret by it.
    let salt = &digest(&SHA256, &safes).as_ref()[..8].to_vec();
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &mac_key(salt)), &safes);
    let algorithm = der(SEQUENCE, &[&der(OID, &[SHA_256]), &der(NULL, &[])]);
    let mac = der(SEQUENCE, &[&algorithm, &der(OCTETS, &[mac.as_ref()])]);
    let rounds = der(INTEGER, &[&ROUNDS.to_be_bytes()]);
    let mac = der(SEQUENCE, &[&mac, &der(OCTETS, &[salt]), &rounds]);
    der(
        SEQUENCE,
        &[&der(INTEGER, &[&[3]]), &contained(&safes), &mac],
    )
}
