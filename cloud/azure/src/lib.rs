//! Azure, as a client sees it: azure.json, tokens, Resource Manager, and a machine's own metadata service.
//!
//! ```text
//! config     azure.json: every field, its default, and what the environment says instead
//! endpoints  which cloud: the public ones by name, any other by its own description
//! token      who we are: secret, certificate, federated token, managed identity, Arc
//! arm        verbs of Resource Manager: operations to their end, ETags, pages, patience
//! imds       what a machine can ask about itself
//! id         ids of resources, and of nodes (`azure:///…`)
//! models     the resources we touch; fields we do not know are kept
//! ```
//!
//! Microsoft's own `azure_core` and `azure_identity` are not used. There are no management crates for what we touch, so
//! the part that would be left of them is a pipeline and credentials; they come with an HTTP stack of their own beside
//! the one that every role here has (`wire`), read the clock and the environment themselves, and a node's manager has to
//! fit into a few megabytes. What is pure of it (when to wait, how an operation goes on, what a refusal means) has
//! tests here.

pub mod arm;
pub mod config;
pub mod endpoints;
pub mod id;
pub mod imds;
pub mod models;
pub mod token;

pub use arm::Arm;
pub use config::CloudConfig;
pub use endpoints::Endpoints;

use std::time::Duration;

/// Why Azure did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Nobody answered.
    #[error(transparent)]
    Unreachable(#[from] wire::client::Unreachable),
    /// It was refused.
    #[error("{method} {path} was refused with {status}: {code}: {message}")]
    Refused {
        /// The verb.
        method: String,
        /// The resource.
        path: String,
        /// HTTP's status.
        status: u16,
        /// Azure's word for it.
        code: String,
        /// Azure's sentence.
        message: String,
    },
    /// An operation was taken on and then failed.
    #[error("the operation on {path} failed: {code}: {message}")]
    Failed {
        /// The resource.
        path: String,
        /// Azure's word for it.
        code: String,
        /// Azure's sentence.
        message: String,
    },
    /// Azure wants to be left alone for longer than we wait.
    #[error("requests for {what} are throttled for {} more seconds", after.as_secs())]
    Throttled {
        /// Which requests.
        what: String,
        /// For how long.
        after: Duration,
    },
    /// An answer that makes no sense.
    #[error("the answer of {place} cannot be read: {cause}")]
    Unreadable {
        /// Who answered.
        place: String,
        /// What is wrong with it.
        cause: String,
    },
    /// There are no credentials, or they are refused.
    #[error("no token for Azure: {0}")]
    Token(String),
    /// What we were told about Azure is of no use.
    #[error("{0}")]
    Config(String),
}

impl Error {
    pub(crate) fn unreadable(place: &str, cause: &dyn std::fmt::Display) -> Error {
        Error::Unreadable {
            place: place.to_owned(),
            cause: cause.to_string(),
        }
    }

    /// HTTP's status, where Azure gave one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Error::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Azure's word for what is wrong.
    pub fn code(&self) -> &str {
        match self {
            Error::Refused { code, .. } | Error::Failed { code, .. } => code,
            _ => "",
        }
    }

    /// Whether somebody else wrote in between: what we know is old.
    pub fn is_outdated(&self) -> bool {
        self.status() == Some(412)
            || matches!(
                self.code(),
                "CanceledAndSupersededDueToAnotherOperation" | "OperationPreempted"
            )
    }

    /// Whether asking for the same again can only be refused again: the request itself is wrong.
    pub fn is_permanent(&self) -> bool {
        match self {
            Error::Refused { status, .. } => {
                (400..500).contains(status) && ![401, 408, 409, 412, 429].contains(status)
            }
            Error::Failed { code, .. } => !self.is_outdated() && code != "InternalServerError",
            _ => false,
        }
    }

    /// How long to wait before asking again, where Azure said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Throttled { after, .. } => Some(*after),
            _ => None,
        }
    }
}
