//! What every document must be, whatever the tables say.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use openapi::Document;
use serde_json::Value;
use sha2::{Digest, Sha512};

/// Every v3 document, read once for all tests.
static V3: LazyLock<BTreeMap<&str, Value>> = LazyLock::new(|| {
    openapi::documents()
        .iter()
        .map(|d| (d.path, read(d)))
        .collect()
});
static V2: LazyLock<Value> = LazyLock::new(|| read(openapi::v2()));

fn read(document: &Document) -> Value {
    serde_json::from_slice(&document.json()).unwrap()
}

fn at(path: &str) -> &'static Value {
    V3.get(path)
        .unwrap_or_else(|| panic!("no document at {path}"))
}

/// Calls `visit` with the text of every `$ref`.
fn references(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::Object(map) => {
            if let Some(text) = map.get("$ref").and_then(Value::as_str) {
                visit(text);
            }
            map.values().for_each(|inner| references(inner, visit));
        }
        Value::Array(list) => list.iter().for_each(|inner| references(inner, visit)),
        _ => {}
    }
}

fn unresolved(document: &Value, prefix: &str, schemas: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    references(document, &mut |reference| {
        let name = reference.strip_prefix(prefix);
        if name.is_none_or(|name| schemas.get(name).is_none()) {
            missing.push(reference.to_owned());
        }
    });
    missing
}

#[test]
fn the_stated_length_and_hash_are_those_of_the_json() {
    for document in openapi::documents()
        .iter()
        .chain([openapi::v2(), openapi::v2_protobuf()])
    {
        let text = document.json();
        assert_eq!(text.len(), document.json_len, "{}", document.path);
        let hash: String = Sha512::digest(&text)
            .iter()
            .map(|b| format!("{b:02X}"))
            .collect();
        assert_eq!(hash, document.hash, "{}", document.path);
    }
}

#[test]
fn the_protobuf_is_that_of_the_json() {
    assert_eq!(openapi::v2_protobuf().json(), openapi::gnostic::encode(&V2));
}

/// Keys that gnostic's messages have no place for would be lost without a word.
#[test]
fn the_older_document_says_nothing_that_its_protobuf_cannot() {
    const SCHEMA: [&str; 14] = [
        "$ref",
        "format",
        "description",
        "maximum",
        "minimum",
        "maxLength",
        "minLength",
        "pattern",
        "required",
        "enum",
        "additionalProperties",
        "type",
        "items",
        "properties",
    ];
    fn check(schema: &Value, path: &str) {
        for (key, value) in schema.as_object().unwrap() {
            let path = format!("{path}.{key}");
            let known = SCHEMA.contains(&key.as_str()) || key.starts_with("x-");
            assert!(known, "{path}");
            match key.as_str() {
                "items" | "additionalProperties" => check(value, &path),
                "properties" => {
                    let properties = value.as_object().unwrap().iter();
                    properties.for_each(|(name, inner)| check(inner, &format!("{path}.{name}")));
                }
                _ => {}
            }
        }
    }
    for (name, schema) in V2["definitions"].as_object().unwrap() {
        check(schema, name);
    }
}

#[test]
fn every_reference_resolves_inside_its_own_document() {
    for (path, content) in V3.iter() {
        let schemas = &content["components"]["schemas"];
        let missing = unresolved(content, "#/components/schemas/", schemas);
        assert_eq!(missing, [""; 0], "{path}");
    }
    let v2 = &*V2;
    assert_eq!(
        unresolved(v2, "#/definitions/", &v2["definitions"]),
        [""; 0]
    );
}

#[test]
fn no_schema_is_published_that_nothing_refers_to() {
    for (path, content) in V3.iter() {
        let mut used = HashSet::new();
        references(content, &mut |reference| {
            used.insert(reference.rsplit('/').next().unwrap_or_default().to_owned());
        });
        let schemas = content["components"]["schemas"]
            .as_object()
            .into_iter()
            .flatten();
        let unused: Vec<_> = schemas
            .map(|(name, _)| name)
            .filter(|n| !used.contains(*n))
            .collect();
        assert!(unused.is_empty(), "{path}: {unused:?}");
    }
}

