//! Writes made up for tests of plugins.

use access::User;
use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

use super::{Attributes, Operation, Warnings, lookup};
use crate::call::Call;
use crate::door::request::{Query, ResourcePath};

/// A user with groups.
pub(super) fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: name.into(),
        groups: groups.iter().map(|g| (*g).into()).collect(),
        ..User::default()
    }
}

/// A request to `group/version/plural`, by nobody in particular.
pub(super) fn call(resource: (&str, &str, &str), namespace: &str, name: &str) -> Call {
    call_by(User::default(), resource, namespace, name)
}

/// A request by a user.
pub(super) fn call_by(
    user: User,
    (group, version, plural): (&str, &str, &str),
    namespace: &str,
    name: &str,
) -> Call {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Call {
        resource: lookup::resource(group, version, plural).clone(),
        path: ResourcePath {
            group: group.into(),
            version: version.into(),
            namespace: given(namespace),
            resource: plural.into(),
            name: given(name),
            ..ResourcePath::default()
        },
        method: Method::POST,
        query: Query::parse(None),
        headers: HeaderMap::new(),
        body: Bytes::new(),
        user: user.into(),
        warnings: Warnings::default(),
        trail: None,
    }
}

/// What plugins are told about a request.
pub(super) fn attributes<'a>(
    call: &'a Call,
    operation: Operation,
    subresource: &'a str,
    old: Option<&'a Value>,
) -> Attributes<'a> {
    Attributes {
        call,
        operation,
        subresource,
        name: call.path.name(),
        old,
        dry_run: false,
    }
}
