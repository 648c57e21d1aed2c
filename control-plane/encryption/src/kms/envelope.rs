//! What a value looks like that was encrypted by way of a key management service: upstream's `EncryptedObject`. Pure but
//! for chance.
//!
//! The service never sees an object. It encrypts a *seed*; every value has a key of its own, made of the seed and of 32
//! bytes that stand before the value (HKDF-Expand with SHA-256), and is encrypted with AES-256-GCM under it. The encrypted
//! seed travels with each value, so that whoever may ask the service can read it.

use std::collections::BTreeMap;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use aws_lc_rs::rand;
use bytes::Bytes;
use prost::Message;
use sha2::{Digest as _, Sha256};

use crate::providers::{Cipher, Secret};

/// Of a seed, and of what makes a key of it.
const SIZE: usize = 32;
const NONCE: usize = 12;
const KEY_ID_MAX: usize = 1 << 10;
const SOURCE_MAX: usize = 1 << 10;
const ANNOTATIONS_MAX: usize = 32 << 10;

/// How the encrypted part of a value was made: type 1 is what is written, type 0 is what older servers have written.
const SEED: i32 = 1;
const RAW_KEY: i32 = 0;

pub(crate) type Annotations = BTreeMap<String, Vec<u8>>;

/// A stored value behind its prefix; the field numbers are upstream's.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EncryptedObject {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) data: Bytes,
    #[prost(string, tag = "2")]
    pub(crate) key_id: String,
    /// The seed (or key), encrypted by the service.
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) source: Bytes,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(crate) annotations: Annotations,
    #[prost(int32, tag = "5")]
    pub(crate) source_type: i32,
}

/// What opens and seals the data of values. Nobody sees it.
pub(crate) enum Opener {
    Seed(Prk),
    Raw(Secret),
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opener")
    }
}

impl EncryptedObject {
    /// The envelope of a new seed, still without data.
    pub(crate) fn of_seed(source: Bytes, key_id: String, annotations: Annotations) -> Self {
        Self {
            data: Bytes::new(),
            key_id,
            source,
            annotations,
            source_type: SEED,
        }
    }

    pub(crate) fn read(stored: Bytes) -> Result<Self, String> {
        let found = Self::decode(stored).map_err(|error| error.to_string())?;
        if found.data.is_empty() {
            return Err("encrypted data is empty".to_owned());
        }
        found.check()?;
        Ok(found)
    }

    /// Upstream's limits, and words.
    pub(crate) fn check(&self) -> Result<(), String> {
        if ![RAW_KEY, SEED].contains(&self.source_type) {
            return Err(format!(
                "unknown encryptedDEKSourceType: {}",
                self.source_type
            ));
        }
        let source = match self.source.len() {
            0 => Err("encrypted DEK source is empty".to_owned()),
            len if len > SOURCE_MAX => Err(format!(
                "encrypted DEK source is {len} bytes, which exceeds the max size of {SOURCE_MAX}"
            )),
            _ => Ok(()),
        };
        source.map_err(|why| format!("failed to validate encrypted DEK source: {why}"))?;
        check_key_id(&self.key_id).map_err(|why| format!("failed to validate key id: {why}"))?;
        check_annotations(&self.annotations)
            .map_err(|why| format!("failed to validate annotations: {why}"))
    }

    /// What tells one encrypted seed from another; as long for large ones as for small ones.
    pub(crate) fn digest(&self) -> [u8; SIZE] {
        let bare = EncryptedObject {
            data: Bytes::new(),
            ..self.clone()
        };
        Sha256::digest(bare.encode_to_vec()).into()
    }

    pub(crate) fn is_of_seed(&self) -> bool {
        self.source_type == SEED
    }

