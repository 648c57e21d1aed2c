//! Tokens of other issuers: OpenID Connect providers.
//!
//! ```text
//! flags | AuthenticationConfiguration ─► Trust ─► Provider ─► User
//!                                                  ▲ keys
//!                       the API server fetches ────┘
//! ```
//!
//! A [`Provider`] decides and never fetches: it says when it needs keys, and is told what was found.

mod configuration;
mod expression;
mod flags;
mod mapping;
mod provider;

use super::keys::Algorithm;

pub use configuration::{Anonymous, Configuration, ConfigurationError};
pub use expression::{About, Expression, Yields};
pub use flags::Flags;
pub use provider::{Provider, Refusal};

/// One issuer we trust, and what its claims mean.
#[derive(Debug, Clone, PartialEq)]
pub struct Trust {
    /// The issuer, as in `iss`.
    pub url: String,
    /// Where its metadata is, if not below the issuer.
    pub discovery_url: Option<String>,
    /// Authorities of its servers in PEM, if not the host's.
    pub authority: Option<String>,
    /// Audiences of which a token must have one.
    pub audiences: Vec<String>,
    /// Algorithms a token may be signed with.
    pub algorithms: Vec<Algorithm>,
    /// The user's name.
    pub username: Mapping,
    /// The user's groups.
    pub groups: Option<Mapping>,
    /// The user's uid.
    pub uid: Option<Mapping>,
    /// The user's extras by key.
    pub extra: Vec<(String, Expression)>,
    /// What must be true of the claims.
    pub claim_rules: Vec<Rule>,
    /// What must be true of the user.
    pub user_rules: Vec<Rule>,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Mapping {
    /// From a claim, with something before it.
    Claim {
        /// The claim.
        claim: String,
        /// What is put before it.
        prefix: String,
    },
    /// From an expression about `claims`.
    Expression(Expression),
}

/// Something that must be true.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// A claim has a value.
    Required {
        /// The claim.
        claim: String,
        /// The value.
        value: String,
    },
    /// An expression holds.
    Holds {
        /// The expression.
        expression: Expression,
        /// What is said if it does not.
        message: String,
    },
}

impl Trust {
    /// Where the issuer's metadata is fetched.
    pub fn metadata_address(&self) -> String {
        let below = || {
            format!(
                "{}/.well-known/openid-configuration",
                self.url.trim_end_matches('/')
            )
        };
        self.discovery_url.clone().unwrap_or_else(below)
    }
}

#[cfg(test)]
mod tests;
