//! Somebody else's tokens: signed by an application's certificate, or by an issuer it is federated with.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256,
    RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::Value;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::token::decoded;

/// A token in its parts, not yet believed.
#[derive(Debug, Clone)]
pub(crate) struct Assertion {
    signed: String,
    signature: Vec<u8>,
    header: Value,
    /// What it says.
    pub(crate) claims: Value,
}

impl Assertion {
    pub(crate) fn parse(token: &str) -> Option<Assertion> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        Some(Assertion {
            signed: signed.to_owned(),
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
            header: decoded(header)?,
            claims: decoded(payload)?,
        })
    }

    /// Whether the key of one of these certificates (base64 of DER) signed it.
    pub(crate) fn is_signed_by_certificate<'c>(
        &self,
        mut certificates: impl Iterator<Item = &'c str>,
    ) -> bool {
        let Some(algorithm) = self.rsa() else {
            return false;
        };
        certificates.any(|text| {
            // az sends the lines of a PEM file.
            let plain: String = text.split_whitespace().collect();
            let Ok(der) = STANDARD.decode(plain) else {
                return false;
            };
            let Ok((_, certificate)) = X509Certificate::from_der(&der) else {
                return false;
            };
            let key = certificate.public_key().subject_public_key.data.as_ref();
            UnparsedPublicKey::new(algorithm, key)
                .verify(self.signed.as_bytes(), &self.signature)
                .is_ok()
        })
    }

    /// Whether this public key (base64 of an RSA key as PKCS #1 has it) signed it.
    pub(crate) fn is_signed_by_public_key(&self, text: &str) -> bool {
        let key = STANDARD.decode(text).ok().zip(self.rsa());
        key.is_some_and(|(key, algorithm)| {
            UnparsedPublicKey::new(algorithm, key)
                .verify(self.signed.as_bytes(), &self.signature)
                .is_ok()
        })
    }

    /// Whether a key of a JWKS document signed it.
    pub(crate) fn is_signed_by_key_of(&self, jwks: &Value) -> bool {
        let keys = jwks["keys"].as_array().into_iter().flatten();
        let named = |key: &&Value| self.header["kid"].is_null() || key["kid"] == self.header["kid"];
        keys.filter(named)
            .any(|key| self.is_signed_by(key).unwrap_or(false))
    }

    fn is_signed_by(&self, jwk: &Value) -> Option<bool> {
        let number = |name: &str| URL_SAFE_NO_PAD.decode(jwk[name].as_str()?).ok();
        let message = self.signed.as_bytes();
        if self.header["alg"] == "ES256" {
            let point = [vec![4], number("x")?, number("y")?].concat();
            let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
            return Some(key.verify(message, &self.signature).is_ok());
        }
        let key = RsaPublicKeyComponents {
            n: number("n")?,
            e: number("e")?,
        };
        let parameters = match self.header["alg"].as_str()? {
            "RS256" => &RSA_PKCS1_2048_8192_SHA256,
            "PS256" => &RSA_PSS_2048_8192_SHA256,
            _ => return None,
        };
        Some(key.verify(parameters, message, &self.signature).is_ok())
    }

    fn rsa(&self) -> Option<&'static dyn VerificationAlgorithm> {
        match self.header["alg"].as_str()? {
            "RS256" => Some(&RSA_PKCS1_2048_8192_SHA256),
            "PS256" => Some(&RSA_PSS_2048_8192_SHA256),
            _ => None,
        }
    }
}
