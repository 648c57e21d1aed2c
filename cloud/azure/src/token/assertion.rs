//! What an application with a certificate signs instead of showing a secret.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

/// How long a proof is good.
const SECONDS: i64 = 600;

/// A token signed with the key of a PEM file, with its chain of certificates in the header.
pub(super) fn signed(
    pem: &[u8],
    client: &str,
    audience: &str,
    now: Timestamp,
) -> Result<String, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|e| e.to_string())?;
    if chain.is_empty() {
        return Err("it holds no certificate in PEM; convert a PFX with openssl".into());
    }
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|e| format!("its key: {e}"))?;
    let key = match &key {
        PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
        _ => return Err("its key is no RSA key".into()),
    };
    let key = key.map_err(|e| format!("its key: {e}"))?;
    let chain: Vec<String> = chain.iter().map(|der| STANDARD.encode(der)).collect();
    let header = json!({"typ": "JWT", "alg": "RS256", "x5c": chain});
    let claims = json!({"aud": audience, "iss": client, "sub": client, "jti": uuid::Uuid::new_v4().to_string(),
        "nbf": now.as_second(), "exp": now.as_second() + SECONDS});
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&header), part(&claims));
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(
        &RSA_PKCS1_SHA256,
        &SystemRandom::new(),
        text.as_bytes(),
        &mut signature,
    )
    .map_err(|e| e.to_string())?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}
