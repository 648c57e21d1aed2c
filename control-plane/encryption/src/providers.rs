//! Providers: how a value is encrypted, and by what it is known. Pure but for chance, and for keys that a service has.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptionContext, PaddedBlockDecryptingKey,
    PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::rand;
use bytes::Bytes;
use crypto_secretbox::aead::Aead as _;
use crypto_secretbox::{KeyInit as _, XSalsa20Poly1305};

use crate::kms::Plugin;

/// What every encrypted value begins with.
const ENCRYPTED: &[u8] = b"k8s:enc:";
const GCM_NONCE: usize = 12;
const CBC_IV: usize = 16;
const BOX_NONCE: usize = 24;

/// A way of encrypting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cipher {
    AesGcm,
    AesCbc,
    Secretbox,
}

/// One provider of a resource.
#[derive(Debug)]
pub(crate) enum Provider {
    /// Nothing is encrypted.
    Identity,
    /// Names and keys; the first writes.
    Keyed(Cipher, Vec<(String, Secret)>),
    /// A key management service has the key.
    Kms(Arc<Plugin>),
}

impl Provider {
    /// What values begin with, as metrics name it.
    fn known_as(&self) -> String {
        match self {
            Provider::Identity => "identity".to_owned(),
            Provider::Keyed(cipher, keys) => match &keys[..] {
                [(name, _), ..] => format!("{}{name}:", cipher.prefix()),
                [] => cipher.prefix(),
            },
            Provider::Kms(plugin) => plugin.prefix().to_owned(),
        }
    }
}

/// A key, which nobody sees.
pub(crate) struct Secret(Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Cipher {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Cipher::AesGcm => "aesgcm",
            Cipher::AesCbc => "aescbc",
            Cipher::Secretbox => "secretbox",
        }
    }

    pub(crate) fn key_sizes(self) -> &'static str {
        match self {
            Cipher::Secretbox => "[32]",
            _ => "[16 24 32]",
        }
    }

    /// A key, if it is as long as it has to be.
    pub(crate) fn key(self, secret: &[u8]) -> Option<Secret> {
        let fits = match self {
            Cipher::Secretbox => secret.len() == 32,
            _ => matches!(secret.len(), 16 | 24 | 32),
        };
        fits.then(|| Secret(secret.to_vec()))
    }

    fn prefix(self) -> String {
        format!("k8s:enc:{}:v1:", self.name())
    }

    pub(crate) fn encrypt(self, secret: &Secret, plain: &[u8], place: &str) -> Option<Vec<u8>> {
        match self {
            Cipher::AesGcm => {
                let nonce: [u8; GCM_NONCE] = chance()?;
                let mut sealed = plain.to_vec();
                let (key, aad) = (gcm(secret)?, Aad::from(place.as_bytes()));
                let at = Nonce::assume_unique_for_key(nonce);
                key.seal_in_place_append_tag(at, aad, &mut sealed).ok()?;
                Some([&nonce[..], &sealed].concat())
            }
            Cipher::AesCbc => {
                let mut sealed = plain.to_vec();
                let key = PaddedBlockEncryptingKey::cbc_pkcs7(cbc(secret)?).ok()?;
                let DecryptionContext::Iv128(iv) = key.encrypt(&mut sealed).ok()? else {
                    return None;
                };
                let iv: &[u8; CBC_IV] = iv.as_ref();
                Some([&iv[..], &sealed].concat())
            }
            Cipher::Secretbox => {
                let nonce: [u8; BOX_NONCE] = chance()?;
                let key = XSalsa20Poly1305::new_from_slice(&secret.0).ok()?;
                let sealed = key.encrypt(&nonce.into(), plain).ok()?;
                Some([&nonce[..], &sealed].concat())
            }
        }
    }

    pub(crate) fn decrypt(self, secret: &Secret, sealed: &[u8], place: &str) -> Option<Vec<u8>> {
        match self {
            Cipher::AesGcm => {
                let (nonce, sealed) = sealed.split_at_checked(GCM_NONCE)?;
                let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
                let mut plain = sealed.to_vec();
                let aad = Aad::from(place.as_bytes());
                let len = gcm(secret)?
                    .open_in_place(nonce, aad, &mut plain)
                    .ok()?
                    .len();
                plain.truncate(len);
                Some(plain)
            }
            Cipher::AesCbc => {
                let (iv, sealed) = sealed.split_at_checked(CBC_IV)?;
                let context = DecryptionContext::Iv128(FixedLength::try_from(iv).ok()?);
                let key = PaddedBlockDecryptingKey::cbc_pkcs7(cbc(secret)?).ok()?;
                let mut plain = sealed.to_vec();
                let len = key.decrypt(&mut plain, context).ok()?.len();
                plain.truncate(len);
                Some(plain)
            }
            Cipher::Secretbox => {
                let (nonce, sealed) = sealed.split_at_checked(BOX_NONCE)?;
                let nonce: [u8; BOX_NONCE] = nonce.try_into().ok()?;
                let key = XSalsa20Poly1305::new_from_slice(&secret.0).ok()?;
                key.decrypt(&nonce.into(), sealed).ok()
            }
        }
    }
}

