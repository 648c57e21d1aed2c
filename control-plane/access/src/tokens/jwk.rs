//! JSON Web Key Sets, RFC 7517: ours for others to read, theirs for us.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keys::{Algorithm, Curve, Numbers, PublicKey};

/// Most keys taken from one set; providers have a handful.
const MOST_KEYS: usize = 256;

/// A key as it stands in a set; the order of the members is upstream's.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct Jwk {
    #[serde(rename = "use", skip_serializing_if = "String::is_empty")]
    usage: String,
    kty: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    crv: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    alg: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    x: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    y: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    n: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    e: String,
}

/// The set of keys that check our service account tokens, as upstream writes it.
pub fn key_set(keys: &[PublicKey]) -> String {
    #[derive(Serialize)]
    struct Set {
        keys: Vec<Jwk>,
    }
    let set = Set {
        keys: keys.iter().map(Jwk::of).collect(),
    };
    serde_json::to_string(&set).expect("strings serialise")
}

/// Why a provider's key set is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// Not a key set.
    #[error("the key set is not a JSON object with a list of keys")]
    Malformed,
    /// Too many keys.
    #[error("the key set has {0} keys, more than {MOST_KEYS}")]
    TooMany(usize),
    /// Nothing that checks a signature.
    #[error("the key set has no RSA or ECDSA signing key that can be used")]
    Empty,
}

/// The signing keys of a provider's set. Keys for other uses and of kinds we do not check are passed over.
pub fn parse_key_set(text: &[u8]) -> Result<Vec<PublicKey>, KeySetError> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }
    let set: Set = serde_json::from_slice(text).map_err(|_| KeySetError::Malformed)?;
    if set.keys.len() > MOST_KEYS {
        return Err(KeySetError::TooMany(set.keys.len()));
    }
    let jwks = set
        .keys
        .into_iter()
        .filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
    let keys: Vec<PublicKey> = jwks.filter_map(|jwk| jwk.public_key()).collect();
    if keys.is_empty() {
        Err(KeySetError::Empty)
    } else {
        Ok(keys)
    }
}

impl Jwk {
    fn of(key: &PublicKey) -> Jwk {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let base = Jwk {
            usage: "sig".into(),
            kid: key.id().unwrap_or_default().into(),
            alg: key.algorithm().name().into(),
            ..Jwk::default()
        };
        match key.numbers() {
            Numbers::Rsa { modulus, exponent } => Jwk {
                kty: "RSA".into(),
                n: text(modulus),
                e: text(exponent),
                ..base
            },
            Numbers::Ec { curve, x, y } => Jwk {
                kty: "EC".into(),
                crv: curve.name().into(),
                x: text(x),
                y: text(y),
                ..base
            },
        }
    }

    fn public_key(self) -> Option<PublicKey> {
        if !self.usage.is_empty() && self.usage != "sig" {
            return None;
        }
        let numbers = match self.kty.as_str() {
            "RSA" => Numbers::Rsa {
                modulus: number(&self.n)?,
                exponent: number(&self.e)?,
            },
            "EC" => self.point()?,
            _ => return None,
        };
        let only = if self.alg.is_empty() {
            None
        } else {
            Some(Algorithm::named(&self.alg)?)
        };
        let id = Some(self.kid).filter(|kid| !kid.is_empty());
        PublicKey::from_numbers(id, only, numbers).ok()
    }

    /// Coordinates have the full width of the curve, RFC 7518 6.2.1.2.
    fn point(&self) -> Option<Numbers> {
        let curve = Curve::ALL
            .into_iter()
            .find(|curve| curve.name() == self.crv)?;
        let coordinate = |text: &str| {
            URL_SAFE_NO_PAD
                .decode(text)
                .ok()
                .filter(|c| c.len() == curve.width())
        };
        Some(Numbers::Ec {
            curve,
            x: coordinate(&self.x)?,
            y: coordinate(&self.y)?,
        })
    }
}

/// A number without leading zeros; some providers write them.
fn number(text: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    Some(bytes[zeros..].to_vec()).filter(|number| !number.is_empty())
}
