//! A structural schema says what there is outside its junctors; they only say more about it
//! (`apiserver/schema/validation.go`).

use serde_json::Value;

use super::{Place, Problems, below, is, junctors, text};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Items,
    Field,
}

pub(super) fn check(place: &Place<'_>, problems: &mut Problems) {
    let mut found = Problems::default();
    node(place.schema, Level::Root, &place.path, &mut found);
    nested(
        place.schema,
        place.schema,
        &place.path,
        &place.path,
        &mut found,
    );
    found.0.sort_by_key(ToString::to_string);
    found.0.dedup();
    problems.0.extend(found.0);
}

fn node(schema: &Value, level: Level, path: &str, problems: &mut Problems) {
    let (either, keeps) = (
        is(schema, "x-kubernetes-int-or-string"),
        is(schema, "x-kubernetes-preserve-unknown-fields"),
    );
    let ty = text(schema, "type");
    let at_type = format!("{path}.type");
    match (level, ty) {
        (Level::Root, "") => problems.required(&at_type, "must not be empty at the root"),
        (Level::Root, ty) if ty != "object" => {
            problems.invalid(&at_type, &ty.into(), "must be object at the root")
        }
        (Level::Items, "") if !either && !keeps => {
            problems.required(&at_type, "must not be empty for specified array items");
        }
        (Level::Field, "") if !either && !keeps => {
            problems.required(&at_type, "must not be empty for specified object fields");
        }
        _ => {}
    }
    if level == Level::Root && !schema["additionalProperties"].is_null() {
        problems.forbidden(
            &format!("{path}.additionalProperties"),
            "must not be used at the root",
        );
    }
    if ty == "array" && !schema["items"].is_object() {
        problems.required(&format!("{path}.items"), "must be specified");
    }
    if either {
        int_or_string(schema, path, problems);
    }
    let embedded = is(schema, "x-kubernetes-embedded-resource");
    if embedded {
        embedded_resource(schema, path, problems);
    }
    if level == Level::Root || embedded {
        own_fields(schema, path, problems);
    }
    for (below, path) in below(schema, path) {
        let level = if path.ends_with(".items") {
            Level::Items
        } else {
            Level::Field
        };
        // Metadata has a type of its own: the schema may only restrict its names.
        node(below, level, &path, problems);
    }
}

fn int_or_string(schema: &Value, path: &str, problems: &mut Problems) {
    for key in [
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
    ] {
        if is(schema, key) {
            let why = "must be false if x-kubernetes-int-or-string is true";
            problems.invalid(&format!("{path}.{key}"), &true.into(), why);
        }
    }
    if !text(schema, "type").is_empty() {
        let why = "must be empty if x-kubernetes-int-or-string is true";
        problems.invalid(&format!("{path}.type"), &schema["type"], why);
    }
}

fn embedded_resource(schema: &Value, path: &str, problems: &mut Problems) {
    if text(schema, "type") != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        problems.invalid(&format!("{path}.type"), &text(schema, "type").into(), why);
    }
    if !schema["additionalProperties"].is_null() {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        problems.forbidden(&format!("{path}.additionalProperties"), why);
    }
    let empty = schema["properties"]
        .as_object()
        .is_none_or(serde_json::Map::is_empty);
    if empty && !is(schema, "x-kubernetes-preserve-unknown-fields") {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        problems.required(&format!("{path}.properties"), why);
    }
}

fn own_fields(schema: &Value, path: &str, problems: &mut Problems) {
    for (name, ty) in [
        ("kind", "string"),
        ("apiVersion", "string"),
        ("metadata", "object"),
    ] {
        let field = &schema["properties"][name];
        if field.is_object() && text(field, "type") != ty {
            let at = format!("{path}.properties[{name}].type");
            problems.invalid(&at, &text(field, "type").into(), &format!("must be {ty}"));
        }
    }
    let metadata = &schema["properties"]["metadata"];
    let Some(said) = metadata.as_object() else {
        return;
    };
    let plain = |(key, value): (&String, &Value)| match key.as_str() {
        "type" | "description" | "title" => true,
        "properties" => value
            .as_object()
            .is_some_and(|p| p.keys().all(|k| k == "name" || k == "generateName")),
        _ => false,
    };
    if !said.iter().all(plain) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        problems.forbidden(&format!("{path}.properties[metadata]"), why);
    }
}

/// What junctors may not say, and what they say about things that are not there.
fn nested(schema: &Value, skeleton: &Value, path: &str, outside: &str, problems: &mut Problems) {
    for (value, at) in junctors(schema, path) {
        let allowed =
            is(skeleton, "x-kubernetes-int-or-string") && is_int_or_string(schema, path, &at);
        values(value, skeleton, &at, outside, allowed, problems);
    }
    for (below, at) in below(schema, path) {
        let step = &at[path.len()..];
        nested(below, below, &at, &format!("{outside}{step}"), problems);
    }
}

// The one place where a junctor says a type.
fn is_int_or_string(schema: &Value, path: &str, at: &str) -> bool {
    let pair = |list: &Value| *list == serde_json::json!([{"type": "integer"}, {"type": "string"}]);
    let within = &at[path.len()..];
    (within.starts_with(".anyOf") && pair(&schema["anyOf"]))
        || (within.starts_with(".allOf[0]") && pair(&schema["allOf"][0]["anyOf"]))
}

fn values(
    value: &Value,
    skeleton: &Value,
    at: &str,
    outside: &str,
    typed: bool,
    problems: &mut Problems,
) {
    for key in [
        "type",
        "title",
        "description",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-validations",
    ] {
        let said = !matches!(&value[key], Value::Null) && value[key] != "";
        if said && !(typed && key == "type") {
            problems.forbidden(&format!("{at}.{key}"), "must be empty to be structural");
        }
    }
    for key in [
        "default",
        "additionalProperties",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    ] {
        if !value[key].is_null() {
            problems.forbidden(&format!("{at}.{key}"), "must be undefined to be structural");
        }
    }
    for key in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        if is(value, key) {
            problems.forbidden(&format!("{at}.{key}"), "must be false to be structural");
        }
    }
    for (name, below) in value["properties"].as_object().into_iter().flatten() {
        let (at, outside) = (
            format!("{at}.properties[{name}]"),
            format!("{outside}.properties[{name}]"),
        );
        if name == "metadata" {
            problems.forbidden(&at, "must not be specified in a nested context");
        }
        match skeleton["properties"].get(name) {
            Some(skeleton) => values(below, skeleton, &at, &outside, false, problems),
            // A number or a text has no fields that could be missing.
            None if is(skeleton, "x-kubernetes-int-or-string") => {}
            None => problems.required(&outside, &format!("because it is defined in {at}")),
        }
    }
    if value["items"].is_object() {
        let (at, outside) = (format!("{at}.items"), format!("{outside}.items"));
        match &skeleton["items"] {
            skeleton @ Value::Object(_) => {
                values(&value["items"], skeleton, &at, &outside, false, problems)
            }
            _ => problems.required(&outside, &format!("because it is defined in {at}")),
        }
    }
    for (deeper, at) in junctors(value, at) {
        let typed = typed && at.contains(".allOf[0].anyOf");
        values(deeper, skeleton, &at, outside, typed, problems);
    }
}
