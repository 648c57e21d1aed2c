//! `Impersonate-*` headers: who is asked for, and whether they may be.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::impersonation::{Refusal, impersonate};
use access::{Attributes, ResourceTarget, Target, User};
use http::{HeaderMap, HeaderName};

use crate::door::asked::Asked;
use crate::door::authorization::Authorizer;
use crate::door::request::percent_decoded;
use crate::status::{ApiError, Result};

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";

/// Takes the headers out of a request: nothing behind this sees that somebody speaks for another.
pub(crate) fn take(headers: &mut HeaderMap) -> Result<Option<User>> {
    let names: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("impersonate-"))
        .cloned()
        .collect();
    if names.is_empty() {
        return Ok(None);
    }
    let mut wanted = User::default();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in names {
        let values: Vec<String> = headers
            .get_all(&name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect();
        headers.remove(&name);
        match (name.as_str(), name.as_str().strip_prefix(EXTRA)) {
            (USER, _) => wanted.name = values.into_iter().next().unwrap_or_default(),
            (UID, _) => wanted.uid = values.into_iter().next().unwrap_or_default(),
            (GROUP, _) => wanted.groups = values,
            (_, Some(key)) => extra
                .entry(percent_decoded(key))
                .or_default()
                .extend(values),
            _ => {}
        }
    }
    wanted.extra = extra;
    if wanted == User::default() {
        return Ok(None);
    }
    if wanted.name.is_empty() {
        return Err(ApiError::bad_request(
            "groups, a uid or extra of a user cannot be impersonated without a user name",
        ));
    }
    Ok(Some(wanted))
}

/// The user a requester becomes, or 403.
pub(crate) fn become_user(
    authorizer: &Authorizer,
    asked: &Asked<'_>,
    requester: &User,
    wanted: &User,
) -> Result<Arc<User>> {
    let decide = |attributes: &Attributes<'_>| authorizer.decide(attributes);
    impersonate(&asked.attributes(requester), wanted, &decide)
        .map(Arc::new)
        .map_err(|refusal| refused(requester, &refusal))
}

fn refused(requester: &User, refusal: &Refusal) -> ApiError {
    let target = match &refusal.path {
        Some(path) => Target::Path(path),
        None => Target::Resource(ResourceTarget {
            namespace: &refusal.namespace,
            group: &refusal.group,
            resource: &refusal.resource,
            subresource: &refusal.subresource,
            name: &refusal.name,
            ..ResourceTarget::default()
        }),
    };
    let attributes = Attributes {
        user: requester,
        verb: &refusal.verb,
        target,
    };
    ApiError::not_allowed(&attributes, &refusal.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_name_a_user_and_are_gone_afterwards() {
        let mut headers = HeaderMap::new();
        headers.insert("accept", "x".parse().expect("a value"));
        headers.insert(USER, "bob".parse().expect("a value"));
        headers.append(GROUP, "a".parse().expect("a value"));
        headers.append(GROUP, "b".parse().expect("a value"));
        headers.insert(
            "impersonate-extra-acme.com%2fteam",
            "x".parse().expect("a value"),
        );
        let user = take(&mut headers).expect("complete").expect("somebody");
        assert_eq!((user.name.as_str(), user.groups.len()), ("bob", 2));
        assert_eq!(user.extra["acme.com/team"], ["x"]);
        assert_eq!(headers.len(), 1);
        assert!(take(&mut headers).expect("nothing to say").is_none());
        headers.insert(GROUP, "a".parse().expect("a value"));
        assert!(take(&mut headers).is_err());
    }
}
