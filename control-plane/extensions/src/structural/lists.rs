//! How lists and maps merge: which types may say so, and what keys must be.

use serde_json::Value;

use super::{Place, Problems, below, is, text};

const LIST: &str = "x-kubernetes-list-type";
const KEYS: &str = "x-kubernetes-list-map-keys";
const MAP: &str = "x-kubernetes-map-type";

pub(super) fn check(place: &Place<'_>, problems: &mut Problems) {
    node(place.schema, &place.path, problems);
}

fn node(schema: &Value, path: &str, problems: &mut Problems) {
    if let Some(list) = schema[LIST].as_str() {
        list_type(schema, list, path, problems);
    }
    let keys: Vec<&str> = schema[KEYS]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if !keys.is_empty() && text(schema, LIST) != "map" {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        match schema[LIST].as_str() {
            None => problems.required(&format!("{path}.{LIST}"), why),
            Some(_) => problems.invalid(&format!("{path}.{LIST}"), &schema[LIST], why),
        }
    }
    if text(schema, LIST) == "map" {
        map_keys(schema, &keys, path, problems);
    }
    if let Some(map) = schema[MAP].as_str() {
        if !["granular", "atomic"].contains(&map) {
            problems.not_supported(
                &format!("{path}.{MAP}"),
                &map.into(),
                &["granular", "atomic"],
            );
        }
        if text(schema, "type") != "object" {
            let why = "must be object if x-kubernetes-map-type is specified";
            problems.invalid(&format!("{path}.type"), &text(schema, "type").into(), why);
        }
    }
    for (schema, path) in below(schema, path) {
        node(schema, &path, problems);
    }
}

fn list_type(schema: &Value, list: &str, path: &str, problems: &mut Problems) {
    if !["atomic", "set", "map"].contains(&list) {
        problems.not_supported(
            &format!("{path}.{LIST}"),
            &list.into(),
            &["atomic", "set", "map"],
        );
    }
    if text(schema, "type") != "array" {
        let why = "must be array if x-kubernetes-list-type is specified";
        match text(schema, "type") {
            "" => problems.required(&format!("{path}.type"), why),
            ty => problems.invalid(&format!("{path}.type"), &ty.into(), why),
        }
    }
    let items = &schema["items"];
    if matches!(list, "set" | "map") && is(items, "nullable") {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list}");
        problems.forbidden(&format!("{path}.items.nullable"), &why);
    }
    let whole = match text(items, "type") {
        "object" if text(items, MAP) != "atomic" => Some(MAP),
        "array" if !matches!(text(items, LIST), "" | "atomic") => Some(LIST),
        _ => None,
    };
    if let (Some(key), "set") = (whole, list) {
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        problems.invalid(&format!("{path}.items.{key}"), &items[key], why);
    }
}

fn map_keys(schema: &Value, keys: &[&str], path: &str, problems: &mut Problems) {
    let items = &schema["items"];
    if keys.is_empty() {
        let why = "must not be empty if x-kubernetes-list-type is map";
        problems.required(&format!("{path}.{KEYS}"), why);
    }
    if !items.is_object() {
        let why = "must have a schema if x-kubernetes-list-type is map";
        return problems.required(&format!("{path}.items"), why);
    }
    if text(items, "type") != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        return problems.invalid(
            &format!("{path}.items.type"),
            &text(items, "type").into(),
            why,
        );
    }
    let required = |key: &str| {
        items["required"]
            .as_array()
            .is_some_and(|all| all.iter().any(|r| r == key))
    };
    for (i, key) in keys.iter().enumerate() {
        let at = format!("{path}.{KEYS}[{i}]");
        if keys[..i].contains(key) {
            problems.push(
                kinds::field::Reason::Duplicate,
                &at,
                format!("Duplicate value: {key:?}"),
            );
        }
        let field = &items["properties"][*key];
        let at_field = format!("{path}.items.properties[{key}]");
        if !field.is_object() {
            problems.invalid(
                &at,
                &(*key).into(),
                "entries must all be names of item properties",
            );
            continue;
        }
        if matches!(text(field, "type"), "object" | "array") {
            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            problems.invalid(&format!("{at_field}.type"), &field["type"], why);
        }
        if is(field, "nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            problems.forbidden(&format!("{at_field}.nullable"), why);
        }
        if field["default"].is_null() && !required(key) {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            problems.required(&format!("{at_field}.default"), why);
        }
    }
}
