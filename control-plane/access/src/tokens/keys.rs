//! Keys that sign tokens and keys that check them.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair as RsaKeyPair;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::pem::{PemObject, SectionKind};
use sha2::{Digest, Sha256};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey as ParsedKey;
use x509_parser::x509::SubjectPublicKeyInfo;

mod der;

/// Why a key could not be read. Never contains key material.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The PEM framing is broken.
    #[error("the key file is not PEM: {0}\nhint: it must hold blocks that start with -----BEGIN")]
    NotPem(String),
    /// No block held a private key.
    #[error("data does not contain a valid RSA or ECDSA private key")]
    NoPrivateKey,
    /// No block held a key.
    #[error("data does not contain any valid RSA or ECDSA public keys")]
    NoPublicKey,
    /// A key of a kind tokens are not signed with.
    #[error("the key is neither RSA of at least 2048 bits nor ECDSA on P-256, P-384 or P-521")]
    Unsupported,
    /// The library refused to sign.
    #[error("the key could not sign")]
    SigningFailed,
}

/// A signature algorithm of RFC 7518. Nothing symmetric, and never `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Es256,
    Es384,
    Es512,
    Ps256,
    Ps384,
    Ps512,
}

/// One row per algorithm: its name, the keys it goes with, its implementation.
const ALGORITHMS: [(Algorithm, &str, KeyType, &dyn VerificationAlgorithm); 9] = [
    (
        Algorithm::Rs256,
        "RS256",
        KeyType::Rsa,
        &signature::RSA_PKCS1_2048_8192_SHA256,
    ),
    (
        Algorithm::Rs384,
        "RS384",
        KeyType::Rsa,
        &signature::RSA_PKCS1_2048_8192_SHA384,
    ),
    (
        Algorithm::Rs512,
        "RS512",
        KeyType::Rsa,
        &signature::RSA_PKCS1_2048_8192_SHA512,
    ),
    (
        Algorithm::Es256,
        "ES256",
        KeyType::Ec(Curve::P256),
        &signature::ECDSA_P256_SHA256_FIXED,
    ),
    (
        Algorithm::Es384,
        "ES384",
        KeyType::Ec(Curve::P384),
        &signature::ECDSA_P384_SHA384_FIXED,
    ),
    (
        Algorithm::Es512,
        "ES512",
        KeyType::Ec(Curve::P521),
        &signature::ECDSA_P521_SHA512_FIXED,
    ),
    (
        Algorithm::Ps256,
        "PS256",
        KeyType::Rsa,
        &signature::RSA_PSS_2048_8192_SHA256,
    ),
    (
        Algorithm::Ps384,
        "PS384",
        KeyType::Rsa,
        &signature::RSA_PSS_2048_8192_SHA384,
    ),
    (
        Algorithm::Ps512,
        "PS512",
        KeyType::Rsa,
        &signature::RSA_PSS_2048_8192_SHA512,
    ),
];

impl Algorithm {
    /// Every algorithm there is, as the structured configuration allows.
    pub fn all() -> Vec<Algorithm> {
        ALGORITHMS.iter().map(|row| row.0).collect()
    }

    /// The algorithm of a name; nothing for `none`, HMAC and names nobody knows.
    pub fn named(name: &str) -> Option<Algorithm> {
        ALGORITHMS.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// The name in headers and key sets.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    fn row(
        self,
    ) -> &'static (
        Algorithm,
        &'static str,
        KeyType,
        &'static dyn VerificationAlgorithm,
    ) {
        ALGORITHMS
            .iter()
            .find(|row| row.0 == self)
            .expect("every algorithm has a row")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyType {
    Rsa,
    Ec(Curve),
}

/// An elliptic curve of NIST's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Curve {
    P256,
    P384,
    P521,
}

impl Curve {
    pub(super) const ALL: [Curve; 3] = [Curve::P256, Curve::P384, Curve::P521];

    /// Bytes of one coordinate.
    pub(super) fn width(self) -> usize {
        match self {
            Curve::P256 => 32,
            Curve::P384 => 48,
            Curve::P521 => 66,
        }
    }

