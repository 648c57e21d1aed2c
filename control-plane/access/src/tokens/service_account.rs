//! Service account tokens: JWTs of our own, good while what they are bound to lives.
//!
//! A token is checked in this order, upstream's: issuer, signature, audience, time, live objects.

mod claims;
mod legacy;
mod live;

use jiff::{SignedDuration, Timestamp};

use super::claims::{Audience, LEEWAY, NumericDate, shifted};
use super::jws::{self, Compact};
use super::keys::{KeyError, PublicKey, SigningKey};
use super::seen::Seen;
use super::{Authenticated, CREDENTIAL_ID, Invalid, Objects, intersection, quoted};
use crate::User;
use claims::{Bound, Claims};

pub use claims::Ref;
pub use legacy::{LEGACY_ISSUER, legacy_token};

/// What a token is bound to: when that is gone, so is the token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Binding {
    /// The service account only.
    #[default]
    Account,
    /// A pod; the node it runs on is told too, without a uid if that node is unknown.
    Pod {
        /// The pod.
        pod: Ref,
        /// Its node.
        node: Option<Ref>,
    },
    /// A Secret.
    Secret(Ref),
    /// A node.
    Node(Ref),
}

/// A token to be made.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Namespace of the service account.
    pub namespace: String,
    /// The service account.
    pub account: Ref,
    /// Whom the token is for.
    pub audiences: Vec<String>,
    /// How long it is good.
    pub seconds: i64,
    /// After how many seconds its use is noted as stale.
    pub warn_after: Option<i64>,
    /// What it is bound to.
    pub binding: Binding,
    /// Its id, unique among tokens.
    pub id: String,
}

/// Makes tokens.
#[derive(Debug)]
pub struct Issuer {
    /// The `iss` of the tokens.
    pub name: String,
    /// The key that signs them.
    pub key: SigningKey,
}

impl Issuer {
    /// Signs a token.
    pub fn issue(&self, grant: &Grant, now: Timestamp) -> Result<String, KeyError> {
        let after = |seconds| NumericDate::of(shifted(now, SignedDuration::from_secs(seconds)));
        let (pod, node, secret) = match grant.binding.clone() {
            Binding::Account => (None, None, None),
            Binding::Pod { pod, node } => (Some(pod), node, None),
            Binding::Secret(secret) => (None, None, Some(secret)),
            Binding::Node(node) => (None, Some(node), None),
        };
        let claims = Claims {
            aud: Audience(grant.audiences.clone()),
            exp: Some(after(grant.seconds)),
            iat: Some(NumericDate::of(now)),
            iss: self.name.clone(),
            jti: grant.id.clone(),
            kubernetes: Bound {
                namespace: grant.namespace.clone(),
                node,
                pod,
                secret,
                serviceaccount: grant.account.clone(),
                warnafter: grant.warn_after.map(after),
            },
            nbf: Some(NumericDate::of(now)),
            sub: username(&grant.namespace, &grant.account.name),
        };
        jws::sign(&self.key, &claims)
    }
}

/// Checks tokens.
#[derive(Debug)]
pub struct Authenticator {
    /// Issuers whose tokens are accepted; the first is the one that signs.
    pub issuers: Vec<String>,
    /// Keys that sign or have signed.
    pub keys: Vec<PublicKey>,
    /// What these keys were found to have signed.
    pub seen: Seen,
    /// Audiences of this API server.
    pub api_audiences: Vec<String>,
}

impl Authenticator {
    /// Who a token belongs to. Nothing if it is none of ours. Without wanted audiences it must be for this API
    /// server.
    pub fn authenticate(
        &self,
        token: &str,
        now: Timestamp,
        wanted: &[String],
        objects: &dyn Objects,
    ) -> Option<Result<Authenticated, Invalid>> {
        let issuer = jws::claimed_issuer(token)?;
        if self.issuers.contains(&issuer) {
            Some(self.bound(token, &issuer, now, wanted, objects))
        } else if issuer == LEGACY_ISSUER {
            Some(self.legacy(token, now, wanted, objects))
        } else {
            None
        }
    }

    fn bound(
        &self,
        token: &str,
        issuer: &str,
        now: Timestamp,
        wanted: &[String],
        objects: &dyn Objects,
    ) -> Result<Authenticated, Invalid> {
        let claims: Claims = self.signed_claims(token)?;
        if claims.iss != issuer {
            return Err(Invalid(format!("token issuer {:?} is invalid", claims.iss)));
        }
        let audiences = self.shared_audiences(&claims.aud.0, wanted)?;
        check_time(&claims, now)?;
        live::check(&claims.kubernetes, now, objects)?;
        Ok(Authenticated {
            user: user(&claims),
            audiences,
            audit: stale(&claims, now),
            ..Authenticated::default()
        })
    }

