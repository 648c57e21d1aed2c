//! AuthorizationConfiguration: who is asked whether somebody may do something, in which order. Pure.
//!
//! ```text
//! file ─► [Stage]: Node, RBAC, … or a webhook
//! a webhook: conditions (CEL) ─► remembered (memory)? ─► SubjectAccessReview (review) ─► Decision
//! ```

mod conditions;
mod file;
mod memory;
mod review;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::Decision;
pub use conditions::{Conditions, Verdict};
pub use file::parse;
pub use memory::Memory;
pub use review::{body, decision, question};

/// One who is asked.
#[derive(Debug, PartialEq)]
pub enum Stage {
    /// One of the server's own authorizers, by upstream's name.
    BuiltIn(String),
    /// Another server.
    Webhook(Webhook),
}

/// A server that decides.
#[derive(Debug, PartialEq)]
pub struct Webhook {
    /// Its name, for metrics and the log.
    pub name: String,
    /// How long a yes is believed; not at all without it.
    pub authorized_ttl: Option<Duration>,
    /// How long anything else is believed; not at all without it.
    pub unauthorized_ttl: Option<Duration>,
    /// How long a call may take.
    pub timeout: Duration,
    /// The version of SubjectAccessReview that it speaks.
    pub version: String,
    /// What its failure means.
    pub on_failure: OnFailure,
    /// A kubeconfig; the server's own where it is nothing.
    pub kubeconfig: Option<PathBuf>,
    /// When it is asked at all.
    pub conditions: Conditions,
}

/// What is decided if a webhook fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// The next one is asked.
    NoOpinion,
    /// No.
    Deny,
}

impl OnFailure {
    /// The decision, with its reason. Upstream says nothing of the error to whoever asks.
    pub fn decision(self) -> Decision {
        match self {
            OnFailure::NoOpinion => Decision::NoOpinion(String::new()),
            OnFailure::Deny => Decision::Deny(String::new()),
        }
    }
}

/// Whether an answer is kept at all: what may be anything would fill the memory (upstream's limit).
pub fn may_be_kept(spec: &Value) -> bool {
    const MOST: usize = 10_000;
    let resource = &spec["resourceAttributes"];
    let path = &spec["nonResourceAttributes"];
    let texts = [
        "namespace",
        "verb",
        "group",
        "version",
        "resource",
        "subresource",
        "name",
    ];
    let of_resource = texts.iter().map(|field| length(&resource[*field]));
    let of_path = ["path", "verb"].iter().map(|field| length(&path[*field]));
    of_resource.chain(of_path).sum::<usize>() < MOST
}

fn length(value: &Value) -> usize {
    value.as_str().map_or(0, str::len)
}

#[cfg(test)]
mod tests;