    /// The name in key sets.
    pub(super) fn name(self) -> &'static str {
        match self {
            Curve::P256 => "P-256",
            Curve::P384 => "P-384",
            Curve::P521 => "P-521",
        }
    }

    fn signing(self) -> &'static signature::EcdsaSigningAlgorithm {
        match self {
            Curve::P256 => &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
            Curve::P384 => &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
            Curve::P521 => &signature::ECDSA_P521_SHA512_FIXED_SIGNING,
        }
    }

    fn algorithm(self) -> Algorithm {
        match self {
            Curve::P256 => Algorithm::Es256,
            Curve::P384 => Algorithm::Es384,
            Curve::P521 => Algorithm::Es512,
        }
    }
}

/// The numbers of a public key, big-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Numbers {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    Ec {
        curve: Curve,
        x: Vec<u8>,
        y: Vec<u8>,
    },
}

/// A key that checks signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    id: Option<String>,
    /// The one algorithm a key set restricts the key to, if it does.
    only: Option<Algorithm>,
    numbers: Numbers,
    /// What the library checks with: a SubjectPublicKeyInfo, or an uncompressed point.
    encoded: Vec<u8>,
}

impl PublicKey {
    pub(super) fn from_numbers(
        id: Option<String>,
        only: Option<Algorithm>,
        numbers: Numbers,
    ) -> Result<Self, KeyError> {
        let encoded = match &numbers {
            Numbers::Rsa { modulus, .. } if modulus.len() < 256 => {
                return Err(KeyError::Unsupported);
            }
            Numbers::Rsa { modulus, exponent } => der::rsa_info(modulus, exponent),
            Numbers::Ec { x, y, .. } => der::point(x, y),
        };
        let key = PublicKey {
            id,
            only,
            numbers,
            encoded,
        };
        // Points off the curve and even moduli are refused here, not at the first token.
        let parsed = UnparsedPublicKey::new(key.algorithm().row().3, &key.encoded).parse();
        parsed.map(|_| key).map_err(|_| KeyError::Unsupported)
    }

    /// A key out of a SubjectPublicKeyInfo, with the key id upstream derives.
    fn from_info(info: &SubjectPublicKeyInfo<'_>) -> Result<PublicKey, KeyError> {
        let numbers = match info.parsed().map_err(|_| KeyError::Unsupported)? {
            ParsedKey::RSA(rsa) => Numbers::Rsa {
                modulus: unsigned(rsa.modulus),
                exponent: unsigned(rsa.exponent),
            },
            ParsedKey::EC(point) => ec_numbers(point.data()).ok_or(KeyError::Unsupported)?,
            _ => return Err(KeyError::Unsupported),
        };
        let mut key = PublicKey::from_numbers(None, None, numbers)?;
        key.id = Some(key.derived_id());
        Ok(key)
    }

    fn from_der(der: &[u8]) -> Result<PublicKey, KeyError> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|_| KeyError::Unsupported)?;
        PublicKey::from_info(&info)
    }

    /// The id tokens name the key by.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    pub(super) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// The algorithm service account tokens signed with the key's other half use.
    pub fn algorithm(&self) -> Algorithm {
        match &self.numbers {
            Numbers::Rsa { .. } => Algorithm::Rs256,
            Numbers::Ec { curve, .. } => curve.algorithm(),
        }
    }

    /// Upstream's key id: a hash, so that the id does not stand in for the key.
    fn derived_id(&self) -> String {
        let info = match &self.numbers {
            Numbers::Rsa { .. } => self.encoded.clone(),
            Numbers::Ec { curve, .. } => der::ec_info(*curve, &self.encoded),
        };
        URL_SAFE_NO_PAD.encode(Sha256::digest(info))
    }

    /// Whether the signature over a message is this key's, made with this algorithm.
    pub fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let (_, _, key_type, implementation) = algorithm.row();
        let fits = match (&self.numbers, key_type) {
            (Numbers::Rsa { .. }, KeyType::Rsa) => true,
            (Numbers::Ec { curve, .. }, KeyType::Ec(wanted)) => curve == wanted,
            _ => false,
        };
        let allowed = self.only.is_none_or(|only| only == algorithm);
        fits && allowed
            && UnparsedPublicKey::new(*implementation, &self.encoded)
                .verify(message, signature)
                .is_ok()
    }
}

