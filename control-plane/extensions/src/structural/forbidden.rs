//! What a schema may not say at all (`ValidateCustomResourceDefinitionOpenAPISchema`).

use serde_json::Value;

use super::{Place, Problems, below, is, junctors, text};
use crate::{paths, pattern};

const UNSUPPORTED: [&str; 6] = [
    "$ref",
    "id",
    "definitions",
    "dependencies",
    "patternProperties",
    "additionalItems",
];
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// What the root may say beside the status subresource, by the names of upstream's fields.
const AT_ROOT: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength \
     MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example \
     XPreserveUnknownFields XValidations]";
const NOT_AT_ROOT: [&str; 15] = [
    "default",
    "enum",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "additionalProperties",
    "minProperties",
    "maxProperties",
    "nullable",
    "x-kubernetes-int-or-string",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
];
const MAX_SELECTABLE: usize = 8;

pub(super) fn check(place: &Place<'_>, problems: &mut Problems) {
    let (schema, path) = (place.schema, &place.path);
    if is(schema, "nullable") {
        problems.forbidden(
            &format!("{path}.nullable"),
            "nullable cannot be true at the root",
        );
    }
    if place.has_status {
        if !matches!(text(schema, "type"), "" | "object") {
            let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            problems.invalid(&format!("{path}.type"), &schema["type"], why);
        }
        if NOT_AT_ROOT
            .iter()
            .any(|key| !schema[*key].is_null() && schema[*key] != false)
        {
            let why = format!(
                "only {AT_ROOT} fields are allowed at the root of the schema if the status subresource is enabled"
            );
            problems.invalid(path, schema, &why);
        }
    }
    anywhere(schema, path, problems);
    selectable(place, problems);
}

fn anywhere(schema: &Value, path: &str, problems: &mut Problems) {
    for key in UNSUPPORTED {
        let said = match &schema[key] {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => true,
        };
        if said {
            problems.forbidden(&format!("{path}.{key}"), &format!("{key} is not supported"));
        }
    }
    if is(schema, "uniqueItems") {
        let why =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        problems.forbidden(&format!("{path}.uniqueItems"), why);
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let field = format!("{path}.x-kubernetes-preserve-unknown-fields");
        problems.invalid(&field, &false.into(), "must be true or undefined");
    }
    let has_properties = schema["properties"]
        .as_object()
        .is_some_and(|p| !p.is_empty());
    let others = &schema["additionalProperties"];
    if has_properties && (others.is_object() || *others == true) {
        let why = "additionalProperties and properties are mutual exclusive";
        problems.forbidden(&format!("{path}.additionalProperties"), why);
    }
    match text(schema, "type") {
        "" => {}
        "null" => {
            let why = "type cannot be set to null, use nullable as an alternative";
            problems.forbidden(&format!("{path}.type"), why);
        }
        ty if !TYPES.contains(&ty) => {
            problems.not_supported(&format!("{path}.type"), &ty.into(), &TYPES)
        }
        _ => {}
    }
    if schema["items"].is_array() {
        let why = "items must be a schema object and not an array";
        problems.forbidden(&format!("{path}.items"), why);
    }
    let expression = text(schema, "pattern");
    if let Err(error) = pattern::compile(expression) {
        let why = format!("must be a valid regular expression, but isn't: {error}");
        problems.invalid(&format!("{path}.pattern"), &expression.into(), &why);
    }
    rules(schema, path, problems);
    for (schema, path) in below(schema, path)
        .into_iter()
        .chain(junctors(schema, path))
    {
        anywhere(schema, &path, problems);
    }
}

// What can be said about rules without an engine for them.
fn rules(schema: &Value, path: &str, problems: &mut Problems) {
    let rules = schema["x-kubernetes-validations"].as_array();
    for (i, rule) in rules.into_iter().flatten().enumerate() {
        let path = format!("{path}.x-kubernetes-validations[{i}]");
        if text(rule, "rule").trim().is_empty() {
            problems.required(&format!("{path}.rule"), "rule is not specified");
        }
        if let Some(message) = rule["message"].as_str() {
            let shown = rule["message"].clone();
            if message.trim().is_empty() {
                problems.invalid(
                    &format!("{path}.message"),
                    &shown,
                    "message must be non-empty if specified",
                );
            } else if message.contains(['\n', '\r']) {
                problems.invalid(
                    &format!("{path}.message"),
                    &shown,
                    "message must not contain line breaks",
                );
            }
        } else if text(rule, "rule").contains(['\n', '\r'])
            && text(rule, "messageExpression").is_empty()
        {
            let why = "message must be specified if rule contains line breaks";
            problems.required(&format!("{path}.message"), why);
        }
    }
}

fn selectable(place: &Place<'_>, problems: &mut Problems) {
    let fields = place.version["selectableFields"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let within = format!("{}.selectableFields", place.within);
    if fields.len() > MAX_SELECTABLE {
        let message = format!(
            "Too many: {}: must have at most {MAX_SELECTABLE} items",
            fields.len()
        );
        problems.push(kinds::field::Reason::TooMany, &within, message);
    }
    let mut seen = Vec::new();
    for (i, field) in fields.iter().enumerate() {
        let at = format!("{within}[{i}].jsonPath");
        let path = &field["jsonPath"];
        let Some(names) = path.as_str().and_then(paths::simple) else {
            if path.as_str().is_some_and(|p| !p.is_empty()) {
                problems.invalid(
                    &at,
                    path,
                    "is an invalid path: must be a simple json path starting with .",
                );
            }
            continue;
        };
        if names[0] == "metadata" {
            problems.invalid(&at, path, "must not point to fields in metadata");
        } else if names.iter().any(|n| n.contains('[')) {
            problems.invalid(
                &at,
                path,
                "is an invalid path: must not contain array notation",
            );
        } else {
            let found = names
                .iter()
                .try_fold(place.schema, |schema, name| schema["properties"].get(name));
            let plain =
                |found: &Value| matches!(text(found, "type"), "string" | "boolean" | "integer");
            match found {
                None => problems.invalid(
                    &at,
                    path,
                    "is an invalid path: does not refer to a valid field",
                ),
                Some(found) if !plain(found) => {
                    let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
                    problems.invalid(&at, path, why);
                }
                Some(_) => {}
            }
        }
        if seen.contains(&path) {
            problems.push(
                kinds::field::Reason::Duplicate,
                &at,
                format!("Duplicate value: {path}"),
            );
        }
        seen.push(path);
    }
}