    /// What opens it, of what the service has decrypted.
    pub(crate) fn opener(&self, decrypted: &[u8]) -> Result<Opener, String> {
        match (self.source_type, decrypted.len()) {
            (SEED, len) if len < SIZE => {
                Err(format!("invalid seed length {len} used for key generation"))
            }
            (SEED, _) => Ok(Opener::Seed(Prk::new_less_safe(HKDF_SHA256, decrypted))),
            (_, len) => match Cipher::AesGcm.key(decrypted) {
                Some(secret) => Ok(Opener::Raw(secret)),
                None => Err(format!("crypto/aes: invalid key size {len}")),
            },
        }
    }
}

/// Why a key's name cannot be used.
pub(crate) fn check_key_id(key_id: &str) -> Result<(), String> {
    match key_id.len() {
        0 => Err("keyID is empty".to_owned()),
        len if len > KEY_ID_MAX => Err(format!(
            "keyID is {len} bytes, which exceeds the max size of {KEY_ID_MAX}"
        )),
        _ => Ok(()),
    }
}

fn check_annotations(annotations: &Annotations) -> Result<(), String> {
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        label.len() <= 63
            && label.chars().all(inner)
            && edge(label.chars().next())
            && edge(label.chars().last())
    };
    let qualified =
        |key: &str| key.len() <= 253 && key.split('.').count() > 1 && key.split('.').all(label);
    if let Some(key) = annotations.keys().find(|key| !qualified(key)) {
        return Err(format!(
            "annotations: Invalid value: {key:?}: should be a domain with at least two segments separated by dots"
        ));
    }
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.len()).sum();
    match size > ANNOTATIONS_MAX {
        true => Err(format!(
            "total size of annotations is {size}, which exceeds the max size of {ANNOTATIONS_MAX}"
        )),
        false => Ok(()),
    }
}

/// A new seed.
pub(crate) fn new_seed() -> Result<[u8; SIZE], String> {
    chance()
}

fn chance<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    let filled = rand::fill(&mut bytes);
    filled.map_err(|_| "no random bytes are to be had".to_owned())?;
    Ok(bytes)
}

impl Opener {
    /// Encrypts with a key that is used this once. Only seeds do that.
    pub(crate) fn seal(&self, plain: &[u8], place: &str) -> Result<Bytes, String> {
        let Opener::Seed(seed) = self else {
            return Err("a key of an older server is only read with".to_owned());
        };
        let (info, nonce): ([u8; SIZE], [u8; NONCE]) = (chance()?, chance()?);
        let mut out = Vec::with_capacity(SIZE + NONCE + plain.len() + 16);
        let mut sealed = plain.to_vec();
        let at = Nonce::assume_unique_for_key(nonce);
        derived(seed, &info)?
            .seal_in_place_append_tag(at, Aad::from(place.as_bytes()), &mut sealed)
            .map_err(|_| "AES-GCM cannot encrypt".to_owned())?;
        out.extend_from_slice(&info);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        Ok(out.into())
    }

    pub(crate) fn open(&self, data: &[u8], place: &str) -> Result<Bytes, String> {
        const SHORT: &str = "the stored data was shorter than the required size";
        const REFUSED: &str = "cipher: message authentication failed";
        let seed = match self {
            Opener::Raw(key) => {
                let opened = Cipher::AesGcm.decrypt(key, data, place);
                return opened.map(Bytes::from).ok_or_else(|| REFUSED.to_owned());
            }
            Opener::Seed(seed) => seed,
        };
        let (info, rest) = data.split_at_checked(SIZE).ok_or(SHORT)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE).ok_or(SHORT)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SHORT)?;
        let mut plain = sealed.to_vec();
        let opened = derived(seed, info)?
            .open_in_place(nonce, Aad::from(place.as_bytes()), &mut plain)
            .map_err(|_| REFUSED)?;
        let len = opened.len();
        plain.truncate(len);
        Ok(plain.into())
    }
}

