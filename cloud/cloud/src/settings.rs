//! What this cloud is: its tenant, its subscription, where it is reached, how quick its operations are.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::region::Region;
use clock::Clock;

/// A certificate and its key, as PEM files.
#[derive(Debug, Clone)]
pub struct KeyPairFiles {
    /// The certificate, followed by what signed it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Somebody else's tokens that applications and identities may be federated with.
#[derive(Debug, Clone)]
pub struct Issuer {
    /// What its tokens call it.
    pub url: String,
    /// Its keys, as a JWKS document.
    pub keys: Value,
}

/// How clients reach the Kubernetes cluster that stands behind a managed cluster; parts are base64 of PEM. A region
/// keeps it as `access` with the cluster.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct ClusterAccess {
    /// The address of its API server.
    pub server: String,
    /// The authority of its certificates.
    pub authority: String,
    /// A client's certificate.
    pub certificate: String,
    /// The client's key.
    pub key: String,
}

/// Everything a cloud is told when it is built.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where its state is kept; made when absent.
    pub directory: PathBuf,
    /// What it shows to clients; must cover the host of `origin`.
    pub certificate: KeyPairFiles,
    /// How clients reach it, such as `https://localhost:8443`.
    pub origin: String,
    /// How long operations take: 1 as in the table of types, 0 no time at all.
    pub pace: f64,
    /// Whose tokens federated credentials may name, besides this cloud's own.
    pub issuers: Vec<Issuer>,
    /// Whether requests beyond the real buckets are refused.
    pub throttle: bool,
    /// How long tokens of managed identities are good: a day where nobody says, as with Azure.
    pub token_lifetime: Option<Duration>,
    /// The time.
    pub clock: Clock,
    /// What stands behind resources.
    pub region: Arc<dyn Region>,
}

/// What decisions read of the configuration.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) origin: String,
    pub(crate) pace: f64,
    pub(crate) tenant: String,
    pub(crate) subscription: String,
    pub(crate) issuers: Vec<Issuer>,
    pub(crate) throttle: bool,
    pub(crate) token_lifetime: Option<Duration>,
    pub(crate) region: Arc<dyn Region>,
}

impl Settings {
    /// What ARM calls the resource that its tokens are for.
    pub(crate) fn audience(&self) -> String {
        format!("{}/", self.origin)
    }

    /// What goes into the names of hosts: the origin without its scheme.
    pub(crate) fn host(&self) -> &str {
        self.origin.trim_start_matches("https://")
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Settings {
        Settings {
            origin: "https://localhost:8443".into(),
            pace: 0.0,
            tenant: "11111111-1111-4111-8111-111111111111".into(),
            subscription: "00000000-0000-0000-0000-000000000000".into(),
            issuers: Vec::new(),
            throttle: false,
            token_lifetime: None,
            region: Arc::new(crate::region::Hollow),
        }
    }
}
