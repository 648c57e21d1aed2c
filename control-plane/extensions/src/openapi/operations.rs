//! What may be asked of a custom resource, as paths of a document.

use kinds::resources::Resource;
use serde_json::{Map, Value, json};

use super::{META, name};

/// The version of OpenAPI that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Swagger 2.0.
    V2,
    /// OpenAPI 3.0.
    V3,
}

impl Dialect {
    /// A reference to a schema.
    pub fn reference(self, name: &str) -> Value {
        match self {
            Dialect::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Dialect::V3 => json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}]}),
        }
    }

    fn direct(self, name: &str) -> Value {
        match self {
            Dialect::V2 => self.reference(name),
            Dialect::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }

    fn parameter(self, name: &str, place: &str, ty: &str) -> Value {
        let mut parameter = json!({"name": name, "in": place, "uniqueItems": true});
        match self {
            Dialect::V2 => parameter["type"] = ty.into(),
            Dialect::V3 => {
                parameter["schema"] = json!({"type": ty, "uniqueItems": true});
                parameter.as_object_mut().map(|p| p.remove("uniqueItems"));
            }
        }
        if place == "path" {
            parameter["required"] = true.into();
        }
        parameter
    }
}

/// One method of a path: the verb in its id, its action, what it takes, what it answers, and its options.
struct Operation {
    method: &'static str,
    verb: &'static str,
    action: &'static str,
    body: Option<String>,
    answer: String,
    options: Options,
}

/// Names and types of query options.
type Options = &'static [(&'static str, &'static str)];

const MEDIA: [&str; 2] = ["application/json", "application/yaml"];
const PATCHES: [&str; 3] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];
const LIST: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const READ: &[(&str, &str)] = &[("resourceVersion", "string")];
const WRITE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
const PATCH: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
];
const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];

/// The paths of a resource.
pub fn paths(resource: &Resource, dialect: Dialect) -> Map<String, Value> {
    let (gv, plural) = (resource.gv, resource.plural);
    let root = format!("/apis/{}/{}", gv.group, gv.version);
    let within = match resource.namespaced {
        true => format!("{root}/namespaces/{{namespace}}/{plural}"),
        false => format!("{root}/{plural}"),
    };
    let writer = Writer { resource, dialect };
    let (object, list) = (name(gv, resource.kind), name(gv, resource.list_kind));
    let mut all = Map::new();
    if resource.namespaced {
        let everywhere = [one("get", "list", "list", None, &list, LIST)];
        let item = writer.item(&everywhere, "ForAllNamespaces", &[]);
        all.insert(format!("{root}/{plural}"), item);
    }
    let collection = writer.item(&on_collection(&object, &list), "", &[]);
    all.insert(within.clone(), collection);
    let single = writer.item(&on_object(&object), "", &["name"]);
    all.insert(format!("{within}/{{name}}"), single);
    for sub in &resource.subresources {
        let (body, suffix) = match sub.name {
            "scale" => ("io.k8s.api.autoscaling.v1.Scale", "Scale"),
            _ => (&*object, "Status"),
        };
        let item = writer.item(&below(body), suffix, &["name"]);
        all.insert(format!("{within}/{{name}}/{}", sub.name), item);
    }
    all
}

fn one(
    method: &'static str,
    verb: &'static str,
    action: &'static str,
    body: Option<&str>,
    answer: &str,
    options: Options,
) -> Operation {
    Operation {
        method,
        verb,
        action,
        body: body.map(str::to_owned),
        answer: answer.to_owned(),
        options,
    }
}

fn removal(verb: &'static str, action: &'static str, options: Options) -> Operation {
    let (deletion, status) = (format!("{META}DeleteOptions"), format!("{META}Status"));
    one("delete", verb, action, Some(&deletion), &status, options)
}

fn on_collection(object: &str, list: &str) -> Vec<Operation> {
    vec![
        one("get", "list", "list", None, list, LIST),
        one("post", "create", "post", Some(object), object, WRITE),
        removal("deleteCollection", "deletecollection", LIST),
    ]
}

