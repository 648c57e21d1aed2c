//! The published documents of custom resources: OpenAPI v3 for one group and version, and what they add to
//! the v2 document of everything.
//!
//! Version 3 shows a schema as it is. Version 2 cannot say all of it; what it leaves out is upstream's choice
//! (`controller/openapi/v2`), made for clients that would refuse good objects otherwise.

mod operations;

use std::sync::LazyLock;

use kinds::resources::{GroupVersion, Resource};
use serde_json::{Map, Value, json};

pub use operations::{Dialect, paths};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// What a kind is called in the documents: `com.example.v1.Widget`.
pub fn name(gv: GroupVersion, kind: &str) -> String {
    let mut labels: Vec<&str> = gv.group.split('.').collect();
    labels.reverse();
    format!("{}.{}.{kind}", labels.join("."), gv.version)
}

/// The OpenAPI v3 document of a group and version. `known` are the schemas of the built-in documents that it
/// refers to.
pub fn v3(resources: &[&Resource], known: &Map<String, Value>) -> Value {
    let mut schemas = known.clone();
    let mut all = Map::new();
    for resource in resources {
        schemas.extend(definitions(resource, Dialect::V3));
        all.extend(paths(resource, Dialect::V3));
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
        "paths": all,
        "components": {"schemas": schemas},
    })
}

/// The schemas of a resource's objects and lists, by name.
pub fn definitions(resource: &Resource, dialect: Dialect) -> Map<String, Value> {
    let (gv, kind) = (resource.gv, resource.kind);
    let object = name(gv, kind);
    let list = json!({
        "type": "object",
        "description": format!("{} is a list of {kind}", resource.list_kind),
        "required": ["items"],
        "properties": {
            "apiVersion": text("The version of this list's form."),
            "kind": text("What the list is a list of."),
            "metadata": dialect.reference(&format!("{META}ListMeta")),
            "items": {"type": "array", "description": format!("List of {}.", resource.plural),
                "items": dialect.reference(&object)},
        },
        "x-kubernetes-group-version-kind": kinds(gv, resource.list_kind),
    });
    let mut all = Map::new();
    all.insert(object, published(resource, dialect));
    all.insert(name(gv, resource.list_kind), list);
    all
}

fn kinds(gv: GroupVersion, kind: &str) -> Value {
    json!([{"group": gv.group, "version": gv.version, "kind": kind}])
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn published(resource: &Resource, dialect: Dialect) -> Value {
    let empty = json!({"type": "object"});
    let schema = resource.ty.defined().map(|d| d.schema());
    let schema = schema.filter(Value::is_object).unwrap_or(empty.clone());
    let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true;
    let mut schema = match dialect {
        Dialect::V2 if keeps => empty,
        Dialect::V2 => without_what_v2_lacks(&schema),
        Dialect::V3 => schema,
    };
    embedded(&mut schema, dialect);
    // What keeps unknown fields at its root is published as an object and no more.
    if !(keeps && dialect == Dialect::V2) {
        own_fields(&mut schema, dialect);
    }
    schema["x-kubernetes-group-version-kind"] = kinds(resource.gv, resource.kind);
    schema
}

fn own_fields(schema: &mut Value, dialect: Dialect) {
    let properties = &mut schema["properties"];
    properties["apiVersion"] = text(described("apiVersion"));
    properties["kind"] = text(described("kind"));
    properties["metadata"] = dialect.reference(&format!("{META}ObjectMeta"));
    properties["metadata"]["description"] = described("metadata").into();
}

// What every object has is described as in those of the program: clients look for it there (`kubectl explain`).
fn described(field: &str) -> &'static str {
    static PROPERTIES: LazyLock<Value> = LazyLock::new(|| {
        let document = ::openapi::document("apis/apps/v1").map(::openapi::Document::json);
        let mut document: Value = document
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"]["properties"].take()
    });
    let description = &PROPERTIES[field]["description"];
    description.as_str().unwrap_or_default()
}

fn embedded(schema: &mut Value, dialect: Dialect) {
    match schema {
        Value::Object(map) => {
            map.values_mut().for_each(|below| embedded(below, dialect));
            if map.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
                own_fields(schema, dialect);
                let required = &mut schema["required"];
                let mut all = required.as_array().cloned().unwrap_or_default();
                all.extend(["apiVersion", "kind"].map(Value::from));
                *required = all.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|below| embedded(below, dialect)),
        _ => {}
    }
}

fn without_what_v2_lacks(schema: &Value) -> Value {
    let Some(map) = schema.as_object() else {
        return schema.clone();
    };
    let is = |key: &str| map.get(key) == Some(&Value::Bool(true));
    let mut out = map.clone();
    for key in ["allOf", "anyOf", "oneOf", "not", "nullable", "default"] {
        out.remove(key);
    }
    if is("nullable") {
        for key in ["type", "items", "properties", "additionalProperties"] {
            out.remove(key);
        }
    }
    if is("x-kubernetes-preserve-unknown-fields") {
        for key in ["items", "properties"] {
            out.remove(key);
        }
        if out.get("type") == Some(&"object".into()) {
            out.remove("type");
        }
    }
    if out.get("type") == Some(&"array".into()) && !out.contains_key("items") {
        out.remove("type");
    }
    let nullable = |name: &Value| {
        let below = name
            .as_str()
            .and_then(|name| map.get("properties")?.get(name));
        below.is_some_and(|below| below["nullable"] == true)
    };
    if let Some(required) = out.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !nullable(name));
        if required.is_empty() {
            out.remove("required");
        }
    }
    if let Some(properties) = out.get_mut("properties").and_then(Value::as_object_mut) {
        for below in properties.values_mut() {
            *below = without_what_v2_lacks(below);
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(below) = out.get_mut(key) {
            *below = without_what_v2_lacks(below);
        }
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_turn_the_group_around() {
        let gv = GroupVersion {
            group: "stable.example.com",
            version: "v1",
        };
        assert_eq!(name(gv, "CronTab"), "com.example.stable.v1.CronTab");
    }

    #[test]
    fn what_every_object_has_is_described() {
        for dialect in [Dialect::V2, Dialect::V3] {
            let mut schema = json!({"type": "object"});
            own_fields(&mut schema, dialect);
            for field in ["apiVersion", "kind", "metadata"] {
                let description = schema["properties"][field]["description"].as_str();
                assert!(description.is_some_and(|text| !text.is_empty()), "{field}");
            }
        }
    }

    #[test]
    fn version_two_says_less() {
        let schema = json!({"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "string", "nullable": true, "description": "d"},
            "b": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"c": {"type": "string"}}},
            "e": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        }});
        let wanted = json!({"type": "object", "required": ["b"], "properties": {
            "a": {"description": "d"},
            "b": {"x-kubernetes-preserve-unknown-fields": true},
            "e": {"x-kubernetes-int-or-string": true},
        }});
        assert_eq!(without_what_v2_lacks(&schema), wanted);
    }
}
