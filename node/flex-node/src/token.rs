//! The kubelet's credential: a token of the identity it joins as, in the words of Kubernetes' exec plugins.
//!
//! What upstream does with bash, curl and jq in `/var/lib/kubelet/token.sh` is done here, with time-outs, attempts and a
//! cache that only root can read. The script stays as a line that runs this.

use std::path::PathBuf;
use std::time::Duration;

use azure::Endpoints;
use azure::imds::Place;
use azure::token::{ARC_PROOFS, Source, Tokens};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::{Config, Join};
use crate::identity::{self, Refused, private};

/// The application that stands for API servers of AKS.
pub const SERVER_ID: &str = "6dae42f8-4368-4678-94ff-3960e28e3630";
/// Where an agent of Arc listens.
const HIMDS: &str = "http://127.0.0.1:40342/metadata/identity/oauth2/token";
/// The address of that.
pub const HIMDS_ADDRESS: &str = "127.0.0.1:40342";
/// A token is given out of the cache while so much of its life is left.
const RESERVE: Duration = Duration::from_secs(300);
/// How often a source is asked, and how long the first wait is.
const TRIES: u32 = 3;
const WAIT: Duration = Duration::from_millis(500);

/// A token and its end.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The credential.
    pub token: String,
    /// When it ends.
    pub until: Timestamp,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease(until {})", self.until)
    }
}

/// Where a kubelet's tokens come from; none for one that has a certificate.
pub fn source(config: &Config, environment: impl Fn(&str) -> Option<String>) -> Option<Source> {
    match &config.join {
        Join::BootstrapToken(_) => None,
        Join::Arc(_) => Some(Source::Arc {
            endpoint: himds(&environment),
            proofs: environment("AKS_FLEX_NODE_ARC_TOKENS")
                .map_or_else(|| ARC_PROOFS.into(), PathBuf::from),
        }),
        Join::ManagedIdentity(_) | Join::ServicePrincipal => {
            Source::of(&identity::cloud_config(config), environment)
        }
    }
}

/// Where the agent of Arc is asked.
pub(crate) fn himds(environment: impl Fn(&str) -> Option<String>) -> String {
    environment("IDENTITY_ENDPOINT").unwrap_or_else(|| HIMDS.to_owned())
}

/// The version of the contract that is asked for; v1 where nobody says.
pub fn wanted_version(exec_info: Option<&str>) -> String {
    let info: Value = exec_info
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let known = ["v1", "v1beta1"].map(|v| format!("client.authentication.k8s.io/{v}"));
    let asked = info["apiVersion"].as_str().unwrap_or_default();
    let found = known.iter().find(|version| *version == asked);
    found.unwrap_or(&known[0]).clone()
}

/// What an exec plugin prints. Renewed before its real end, so that no request is sent with a token that just ended.
pub fn credential(lease: &Lease, version: &str) -> Value {
    let until = lease.until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "apiVersion": version,
        "kind": "ExecCredential",
        "spec": {"interactive": false},
        "status": {"token": lease.token, "expirationTimestamp": until},
    })
}

/// Whether a kept token still does.
fn is_good(lease: &Lease, now: Timestamp) -> bool {
    let left = lease.until.duration_since(now);
    left.as_secs() > RESERVE.as_secs().cast_signed()
}

/// Kept tokens, by what they are for.
#[derive(Debug, Clone)]
pub struct Cache(pub PathBuf);

impl Cache {
    fn file(&self, key: &str) -> PathBuf {
        self.0.join(format!("{}.json", identity::named(key)))
    }

    fn read(&self, key: &str) -> Option<Lease> {
        let text = std::fs::read_to_string(self.file(key)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// A cache that cannot be written is none.
    fn write(&self, key: &str, lease: &Lease) -> std::io::Result<()> {
        private::write(&self.file(key), json!(lease).to_string().as_bytes())
    }
}

/// A token for API servers: from the cache, or from its source.
pub async fn lease(
    config: &Config,
    server_id: &str,
    cache: &Cache,
    environment: &(dyn Fn(&str) -> Option<String> + Sync),
    now: Timestamp,
) -> Result<Lease, Refused> {
    let none = || Refused {
        cause: "this configuration joins with a certificate, and has no tokens".to_owned(),
        remedy: "the kubelet's kubeconfig has its certificate".to_owned(),
    };
    let source = source(config, environment).ok_or_else(none)?;
    let key = format!("{}|{server_id}|{}", config.join.name(), config.azure.tenant);
    if let Some(kept) = cache.read(&key).filter(|lease| is_good(lease, now)) {
        return Ok(kept);
    }
    let fresh = fetch(config, source, server_id, environment, now).await?;
    let _ = cache.write(&key, &fresh);
    Ok(fresh)
}

async fn fetch(
    config: &Config,
    source: Source,
    server_id: &str,
    environment: &(dyn Fn(&str) -> Option<String> + Sync),
    now: Timestamp,
) -> Result<Lease, Refused> {
    let client = identity::client(config)?;
    let cloud = identity::cloud_config(config);
    let remedy = match &source {
        Source::Arc { .. } => {
            "check `systemctl status himdsd` and `azcmagent show`; only root and the group himds may ask"
        }
        Source::Managed { .. } => {
            "check that this machine has an identity and reaches 169.254.169.254 without a proxy"
        }
        _ => "check tenantId, clientId and the secret of `azure.servicePrincipal`",
    };
    let refused = |cause: azure::Error| Refused {
        cause: cause.to_string(),
        remedy: remedy.to_owned(),
    };
    // Neither of the metadata services needs to know where the cloud is.
    let endpoints = match source {
        Source::Arc { .. } | Source::Managed { .. } => Endpoints::of_cloud(&cloud.cloud),
        _ => Endpoints::of(&cloud, &client).await.map_err(refused)?,
    };
    let endpoints = Endpoints {
        audience: server_id.to_owned(),
        ..endpoints
    };
    let tokens = Tokens::new(
        source,
        &cloud.tenant_id,
        &endpoints,
        Place::of(environment),
        client,
    );
    let mut wait = WAIT;
    for attempt in 1.. {
        match tokens.fresh().await {
            Ok((token, life)) => {
                return Ok(Lease {
                    token,
                    until: now.saturating_add(life).unwrap_or(Timestamp::MAX),
                });
            }
            // A proof may be gone before it is read, and an agent may just be starting.
            Err(error) if attempt == TRIES => return Err(refused(error)),
            Err(_) => tokio::time::sleep(wait).await,
        }
        wait *= 2;
    }
    unreachable!("the loop ends at its last attempt")
}

/// The usual cache, or the one that `AKS_FLEX_NODE_TOKENS` names.
pub fn cache(environment: impl Fn(&str) -> Option<String>) -> Cache {
    let named = environment("AKS_FLEX_NODE_TOKENS").filter(|path| !path.is_empty());
    Cache(named.map_or_else(|| crate::paths::TOKENS.into(), PathBuf::from))
}

#[cfg(test)]
mod tests;
