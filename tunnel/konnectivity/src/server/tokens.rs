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
use crate::wire_names::AUTHORIZATION;

/// How long an answer is believed: agents come back together when a server restarts.
const BELIEVED: Duration = Duration::from_secs(10);
const MAX_BELIEVED: usize = 10_000;
const PREFIX: &str = "Bearer ";

/// Who knows about tokens: an API server somewhere, or the one in this process.
pub trait Reviewer: Send + Sync {
    /// The name of the user whose token it is, if it is good for the audience; else why not.
    fn review<'a>(
        &'a self,
        token: &'a str,
        audience: &'a str,
    ) -> BoxFuture<'a, Result<String, String>>;
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
    good: Mutex<HashMap<[u8; 32], Instant>>,
}

impl Tokens {
    pub(super) fn new(settings: TokenSettings) -> Tokens {
        let good = Mutex::default();
        Tokens { settings, good }
    }

    /// Whether a call may go on; if not, why, in upstream's words.
    pub(super) async fn check(&self, request: &Fields) -> Result<(), String> {
        let token = bearer(request)?;
        let digest: [u8; 32] = Sha256::digest(token).into();
        if self.is_good(&digest) {
            return Ok(());
        }
        self.review(token)
            .await
            .map_err(|error| format!("Failed to validate authentication token, err:{error}"))?;
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        good.retain(|_, since| since.elapsed() < BELIEVED);
        if good.len() < MAX_BELIEVED {
            good.insert(digest, Instant::now());
        }
        Ok(())
    }

    fn is_good(&self, digest: &[u8; 32]) -> bool {
        let good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        good.get(digest)
            .is_some_and(|since| since.elapsed() < BELIEVED)
    }

    async fn review(&self, token: &str) -> Result<(), String> {
        let TokenSettings {
            reviewer,
            audience,
            namespace,
            service_account,
        } = &self.settings;
        let user = reviewer.review(token, audience).await?;
        is_account(&user, namespace, service_account)
    }
}

impl Reviewer for kube::Client {
    fn review<'a>(
        &'a self,
        token: &'a str,
        audience: &'a str,
    ) -> BoxFuture<'a, Result<String, String>> {
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
            user(&answer.status.unwrap_or_default())
        }
        .boxed()
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
