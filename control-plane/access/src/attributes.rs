//! What is asked for, and what was decided.

use crate::User;

/// One question: may this user do this to that.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    /// Who.
    pub user: &'a User,
    /// What they want to do: a Kubernetes verb, or an HTTP method in lower case for a path.
    pub verb: &'a str,
    /// To what.
    pub target: Target<'a>,
}

/// What a request is about.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// A resource of the API.
    Resource(ResourceTarget<'a>),
    /// Any other path, such as `/healthz`.
    Path(&'a str),
}

/// A resource, or some of its objects. Empty strings where a part does not apply.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResourceTarget<'a> {
    /// Namespace; empty for cluster scope and for all namespaces.
    pub namespace: &'a str,
    /// API group; empty for core.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Plural.
    pub resource: &'a str,
    /// Subresource.
    pub subresource: &'a str,
    /// Name; for a list or watch the one its field selector asks for.
    pub name: &'a str,
    /// The field selector as the client wrote it.
    pub field_selector: &'a str,
    /// The label selector as the client wrote it.
    pub label_selector: &'a str,
}

/// An authorizer's answer, with a reason for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Yes.
    Allow(String),
    /// No, whatever others say.
    Deny(String),
    /// Somebody else may know.
    NoOpinion(String),
}

impl Decision {
    /// Whether the answer is yes.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allow(_))
    }
}