#[test]
fn documents_are_found_by_their_path_and_listed_with_their_hash() {
    let index: Value = serde_json::from_str(openapi::index()).unwrap();
    let paths = index["paths"].as_object().unwrap();
    assert_eq!(paths.len(), openapi::documents().len());
    for document in openapi::documents() {
        let (path, hash) = (document.path, document.hash);
        assert_eq!(openapi::document(path).unwrap().hash, hash);
        let address = format!("/openapi/v3/{path}?hash={hash}");
        assert_eq!(paths[path]["serverRelativeURL"], address.as_str());
    }
    assert!(openapi::document("apis/apps/v0").is_none());
}

#[test]
fn the_documents_beside_the_api_exist() {
    let beside = [
        ".well-known/openid-configuration",
        "api",
        "apis",
        "apis/apps",
        "logs",
        "openid/v1/jwks",
        "version",
    ];
    for path in beside {
        let content = at(path);
        assert_eq!(content["openapi"], "3.0.0");
        assert!(
            content["paths"].get(format!("/{path}/")).is_some(),
            "{path}"
        );
    }
}

/// The paths a resource must have, out of its names, scope and verbs.
fn expected_paths(resource: &kinds::resources::Resource) -> Vec<(String, &'static str)> {
    let root = match resource.gv.group {
        "" => format!("/api/{}", resource.gv.version),
        group => format!("/apis/{group}/{}", resource.gv.version),
    };
    let scope = if resource.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let collection = format!("{root}{scope}/{}", resource.plural);
    let object = format!("{collection}/{{name}}");
    let method_of = |verb: &&str| match *verb {
        "create" => (collection.clone(), "post"),
        "delete" => (object.clone(), "delete"),
        "deletecollection" => (collection.clone(), "delete"),
        "get" => (object.clone(), "get"),
        "list" => (collection.clone(), "get"),
        "patch" => (object.clone(), "patch"),
        "update" => (object.clone(), "put"),
        "watch" => (
            collection.replacen(&root, &format!("{root}/watch"), 1),
            "get",
        ),
        other => panic!("no method for {other}"),
    };
    let mut paths: Vec<_> = resource.verbs.iter().map(method_of).collect();
    for sub in &resource.subresources {
        let method_of = |verb: &&str| match *verb {
            "create" => "post",
            "update" => "put",
            "get" => "get",
            "patch" => "patch",
            "delete" => "delete",
            other => panic!("no method for {other}"),
        };
        let path = format!("{object}/{}", sub.name);
        paths.extend(sub.verbs.iter().map(|verb| (path.clone(), method_of(verb))));
    }
    paths
}

fn document_path(gv: kinds::resources::GroupVersion) -> String {
    if gv.group.is_empty() {
        format!("api/{gv}")
    } else {
        format!("apis/{gv}")
    }
}

#[test]
fn every_verb_of_every_resource_has_its_operation_in_both_versions() {
    let v2 = &*V2;
    for resource in kinds::resources::all() {
        let v3 = at(&document_path(resource.gv));
        for (path, method) in expected_paths(resource) {
            for (notation, document) in [("v3", v3), ("v2", v2)] {
                let operation = &document["paths"][&path][method];
                assert!(operation.is_object(), "{notation} {method} {path}");
            }
        }
    }
}

#[test]
fn operation_ids_are_unique_across_all_documents() {
    let mut seen = HashSet::new();
    for content in V3.values() {
        for (path, item) in content["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                if let Some(id) = operation["operationId"].as_str() {
                    assert!(seen.insert(id.to_owned()), "{id} again at {method} {path}");
                }
            }
        }
    }
}

