//! Tokens of service accounts for projected volumes: asked for once, and again well before they end
//! (`pkg/kubelet/token`).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccountTokenProjection};

use crate::objects::Objects;

use super::cause;

/// A token is renewed at this age at the latest.
const LONGEST_USE: SignedDuration = SignedDuration::from_hours(24);
/// Renewals are spread over this time.
const JITTER_SECONDS: i64 = 10;
/// What a projection lasts that does not say.
const DEFAULT_SECONDS: i64 = 3600;

/// A token and its times.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    text: String,
    expires: Timestamp,
    seconds: i64,
}

impl Token {
    // At 80 % of its life, or after a day.
    fn is_due(&self, now: Timestamp, jitter: SignedDuration) -> bool {
        let life = SignedDuration::from_secs(self.seconds);
        let issued = self.expires - life;
        let fresh = (life * 4 / 5).min(LONGEST_USE);
        now > issued + fresh - jitter
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    uid: String,
    account: String,
    audience: String,
    seconds: i64,
}

/// The tokens of all pods.
#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<HashMap<Key, Token>>);

impl Tokens {
    /// The token for a projection; a new one when the old is due. An old one that still lasts is better than none.
    pub(super) async fn get(
        &self,
        objects: &dyn Objects,
        pod: &Pod,
        asked: &ServiceAccountTokenProjection,
    ) -> Result<String, String> {
        let key = key(pod, asked);
        let now = Timestamp::now();
        let known = self.lock().get(&key).cloned();
        let jitter = SignedDuration::from_secs(rand::random_range(0..=JITTER_SECONDS));
        if let Some(known) = known.as_ref().filter(|known| !known.is_due(now, jitter)) {
            return Ok(known.text.clone());
        }
        match request(objects, pod, &key).await {
            Ok(new) => {
                let text = new.text.clone();
                self.lock().insert(key, new);
                Ok(text)
            }
            Err(why) => match known.filter(|known| now < known.expires) {
                Some(old) => {
                    tracing::warn!(pod = key.uid, %why, "a token could not be renewed; the old one lasts a while");
                    Ok(old.text)
                }
                None => Err(format!("failed to fetch token: {why}")),
            },
        }
    }

    /// Forgets the tokens of a pod.
    pub(super) fn forget(&self, uid: &str) {
        self.lock().retain(|key, _| key.uid != uid);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Token>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(pod: &Pod, asked: &ServiceAccountTokenProjection) -> Key {
    let account = pod
        .spec
        .as_ref()
        .and_then(|s| s.service_account_name.clone());
    Key {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        account: account.unwrap_or_else(|| "default".into()),
        audience: asked.audience.clone().unwrap_or_default(),
        seconds: asked.expiration_seconds.unwrap_or(DEFAULT_SECONDS),
    }
}

async fn request(objects: &dyn Objects, pod: &Pod, key: &Key) -> Result<Token, String> {
    let spec = TokenRequestSpec {
        audiences: Some(key.audience.clone())
            .filter(|audience| !audience.is_empty())
            .map(|audience| vec![audience]),
        bound_object_ref: Some(BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: pod.metadata.name.clone(),
            uid: Some(key.uid.clone()),
        }),
        expiration_seconds: Some(key.seconds),
    };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let answer = objects.token(namespace, &key.account, spec).await;
    let answer = answer.map_err(|error| cause(&error))?;
    let told = answer.spec.and_then(|spec| spec.expiration_seconds);
    let status = answer.status.unwrap_or_default();
    let (Some(text), Some(expires)) = (status.token, status.expiration_timestamp) else {
        return Err("the answer has no token".into());
    };
    Ok(Token {
        text,
        expires: expires.0,
        seconds: told.unwrap_or(key.seconds),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn tokens_are_renewed_at_four_fifths_of_their_life_or_after_a_day() {
        let issued = Timestamp::from_second(1_800_000_000).unwrap();
        for (seconds, age, wanted) in [
            (3600, 0, false),
            (3600, 2870, false),
            (3600, 2881, true),
            (600, 481, true),
            (600, 470, false),
            (31_536_000, 86_000, false),
            (31_536_000, 86_401, true),
        ] {
            let token = Token {
                text: "t".into(),
                expires: issued + SignedDuration::from_secs(seconds),
                seconds,
            };
            let now = issued + SignedDuration::from_secs(age);
            assert_eq!(
                token.is_due(now, SignedDuration::ZERO),
                wanted,
                "{seconds} {age}"
            );
        }
    }
}
