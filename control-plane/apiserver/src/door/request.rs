//! What a request asks for: the URL grammar and the query options.
//!
//! The grammar is `apiserver/pkg/endpoints/request/requestinfo.go`'s: `/api/v1/…` for core,
//! `/apis/{group}/{version}/…` for the rest, then an optional namespace, a resource, a name, a
//! subresource and whatever follows it.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::status::{ApiError, Result};

/// A path below a group and version, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ResourcePath {
    /// Group; empty for core.
    pub(crate) group: String,
    /// Version.
    pub(crate) version: String,
    /// Namespace, when the path names one.
    pub(crate) namespace: Option<String>,
    /// Plural resource.
    pub(crate) resource: String,
    /// Object name.
    pub(crate) name: Option<String>,
    /// Subresource.
    pub(crate) subresource: Option<String>,
    /// What follows the subresource.
    pub(crate) rest: Option<String>,
    /// The deprecated `/watch/` form.
    pub(crate) legacy_watch: bool,
}

impl ResourcePath {
    /// The name, for requests that must have one.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The namespace, empty if none.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }
}

/// Takes a path apart, or says that it is not below a group and version.
pub(crate) fn parse_path(path: &str) -> Option<ResourcePath> {
    let mut parts = path.split('/').skip(1).map(decode).collect::<Vec<_>>();
    if parts.last().is_some_and(|p| p.is_empty()) {
        parts.pop();
    }
    let mut parts = parts.into_iter();
    let mut found = ResourcePath::default();
    match &*parts.next()? {
        "api" => found.version = parts.next()?.into_owned(),
        "apis" => {
            found.group = parts.next()?.into_owned();
            found.version = parts.next()?.into_owned();
        }
        _ => return None,
    }
    let mut parts = parts.peekable();
    if parts.peek().is_some_and(|p| p == "watch") {
        found.legacy_watch = true;
        parts.next();
    }
    let rest: Vec<Cow<'_, str>> = parts.collect();
    let mut rest = rest.as_slice();
    if let [first, namespace, third, ..] = rest
        && first == "namespaces"
        && third != "status"
        && third != "finalize"
    {
        found.namespace = Some(namespace.to_string());
        rest = &rest[2..];
    }
    let mut rest = rest.iter().map(|s| s.to_string());
    found.resource = rest.next()?;
    found.name = rest.next();
    found.subresource = rest.next();
    let tail: Vec<String> = rest.collect();
    if !tail.is_empty() {
        found.rest = Some(tail.join("/"));
    }
    Some(found)
}

fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(percent_decode(text, false))
}

/// Text with its %-escapes taken back.
pub(crate) fn percent_decoded(text: &str) -> String {
    percent_decode(text, false)
}

fn percent_decode(text: &str, plus_is_space: bool) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let hex = (bytes[i] == b'%')
            .then(|| text.get(i + 1..i + 3))
            .flatten()
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match (bytes[i], hex) {
            (_, Some(byte)) => {
                out.push(byte);
                i += 2;
            }
            (b'+', None) if plus_is_space => out.push(b' '),
            (byte, None) => out.push(byte),
        }
        i += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A query string's parameters.
#[derive(Debug, Default, Clone)]
pub(crate) struct Query(HashMap<String, Vec<String>>);

impl Query {
    /// Parses `a=1&b=2`.
    pub(crate) fn parse(query: Option<&str>) -> Query {
        let mut map: HashMap<String, Vec<String>> = HashMap::new();
        for pair in query
            .unwrap_or_default()
            .split('&')
            .filter(|p| !p.is_empty())
        {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            map.entry(percent_decode(key, true))
                .or_default()
                .push(percent_decode(value, true));
        }
        Query(map)
    }

    /// The first value of a parameter, if it is there and not empty.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0
            .get(key)?
            .first()
            .map(String::as_str)
            .filter(|v| !v.is_empty())
    }

    /// Every value of a parameter.
    pub(crate) fn all(&self, key: &str) -> &[String] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    /// Whether the parameter is there at all.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// A boolean as upstream reads it: absent, `0` and `false` are false, all else is true.
    pub(crate) fn flag(&self, key: &str) -> bool {
        match self.0.get(key).and_then(|v| v.first()).map(String::as_str) {
            None => false,
            Some(value) => !value.eq_ignore_ascii_case("false") && value != "0",
        }
    }

    /// A number, or 400.
    pub(crate) fn number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!(
                "strconv.ParseInt: parsing {text:?}: invalid syntax"
            ))
        })
    }
}

