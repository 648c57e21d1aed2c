//! A request as authorization sees it: a verb on a resource, or a method on a path.
//!
//! The rules are `apiserver/pkg/endpoints/request/requestinfo.go`'s.

use std::borrow::Cow;

use access::{Attributes, ResourceTarget, Target, User};
use http::Method;

use crate::door::request::{Query, ResourcePath};

/// What a request asks for.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    verb: Cow<'static, str>,
    url: &'a str,
    path: Option<&'a ResourcePath>,
    namespace: &'a str,
    name: Cow<'a, str>,
    field_selector: &'a str,
    label_selector: &'a str,
}

impl<'a> Asked<'a> {
    /// Reads a request line.
    pub(crate) fn of(
        method: &Method,
        url: &'a str,
        path: Option<&'a ResourcePath>,
        query: &'a Query,
    ) -> Asked<'a> {
        let verb = path.map(|path| verb(method, path, query));
        let selects = matches!(verb, Some("list" | "watch" | "deletecollection"));
        let selector = |key| query.get(key).filter(|_| selects).unwrap_or_default();
        let field_selector = selector("fieldSelector");
        let one_name = || match verb {
            Some("list" | "watch") => name_in(field_selector).map(Cow::Owned),
            _ => None,
        };
        Asked {
            verb: match verb {
                Some(known) if !known.is_empty() => Cow::Borrowed(known),
                _ => Cow::Owned(method.as_str().to_ascii_lowercase()),
            },
            url,
            path,
            namespace: path.map_or("", namespace),
            name: match path.and_then(|path| path.name.as_deref()) {
                Some(name) => Cow::Borrowed(name),
                None => one_name().unwrap_or_default(),
            },
            field_selector,
            label_selector: selector("labelSelector"),
        }
    }

    /// The question for a user.
    pub(crate) fn attributes<'b>(&'b self, user: &'b User) -> Attributes<'b> {
        let target = match self.path {
            None => Target::Path(self.url),
            Some(path) => Target::Resource(ResourceTarget {
                namespace: self.namespace,
                group: &path.group,
                version: &path.version,
                resource: &path.resource,
                subresource: path.subresource.as_deref().unwrap_or_default(),
                name: &self.name,
                field_selector: self.field_selector,
                label_selector: self.label_selector,
            }),
        };
        Attributes {
            user,
            verb: &self.verb,
            target,
        }
    }
}

/// The verb of a request to a resource; empty for methods that have none.
pub(crate) fn verb(method: &Method, path: &ResourcePath, query: &Query) -> &'static str {
    let named = path.name.is_some();
    let watches = (!named || path.legacy_watch)
        && path.subresource.is_none()
        && (path.legacy_watch || query.flag("watch"));
    match *method {
        Method::GET if watches => "watch",
        Method::GET | Method::HEAD if named => "get",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => "",
    }
}

// A namespace is in itself, so a role in it can speak about it.
fn namespace(path: &ResourcePath) -> &str {
    match (&path.namespace, &*path.resource) {
        (Some(namespace), _) => namespace,
        (None, "namespaces") if path.group.is_empty() => path.name.as_deref().unwrap_or_default(),
        _ => "",
    }
}

// A list of one named object is a request for that object.
fn name_in(field_selector: &str) -> Option<String> {
    let selector = kube_kit::selector::FieldSelector::parse(field_selector).ok()?;
    let name = selector.exact_value("metadata.name")?;
    (!name.is_empty() && !name.contains('/')).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_become_the_questions_upstream_asks() {
        let cases = [
            ("GET", "/api/v1/namespaces/a/pods", "list pods//a/"),
            ("GET", "/api/v1/namespaces/a/pods/x", "get pods//a/x"),
            ("GET", "/api/v1/pods?watch=1", "watch pods///"),
            (
                "GET",
                "/api/v1/watch/namespaces/a/pods/x",
                "watch pods//a/x",
            ),
            ("GET", "/api/v1/namespaces/a", "get namespaces//a/a"),
            (
                "PUT",
                "/api/v1/namespaces/a/status",
                "update namespaces/status/a/a",
            ),
            (
                "DELETE",
                "/api/v1/namespaces/a/pods",
                "deletecollection pods//a/",
            ),
            (
                "POST",
                "/api/v1/namespaces/a/pods/x/exec",
                "create pods/exec/a/x",
            ),
            (
                "GET",
                "/api/v1/nodes?fieldSelector=metadata.name%3Dn",
                "list nodes///n",
            ),
            (
                "GET",
                "/api/v1/nodes?fieldSelector=metadata.name!%3Dn",
                "list nodes///",
            ),
            (
                "DELETE",
                "/api/v1/namespaces/a/pods?watch=1",
                "deletecollection pods//a/",
            ),
            (
                "DELETE",
                "/api/v1/watch/namespaces/a/pods/x",
                "delete pods//a/x",
            ),
            ("GET", "/apis/apps/v1", "get /apis/apps/v1"),
            ("HEAD", "/healthz", "head /healthz"),
        ];
        for (method, url, wanted) in cases {
            let (path, query) = url.split_once('?').unwrap_or((url, ""));
            let (parsed, query) = (
                crate::door::request::parse_path(path),
                Query::parse(Some(query)),
            );
            let method = method.parse().expect("a method");
            let asked = Asked::of(&method, path, parsed.as_ref(), &query);
            let user = User::default();
            let attributes = asked.attributes(&user);
            let found = match attributes.target {
                Target::Path(path) => format!("{} {path}", attributes.verb),
                Target::Resource(t) => format!(
                    "{} {}/{}/{}/{}",
                    attributes.verb, t.resource, t.subresource, t.namespace, t.name
                ),
            };
            assert_eq!(found, wanted, "{method} {url}");
        }
    }
}