    fn legacy(
        &self,
        token: &str,
        now: Timestamp,
        wanted: &[String],
        objects: &dyn Objects,
    ) -> Result<Authenticated, Invalid> {
        let claims: legacy::Claims = self.signed_claims(token)?;
        let audiences = self.shared_audiences(&claims.aud.0, wanted)?;
        Ok(Authenticated {
            audiences,
            ..legacy::check(&claims, token, now, objects)?
        })
    }

    fn signed_claims<T: serde::de::DeserializeOwned>(&self, token: &str) -> Result<T, Invalid> {
        let compact = Compact::parse(token).map_err(|why| Invalid::new(why.to_string()))?;
        self.seen
            .or_check(token, || compact.verified(&self.keys).map(|_| ()))
            .map_err(|why| Invalid::new(why.to_string()))?;
        // What serde found wrong would quote the claims.
        serde_json::from_slice(compact.payload())
            .map_err(|_| Invalid::new("token claims are malformed"))
    }

    /// A token without audiences is a legacy one and for this API server only.
    fn shared_audiences(
        &self,
        of_token: &[String],
        wanted: &[String],
    ) -> Result<Vec<String>, Invalid> {
        let of_token = if of_token.is_empty() {
            &self.api_audiences
        } else {
            of_token
        };
        let wanted = if wanted.is_empty() {
            &self.api_audiences
        } else {
            wanted
        };
        let shared = intersection(of_token, wanted);
        if !shared.is_empty() {
            return Ok(shared);
        }
        let (has, wants) = (quoted(of_token), quoted(wanted));
        Err(Invalid(format!(
            "token audiences {has} is invalid for the target audiences {wants}"
        )))
    }
}

fn check_time(claims: &Claims, now: Timestamp) -> Result<(), Invalid> {
    let (early, late) = (shifted(now, -LEEWAY), shifted(now, LEEWAY));
    if claims.nbf.is_some_and(|nbf| late < nbf.moment()) {
        return Err(Invalid::new("service account token is not valid yet"));
    }
    if claims.exp.is_some_and(|exp| early > exp.moment()) {
        return Err(Invalid::new("service account token has expired"));
    }
    if claims.iat.is_some_and(|iat| late < iat.moment()) {
        return Err(Invalid::new(
            "service account token is issued in the future",
        ));
    }
    Ok(())
}

/// The user name of a service account.
pub fn username(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The user a service account is, before anything a token adds.
pub fn account_user(namespace: &str, name: &str, uid: &str) -> User {
    User {
        name: username(namespace, name),
        uid: uid.into(),
        groups: vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}"),
        ],
        ..User::default()
    }
}

fn user(claims: &Claims) -> User {
    let bound = &claims.kubernetes;
    let mut user = account_user(
        &bound.namespace,
        &bound.serviceaccount.name,
        &bound.serviceaccount.uid,
    );
    let mut tell = |key: &str, value: &str| {
        user.extra.insert(
            format!("authentication.kubernetes.io/{key}"),
            vec![value.to_owned()],
        );
    };
    if let Some(pod) = bound
        .pod
        .as_ref()
        .filter(|pod| !pod.name.is_empty() && !pod.uid.is_empty())
    {
        tell("pod-name", &pod.name);
        tell("pod-uid", &pod.uid);
    }
    if let Some(node) = bound.node.as_ref().filter(|node| !node.name.is_empty()) {
        tell("node-name", &node.name);
        if !node.uid.is_empty() {
            tell("node-uid", &node.uid);
        }
    }
    if !claims.jti.is_empty() {
        user.extra
            .insert(CREDENTIAL_ID.into(), vec![credential_id(&claims.jti)]);
    }
    user
}

/// How audit logs and extras name a token.
pub fn credential_id(token_id: &str) -> String {
    format!("JTI={token_id}")
}

/// The audit note on tokens that live longer than was asked for.
fn stale(claims: &Claims, now: Timestamp) -> Vec<(&'static str, String)> {
    let warn = claims
        .kubernetes
        .warnafter
        .filter(|warn| warn.0 != 0 && now > warn.moment());
    let note = warn.map(|warn| {
        let seconds = now.as_second() - warn.0;
        let note = format!(
            "subject: {}, seconds after warning threshold: {seconds}",
            claims.sub
        );
        ("authentication.k8s.io/stale-token", note)
    });
    note.into_iter().collect()
}

#[cfg(test)]
mod tests;
