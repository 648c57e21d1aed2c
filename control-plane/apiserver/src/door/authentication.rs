//! Who asks: every credential a request may carry, tried in upstream's order.
//!
//! ```text
//! front proxy ─► client certificate ─► bearer token (service account, bootstrap, OIDC) ─► anonymous
//! ```
//!
//! The first that proves somebody wins. A credential that proves nobody is a 401, never an anonymous request.

mod accounts;
mod issuers;
mod meters;

use std::sync::Arc;

use access::User;
use access::certificates::RequestHeader;
use access::tokens::{self, Authenticated, Invalid, LastUsed, Objects};
use arc_swap::ArcSwapOption;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use kinds::resources;
use serde_json::Value;

use crate::connection::reload::Reload;
use crate::door::identity::{ClientCertificates, Peer};
use crate::quiet::Quiet;
use crate::reading::cache::Cache;
use crate::reading::stored::Stored;
use crate::settings::{self, Authentication};
use crate::status::{ApiError, Result};

use accounts::Accounts;
use issuers::Issuers;
use meters::Meters;

/// Everything that can prove who asks.
#[derive(Debug)]
pub(crate) struct Authenticator {
    settings: Authentication,
    clients: ClientCertificates,
    proxies: ArcSwapOption<RequestHeader>,
    /// Tokens of this server.
    pub(crate) accounts: Accounts,
    issuers: Issuers,
    refusals: Quiet,
    /// What is counted.
    pub(crate) meters: Meters,
}

/// Why authentication cannot be set up: the file or setting, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be used: {cause}")]
pub struct Error {
    what: String,
    cause: String,
}

impl Error {
    fn new(what: impl Into<String>, cause: impl ToString) -> Error {
        Error {
            what: what.into(),
            cause: cause.to_string(),
        }
    }
}

/// Who asks, and what to tell them besides.
#[derive(Debug)]
pub(crate) struct Identified {
    /// The user.
    pub(crate) user: Arc<User>,
    /// Seconds the client certificate has left, if one was used.
    pub(crate) certificate_left: Option<i64>,
    /// For the Warning header.
    pub(crate) warning: Option<String>,
    /// A token secret whose use is to be noted.
    pub(crate) last_used: Option<LastUsed>,
}

impl Identified {
    fn as_user(user: Arc<User>) -> Identified {
        Identified {
            user,
            certificate_left: None,
            warning: None,
            last_used: None,
        }
    }

    fn by_token(found: Authenticated) -> Identified {
        Identified {
            warning: found.warning,
            last_used: found.last_used,
            ..Identified::as_user(Arc::new(tokens::with_authenticated_group(found.user)))
        }
    }
}

impl Authenticator {
    /// Reads every file the settings name.
    pub(crate) fn open(settings: Authentication) -> Result<Authenticator, Error> {
        let clients = ClientCertificates::open(settings.client_ca_file.as_deref())
            .map_err(|e| Error::new("--client-ca-file", e))?;
        let authenticator = Authenticator {
            clients,
            proxies: ArcSwapOption::empty(),
            accounts: Accounts::open(&settings.service_accounts)?,
            issuers: Issuers::open(&settings)?,
            refusals: Quiet::default(),
            meters: Meters::default(),
            settings,
        };
        authenticator.read_proxies()?;
        Ok(authenticator)
    }

    /// What is read again when it changes.
    pub(crate) fn reload(self: &Arc<Self>, reload: &Reload) {
        if let Some(file) = self.settings.client_ca_file.clone() {
            let (own, files) = (Arc::clone(self), vec![file.clone()]);
            reload.add("the CAs of client certificates", files, move || {
                own.clients.reload(&file).map_err(|e| e.to_string())
            });
        }
        if let Some(proxies) = &self.settings.request_header {
            let (own, files) = (Arc::clone(self), vec![proxies.client_ca_file.clone()]);
            reload.add("the CAs of front proxies", files, move || {
                own.read_proxies().map_err(|e| e.to_string())
            });
        }
        if let Some(file) = &self.settings.configuration_file {
            let own = Arc::clone(self);
            reload.add("the issuers of tokens", vec![file.clone()], move || {
                let outcome = own.issuers.read().map_err(|e| e.to_string());
                own.meters.reloaded(outcome.is_ok());
                outcome
            });
        }
        let own = Arc::clone(self);
        let files = self.accounts.files();
        reload.add("the keys of service accounts", files, move || {
            own.accounts.read().map_err(|e| e.to_string())
        });
    }

