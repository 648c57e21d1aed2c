//! JSON Web Tokens of the test's making: any header, any claims, any key.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};

/// A P-256 key that signs tokens.
pub(crate) struct TokenKey(EcdsaKeyPair);

impl TokenKey {
    pub(crate) fn new() -> TokenKey {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        TokenKey(pair.expect("a key can be made"))
    }

    /// The key of a PKCS #8 file.
    pub(crate) fn from_pem(pem: &str) -> TokenKey {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).expect("a PKCS #8 file");
        let der = der.secret_pkcs8_der();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der);
        TokenKey(pair.expect("a P-256 key"))
    }

    /// A signature as ES256 wants it.
    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let signature = self.0.sign(&SystemRandom::new(), message);
        signature.expect("the key signs").as_ref().to_vec()
    }

    /// A token with `ES256` and this key's id in its header.
    pub(crate) fn token(&self, key_id: &str, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "kid": key_id});
        jwt(&header, claims, |message| self.sign(message))
    }

    /// The public half as an entry of a key set.
    pub(crate) fn jwk(&self, key_id: &str) -> Value {
        let point = self.0.public_key().as_ref();
        let (x, y) = point[1..].split_at(32);
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": key_id,
            "x": text(x), "y": text(y)})
    }
}

/// A token with whatever `sign` makes of it.
pub(crate) fn jwt(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// Header and claims of a token.
pub(crate) fn opened(token: &str) -> (Value, Value) {
    let mut parts = token.split('.').map(|part| {
        let bytes = URL_SAFE_NO_PAD.decode(part).expect("base64url");
        serde_json::from_slice(&bytes).unwrap_or(Value::Null)
    });
    let mut next = || parts.next().expect("a token has three parts");
    (next(), next())
}