/// Every public key of a PEM text: of public keys, certificates and private keys, as upstream's
/// `--service-account-key-file` takes them. Other blocks are passed over.
pub fn public_keys(pem: &[u8]) -> Result<Vec<PublicKey>, KeyError> {
    let mut found = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
        let (kind, der) = section.map_err(|e| KeyError::NotPem(e.to_string()))?;
        match kind {
            SectionKind::PublicKey => found.extend(PublicKey::from_der(&der)),
            SectionKind::Certificate => found.extend(certificate_key(&der)),
            _ => found.extend(SigningKey::from_section(kind, &der).map(|key| key.public)),
        }
    }
    if found.is_empty() {
        Err(KeyError::NoPublicKey)
    } else {
        Ok(found)
    }
}

fn certificate_key(der: &[u8]) -> Option<PublicKey> {
    let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(der).ok()?;
    PublicKey::from_info(certificate.public_key()).ok()
}

/// A key that signs service account tokens.
pub struct SigningKey {
    pair: Pair,
    public: PublicKey,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("id", &self.public.id)
            .finish_non_exhaustive()
    }
}

impl SigningKey {
    /// The first private key of a PEM text: PKCS #8, PKCS #1 or SEC 1.
    pub fn from_pem(pem: &[u8]) -> Result<SigningKey, KeyError> {
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
            let (kind, der) = section.map_err(|e| KeyError::NotPem(e.to_string()))?;
            if let Some(key) = SigningKey::from_section(kind, &der) {
                return Ok(key);
            }
        }
        Err(KeyError::NoPrivateKey)
    }

    fn from_section(kind: SectionKind, der: &[u8]) -> Option<SigningKey> {
        let pair = match kind {
            SectionKind::RsaPrivateKey => RsaKeyPair::from_der(der).ok().map(Pair::Rsa),
            SectionKind::EcPrivateKey => {
                ec_pair(|curve| EcdsaKeyPair::from_private_key_der(curve.signing(), der))
            }
            SectionKind::PrivateKey => RsaKeyPair::from_pkcs8(der)
                .ok()
                .map(Pair::Rsa)
                .or_else(|| ec_pair(|curve| EcdsaKeyPair::from_pkcs8(curve.signing(), der))),
            _ => None,
        }?;
        let public = pair.public()?;
        Some(SigningKey { pair, public })
    }

    /// The half that checks.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The signature over a message, with the algorithm [`PublicKey::algorithm`] names.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let random = SystemRandom::new();
        let failed = |_| KeyError::SigningFailed;
        match &self.pair {
            Pair::Ec(pair) => Ok(pair
                .sign(&random, message)
                .map_err(failed)?
                .as_ref()
                .to_vec()),
            Pair::Rsa(pair) => {
                let mut signed = vec![0; pair.public_modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut signed)
                    .map_err(failed)?;
                Ok(signed)
            }
        }
    }
}

impl Pair {
    fn public(&self) -> Option<PublicKey> {
        use aws_lc_rs::encoding::AsDer as _;
        match self {
            Pair::Rsa(pair) => PublicKey::from_der(pair.public_key().as_der().ok()?.as_ref()).ok(),
            Pair::Ec(pair) => PublicKey::from_der(pair.public_key().as_der().ok()?.as_ref()).ok(),
        }
    }
}

fn ec_pair<E>(parse: impl Fn(Curve) -> Result<EcdsaKeyPair, E>) -> Option<Pair> {
    Curve::ALL
        .into_iter()
        .find_map(|curve| parse(curve).ok())
        .map(Pair::Ec)
}

/// Coordinates of an uncompressed point; its length tells the curve.
fn ec_numbers(point: &[u8]) -> Option<Numbers> {
    let (4, rest) = (*point.first()?, &point[1..]) else {
        return None;
    };
    let curve = Curve::ALL
        .into_iter()
        .find(|curve| rest.len() == 2 * curve.width())?;
    let (x, y) = rest.split_at(curve.width());
    Some(Numbers::Ec {
        curve,
        x: x.to_vec(),
        y: y.to_vec(),
    })
}

/// A DER integer's bytes without its sign byte.
fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes[zeros..].to_vec()
}

#[cfg(test)]
mod tests;