fn derived(seed: &Prk, info: &[u8]) -> Result<LessSafeKey, String> {
    let cannot = |_| "failed to KDF expand seed with info".to_owned();
    let info = [info];
    let expanded = seed.expand(&info, &AES_256_GCM).map_err(cannot)?;
    Ok(LessSafeKey::new(UnboundKey::from(expanded)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const PLACE: &str = "/registry/secrets/default/a";

    fn object(source_type: i32) -> EncryptedObject {
        EncryptedObject {
            data: Bytes::from_static(b"x"),
            key_id: "k".into(),
            source: Bytes::from_static(b"sealed"),
            annotations: Annotations::new(),
            source_type,
        }
    }

    #[test]
    fn every_value_has_a_key_of_its_own_and_its_place() {
        let opener = object(SEED).opener(&[7; 32]).unwrap();
        let (one, two) = (
            opener.seal(b"a", PLACE).unwrap(),
            opener.seal(b"a", PLACE).unwrap(),
        );
        assert_ne!(one[..32], two[..32]);
        assert_eq!(opener.open(&one, PLACE).unwrap(), "a");
        assert!(opener.open(&one, "/registry/secrets/default/b").is_err());
        let other = object(SEED).opener(&[8; 32]).unwrap();
        assert!(other.open(&one, PLACE).is_err());
        for len in 0..one.len() {
            assert!(opener.open(&one[..len], PLACE).is_err());
        }
    }

    // Worked out with Python's hmac and cryptography: HMAC-SHA256(seed, info ‖ 1), AES-256-GCM.
    #[test]
    fn keys_are_derived_as_upstream_derives_them() {
        let opener = object(SEED).opener(&[1; 32]).unwrap();
        let data = concat!(
            "0202020202020202020202020202020202020202020202020202020202020202",
            "030303030303030303030303",
            "782f88de0dc44bb2e2b732c1d2c0509df0ea32efb3"
        );
        let data: Vec<u8> = (0..data.len() / 2)
            .map(|i| u8::from_str_radix(&data[2 * i..2 * i + 2], 16).unwrap())
            .collect();
        assert_eq!(opener.open(&data, PLACE).unwrap(), "hello");
    }

    #[test]
    fn what_older_servers_have_written_is_read() {
        let key = Cipher::AesGcm.key(&[5; 32]).unwrap();
        let sealed = Cipher::AesGcm.encrypt(&key, b"old", PLACE).unwrap();
        let opener = object(RAW_KEY).opener(&[5; 32]).unwrap();
        assert_eq!(opener.open(&sealed, PLACE).unwrap(), "old");
        assert!(opener.seal(b"new", PLACE).is_err());
        assert!(object(RAW_KEY).opener(&[5; 31]).is_err());
        assert!(object(SEED).opener(&[5; 31]).is_err());
    }

    type Spoil<'a> = &'a dyn Fn(&mut EncryptedObject);

    #[test]
    fn envelopes_that_break_a_limit_are_refused() {
        let with = |change: &dyn Fn(&mut EncryptedObject)| {
            let mut changed = object(SEED);
            change(&mut changed);
            EncryptedObject::read(changed.encode_to_vec().into())
        };
        assert_eq!(with(&|_| {}), Ok(object(SEED)));
        let note = |key: &str, len: usize| Annotations::from([(key.to_owned(), vec![0; len])]);
        let (short, long) = (note("short", 1), note("a.example", 33 << 10));
        let cases: [(Spoil<'_>, &str); 8] = [
            (&|o| o.data.clear(), "encrypted data is empty"),
            (&|o| o.source_type = 7, "unknown encryptedDEKSourceType: 7"),
            (&|o| o.source.clear(), "encrypted DEK source is empty"),
            (
                &|o| o.source = vec![0; 1025].into(),
                "exceeds the max size of 1024",
            ),
            (&|o| o.key_id.clear(), "keyID is empty"),
            (&|o| o.key_id = "k".repeat(1025), "keyID is 1025 bytes"),
            (&|o| o.annotations = short.clone(), "at least two segments"),
            (
                &|o| o.annotations = long.clone(),
                "total size of annotations",
            ),
        ];
        for (change, why) in cases {
            let said = with(change).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = EncryptedObject::read(bytes.into());
        }
    }
}