fn chance<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).ok()?;
    Some(bytes)
}

fn gcm(secret: &Secret) -> Option<LessSafeKey> {
    let algorithm = match secret.0.len() {
        16 => &AES_128_GCM,
        24 => &AES_192_GCM,
        _ => &AES_256_GCM,
    };
    UnboundKey::new(algorithm, &secret.0)
        .ok()
        .map(LessSafeKey::new)
}

fn cbc(secret: &Secret) -> Option<UnboundCipherKey> {
    let algorithm = match secret.0.len() {
        16 => &AES_128,
        24 => &AES_192,
        _ => &AES_256,
    };
    UnboundCipherKey::new(algorithm, &secret.0).ok()
}

/// A value as it was before it was encrypted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) value: Bytes,
    /// Whether another than the first provider and key has written it.
    pub(crate) stale: bool,
}

/// The providers of a resource.
#[derive(Debug)]
pub(crate) struct Transformer {
    providers: Vec<Provider>,
}

impl Transformer {
    pub(crate) fn new(providers: Vec<Provider>) -> Transformer {
        Transformer { providers }
    }

    /// What the first provider's values begin with, as metrics name it.
    pub(crate) fn writes_as(&self) -> String {
        let first = self.providers.first().unwrap_or(&Provider::Identity);
        first.known_as()
    }

    /// Which provider a stored value is of, as metrics name it.
    pub(crate) fn reads_as(&self, stored: &Bytes) -> String {
        let names = |p: &&Provider| stored.starts_with(p.known_as().as_bytes());
        let found = self.providers.iter().find(names);
        found.map_or_else(|| "identity".to_owned(), Provider::known_as)
    }

    /// The services that are asked for keys.
    pub(crate) fn plugins(&self) -> impl Iterator<Item = &Arc<Plugin>> {
        self.providers.iter().filter_map(|provider| match provider {
            Provider::Kms(plugin) => Some(plugin),
            _ => None,
        })
    }

    /// Gets what a value needs to be read, where that takes time.
    pub(crate) async fn prepare(&self, stored: &Bytes) {
        for plugin in self.plugins() {
            if let Some(rest) = stored.strip_prefix(plugin.prefix().as_bytes()) {
                plugin.prepare(stored.slice_ref(rest)).await;
            }
        }
    }

    /// A value as it is stored. `place` is its key, to which authenticated encryption ties it.
    pub(crate) fn seal(&self, plain: &Bytes, place: &str) -> Result<Bytes, String> {
        match self.providers.first() {
            None | Some(Provider::Identity) => Ok(plain.clone()),
            Some(Provider::Keyed(cipher, keys)) => {
                let (name, secret) = &keys[0];
                let sealed = cipher.encrypt(secret, plain, place);
                let sealed = sealed.ok_or_else(|| format!("{} cannot encrypt", cipher.name()))?;
                let prefix = format!("{}{name}:", cipher.prefix());
                Ok([prefix.as_bytes(), &sealed].concat().into())
            }
            Some(Provider::Kms(plugin)) => plugin.seal(plain, place),
        }
    }

    /// A stored value as it was. Upstream's rules and words.
    pub(crate) fn open(&self, stored: &Bytes, place: &str) -> Result<Plain, String> {
        let mut failures = Vec::new();
        for (index, provider) in self.providers.iter().enumerate() {
            let opened = match provider {
                Provider::Identity if stored.starts_with(ENCRYPTED) => continue,
                Provider::Identity => Ok((stored.clone(), false)),
                Provider::Keyed(cipher, keys) => {
                    let Some(rest) = stored.strip_prefix(cipher.prefix().as_bytes()) else {
                        continue;
                    };
                    open_with(*cipher, keys, rest, place)
                }
                Provider::Kms(plugin) => {
                    let Some(rest) = stored.strip_prefix(plugin.prefix().as_bytes()) else {
                        continue;
                    };
                    plugin.open(stored.slice_ref(rest), place)
                }
            };
            match opened {
                Ok((value, other_key)) => {
                    let stale = index > 0 || other_key;
                    return Ok(Plain { value, stale });
                }
                Err(why) => failures.push(why),
            }
        }
        let only_plain = matches!(self.providers[..], [Provider::Identity]);
        match failures.is_empty() {
            true if only_plain => Err("identity transformer tried to read encrypted data".into()),
            true => Err("no matching prefix found".into()),
            false => Err(failures.join(", ")),
        }
    }
}