/// kubectl decides on server-side validation by this: the PATCH of the kind has the parameter.
#[test]
fn patching_any_stored_kind_offers_field_validation() {
    for resource in kinds::resources::all().iter().filter(|r| r.allows("patch")) {
        let document = at(&document_path(resource.gv));
        let operations = document["paths"].as_object().unwrap().values();
        let mut patches = operations.map(|item| &item["patch"]).filter(|patch| {
            patch["x-kubernetes-group-version-kind"]["kind"] == resource.kind
                && patch["x-kubernetes-action"] == "patch"
        });
        let validates = |patch: &Value| {
            let parameters = patch["parameters"].as_array().into_iter().flatten();
            parameters
                .filter(|p| p["name"] == "fieldValidation" && p["in"] == "query")
                .count()
                == 1
        };
        assert!(patches.clone().count() > 0, "{}", resource.qualified());
        assert!(patches.all(validates), "{}", resource.qualified());
    }
}

#[test]
fn a_deployment_carries_the_extensions_clients_read() {
    let document = at("apis/apps/v1");
    let schemas = &document["components"]["schemas"];
    let deployment = &schemas["io.k8s.api.apps.v1.Deployment"];
    let kinds = &deployment["x-kubernetes-group-version-kind"];
    assert_eq!(kinds[0]["kind"], "Deployment");
    assert_eq!(kinds[0]["group"], "apps");
    let spec = &deployment["properties"]["spec"];
    assert_eq!(
        spec["allOf"][0]["$ref"],
        "#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec"
    );
    assert_eq!(spec["default"], serde_json::json!({}));

    let spec = &schemas["io.k8s.api.apps.v1.DeploymentSpec"];
    assert_eq!(
        spec["required"],
        serde_json::json!(["selector", "template"])
    );
    let strategy = &spec["properties"]["strategy"];
    assert_eq!(strategy["x-kubernetes-patch-strategy"], "retainKeys");

    let conditions = &schemas["io.k8s.api.apps.v1.DeploymentStatus"]["properties"]["conditions"];
    assert_eq!(conditions["x-kubernetes-list-type"], "map");
    assert_eq!(
        conditions["x-kubernetes-list-map-keys"],
        serde_json::json!(["type"])
    );
    assert_eq!(conditions["x-kubernetes-patch-merge-key"], "type");
    assert_eq!(
        schemas["io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"]["x-kubernetes-map-type"],
        "atomic"
    );
}

#[test]
fn types_and_nearly_all_fields_say_what_they_are() {
    let (mut described, mut silent) = (0, 0);
    for (path, content) in V3.iter() {
        for (name, schema) in content["components"]["schemas"]
            .as_object()
            .into_iter()
            .flatten()
        {
            assert!(schema["description"].is_string(), "{}: {name}", path);
            for property in schema["properties"].as_object().into_iter().flatten() {
                match property.1["description"] {
                    Value::String(_) => described += 1,
                    _ => silent += 1,
                }
            }
        }
    }
    // Silent are those of upstream too, most of them in JSONSchemaProps.
    assert!(
        silent * 50 < described,
        "{silent} silent, {described} described"
    );
}

#[test]
fn version_two_has_neither_defaults_nor_alternatives() {
    let v2 = &*V2;
    assert_eq!(v2["swagger"], "2.0");
    for (name, definition) in v2["definitions"].as_object().unwrap() {
        assert!(definition.get("oneOf").is_none(), "{name}");
        for (field, property) in definition["properties"].as_object().into_iter().flatten() {
            assert!(property.get("default").is_none(), "{name}.{field}");
            assert!(property.get("allOf").is_none(), "{name}.{field}");
        }
    }
    let delete_options = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
    let kinds = &v2["definitions"][delete_options]["x-kubernetes-group-version-kind"];
    let group_versions: HashSet<_> = kinds::resources::all().iter().map(|r| r.gv).collect();
    let without_deletion = 2; // authentication and authorization have reviews only.
    assert_eq!(
        kinds.as_array().unwrap().len(),
        group_versions.len() - without_deletion
    );
}
