//! How others check our service account tokens: the issuer's metadata and keys.

use std::collections::BTreeSet;

use serde::Serialize;

use super::keys::PublicKey;

/// Where the metadata is served.
pub const METADATA_PATH: &str = "/.well-known/openid-configuration";
/// Media type of the metadata.
pub const METADATA_TYPE: &str = "application/json";
/// Where the keys are served; [`super::jwk::key_set`].
pub const KEYS_PATH: &str = "/openid/v1/jwks";
/// Media type of the keys.
pub const KEYS_TYPE: &str = "application/jwk-set+json";
/// Cache-Control of both.
pub const CACHE_CONTROL: &str = "public, max-age=3600";

/// Why an issuer cannot be discovered; upstream then serves neither document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotDiscoverable {
    /// Not an https address, or one with a query or fragment.
    #[error("issuer URL must use https scheme without query and fragment, got: {0}")]
    Issuer(String),
    /// The address of the keys is not https.
    #[error("jwksURI requires https scheme, parsed as: {0}")]
    KeysAddress(String),
    /// No keys.
    #[error("no keys provided for validating keyset")]
    NoKeys,
}

#[derive(Serialize)]
struct Metadata<'a> {
    issuer: &'a str,
    jwks_uri: &'a str,
    response_types_supported: [&'a str; 1],
    subject_types_supported: [&'a str; 1],
    id_token_signing_alg_values_supported: BTreeSet<&'a str>,
}

/// The metadata of an issuer, as upstream writes it.
pub fn metadata(
    issuer: &str,
    keys_address: &str,
    keys: &[PublicKey],
) -> Result<String, NotDiscoverable> {
    if !issuer.starts_with("https://") || issuer.contains(['?', '#']) {
        return Err(NotDiscoverable::Issuer(issuer.into()));
    }
    if !keys_address.starts_with("https://") {
        return Err(NotDiscoverable::KeysAddress(keys_address.into()));
    }
    if keys.is_empty() {
        return Err(NotDiscoverable::NoKeys);
    }
    let metadata = Metadata {
        issuer,
        jwks_uri: keys_address,
        response_types_supported: ["id_token"],
        subject_types_supported: ["public"],
        id_token_signing_alg_values_supported: keys
            .iter()
            .map(|key| key.algorithm().name())
            .collect(),
    };
    Ok(serde_json::to_string(&metadata).expect("strings serialise"))
}
