//! A provider at work: its keys, when to fetch them again, and its tokens.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::Trust;
use crate::tokens::claims::{Audience, LEEWAY, NumericDate, shifted};
use crate::tokens::jwk::{KeySetError, parse_key_set};
use crate::tokens::jws::{self, Compact, Refused};
use crate::tokens::keys::PublicKey;
use crate::tokens::{Authenticated, Invalid, quoted};

/// Least time between two fetches: upstream's pause between attempts. Also what keeps strangers, who can name any
/// key in a token, from making us fetch at their pace.
const PAUSE: SignedDuration = SignedDuration::from_secs(10);

const GOOGLE: (&str, &str) = ("accounts.google.com", "https://accounts.google.com");

/// Why a token of the provider's is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It proves nothing.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// It names a key we do not have: fetch, if [`Provider::needs_refresh`] allows, and ask once more.
    #[error("oidc: verify token: {0}")]
    UnknownKey(Invalid),
}

/// One issuer, its keys, and the state of fetching them.
#[derive(Debug, Clone)]
pub struct Provider {
    trust: Trust,
    keys: Vec<PublicKey>,
    last_attempt: Option<Timestamp>,
    wanted: bool,
    trouble: Option<String>,
}

#[derive(Deserialize)]
struct TimeAndPlace {
    iss: String,
    #[serde(default)]
    aud: Audience,
    exp: Option<NumericDate>,
    nbf: Option<NumericDate>,
}

impl Provider {
    /// A provider without keys yet.
    pub fn new(trust: Trust) -> Provider {
        let trouble = Some("no keys were fetched yet".to_owned());
        Provider {
            trust,
            keys: Vec::new(),
            last_attempt: None,
            wanted: true,
            trouble,
        }
    }

    /// What we trust.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Whether keys should be fetched now: there are none or a token named one we lack, and the last attempt is
    /// not too recent.
    pub fn needs_refresh(&self, now: Timestamp) -> bool {
        // A clock that was set back must not stop fetching for good.
        let recent = |last: Timestamp| now >= last && now < shifted(last, PAUSE);
        (self.wanted || self.keys.is_empty()) && !self.last_attempt.is_some_and(recent)
    }

    /// Notes that a token named an unknown key.
    pub fn want_keys(&mut self) {
        self.wanted = true;
    }

    /// Notes that a fetch begins.
    pub fn begin_refresh(&mut self, now: Timestamp) {
        self.last_attempt = Some(now);
        self.wanted = false;
    }

    /// Where the keys are, according to the issuer's metadata.
    pub fn keys_address(&self, metadata: &[u8]) -> Result<String, String> {
        #[derive(Deserialize)]
        struct Metadata {
            issuer: String,
            jwks_uri: String,
        }
        let metadata: Metadata = serde_json::from_slice(metadata)
            .map_err(|_| "the issuer's metadata lacks issuer or jwks_uri")?;
        if metadata.issuer != self.trust.url {
            let (expected, got) = (&self.trust.url, &metadata.issuer);
            let what = "issuer did not match the issuer returned by provider";
            return Err(format!("oidc: {what}, expected {expected:?} got {got:?}"));
        }
        if !metadata.jwks_uri.starts_with("https://") {
            return Err(format!(
                "the issuer's jwks_uri must use https, got {:?}",
                metadata.jwks_uri
            ));
        }
        Ok(metadata.jwks_uri)
    }

    /// Takes a fetched key set in place of the one before. One that cannot be used changes nothing.
    pub fn refreshed(&mut self, key_set: &[u8]) -> Result<(), KeySetError> {
        match parse_key_set(key_set) {
            Ok(keys) => {
                (self.keys, self.trouble) = (keys, None);
                Ok(())
            }
            Err(why) => {
                self.refresh_failed(why.to_string());
                Err(why)
            }
        }
    }

