//! What a node is asked to be: `aksnodeconfig.v1.Configuration`, carried as protobuf's JSON.
//!
//! `messages` is the whole contract as one table; reading, writing and looking at fields by name follow
//! from it. [`read`] is what a node does with the file it was given.

pub mod declare;
pub mod decode;
pub mod encode;

pub mod json;
pub mod lookup;
mod messages;
pub mod predicates;
mod secret;

pub use declare::Part;
pub use decode::Finding;
pub use messages::*;
pub use secret::{REDACTED, Secret};

/// A configuration that can be used, and what was left out of it or should be known about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// The configuration.
    pub configuration: Configuration,
    /// To be logged.
    pub notices: Vec<Notice>,
}

/// What a node should log about its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The version is v0, which will go away.
    Deprecated,
    /// An unknown field or enum name was left out.
    LeftOut(Finding),
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Notice::Deprecated => f.write_str("configuration version v0 is deprecated, use v1"),
            Notice::LeftOut(finding) => finding.fmt(f),
        }
    }
}

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is not JSON, or fields do not fit; upstream would go on with what stands before the first error.
    #[error("the node configuration cannot be read: {}", list(.0))]
    Unreadable(Vec<Finding>),
    /// It is of a version that this program does not know.
    #[error("unsupported version: {0}")]
    UnsupportedVersion(String),
}

fn list(findings: &[Finding]) -> String {
    const SHOWN: usize = 3;
    let mut shown: Vec<String> = findings
        .iter()
        .take(SHOWN)
        .map(Finding::to_string)
        .collect();
    if findings.len() > SHOWN {
        shown.push(format!("and {} more", findings.len() - SHOWN));
    }
    shown.join("; ")
}

/// Reads what a node was given. Anything that does not fit makes it unusable: half a configuration is none.
pub fn read(text: &[u8]) -> Result<Accepted, Unusable> {
    let mut configuration = Configuration::default();
    let found = decode::decode(text, &mut configuration);
    if !found.errors.is_empty() {
        return Err(Unusable::Unreadable(found.errors));
    }
    let mut notices = Vec::new();
    match configuration.version.as_str() {
        "v1" => {}
        "v0" => notices.push(Notice::Deprecated),
        other => return Err(Unusable::UnsupportedVersion(other.to_owned())),
    }
    notices.extend(found.notices.into_iter().map(Notice::LeftOut));
    Ok(Accepted {
        configuration,
        notices,
    })
}

#[cfg(test)]
pub(crate) mod tests;
