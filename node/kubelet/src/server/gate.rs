//! Who may ask for what: client certificates and tokens say who, the API server says what they may.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use access::User;
use access::certificates::Authorities;
use access::tokens::with_authenticated_group;
use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;

use super::route;

/// How long answers of the API server are good for, as upstream's defaults.
const TOKEN: Duration = Duration::from_secs(2 * 60);
const ALLOWED: Duration = Duration::from_secs(5 * 60);
const DENIED: Duration = Duration::from_secs(30);
/// What is remembered at most; the oldest goes first.
const REMEMBERED: usize = 4096;

/// A question whether somebody may do something with this node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Access {
    /// The user's name.
    pub user: String,
    /// Their uid, often empty.
    pub uid: String,
    /// Their groups.
    pub groups: Vec<String>,
    /// What else is known of them.
    pub extra: Vec<(String, Vec<String>)>,
    /// The verb.
    pub verb: &'static str,
    /// The subresource of `nodes`.
    pub subresource: &'static str,
}

/// The API server's word on tokens and rights.
#[async_trait]
pub trait Reviews: Send + Sync {
    /// Whose token it is; `None` if it is nobody's.
    async fn token(&self, token: &str) -> Result<Option<User>, String>;

    /// Whether an access is allowed.
    async fn access(&self, access: &Access) -> Result<bool, String>;
}

/// How requests are let in.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Requests without credentials are `system:anonymous`'s.
    pub anonymous: bool,
    /// Bearer tokens are asked about.
    pub tokens: bool,
    /// Everybody who is known may do everything.
    pub always_allow: bool,
}

/// Why a request is turned away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Turned {
    Unauthorized,
    Forbidden(String),
    Failed(String),
}

pub(super) struct Gate {
    rules: Rules,
    reviews: Arc<dyn Reviews>,
    authorities: ArcSwapOption<Authorities>,
    tokens: Memory<Vec<u8>, Option<User>>,
    rights: Memory<Access, bool>,
}

impl Gate {
    pub(super) fn new(rules: Rules, reviews: Arc<dyn Reviews>) -> Gate {
        Gate {
            rules,
            reviews,
            authorities: ArcSwapOption::empty(),
            tokens: Memory::default(),
            rights: Memory::default(),
        }
    }

    /// Whose client certificates are believed from now on.
    pub(super) fn believe(&self, authorities: Option<Authorities>) {
        self.authorities.store(authorities.map(Arc::new));
    }