    /// Who asks. Anonymous only where nothing was shown and the path allows it.
    pub(crate) async fn identify(
        &self,
        cache: &Cache,
        path: &str,
        headers: &mut HeaderMap,
        peer: &Peer,
        now: Timestamp,
    ) -> Result<Identified> {
        let mut refused = false;
        if let Some(user) = self.proxied(headers, peer, now) {
            return Ok(user);
        }
        match self.clients.user(peer, now) {
            Some(Ok((user, left))) => {
                return Ok(Identified {
                    certificate_left: Some(left),
                    ..Identified::as_user(user)
                });
            }
            Some(Err(why)) => refused = self.note(peer, &why),
            None => {}
        }
        if let Some(token) = bearer(headers) {
            match self.token(&token, now, &[], &CacheObjects(cache)).await {
                Ok(found) => {
                    headers.remove(AUTHORIZATION);
                    return Ok(Identified::by_token(found));
                }
                Err(why) => refused = self.note(peer, &why),
            }
        }
        match !refused && self.issuers.anonymous(path) {
            true => Ok(Identified::as_user(Arc::new(User::anonymous()))),
            false => Err(ApiError::unauthorized()),
        }
    }

    /// Whose token this is; the first authenticator that knows the token decides.
    pub(crate) async fn token(
        &self,
        token: &str,
        now: Timestamp,
        wanted: &[String],
        objects: &(dyn Objects + Sync),
    ) -> Result<Authenticated, Invalid> {
        if let Some(verdict) = self.accounts.authenticate(token, now, wanted, objects) {
            return verdict;
        }
        let verdict = match self.settings.bootstrap_tokens {
            true => tokens::bootstrap::authenticate(token, now, objects),
            false => None,
        };
        let verdict = match verdict {
            Some(verdict) => Some(verdict),
            None => self.issuers.authenticate(token, now).await,
        };
        let mut found = verdict.unwrap_or_else(|| Err(Invalid("invalid bearer token".into())))?;
        let api = &self.settings.service_accounts.api_audiences;
        found.audiences = tokens::implied_audiences(api, wanted)
            .ok_or_else(|| Invalid("the token is for another audience".into()))?;
        Ok(found)
    }

    // The headers are believed from a proxy's own connection only, and are gone for everybody behind.
    fn proxied(&self, headers: &mut HeaderMap, peer: &Peer, now: Timestamp) -> Option<Identified> {
        let proxies = self.proxies.load();
        let proxies = proxies.as_ref()?;
        let verdict = proxies.authenticate(&peer.chain, headers, now);
        proxies.clear(headers);
        // A certificate that is no proxy's may be a client's own.
        let user = verdict?.ok()?;
        let user = Arc::new(tokens::with_authenticated_group(user));
        Some(Identified::as_user(user))
    }

    fn read_proxies(&self) -> Result<(), Error> {
        let Some(settings) = &self.settings.request_header else {
            return Ok(());
        };
        self.proxies.store(Some(Arc::new(proxies(settings)?)));
        Ok(())
    }

    fn note(&self, peer: &Peer, why: &Invalid) -> bool {
        if let Some(held_back) = self.refusals.may_speak() {
            tracing::info!(reason = %why, from = %peer.address, held_back, "a credential is not believed");
        }
        true
    }
}

fn proxies(settings: &settings::RequestHeader) -> Result<RequestHeader, Error> {
    let file = &settings.client_ca_file;
    let failed = |cause: String| Error::new(format!("`{}`", file.display()), cause);
    let pem = std::fs::read(file).map_err(|e| failed(e.to_string()))?;
    let authorities = access::certificates::Authorities::from_pem(&pem);
    let names = |names: &[String]| {
        let parsed = names.iter().map(|name| name.to_ascii_lowercase().parse());
        parsed.collect::<Result<Vec<_>, _>>()
    };
    let bad_name = |e: http::header::InvalidHeaderName| Error::new("--requestheader-*", e);
    Ok(RequestHeader {
        authorities: authorities.map_err(|e| failed(e.to_string()))?,
        allowed_names: settings.allowed_names.clone(),
        username: names(&settings.username_headers).map_err(bad_name)?,
        uid: names(&settings.uid_headers).map_err(bad_name)?,
        group: names(&settings.group_headers).map_err(bad_name)?,
        extra_prefix: settings.extra_header_prefixes.clone(),
    })
}

// A scheme other than Bearer is no credential of ours; an empty token is none at all (upstream's rule).
fn bearer(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(AUTHORIZATION).map(HeaderValue::to_str)?.ok()?;
    let (scheme, token) = text.trim().split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// Live objects out of the cache, for what tokens are bound to.
pub(crate) struct CacheObjects<'a>(pub(crate) &'a Cache);

impl Objects for CacheObjects<'_> {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = resources::find(group, "v1", plural)?;
        let key = match namespace {
            "" => name.to_owned(),
            namespace => format!("{namespace}/{name}"),
        };
        let stored = self.0.collection(resource)?.get(&key)?;
        Some(Stored::value(&stored))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bearer_tokens_are_taken() {
        let cases = [
            ("Bearer abc", Some("abc")),
            ("bearer  abc", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
        ];
        for (value, wanted) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().expect("a header"));
            assert_eq!(bearer(&headers).as_deref(), wanted, "{value}");
        }
    }
}
