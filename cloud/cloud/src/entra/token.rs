//! Tokens: signed with the tenant's key, and read again.

use std::fmt::Debug;

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use rustls_pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::RSAPublicKey;

/// How far clocks may disagree; what Entra's own libraries allow.
const SLACK_SECONDS: i64 = 300;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the tenant's signing key cannot be {doing}: {cause}")]
pub struct KeyError {
    doing: &'static str,
    cause: String,
}

impl KeyError {
    fn new(doing: &'static str, cause: impl Debug) -> KeyError {
        let cause = format!("{cause:?}");
        KeyError { doing, cause }
    }
}

/// The tenant's key.
pub(crate) struct Keys {
    pair: RsaKeyPair,
    id: String,
    jwk: Value,
}

impl Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Keys {
    /// A new key as text that [`Keys::read`] understands.
    pub(crate) fn generate() -> Result<String, KeyError> {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).map_err(|e| KeyError::new("made", e))?;
        let der: Pkcs8V1Der<'_> = pair.as_der().map_err(|e| KeyError::new("written", e))?;
        Ok(STANDARD.encode(der.as_ref()))
    }

    pub(crate) fn read(text: &str) -> Result<Keys, KeyError> {
        let unreadable = |cause: String| KeyError::new("read", cause);
        let der = STANDARD
            .decode(text)
            .map_err(|e| unreadable(e.to_string()))?;
        let pair = RsaKeyPair::from_pkcs8(&der).map_err(|e| unreadable(e.to_string()))?;
        let public = pair.public_key().as_ref();
        let (_, numbers) = RSAPublicKey::from_der(public).map_err(|e| unreadable(e.to_string()))?;
        let certificate = certificate(&der)?;
        let id = URL_SAFE_NO_PAD.encode(&Sha256::digest(public)[..20]);
        let jwk = json!({
            "kty": "RSA", "use": "sig", "alg": "RS256", "kid": id, "x5t": id,
            "n": URL_SAFE_NO_PAD.encode(without_zeros(numbers.modulus)),
            "e": URL_SAFE_NO_PAD.encode(without_zeros(numbers.exponent)),
            "x5c": [STANDARD.encode(certificate)],
        });
        Ok(Keys { pair, id, jwk })
    }

    /// The public half, as a JWKS document.
    pub(crate) fn jwks(&self) -> Value {
        json!({"keys": [self.jwk]})
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = json!({"typ": "JWT", "alg": "RS256", "x5t": self.id, "kid": self.id});
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let mut token = format!("{}.{}", encode(&header), encode(claims));
        let mut signature = vec![0; self.pair.public_modulus_len()];
        self.pair
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                token.as_bytes(),
                &mut signature,
            )
            .expect("a key that was read can sign");
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(signature));
        token
    }

    /// The claims of a token of ours; the sentence says what is wrong with another.
    pub(crate) fn verified(&self, token: &str) -> Result<Value, &'static str> {
        let (signed, signature) = token.rsplit_once('.').ok_or("it is no JWT")?;
        let (header, payload) = signed.split_once('.').ok_or("it is no JWT")?;
        let header = decoded(header).ok_or("its header is no JSON")?;
        if header["kid"] != *self.id || header["alg"] != "RS256" {
            return Err("its key is unknown");
        }
        let signature = URL_SAFE_NO_PAD
            .decode(signature)
            .map_err(|_| "its signature is no base64")?;
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, self.pair.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| "its signature is wrong")?;
        decoded(payload).ok_or("its payload is no JSON")
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

// Some validators read the key out of a certificate.
fn certificate(pkcs8: &[u8]) -> Result<Vec<u8>, KeyError> {
    let key = rcgen::KeyPair::try_from(&PrivatePkcs8KeyDer::from(pkcs8))
        .map_err(|e| KeyError::new("certified", e))?;
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(
        rcgen::DnType::CommonName,
        "accounts.accesscontrol.windows.net",
    );
    let made = params
        .self_signed(&key)
        .map_err(|e| KeyError::new("certified", e))?;
    Ok(made.der().to_vec())
}

