//! Objects, keys and times for the tests of tokens.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::sync::LazyLock;

use aws_lc_rs::encoding::{AsDer, EcPrivateKeyRfc5915Der, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{self, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
pub(crate) use der::pem;
use jiff::Timestamp;
use serde_json::Value;

use super::Objects;
use super::keys::SigningKey;

/// Objects by plural, namespace and name.
#[derive(Default)]
pub(crate) struct World(HashMap<(String, String, String), Value>);

impl World {
    pub(crate) fn with(mut self, plural: &str, object: Value) -> World {
        let text = |field: &str| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        self.0
            .insert((plural.into(), text("namespace"), text("name")), object);
        self
    }

    /// The same objects with one part of one of them changed.
    pub(crate) fn changed(
        mut self,
        plural: &str,
        name: &str,
        pointer: &str,
        value: Value,
    ) -> World {
        let found = self
            .0
            .iter_mut()
            .find(|(key, _)| key.0 == plural && key.2 == name);
        let object = found.unwrap().1;
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value;
        self
    }

    pub(crate) fn without(mut self, plural: &str, name: &str) -> World {
        self.0.retain(|key, _| key.0 != plural || key.2 != name);
        self
    }
}

impl Objects for World {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        assert_eq!(group, "");
        self.0
            .get(&(plural.into(), namespace.into(), name.into()))
            .cloned()
    }
}

/// Seconds after the start of the tests' time.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// PKCS #8 of an RSA key, made once.
pub(crate) static RSA_PKCS8: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
    der.as_ref().to_vec()
});

pub(crate) fn rsa_key() -> SigningKey {
    SigningKey::from_pem(pem("PRIVATE KEY", &RSA_PKCS8).as_bytes()).unwrap()
}

/// SEC 1 of a P-256 key, made once.
pub(crate) static EC_SEC1: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let pair = EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let der: EcPrivateKeyRfc5915Der<'_> = pair.private_key().as_der().unwrap();
    der.as_ref().to_vec()
});

pub(crate) fn ec_key() -> SigningKey {
    SigningKey::from_pem(pem("EC PRIVATE KEY", &EC_SEC1).as_bytes()).unwrap()
}

/// Another P-256 key each time.
pub(crate) fn fresh_ec_key() -> SigningKey {
    let pair = EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    SigningKey::from_pem(pem("PRIVATE KEY", pair.to_pkcs8v1().unwrap().as_ref()).as_bytes())
        .unwrap()
}

/// A token of any header and claims, signed by whatever `sign` does.
pub(crate) fn forged(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let encode = |v: &Value| URL_SAFE_NO_PAD.encode(v.to_string());
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// Header and claims of a token.
pub(crate) fn opened(token: &str) -> (Value, Value) {
    let part = |n: usize| {
        let bytes = URL_SAFE_NO_PAD
            .decode(token.split('.').nth(n).unwrap())
            .unwrap();
        serde_json::from_slice(&bytes).unwrap()
    };
    (part(0), part(1))
}