fn on_object(object: &str) -> Vec<Operation> {
    let mut operations = below(object);
    operations.push(removal("delete", "delete", DELETE));
    operations
}

// What can be done with an object and with what hangs below it.
fn below(body: &str) -> Vec<Operation> {
    let patch = format!("{META}Patch");
    vec![
        one("get", "read", "get", None, body, READ),
        one("put", "replace", "put", Some(body), body, WRITE),
        one("patch", "patch", "patch", Some(&patch), body, PATCH),
    ]
}

struct Writer<'r> {
    resource: &'r Resource,
    dialect: Dialect,
}

impl Writer<'_> {
    fn item(&self, operations: &[Operation], suffix: &str, place: &[&str]) -> Value {
        let mut item = Map::new();
        for operation in operations {
            item.insert(
                operation.method.to_owned(),
                self.operation(operation, suffix),
            );
        }
        let namespaced = self.resource.namespaced && suffix != "ForAllNamespaces";
        let place = place
            .iter()
            .copied()
            .chain(namespaced.then_some("namespace"));
        let mut parameters: Vec<Value> = place
            .map(|name| self.dialect.parameter(name, "path", "string"))
            .collect();
        parameters.push(self.dialect.parameter("pretty", "query", "string"));
        item.insert("parameters".into(), parameters.into());
        Value::Object(item)
    }

    fn operation(&self, operation: &Operation, suffix: &str) -> Value {
        let (gv, kind) = (self.resource.gv, self.resource.kind);
        let title: String = gv.group.split(['.', '-']).map(capitalised).collect();
        let scope = if self.resource.namespaced && suffix != "ForAllNamespaces" {
            "Namespaced"
        } else {
            ""
        };
        let id = format!(
            "{}{title}{}{scope}{kind}{suffix}",
            operation.verb,
            capitalised(gv.version)
        );
        let scale = suffix == "Scale";
        let shown = match scale {
            true => json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}),
            false => json!({"group": gv.group, "version": gv.version, "kind": kind}),
        };
        let parameters = operation
            .options
            .iter()
            .map(|(n, ty)| self.dialect.parameter(n, "query", ty));
        let mut out = json!({
            "operationId": id,
            "description": format!("{} {kind}", operation.verb),
            "tags": [format!("{}_{}", gv.group.replace('.', "_"), gv.version)],
            "parameters": parameters.collect::<Vec<Value>>(),
            "x-kubernetes-action": operation.action,
            "x-kubernetes-group-version-kind": shown,
        });
        self.bodies(operation, &mut out);
        out
    }

    fn bodies(&self, operation: &Operation, out: &mut Value) {
        let consumes: &[&str] = if operation.method == "patch" {
            &PATCHES
        } else {
            &MEDIA
        };
        let schema = self.dialect.direct(&operation.answer);
        let content = |media: &[&str], schema: &Value| -> Value {
            let all = media
                .iter()
                .map(|m| ((*m).to_owned(), json!({ "schema": schema })));
            Value::Object(all.collect())
        };
        match self.dialect {
            Dialect::V2 => {
                out["consumes"] = json!(consumes);
                out["produces"] = json!(MEDIA);
                out["schemes"] = json!(["https"]);
                out["responses"] = json!({"200": {"description": "OK", "schema": schema},
                    "401": {"description": "Unauthorized"}});
                if let (Some(body), Some(parameters)) =
                    (&operation.body, out["parameters"].as_array_mut())
                {
                    let schema = self.dialect.direct(body);
                    parameters.insert(
                        0,
                        json!({"name": "body", "in": "body", "required": true, "schema": schema}),
                    );
                }
            }
            Dialect::V3 => {
                out["responses"] = json!({"200": {"description": "OK", "content": content(&MEDIA, &schema)},
                    "401": {"description": "Unauthorized"}});
                if let Some(body) = &operation.body {
                    let schema = self.dialect.direct(body);
                    out["requestBody"] =
                        json!({"required": true, "content": content(consumes, &schema)});
                }
            }
        }
    }
}

fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}