/// A base64url part of a token as JSON.
pub(crate) fn decoded(part: &str) -> Option<Value> {
    let bytes = URL_SAFE_NO_PAD.decode(part.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Who asks, as a token says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) object_id: String,
    /// What a refusal calls the caller: a person's name, or an application's id.
    pub(crate) name: String,
    pub(crate) app_id: String,
    pub(crate) is_app: bool,
    pub(crate) groups: Vec<String>,
    pub(crate) token_id: String,
}

/// Why a token is not taken. The code is ARM's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotTaken {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// Whom the claims of a verified token speak of, if they are good here and now.
pub(crate) fn caller(
    claims: &Value,
    audiences: &[&str],
    tenant: &str,
    now: Timestamp,
) -> Result<Caller, NotTaken> {
    let not = |code, message: String| NotTaken { code, message };
    let second = now.as_second();
    if claims["exp"].as_i64().unwrap_or(0) + SLACK_SECONDS < second {
        let when = Timestamp::from_second(claims["exp"].as_i64().unwrap_or(0)).unwrap_or_default();
        let text = format!(
            "The access token expiry UTC time '{}' is earlier than current UTC time '{}'.",
            when.strftime("%m/%d/%Y %I:%M:%S %p"),
            now.strftime("%m/%d/%Y %I:%M:%S %p"),
        );
        return Err(not("ExpiredAuthenticationToken", text));
    }
    if claims["nbf"].as_i64().unwrap_or(i64::MAX) - SLACK_SECONDS > second {
        return Err(not(
            "InvalidAuthenticationToken",
            "The access token is not yet valid.".into(),
        ));
    }
    let audience = claims["aud"].as_str().unwrap_or_default();
    let bare = |text: &str| text.trim_end_matches('/').to_ascii_lowercase();
    if !audiences.iter().any(|known| bare(known) == bare(audience)) {
        let text = format!(
            "The access token has been obtained for wrong audience or resource '{audience}'. It should exactly match \
             with one of the allowed audiences '{}'.",
            audiences.join(",")
        );
        return Err(not("InvalidAuthenticationToken", text));
    }
    if claims["tid"] != tenant {
        let text = format!(
            "The access token is from the wrong issuer. It must match the tenant '{tenant}' associated with this \
             subscription."
        );
        return Err(not("InvalidAuthenticationTokenTenant", text));
    }
    let text = |name: &str| claims[name].as_str().unwrap_or_default().to_owned();
    let is_app = claims["idtyp"] == "app";
    let groups = claims["groups"].as_array().into_iter().flatten();
    Ok(Caller {
        object_id: text("oid"),
        name: if is_app { text("appid") } else { text("upn") },
        app_id: text("appid"),
        is_app,
        groups: groups
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        token_id: text("uti"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_taken_only_untouched_in_time_and_where_it_is_meant() {
        let keys = Keys::read(&Keys::generate().unwrap()).unwrap();
        let claims = json!({"aud": "https://a/", "tid": "t", "oid": "o", "exp": 2000, "nbf": 1000, "idtyp": "app",
            "appid": "x"});
        let token = keys.sign(&claims);
        assert_eq!(keys.verified(&token), Ok(claims.clone()));
        let (head, tail) = token.split_at(token.len() - 4);
        assert!(keys.verified(&format!("{head}AAAA{}", &tail[4..])).is_err());
        let other = Keys::read(&Keys::generate().unwrap()).unwrap();
        assert_eq!(other.verified(&token), Err("its key is unknown"));

        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(
            caller(&claims, &["https://a"], "t", at(1500))
                .unwrap()
                .object_id,
            "o"
        );
        let cases = [
            (
                caller(&claims, &["https://a"], "t", at(9000)),
                "ExpiredAuthenticationToken",
            ),
            (
                caller(&claims, &["https://a"], "t", at(100)),
                "InvalidAuthenticationToken",
            ),
            (
                caller(&claims, &["https://b"], "t", at(1500)),
                "InvalidAuthenticationToken",
            ),
            (
                caller(&claims, &["https://a"], "u", at(1500)),
                "InvalidAuthenticationTokenTenant",
            ),
        ];
        for (outcome, code) in cases {
            assert_eq!(outcome.unwrap_err().code, code);
        }
    }
}