fn open_with(
    cipher: Cipher,
    keys: &[(String, Secret)],
    rest: &[u8],
    place: &str,
) -> Result<(Bytes, bool), String> {
    let named = keys
        .iter()
        .enumerate()
        .filter_map(|(index, (name, secret))| {
            let sealed = rest.strip_prefix(name.as_bytes())?.strip_prefix(b":")?;
            Some((index, secret, sealed))
        });
    let mut tried = false;
    for (index, secret, sealed) in named {
        tried = true;
        if let Some(plain) = cipher.decrypt(secret, sealed, place) {
            return Ok((plain.into(), index > 0));
        }
    }
    Err(match tried {
        true => format!("{}: message authentication failed", cipher.name()),
        false => {
            let name = cipher.name();
            format!("no matching key was found for the provided {name} transformer")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: &str = "/registry/secrets/default/a";

    fn keyed(cipher: Cipher, names: &[(&str, u8)]) -> Provider {
        let key = |(name, byte): &(&str, u8)| ((*name).to_owned(), Secret(vec![*byte; 32]));
        Provider::Keyed(cipher, names.iter().map(key).collect())
    }

    #[test]
    fn what_every_cipher_seals_it_opens_and_nobody_else() {
        let plain = Bytes::from_static(b"{\"kind\":\"Secret\"}");
        for cipher in [Cipher::AesGcm, Cipher::AesCbc, Cipher::Secretbox] {
            for size in [16, 24, 32] {
                let Some(secret) = cipher.key(&vec![7; size]) else {
                    assert_eq!((cipher, size == 32), (Cipher::Secretbox, false));
                    continue;
                };
                let own =
                    Transformer::new(vec![Provider::Keyed(cipher, vec![("k".into(), secret)])]);
                let sealed = own.seal(&plain, PLACE).expect("seals");
                let prefix = format!("k8s:enc:{}:v1:k:", cipher.name());
                assert!(sealed.starts_with(prefix.as_bytes()));
                let opened = own.open(&sealed, PLACE).expect("opens");
                assert_eq!((opened.value, opened.stale), (plain.clone(), false));
                let other = Transformer::new(vec![keyed(cipher, &[("k", 9)])]);
                assert_ne!(
                    other.open(&sealed, PLACE).ok().map(|p| p.value),
                    Some(plain.clone())
                );
            }
        }
        // A sealed value does not work in another place.
        let own = Transformer::new(vec![keyed(Cipher::AesGcm, &[("k", 1)])]);
        let sealed = own.seal(&plain, PLACE).expect("seals");
        assert!(own.open(&sealed, "/registry/secrets/default/b").is_err());
    }

    #[test]
    fn keys_turn_without_a_value_that_cannot_be_read() {
        let plain = Bytes::from_static(b"x");
        let old = Transformer::new(vec![
            keyed(Cipher::AesCbc, &[("one", 1)]),
            Provider::Identity,
        ]);
        let sealed = old.seal(&plain, PLACE).expect("seals");
        let turned = Transformer::new(vec![keyed(Cipher::AesCbc, &[("two", 2), ("one", 1)])]);
        assert!(turned.open(&sealed, PLACE).expect("opens").stale);
        let fresh = turned.seal(&plain, PLACE).expect("seals");
        assert!(!turned.open(&fresh, PLACE).expect("opens").stale);
        assert!(
            old.open(&plain, PLACE).expect("was plain").stale,
            "it is to be encrypted"
        );
        let away = Transformer::new(vec![
            Provider::Identity,
            keyed(Cipher::AesCbc, &[("one", 1)]),
        ]);
        assert!(away.open(&sealed, PLACE).expect("opens").stale);
        let cases = [
            (
                Transformer::new(vec![Provider::Identity]),
                "identity transformer tried to read encrypted data",
            ),
            (
                Transformer::new(vec![keyed(Cipher::AesGcm, &[("one", 1)])]),
                "no matching prefix found",
            ),
            (
                Transformer::new(vec![keyed(Cipher::AesCbc, &[("two", 2)])]),
                "no matching key was found for the provided aescbc transformer",
            ),
        ];
        for (transformer, why) in cases {
            assert_eq!(transformer.open(&sealed, PLACE).expect_err(why), why);
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic() {
        let all = [Cipher::AesGcm, Cipher::AesCbc, Cipher::Secretbox];
        for cipher in all {
            let own = Transformer::new(vec![keyed(cipher, &[("k", 1)])]);
            for len in 0..64 {
                let mut value = format!("k8s:enc:{}:v1:k:", cipher.name()).into_bytes();
                value.extend(vec![3; len]);
                assert!(own.open(&value.into(), PLACE).is_err());
            }
        }
    }
}