/// How a list or get relates to the resource version it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionMatch {
    /// The newest state.
    Latest,
    /// Whatever is at hand.
    Any,
    /// This revision or a later one.
    NotOlderThan(u64),
    /// Exactly this revision.
    Exact(u64),
}

/// The options of list and watch.
#[derive(Debug, Clone)]
pub(crate) struct ListOptions {
    /// Label selector text.
    pub(crate) label_selector: String,
    /// Field selector text.
    pub(crate) field_selector: String,
    /// Page size; 0 means all.
    pub(crate) limit: usize,
    /// Continue token.
    pub(crate) continue_token: Option<String>,
    /// The resource version named, if any.
    pub(crate) resource_version: Option<u64>,
    /// How it is meant.
    pub(crate) version_match: VersionMatch,
    /// Whether this is a watch.
    pub(crate) watch: bool,
    /// Whether bookmarks are wanted.
    pub(crate) bookmarks: bool,
    /// Whether the watch starts with the present objects.
    pub(crate) send_initial_events: Option<bool>,
    /// How long a watch lives.
    pub(crate) timeout_seconds: Option<u64>,
}

impl ListOptions {
    /// Reads and checks the options (`apimachinery/pkg/apis/meta/internalversion/validation`).
    pub(crate) fn parse(query: &Query, watch: bool) -> Result<ListOptions> {
        let resource_version = parse_version(query.get("resourceVersion"))?;
        let send_initial_events = query
            .has("sendInitialEvents")
            .then(|| query.flag("sendInitialEvents"));
        let limit = query.number::<i64>("limit")?.unwrap_or(0);
        let options = ListOptions {
            label_selector: query.get("labelSelector").unwrap_or_default().to_owned(),
            field_selector: query.get("fieldSelector").unwrap_or_default().to_owned(),
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token: query.get("continue").map(str::to_owned),
            resource_version,
            version_match: VersionMatch::Latest,
            watch,
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events,
            timeout_seconds: query.number("timeoutSeconds")?,
        };
        options.with_match(query.get("resourceVersionMatch"))
    }

    fn with_match(mut self, text: Option<&str>) -> Result<ListOptions> {
        if self.watch {
            self.check_watch(text)?;
        } else {
            self.check_list(text)?;
        }
        self.version_match = match (self.resource_version, text) {
            (None, _) => VersionMatch::Latest,
            (Some(0), _) => VersionMatch::Any,
            (Some(n), Some("Exact")) => VersionMatch::Exact(n),
            (Some(n), Some(_)) => VersionMatch::NotOlderThan(n),
            (Some(n), None) if self.limit > 0 => VersionMatch::Exact(n),
            (Some(n), None) => VersionMatch::NotOlderThan(n),
        };
        Ok(self)
    }

