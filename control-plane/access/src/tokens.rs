//! Bearer tokens: which of them prove who asks.
//!
//! ```text
//! token ─┬─ iss of ours ──► service_account ─┐
//!        ├─ id.secret ────► bootstrap        ├─► Authenticated | Invalid
//!        └─ iss of theirs ► oidc             ┘
//! ```
//!
//! Every authenticator answers `None` for a token that is not its business, so the next may try. A token that
//! nobody accepts is a 401, never an anonymous request.

pub mod bootstrap;
mod claims;
pub mod discovery;
pub mod jwk;
mod jws;
pub mod keys;
pub mod oidc;
mod seen;
pub mod service_account;
pub mod token_request;

use serde_json::Value;

pub use seen::Seen;

use crate::User;

/// The extra key under which authenticators say which credential was shown.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

const ALL_AUTHENTICATED: &str = "system:authenticated";

/// The live objects tokens are bound to; the API server answers from its cache.
pub trait Objects {
    /// An object by its place, or nothing if there is none. Objects without a namespace are asked with `""`.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value>;
}

/// What a good token proves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authenticated {
    /// Who asks, without the group of all authenticated users; see [`with_authenticated_group`].
    pub user: User,
    /// Those of the wanted audiences the token is for.
    pub audiences: Vec<String>,
    /// A sentence for the Warning header.
    pub warning: Option<String>,
    /// Annotations for the audit event.
    pub audit: Vec<(&'static str, String)>,
    /// A token Secret whose last-used label should be set to a day.
    pub last_used: Option<LastUsed>,
}

/// The label a used token Secret should carry from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastUsed {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// Its uid, so a namesake is left alone.
    pub uid: String,
    /// The day, `YYYY-MM-DD`.
    pub date: String,
}

/// Why a token that claims to be ours proves nothing. Never contains the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

impl Invalid {
    pub(crate) fn new(why: impl Into<String>) -> Invalid {
        Invalid(why.into())
    }
}

/// Adds the group every authenticated user is in; upstream leaves users alone who are in it, or in its opposite.
pub fn with_authenticated_group(mut user: User) -> User {
    let decided = user.is_in(ALL_AUTHENTICATED) || user.is_in("system:unauthenticated");
    if !decided && user.name != "system:anonymous" {
        user.groups.push(ALL_AUTHENTICATED.into());
    }
    user
}

/// The audiences of an authenticator whose tokens name none of ours (bootstrap tokens, OIDC, certificates).
///
/// Such a credential is good for the API server only: nothing if the caller wants another audience.
pub fn implied_audiences(api: &[String], wanted: &[String]) -> Option<Vec<String>> {
    if wanted.is_empty() {
        return Some(api.to_vec());
    }
    let shared = intersection(api, wanted);
    (!shared.is_empty()).then_some(shared)
}

/// The members of `left` that are in `right`, in the order of `left`.
fn intersection(left: &[String], right: &[String]) -> Vec<String> {
    left.iter().filter(|l| right.contains(l)).cloned().collect()
}

/// A list of strings as Go prints it with `%q`; it stands in messages clients see.
fn quoted(list: &[String]) -> String {
    let inner: Vec<String> = list.iter().map(|s| format!("{s:?}")).collect();
    format!("[{}]", inner.join(" "))
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
