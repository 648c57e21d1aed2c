//! The parameters of requests, each described once and in our own words.

use objects::schema::{FieldType, Scalar, Type};
use serde_json::{Value, json};

/// A query or path parameter.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Parameter {
    name: &'static str,
    location: Location,
    ty: &'static str,
    description: &'static str,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Location {
    Path,
    Query,
}

impl Parameter {
    /// The parameter as OpenAPI v3 writes it.
    pub(crate) fn to_json(&self) -> Value {
        let in_path = self.location == Location::Path;
        let mut parameter = json!({
            "name": self.name,
            "in": if in_path { "path" } else { "query" },
            "description": self.description,
            "schema": {"type": self.ty, "uniqueItems": true},
        });
        if in_path {
            parameter["required"] = true.into();
        }
        parameter
    }
}

const fn in_path(name: &'static str, description: &'static str) -> Parameter {
    Parameter {
        name,
        location: Location::Path,
        ty: "string",
        description,
    }
}

const fn query(name: &'static str, ty: &'static str, description: &'static str) -> Parameter {
    Parameter {
        name,
        location: Location::Query,
        ty,
        description,
    }
}

/// The object's name.
pub(crate) static NAME: Parameter = in_path("name", "The object's name.");
/// The namespace.
pub(crate) static NAMESPACE: Parameter =
    in_path("namespace", "The namespace the request is about.");
/// The rest of a proxied path.
pub(crate) static PROXIED_PATH: Parameter = in_path("path", "The path behind the proxy.");
/// Below `/logs`.
pub(crate) static LOG_PATH: Parameter = in_path("logpath", "The file below the log directory.");
/// Whether to indent the answer.
pub(crate) static PRETTY: Parameter = query(
    "pretty",
    "string",
    "Whether the answer is indented; by default only for browsers, curl and wget.",
);

/// Query parameters by name. Names are looked up, so one that is missing here stops the build.
static QUERY: [Parameter; 35] = [
    query(
        "allowWatchBookmarks",
        "boolean",
        "Lets a watch send BOOKMARK events, which carry nothing but a newer resource version.",
    ),
    query(
        "command",
        "string",
        "The command to run and its arguments, repeated; no shell is involved.",
    ),
    query(
        "container",
        "string",
        "The container; may be left out when the pod has only one.",
    ),
    query(
        "continue",
        "string",
        "The token of the previous page: asks for the next one.",
    ),
    query(
        "dryRun",
        "string",
        "`All`: go through every step of the request but store nothing.",
    ),
    query(
        "fieldManager",
        "string",
        "Who makes the change; at most 128 printable characters.",
    ),
    query(
        "fieldSelector",
        "string",
        "Only objects whose fields match this selector.",
    ),
    query(
        "fieldValidation",
        "string",
        "What unknown and repeated fields lead to: `Ignore`, `Warn` (the default) or `Strict`, \
         which refuses the request.",
    ),
    query(
        "follow",
        "boolean",
        "Keep the answer open and send new lines as they come.",
    ),
    query(
        "force",
        "boolean",
        "For apply patches: take over fields that other managers own instead of answering with a \
         conflict.",
    ),
    query(
        "gracePeriodSeconds",
        "integer",
        "Seconds until the object goes; 0 is at once.",
    ),
    query(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Deletes an object that can no longer be read from the store, past its finalizers and \
         preconditions. What depends on an orderly deletion may break.",
    ),
    query(
        "insecureSkipTLSVerifyBackend",
        "boolean",
        "Do not check the serving certificate of the node that has the log.",
    ),
    query(
        "labelSelector",
        "string",
        "Only objects whose labels match this selector.",
    ),
    query(
        "limit",
        "integer",
        "At most this many objects; the answer has the token of the next page.",
    ),
    query(
        "limitBytes",
        "integer",
        "Stop after about this many bytes of log.",
    ),
    query(
        "orphanDependents",
        "boolean",
        "Old form of propagationPolicy: whether dependents stay. Set only one of the two.",
    ),
    query("path", "string", "The path to ask for behind the proxy."),
    query(
        "ports",
        "integer",
        "The ports to forward, repeated; needed with WebSockets.",
    ),
    query(
        "previous",
        "boolean",
        "The log of the container's previous, ended run.",
    ),
    query(
        "propagationPolicy",
        "string",
        "What happens to dependents: `Orphan`, `Background` or `Foreground`.",
    ),
    query(
        "resourceVersion",
        "string",
        "How fresh the answer is, or where a watch begins.",
    ),
    query(
        "resourceVersionMatch",
        "string",
        "How a list takes resourceVersion: `Exact` or `NotOlderThan`.",
    ),
    query(
        "sendInitialEvents",
        "boolean",
        "Begin the watch with an event for each existing object, then a bookmark that is marked \
         as their end. Needs resourceVersionMatch=NotOlderThan.",
    ),
    query(
        "shardSelector",
        "string",
        "Only objects of a range of hashes; an alpha feature of upstream.",
    ),
    query(
        "sinceSeconds",
        "integer",
        "Only lines of the last so many seconds.",
    ),
    query("stderr", "boolean", "Connect to standard error."),
    query("stdin", "boolean", "Connect to standard input."),
    query("stdout", "boolean", "Connect to standard output."),
    query(
        "stream",
        "string",
        "Which output to show: `All`, `Stdout` or `Stderr`.",
    ),
    query("tailLines", "integer", "Only this many lines from the end."),
    query(
        "timeoutSeconds",
        "integer",
        "How long a list or watch may take.",
    ),
    query(
        "timestamps",
        "boolean",
        "Put the time in front of each line.",
    ),
    query("tty", "boolean", "Give the process a terminal."),
    query(
        "watch",
        "boolean",
        "Send changes as they happen instead of a list.",
    ),
];

/// What a create or update may ask for.
pub(crate) const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
/// What a patch may ask for.
pub(crate) const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
/// What a deletion may ask for.
pub(crate) const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
/// What a list or watch may ask for.
pub(crate) const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];
/// What the deletion of a collection may ask for beside [`DELETE`].
pub(crate) const DELETED_COLLECTION: &[&str] = &[
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
];

/// The query parameters of these names.
pub(crate) fn queries(names: &[&str]) -> Vec<&'static Parameter> {
    names.iter().map(|name| query_named(name)).collect()
}

fn query_named(name: &str) -> &'static Parameter {
    let found = QUERY.iter().find(|p| p.name == name);
    found.unwrap_or_else(|| panic!("parameters.rs does not describe {name}"))
}

/// The query parameters that an options type (`PodLogOptions`, …) stands for: upstream turns each
/// scalar or list of scalars into one and leaves out the rest (`sinceTime`).
pub(crate) fn of_options(options: &Type) -> Vec<&'static Parameter> {
    let fields = options
        .json_fields()
        .filter(|f| !matches!(f.name, "kind" | "apiVersion"));
    fields
        .filter(|f| is_plain(&f.ty))
        .map(|f| query_named(f.name))
        .collect()
}

fn is_plain(ty: &FieldType) -> bool {
    match ty {
        FieldType::List(inner) => is_plain(inner),
        FieldType::Scalar(scalar) => {
            matches!(
                scalar,
                Scalar::String | Scalar::Int32 | Scalar::Int64 | Scalar::Bool
            )
        }
        FieldType::Object(_) | FieldType::Map(_) => false,
    }
}