    fn check_list(&self, version_match: Option<&str>) -> Result<()> {
        if self.send_initial_events.is_some() {
            return Err(list_error(
                "sendInitialEvents",
                "Forbidden: sendInitialEvents is forbidden for list",
            ));
        }
        if self.continue_token.is_some() && self.resource_version.is_some_and(|v| v != 0) {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let Some(text) = version_match else {
            return Ok(());
        };
        if self.continue_token.is_some() {
            return Err(list_error(
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        match (self.resource_version, text) {
            (_, other) if other != "Exact" && other != "NotOlderThan" => Err(list_error(
                "resourceVersionMatch",
                &format!(
                    "Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\", \"\""
                ),
            )),
            (None, _) => Err(list_error(
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            )),
            (Some(0), "Exact") => Err(list_error(
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            )),
            _ => Ok(()),
        }
    }

    fn check_watch(&self, version_match: Option<&str>) -> Result<()> {
        match (self.send_initial_events, version_match) {
            (None, Some(_)) => Err(list_error(
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
            (Some(_), None) => Err(list_error(
                "resourceVersionMatch",
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )),
            (Some(_), Some(other)) if other != "NotOlderThan" => Err(list_error(
                "resourceVersionMatch",
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )),
            _ => Ok(()),
        }
    }
}

fn list_error(field: &str, message: &str) -> ApiError {
    let reason = if message.starts_with("Unsupported") {
        "FieldValueNotSupported"
    } else {
        "FieldValueForbidden"
    };
    ApiError::invalid_option("ListOptions", reason, field, message)
}

fn parse_version(text: Option<&str>) -> Result<Option<u64>> {
    let Some(text) = text else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        ApiError::bad_request(format!("invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"))
    })
}

/// How unknown and duplicate fields of a body are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Refuse the request.
    Strict,
    /// Answer with a warning for each.
    Warn,
    /// Say nothing.
    Ignore,
}

/// The options of create, update and patch.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    /// Go through everything and store nothing.
    pub(crate) dry_run: bool,
    /// Who the changed fields belong to; empty when the server writes for itself and nobody owns more
    /// than before.
    pub(crate) field_manager: String,
    /// What happens to unknown fields.
    pub(crate) field_validation: FieldValidation,
    /// Take fields from other managers on apply.
    pub(crate) force: bool,
}

impl WriteOptions {
    /// Reads and checks the options; `kind` is the option kind the method takes.
    pub(crate) fn parse(query: &Query, user_agent: &str, kind: &str) -> Result<WriteOptions> {
        Ok(WriteOptions {
            dry_run: parse_dry_run(query.all("dryRun"), kind)?,
            field_manager: field_manager(query.get("fieldManager"), user_agent, kind)?,
            field_validation: parse_field_validation(query.get("fieldValidation"), kind)?,
            force: query.flag("force"),
        })
    }
}

/// Reads `dryRun`: only `All` exists.
pub(crate) fn parse_dry_run(values: &[String], kind: &str) -> Result<bool> {
    if values.iter().all(|v| v == "All") {
        return Ok(!values.is_empty());
    }
    let message = format!("Unsupported value: {values:?}: supported values: \"All\"");
    Err(ApiError::invalid_option(
        kind,
        "FieldValueNotSupported",
        "dryRun",
        &message,
    ))
}

fn field_manager(named: Option<&str>, user_agent: &str, kind: &str) -> Result<String> {
    const MAX: usize = 128;
    let refuse = |reason, message: String| {
        Err(ApiError::invalid_option(
            kind,
            reason,
            "fieldManager",
            &message,
        ))
    };
    let Some(name) = named else {
        let prefix = user_agent.split('/').next().unwrap_or_default();
        let printable: String = prefix
            .chars()
            .filter(|c| !c.is_control())
            .take(MAX)
            .collect();
        return Ok(if printable.is_empty() {
            "unknown".to_owned()
        } else {
            printable
        });
    };
    if name.len() > MAX {
        return refuse(
            "FieldValueTooLong",
            format!("Too long: may not be more than {MAX} bytes"),
        );
    }
    if let Some((position, c)) = name.char_indices().find(|(_, c)| c.is_control()) {
        let code = u32::from(c);
        let message = format!(
            "Invalid value: {name:?}: invalid character U+{code:04X} (at position {position})"
        );
        return refuse("FieldValueInvalid", message);
    }
    Ok(name.to_owned())
}

fn parse_field_validation(text: Option<&str>, kind: &str) -> Result<FieldValidation> {
    match text {
        None | Some("Warn") => Ok(FieldValidation::Warn),
        Some("Strict") => Ok(FieldValidation::Strict),
        Some("Ignore") => Ok(FieldValidation::Ignore),
        Some(other) => {
            let message = format!(
                "Unsupported value: {other:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
            );
            Err(ApiError::invalid_option(
                kind,
                "FieldValueNotSupported",
                "fieldValidation",
                &message,
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart_as_upstream_does() {
        let cases: &[(&str, &str, &str, &str, &str, &str)] = &[
            // path, namespace, resource, name, subresource, rest
            ("/api/v1/pods", "", "pods", "", "", ""),
            ("/api/v1/namespaces/a/pods", "a", "pods", "", "", ""),
            (
                "/api/v1/namespaces/a/pods/p/log",
                "a",
                "pods",
                "p",
                "log",
                "",
            ),
            ("/api/v1/namespaces/a", "", "namespaces", "a", "", ""),
            (
                "/api/v1/namespaces/a/finalize",
                "",
                "namespaces",
                "a",
                "finalize",
                "",
            ),
            (
                "/api/v1/nodes/n/proxy/x/y",
                "",
                "nodes",
                "n",
                "proxy",
                "x/y",
            ),
            (
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                "a",
                "deployments",
                "d",
                "scale",
                "",
            ),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "",
                "clusterroles",
                "system:node",
                "",
                "",
            ),
        ];
        for (path, namespace, resource, name, sub, rest) in cases {
            let found = parse_path(path).expect(path);
            assert_eq!(found.namespace(), *namespace, "{path}");
            assert_eq!(found.resource, *resource, "{path}");
            assert_eq!(found.name(), *name, "{path}");
            assert_eq!(
                found.subresource.as_deref().unwrap_or_default(),
                *sub,
                "{path}"
            );
            assert_eq!(found.rest.as_deref().unwrap_or_default(), *rest, "{path}");
        }
        assert!(
            parse_path("/api/v1/watch/pods")
                .expect("a path")
                .legacy_watch
        );
        for other in [
            "/",
            "/version",
            "/api",
            "/api/v1",
            "/apis/apps",
            "/apis/apps/v1",
        ] {
            assert_eq!(parse_path(other), None, "{other}");
        }
    }

    #[test]
    fn list_options_follow_the_version_table() {
        let list = |q: &str| ListOptions::parse(&Query::parse(Some(q)), false);
        let m = |q: &str| list(q).expect(q).version_match;
        assert_eq!(m(""), VersionMatch::Latest);
        assert_eq!(m("resourceVersion=0"), VersionMatch::Any);
        assert_eq!(m("resourceVersion=5"), VersionMatch::NotOlderThan(5));
        assert_eq!(m("resourceVersion=5&limit=3"), VersionMatch::Exact(5));
        assert_eq!(
            m("resourceVersion=5&resourceVersionMatch=Exact"),
            VersionMatch::Exact(5)
        );
        let refused = [
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersion=0&resourceVersionMatch=Exact", 422),
            ("sendInitialEvents=true", 422),
            ("resourceVersion=x", 400),
            ("continue=abc&resourceVersion=5", 400),
        ];
        for (query, code) in refused {
            assert_eq!(list(query).expect_err(query).code.as_u16(), code, "{query}");
        }
    }

    #[test]
    fn watch_options_need_not_older_than_with_initial_events() {
        let watch = |q: &str| ListOptions::parse(&Query::parse(Some(q)), true);
        assert!(watch("sendInitialEvents=true&resourceVersionMatch=NotOlderThan").is_ok());
        assert!(watch("sendInitialEvents=true").is_err());
        assert!(watch("resourceVersionMatch=NotOlderThan").is_err());
    }

    #[test]
    fn query_text_is_decoded() {
        let query = Query::parse(Some("labelSelector=a%3Db%2Cc+in+%28d%29&watch=1&x=false"));
        assert_eq!(query.get("labelSelector"), Some("a=b,c in (d)"));
        assert!(query.flag("watch"));
        assert!(!query.flag("x"));
        assert!(!query.flag("absent"));
    }

    proptest::proptest! {
        #[test]
        fn no_path_or_query_makes_the_parsers_panic(path in "(/[a-z%.:0-9é]{0,12}){0,9}/?", query in ".{0,300}") {
            let _ = parse_path(&path);
            let query = Query::parse(Some(&query));
            let _ = ListOptions::parse(&query, true);
            let _ = ListOptions::parse(&query, false);
            let _ = WriteOptions::parse(&query, "agent/1", "CreateOptions");
        }

        #[test]
        fn what_is_encoded_is_decoded(text in ".{0,60}") {
            let encoded: String = text.bytes().map(|b| format!("%{b:02X}")).collect();
            let query = Query::parse(Some(&format!("k={encoded}")));
            proptest::prop_assert_eq!(query.get("k").unwrap_or_default(), text);
        }
    }
}
