//! One operation of a document, and how a path's operations are put together.

use kinds::resources::GroupVersion;
use serde_json::{Map, Value, json};

use crate::parameters::Parameter;
use crate::schemas::{API_RESOURCE_LIST, capitalised, reference};

/// What objects are written in.
pub(crate) const MEDIA: &[&str] = &[
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
];

/// The operations of one path, by method.
pub(crate) type Operations = Vec<(&'static str, Operation)>;

/// One operation, before its parameters are divided between it and its path.
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) description: String,
    /// `x-kubernetes-action` and `x-kubernetes-group-version-kind`.
    pub(crate) action: (&'static str, Value),
    pub(crate) parameters: Vec<&'static Parameter>,
    pub(crate) body: Option<Value>,
    pub(crate) responses: Value,
}

/// A group's name as operation ids have it: `rbac.authorization.k8s.io` is `RbacAuthorization`.
pub(crate) fn group_title(group: &str) -> String {
    match group {
        "" => "Core".into(),
        _ => group
            .trim_end_matches(".k8s.io")
            .split('.')
            .map(capitalised)
            .collect(),
    }
}

/// A group's name as tags have it: the title with a small first letter.
pub(crate) fn group_tag(group: &str) -> String {
    let title = group_title(group);
    let mut letters = title.chars();
    letters
        .next()
        .map(|first| first.to_lowercase().chain(letters).collect())
        .unwrap_or_default()
}

/// Answers in every medium of `media` with one schema, plus the refusal of strangers.
pub(crate) fn responses(codes: &[(&str, &str)], media: &[&str], schema: &Value) -> Value {
    let content = content(media, schema);
    let mut responses = json!({"401": {"description": "Unauthorized"}});
    for (code, description) in codes {
        responses[code] = json!({"description": description, "content": content});
    }
    responses
}

pub(crate) const OK: (&str, &str) = ("200", "OK");
pub(crate) const CREATED: (&str, &str) = ("201", "Created");
pub(crate) const ACCEPTED: (&str, &str) = ("202", "Accepted");

/// Where a group and version is served.
pub(crate) struct Place {
    pub(crate) root: String,
    pub(crate) title: String,
    tag: String,
}

impl Place {
    pub(crate) fn new(gv: GroupVersion) -> Place {
        let root = match gv.group {
            "" => format!("/api/{}", gv.version),
            group => format!("/apis/{group}/{}", gv.version),
        };
        Place {
            root,
            title: format!("{}{}", group_title(gv.group), capitalised(gv.version)),
            tag: format!("{}_{}", group_tag(gv.group), gv.version),
        }
    }

    pub(crate) fn discovery(&self) -> Value {
        json!({"get": {
            "description": "List the resources of this group and version.",
            "operationId": format!("get{}APIResources", self.title),
            "responses": responses(&[OK], MEDIA, &reference(API_RESOURCE_LIST)),
            "tags": [self.tag],
        }})
    }

    /// Parameters that all operations of a path share stand with the path, as upstream has them.
    pub(crate) fn path_item(&self, operations: Operations) -> Value {
        let mut shared = operations
            .first()
            .map(|o| o.1.parameters.clone())
            .unwrap_or_default();
        shared.retain(|p| operations.iter().all(|(_, o)| o.parameters.contains(p)));
        let mut item = json!({"parameters": written(shared.clone())});
        for (method, mut operation) in operations {
            operation.parameters.retain(|p| !shared.contains(p));
            item[method] = self.operation(operation);
        }
        item
    }

    fn operation(&self, operation: Operation) -> Value {
        let (action, kind) = operation.action;
        let mut value = json!({
            "description": operation.description,
            "operationId": operation.id,
            "responses": operation.responses,
            "tags": [self.tag],
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
        });
        if !operation.parameters.is_empty() {
            value["parameters"] = written(operation.parameters);
        }
        if let Some(body) = operation.body {
            value["requestBody"] = body;
        }
        value
    }
}

fn written(mut parameters: Vec<&'static Parameter>) -> Value {
    parameters.sort_unstable();
    parameters.into_iter().map(Parameter::to_json).collect()
}

pub(crate) fn content(media: &[&str], schema: &Value) -> Map<String, Value> {
    media
        .iter()
        .map(|medium| ((*medium).to_owned(), json!({"schema": schema})))
        .collect()
}

pub(crate) fn required_body(media: &[&str], schema: &Value) -> Value {
    json!({"content": content(media, schema), "required": true})
}