    /// Lets a request in, or says why not.
    pub(super) async fn pass(
        &self,
        chain: &[CertificateDer<'static>],
        headers: &HeaderMap,
        method: &Method,
        path: &str,
    ) -> Result<User, Turned> {
        let user = self.user(chain, headers).await?;
        if self.rules.always_allow {
            return Ok(user);
        }
        let subresources = route::subresources(path);
        let about = format!(
            "(user={}, verb={}, resource=nodes, subresource(s)=[{}])",
            user.name,
            route::verb(method),
            subresources.join(" ")
        );
        for subresource in subresources {
            match self.may(&user, route::verb(method), subresource).await {
                Ok(true) => return Ok(user),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, user = user.name, "cannot ask whether an access is allowed");
                    return Err(Turned::Failed(format!("Authorization error {about}")));
                }
            }
        }
        Err(Turned::Forbidden(format!("Forbidden {about}")))
    }

    async fn user(
        &self,
        chain: &[CertificateDer<'static>],
        headers: &HeaderMap,
    ) -> Result<User, Turned> {
        if let Some(authorities) = &*self.authorities.load()
            && !chain.is_empty()
        {
            match authorities.authenticate(chain, Timestamp::now()) {
                Some(Ok(user)) => return Ok(with_authenticated_group(user)),
                Some(Err(why)) => {
                    tracing::debug!(%why, "a client certificate is not believed");
                    if bearer(headers).is_none() {
                        return Err(Turned::Unauthorized);
                    }
                }
                None => {}
            }
        }
        match bearer(headers) {
            Some(token) if self.rules.tokens => self.owner(token).await,
            Some(_) => Err(Turned::Unauthorized),
            None if self.rules.anonymous => Ok(User::anonymous()),
            None => Err(Turned::Unauthorized),
        }
    }

    async fn owner(&self, token: &str) -> Result<User, Turned> {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
        let key = digest.as_ref().to_vec();
        let known = self.tokens.get(&key);
        let user = match known {
            Some(user) => user,
            None => {
                let user = self.reviews.token(token).await.map_err(|error| {
                    tracing::warn!(%error, "cannot ask whose a token is");
                    Turned::Unauthorized
                })?;
                self.tokens.put(key, user.clone(), TOKEN);
                user
            }
        };
        user.map(with_authenticated_group)
            .ok_or(Turned::Unauthorized)
    }

    async fn may(
        &self,
        user: &User,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, String> {
        let access = Access {
            user: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone().into_iter().collect(),
            verb,
            subresource,
        };
        if let Some(known) = self.rights.get(&access) {
            return Ok(known);
        }
        let allowed = self.reviews.access(&access).await?;
        let lasts = if allowed { ALLOWED } else { DENIED };
        self.rights.put(access, allowed, lasts);
        Ok(allowed)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = text.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Answers that are good for a while.
struct Memory<K, V>(Mutex<HashMap<K, (V, Instant)>>);

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Memory(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Memory<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (value, until) = entries.get(key)?;
        (Instant::now() < *until).then(|| value.clone())
    }

    fn put(&self, key: K, value: V, lasts: Duration) {
        let now = Instant::now();
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= REMEMBERED {
            entries.retain(|_, (_, until)| now < *until);
        }
        if entries.len() >= REMEMBERED {
            let first = entries.iter().min_by_key(|(_, (_, until))| *until);
            if let Some(first) = first.map(|(key, _)| key.clone()) {
                entries.remove(&first);
            }
        }
        entries.insert(key, (value, now + lasts));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Fake {
        asked: AtomicUsize,
    }

    #[async_trait]
    impl Reviews for Fake {
        async fn token(&self, token: &str) -> Result<Option<User>, String> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            Ok((token == "good").then(|| User {
                name: "jane".into(),
                ..User::default()
            }))
        }

        async fn access(&self, access: &Access) -> Result<bool, String> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            match access.subresource {
                "stats" => Err("down".into()),
                other => Ok(other == "proxy"),
            }
        }
    }

    fn gate(rules: Rules) -> (Gate, Arc<Fake>) {
        let fake = Arc::new(Fake::default());
        (
            Gate::new(rules, Arc::clone(&fake) as Arc<dyn Reviews>),
            fake,
        )
    }

    fn headers(token: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        }
        headers
    }

    #[tokio::test]
    async fn requests_pass_if_they_are_known_and_allowed() {
        let strict = Rules {
            tokens: true,
            ..Rules::default()
        };
        let open = Rules {
            anonymous: true,
            ..strict.clone()
        };
        let forbidden = |user: &str, subresources: &str| {
            Turned::Forbidden(format!(
                "Forbidden (user={user}, verb=get, resource=nodes, subresource(s)=[{subresources}])"
            ))
        };
        for (rules, token, path, wanted) in [
            (&strict, None, "/pods", Err(Turned::Unauthorized)),
            (&strict, Some("bad"), "/pods", Err(Turned::Unauthorized)),
            (&strict, Some("good"), "/pods", Ok("jane")),
            (&strict, Some("good"), "/metrics", Err(forbidden("jane", "metrics"))),
            (&strict, Some("good"), "/stats/summary", Err(Turned::Failed("Authorization error (user=jane, verb=get, resource=nodes, subresource(s)=[stats])".into()))),
            (&open, None, "/pods", Ok("system:anonymous")),
            (&open, None, "/logs/x", Err(forbidden("system:anonymous", "log"))),
            (&open, Some("bad"), "/pods", Err(Turned::Unauthorized)),
        ] {
            let (gate, _) = gate(rules.clone());
            let passed = gate.pass(&[], &headers(token), &Method::GET, path).await;
            let passed = passed.map(|user| user.name);
            assert_eq!(passed, wanted.map(str::to_owned), "{token:?} {path}");
        }
    }

    #[tokio::test]
    async fn answers_are_remembered() {
        let (gate, fake) = gate(Rules {
            tokens: true,
            ..Rules::default()
        });
        for _ in 0..5 {
            let passed = gate
                .pass(&[], &headers(Some("good")), &Method::GET, "/pods")
                .await;
            assert!(passed.is_ok());
        }
        // One token, and the two subresources that were tried.
        assert_eq!(fake.asked.load(Ordering::Relaxed), 3);
    }
}
