//! JSON Web Signatures in compact form, RFC 7515, read strictly.
//!
//! Three parts of canonical base64url; no critical extensions; keys come from us and never from the token.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::keys::{Algorithm, KeyError, PublicKey, SigningKey};

/// Longest token looked at. Tokens with hundreds of groups stay under a quarter of this.
const LONGEST: usize = 64 * 1024;

/// A token taken apart; nothing about it is believed yet.
pub(crate) struct Compact<'t> {
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Option<String>,
    signed: &'t str,
    payload: Vec<u8>,
    signature: Vec<u8>,
}

/// Why a token could not be taken apart, or is not what a key signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("token is malformed")]
    Malformed,
    #[error("token header names an algorithm that is not accepted")]
    Algorithm,
    #[error("token header has critical extensions, which are not supported")]
    Critical,
    #[error("invalid signature, no keys found")]
    NoKeys,
    #[error("invalid signature")]
    Signature,
}

#[derive(Deserialize)]
struct Header<'t> {
    alg: String,
    #[serde(default)]
    kid: String,
    #[serde(borrow)]
    crit: Option<&'t RawValue>,
}

#[derive(Serialize)]
struct OwnHeader<'a> {
    alg: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<&'a str>,
}

/// The issuer a token claims to have, for deciding whose business it is and nothing else.
pub(crate) fn claimed_issuer(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Issuer {
        iss: String,
    }
    let [_, payload, _] = parts(token)?;
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    serde_json::from_slice::<Issuer>(&payload)
        .ok()
        .map(|claims| claims.iss)
}

fn parts(token: &str) -> Option<[&str; 3]> {
    if token.len() > LONGEST {
        return None;
    }
    let mut parts = token.split('.');
    let found = [parts.next()?, parts.next()?, parts.next()?];
    parts.next().is_none().then_some(found)
}

impl<'t> Compact<'t> {
    /// Takes a token apart.
    pub(crate) fn parse(token: &'t str) -> Result<Compact<'t>, Refused> {
        let [header, payload, signature] = parts(token).ok_or(Refused::Malformed)?;
        let signed = &token[..header.len() + 1 + payload.len()];
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| Refused::Malformed);
        let header = decode(header)?;
        let header: Header<'_> = serde_json::from_slice(&header).map_err(|_| Refused::Malformed)?;
        if header.crit.is_some() {
            return Err(Refused::Critical);
        }
        Ok(Compact {
            algorithm: Algorithm::named(&header.alg).ok_or(Refused::Algorithm)?,
            key_id: Some(header.kid).filter(|kid| !kid.is_empty()),
            signed,
            payload: decode(payload)?,
            signature: decode(signature)?,
        })
    }

    /// What the token claims. Before its signature was checked it is good for refusing it early, and nothing else.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The payload, if one of the keys signed it. A token that names a key is checked with that key only.
    pub(crate) fn verified<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k PublicKey>,
    ) -> Result<&[u8], Refused> {
        let mut tried = false;
        for key in keys.into_iter().filter(|key| self.names(key)) {
            tried = true;
            if key.verifies(self.algorithm, self.signed.as_bytes(), &self.signature) {
                return Ok(&self.payload);
            }
        }
        Err(if tried {
            Refused::Signature
        } else {
            Refused::NoKeys
        })
    }

    fn names(&self, key: &PublicKey) -> bool {
        self.key_id.is_none() || self.key_id.as_deref() == key.id()
    }
}

/// A signed token.
pub(crate) fn sign(key: &SigningKey, claims: &impl Serialize) -> Result<String, KeyError> {
    let header = OwnHeader {
        alg: key.public().algorithm().name(),
        kid: key.public().id(),
    };
    let encode = |part: Vec<u8>| URL_SAFE_NO_PAD.encode(part);
    let header = encode(serde_json::to_vec(&header).map_err(|_| KeyError::SigningFailed)?);
    let claims = encode(serde_json::to_vec(claims).map_err(|_| KeyError::SigningFailed)?);
    let signed = format!("{header}.{claims}");
    let signature = encode(key.sign(signed.as_bytes())?);
    Ok(format!("{signed}.{signature}"))
}
