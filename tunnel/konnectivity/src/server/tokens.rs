//! Agents that prove themselves with a service account's token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::Api;
use kube::api::PostParams;
use sha2::{Digest as _, Sha256};

use crate::http2::Fields;
use crate::strategies::Identifiers;
use crate::wire_names::AUTHORIZATION;

/// How long an answer is believed: agents come back together when a server restarts.
const BELIEVED: Duration = Duration::from_secs(10);
const MAX_BELIEVED: usize = 10_000;
const PREFIX: &str = "Bearer ";

/// Whose token it is.
#[derive(Debug, Clone, Default)]
pub struct Reviewed {
    /// The name of the user.
    pub user: String,
    /// The node of the pod it was given to, where it was given to one.
    pub node: Option<Node>,
}

/// A node that an agent may speak for.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its addresses and host names, as it reports them.
    pub addresses: Vec<String>,
}

/// What a token says of the node of its pod.
pub const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Who knows about tokens: an API server somewhere, or the one in this process.
pub trait Reviewer: Send + Sync {
    /// Whose token it is, if it is good for the audience; else why not.
    fn review<'a>(
        &'a self,
        token: &'a str,
        audience: &'a str,
    ) -> BoxFuture<'a, Result<Reviewed, String>>;
}

/// Whose tokens are accepted.
#[derive(Clone)]
pub struct TokenSettings {
    /// Who knows about tokens.
    pub reviewer: Arc<dyn Reviewer>,
    /// The audience a token must be for.
    pub audience: String,
    /// The namespace of the agents' service account.
    pub namespace: String,
    /// Its name.
    pub service_account: String,
}

impl std::fmt::Debug for TokenSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            audience,
            namespace,
            service_account,
            ..
        } = self;
        write!(
            f,
            "TokenSettings({namespace}/{service_account} for {audience})"
        )
    }
}

/// The check, with what it has lately found good.
pub(super) struct Tokens {
    settings: TokenSettings,
    good: Mutex<HashMap<[u8; 32], Found>>,
}

/// When a token was found good, and the node it names.
type Found = (Instant, Option<Arc<Node>>);

impl Tokens {
    pub(super) fn new(settings: TokenSettings) -> Tokens {
        let good = Mutex::default();
        Tokens { settings, good }
    }

    /// Whether a call may go on; if not, why, in upstream's words. An agent whose token names a node speaks for that
    /// one only.
    pub(super) async fn check(
        &self,
        request: &Fields,
        identifiers: &Identifiers,
    ) -> Result<(), String> {
        let token = bearer(request)?;
        let digest: [u8; 32] = Sha256::digest(token).into();
        let node = match self.is_good(&digest) {
            Some(node) => node,
            None => {
                let found = self.review(token).await;
                let node = found.map_err(|error| {
                    format!("Failed to validate authentication token, err:{error}")
                })?;
                self.believe(digest, node.map(Arc::new))
            }
        };
        node.map_or(Ok(()), |node| speaks_for(&node, identifiers))
    }

    fn believe(&self, digest: [u8; 32], node: Option<Arc<Node>>) -> Option<Arc<Node>> {
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        good.retain(|_, (since, _)| since.elapsed() < BELIEVED);
        if good.len() < MAX_BELIEVED {
            good.insert(digest, (Instant::now(), node.clone()));
        }
        node
    }

    fn is_good(&self, digest: &[u8; 32]) -> Option<Option<Arc<Node>>> {
        let good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, node) = good.get(digest)?;
        (since.elapsed() < BELIEVED).then(|| node.clone())
    }

    async fn review(&self, token: &str) -> Result<Option<Node>, String> {
        let TokenSettings {
            reviewer,
            audience,
            namespace,
            service_account,
        } = &self.settings;
        let found = reviewer.review(token, audience).await?;
        is_account(&found.user, namespace, service_account)?;
        Ok(found.node)
    }
}

impl Reviewer for kube::Client {
    fn review<'a>(
        &'a self,
        token: &'a str,
        audience: &'a str,
    ) -> BoxFuture<'a, Result<Reviewed, String>> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: Some(vec![audience.to_owned()]),
            },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.clone());
        async move {
            let answer = api.create(&PostParams::default(), &review).await;
            let answer = answer.map_err(|e| format!("Failed to authenticate request. err:{e}"))?;
            let status = answer.status.unwrap_or_default();
            let user = user(&status)?;
            let node = match named_node(&status) {
                Some(name) => self::node(self, name).await,
                None => None,
            };
            Ok(Reviewed { user, node })
        }
        .boxed()
    }
}

fn named_node(status: &TokenReviewStatus) -> Option<&str> {
    let extra = status.user.as_ref()?.extra.as_ref()?;
    extra.get(NODE_NAME)?.first().map(String::as_str)
}

// Upstream's server needs no leave to read nodes. One that has none cannot tell whose address is claimed, and says so.
async fn node(client: &kube::Client, name: &str) -> Option<Node> {
    let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let node = api.get(name).await;
    let node = node.inspect_err(|error| {
        tracing::warn!(name, %error, "the node of an agent cannot be read: its claims are believed");
    });
    let addresses = node.ok()?.status.and_then(|status| status.addresses);
    let addresses = addresses.unwrap_or_default().into_iter();
    Some(Node {
        name: name.to_owned(),
        addresses: addresses.map(|address| address.address).collect(),
    })
}

fn speaks_for(node: &Node, identifiers: &Identifiers) -> Result<(), String> {
    let is_its = |host: &String| *host == node.name || node.addresses.contains(host);
    match identifiers.hosts().iter().find(|host| !is_its(host)) {
        None => Ok(()),
        Some(host) => Err(format!(
            "the agent's token is for node {:?}, which is not {host:?}",
            node.name
        )),
    }
}

fn bearer(request: &Fields) -> Result<&str, String> {
    let mut found = request.iter().filter(|(name, _)| name == AUTHORIZATION);
    let value = match (found.next(), found.count()) {
        (None, _) => return Err("Authentication context was not found in metadata".to_owned()),
        (Some((_, value)), 0) => value,
        (_, more) => return Err(format!("too many ({}) tokens are received", more + 1)),
    };
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.strip_prefix(PREFIX))
        .ok_or_else(|| format!("received token does not have {PREFIX:?} prefix"))
}

fn user(status: &TokenReviewStatus) -> Result<String, String> {
    if let Some(error) = status.error.as_deref().filter(|error| !error.is_empty()) {
        return Err(format!("lookup failed: {error}"));
    }
    if status.authenticated != Some(true) {
        return Err("lookup failed: service account jwt not valid".to_owned());
    }
    let user = status.user.as_ref().and_then(|user| user.username.clone());
    Ok(user.unwrap_or_default())
}

fn is_account(user: &str, namespace: &str, account: &str) -> Result<(), String> {
    let parts: Vec<&str> = user.split(':').collect();
    let [kind, what, ns, sa] = parts[..] else {
        return Err("lookup failed: unexpected username format".to_owned());
    };
    if (kind, what) != ("system", "serviceaccount") {
        return Err("lookup failed: username returned is not a service account".to_owned());
    }
    if ns != namespace {
        return Err(format!(
            "lookup failed: incoming request from {ns:?} namespace. Expected {namespace:?}"
        ));
    }
    if sa != account {
        return Err(format!(
            "lookup failed: incoming request from {sa:?} service account. Expected {account:?}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
