//! Bootstrap tokens: what a machine shows before it has a certificate.
//!
//! A token is `id.secret`; the Secret `kube-system/bootstrap-token-<id>` decides what it is worth.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use regex::Regex;
use serde_json::Value;

use super::{Authenticated, Invalid, Objects};
use crate::User;

/// The type of Secrets that hold a token.
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";

static EXTRA_GROUP: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z").expect("the pattern is valid")
});

/// A token taken apart. Shows its id only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token<'t> {
    /// The public part.
    pub id: &'t str,
    secret: &'t str,
}

impl std::fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({}.…)", self.id)
    }
}

impl<'t> Token<'t> {
    /// Six and sixteen lower-case letters or digits around a dot; nothing else is a bootstrap token.
    pub fn parse(text: &'t str) -> Option<Token<'t>> {
        let (id, secret) = text.split_once('.')?;
        let plain = |part: &str| {
            part.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret))
            .then_some(Token { id, secret })
    }
}

/// Who a bootstrap token belongs to. Nothing if the text is no such token; the reason is for our log, clients
/// only learn that the credential is invalid.
pub fn authenticate(
    token: &str,
    now: Timestamp,
    objects: &dyn Objects,
) -> Option<Result<Authenticated, Invalid>> {
    let token = Token::parse(token)?;
    let name = format!("bootstrap-token-{}", token.id);
    let verdict = match objects.get("", "secrets", "kube-system", &name) {
        Some(secret) => worth(token, &secret, now).map_err(|why| refusal(&name, &why)),
        None => Err(Invalid(format!(
            "no secret of name {name} to match bootstrap bearer token"
        ))),
    };
    Some(verdict.map(|user| Authenticated {
        user,
        ..Authenticated::default()
    }))
}

fn refusal(name: &str, why: &str) -> Invalid {
    Invalid(format!(
        "bootstrap secret kube-system/{name} matching bearer token {why}"
    ))
}

/// What a Secret says a token is worth.
fn worth(token: Token<'_>, secret: &Value, now: Timestamp) -> Result<User, String> {
    if !secret["metadata"]["deletionTimestamp"].is_null() {
        return Err("is deleted and awaiting removal".into());
    }
    if secret["type"] != SECRET_TYPE || !secret["data"].is_object() {
        return Err(format!("has invalid type, expected {SECRET_TYPE}"));
    }
    verify_slices_are_equal(&data(secret, "token-secret"), token.secret.as_bytes())
        .map_err(|_| "has invalid value for key token-secret")?;
    if data(secret, "token-id") != token.id.as_bytes() {
        return Err("has invalid value for key token-id".into());
    }
    if expired(&data(secret, "expiration"), now) {
        return Err("has expired".into());
    }
    if data(secret, "usage-bootstrap-authentication") != b"true" {
        return Err("not marked usage-bootstrap-authentication=true".into());
    }
    Ok(User {
        name: format!("system:bootstrap:{}", token.id),
        groups: groups(secret)?,
        ..User::default()
    })
}

/// A value of the Secret; empty where there is none.
fn data(secret: &Value, key: &str) -> Vec<u8> {
    let text = secret["data"][key].as_str().unwrap_or_default();
    STANDARD.decode(text).unwrap_or_default()
}

/// Whether the time is over; an expiration nobody can read is.
fn expired(expiration: &[u8], now: Timestamp) -> bool {
    if expiration.is_empty() {
        return false;
    }
    let moment = std::str::from_utf8(expiration)
        .ok()
        .and_then(|text| text.parse::<Timestamp>().ok());
    moment.is_none_or(|moment| moment <= now)
}

/// The group of all bootstrap tokens and the Secret's own, sorted and each once.
fn groups(secret: &Value) -> Result<Vec<String>, String> {
    let extra = data(secret, "auth-extra-groups");
    let extra =
        String::from_utf8(extra).map_err(|_| "has invalid value for key auth-extra-groups")?;
    let mut groups = BTreeSet::from(["system:bootstrappers".to_owned()]);
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        if !EXTRA_GROUP.is_match(group) {
            return Err(format!(
                "has invalid value for key auth-extra-groups: {group:?} is no bootstrap group"
            ));
        }
        groups.insert(group.to_owned());
    }
    Ok(groups.into_iter().collect())
}

#[cfg(test)]
mod tests;