    /// Notes that a fetch failed; the keys we have stay good.
    pub fn refresh_failed(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// Whether the provider works, for health checks; upstream reports an issuer that never had keys.
    pub fn health(&self) -> Result<(), String> {
        match &self.trouble {
            Some(why) if self.keys.is_empty() => Err(format!(
                "oidc: authenticator for issuer {:?} is not healthy: {why}",
                self.trust.url
            )),
            _ => Ok(()),
        }
    }

    /// Who a token belongs to. Nothing if the issuer is another. Audiences of the answer are left to
    /// [`crate::tokens::implied_audiences`].
    pub fn authenticate(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Option<Result<Authenticated, Refusal>> {
        let issuer = jws::claimed_issuer(token)?;
        self.issued_by_us(&issuer).then(|| self.verify(token, now))
    }

    fn issued_by_us(&self, issuer: &str) -> bool {
        issuer == self.trust.url || (issuer == GOOGLE.0 && self.trust.url == GOOGLE.1)
    }

    fn verify(&self, token: &str, now: Timestamp) -> Result<Authenticated, Refusal> {
        if self.keys.is_empty() {
            return Err(Refusal::UnknownKey(Invalid::new(
                "oidc: authenticator not initialized",
            )));
        }
        let compact = Compact::parse(token).map_err(unverified)?;
        // Before the signature, as upstream: a token that is over makes nobody fetch keys.
        self.check_place_and_time(compact.payload(), now)?;
        self.check_algorithm(&compact)?;
        let payload = match compact.verified(&self.keys) {
            Ok(payload) => payload,
            Err(why @ Refused::NoKeys) => return Err(unknown(why)),
            Err(why @ Refused::Signature) if compact.key_id.is_none() => return Err(unknown(why)),
            Err(why) => return Err(unverified(why)),
        };
        let claims: Value =
            serde_json::from_slice(payload).map_err(|_| unverified(Refused::Malformed))?;
        let user = self.trust.user(&claims)?;
        Ok(Authenticated {
            user,
            ..Authenticated::default()
        })
    }

    fn check_place_and_time(&self, payload: &[u8], now: Timestamp) -> Result<(), Refusal> {
        let refuse = |why: String| {
            Err(Refusal::Invalid(Invalid(format!(
                "oidc: verify token: oidc: {why}"
            ))))
        };
        let claims: TimeAndPlace =
            serde_json::from_slice(payload).map_err(|_| unverified(Refused::Malformed))?;
        if !self.issued_by_us(&claims.iss) {
            return refuse(format!(
                "id token issued by a different provider, expected {:?}",
                self.trust.url
            ));
        }
        if !claims
            .aud
            .0
            .iter()
            .any(|audience| self.trust.audiences.contains(audience))
        {
            let (wants, has) = (quoted(&self.trust.audiences), quoted(&claims.aud.0));
            return refuse(format!("expected audience in {wants} got {has}"));
        }
        if claims.exp.is_none_or(|exp| exp.moment() < now) {
            return refuse("token is expired".into());
        }
        match claims.nbf.map(NumericDate::moment) {
            Some(nbf) if shifted(now, LEEWAY) < nbf => refuse(format!(
                "current time {now} before the nbf (not before) time: {nbf}"
            )),
            _ => Ok(()),
        }
    }

    fn check_algorithm(&self, compact: &Compact<'_>) -> Result<(), Refusal> {
        if self.trust.algorithms.contains(&compact.algorithm) {
            return Ok(());
        }
        let accepted: Vec<String> = self
            .trust
            .algorithms
            .iter()
            .map(|a| a.name().to_owned())
            .collect();
        let (accepted, got) = (quoted(&accepted), compact.algorithm.name());
        Err(Refusal::Invalid(Invalid(format!(
            "oidc: verify token: oidc: id token signed with unsupported algorithm, expected {accepted} got {got:?}"
        ))))
    }
}

fn unverified(why: Refused) -> Refusal {
    Refusal::Invalid(Invalid(format!("oidc: verify token: {why}")))
}

fn unknown(why: Refused) -> Refusal {
    Refusal::UnknownKey(Invalid::new(why.to_string()))
}
