//! OpenAPI v2: the v3 documents in one, in the older notation.
//!
//! Upstream serves v2 without defaults and without `oneOf`, because old clients stumble over both.

use serde_json::{Map, Value, json};

use crate::documents::Document;

/// One v2 document out of all v3 documents.
pub(crate) fn combine(documents: &[Document]) -> Value {
    let (mut definitions, mut paths) = (Map::new(), Map::new());
    for document in documents {
        for (name, schema) in entries(&document.content["components"]["schemas"]) {
            add_definition(&mut definitions, name, definition(schema));
        }
        for (path, item) in entries(&document.content["paths"]) {
            paths.insert(path.clone(), path_item(item));
        }
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "definitions": definitions,
        "paths": paths,
        "securityDefinitions": {"BearerToken": {
            "description": "A bearer token.",
            "in": "header",
            "name": "authorization",
            "type": "apiKey",
        }},
        "security": [{"BearerToken": []}],
    })
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

const KINDS: &str = "x-kubernetes-group-version-kind";

/// The same type may stand in many documents; what differs is the groups it belongs to.
fn add_definition(definitions: &mut Map<String, Value>, name: &str, new: Value) {
    let Some(known) = definitions.get_mut(name) else {
        definitions.insert(name.to_owned(), new);
        return;
    };
    let Some(kinds) = known.get_mut(KINDS).and_then(Value::as_array_mut) else {
        return;
    };
    for kind in new[KINDS].as_array().into_iter().flatten() {
        if !kinds.contains(kind) {
            kinds.push(kind.clone());
        }
    }
}

fn definition(schema: &Value) -> Value {
    let mut definition = older(schema);
    if schema.get("oneOf").is_some() {
        definition["type"] = "string".into();
    }
    definition
}

fn older(schema: &Value) -> Value {
    let mut result = Map::new();
    for (key, value) in entries(schema) {
        match key.as_str() {
            "default" | "oneOf" => {}
            "$ref" => insert_reference(&mut result, value),
            "allOf" => insert_reference(&mut result, &value[0]["$ref"]),
            "items" | "additionalProperties" => {
                result.insert(key.clone(), older(value));
            }
            "properties" => {
                let properties = entries(value).map(|(name, inner)| (name.clone(), older(inner)));
                result.insert(key.clone(), Value::Object(properties.collect()));
            }
            _ => {
                result.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(result)
}

fn insert_reference(result: &mut Map<String, Value>, reference: &Value) {
    let name = reference
        .as_str()
        .and_then(|r| r.rsplit('/').next())
        .unwrap_or_default();
    result.insert("$ref".into(), format!("#/definitions/{name}").into());
}

fn path_item(item: &Value) -> Value {
    let converted = entries(item).map(|(key, value)| match key.as_str() {
        "parameters" => (key.clone(), parameters(value).into()),
        _ => (key.clone(), operation(value)),
    });
    Value::Object(converted.collect())
}

fn parameters(list: &Value) -> Vec<Value> {
    list.as_array()
        .into_iter()
        .flatten()
        .map(parameter)
        .collect()
}

fn parameter(parameter: &Value) -> Value {
    let mut flat = parameter.clone();
    let schema = flat
        .as_object_mut()
        .and_then(|p| p.remove("schema"))
        .unwrap_or_default();
    for (key, value) in entries(&schema) {
        flat[key] = value.clone();
    }
    flat
}

fn operation(operation: &Value) -> Value {
    let mut result = operation.clone();
    let mut asked = parameters(&operation["parameters"]);
    if let Some(body) = result.as_object_mut().and_then(|o| o.remove("requestBody")) {
        result["consumes"] = media(&body["content"]);
        asked.insert(0, body_parameter(&body));
    } else {
        result["consumes"] = json!(["*/*"]);
    }
    if !asked.is_empty() {
        result["parameters"] = asked.into();
    }
    let content = &operation["responses"]["200"]["content"];
    if content.is_object() {
        result["produces"] = media(content);
    }
    result["schemes"] = json!(["https"]);
    let responses = entries(&operation["responses"]).map(|(code, r)| (code.clone(), response(r)));
    result["responses"] = Value::Object(responses.collect());
    result
}

fn media(content: &Value) -> Value {
    entries(content)
        .map(|(medium, _)| Value::from(medium.clone()))
        .collect()
}

fn first_schema(content: &Value) -> Option<Value> {
    entries(content)
        .next()
        .map(|(_, medium)| older(&medium["schema"]))
}

fn body_parameter(body: &Value) -> Value {
    let mut parameter = json!({"in": "body", "name": "body"});
    parameter["schema"] = first_schema(&body["content"]).unwrap_or_default();
    if body["required"] == true {
        parameter["required"] = true.into();
    }
    parameter
}

fn response(response: &Value) -> Value {
    let mut result = json!({"description": response["description"]});
    if let Some(schema) = first_schema(&response["content"]) {
        result["schema"] = schema;
    }
    result
}
