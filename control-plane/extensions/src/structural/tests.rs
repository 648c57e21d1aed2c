use super::*;
use serde_json::json;

fn definition(schema: &Value) -> Value {
    json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}})
}

fn told(schema: &Value) -> Vec<String> {
    let mut errors = Errors::default();
    check(&definition(schema), None, &mut errors);
    let here = |text: String| text.replace("spec.validation.openAPIV3Schema", "S");
    errors.0.iter().map(|e| here(e.to_string())).collect()
}

#[test]
fn schemas_that_are_not_structural_are_refused_in_upstreams_words() {
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let cases = [
        (object(json!({"a": {"type": "string"}})), vec![]),
        (
            json!({}),
            vec!["S.type: Required value: must not be empty at the root"],
        ),
        (
            json!({"type": "string"}),
            vec!["S.type: Invalid value: \"string\": must be object at the root"],
        ),
        (
            object(json!({"a": {}})),
            vec![
                "S.properties[a].type: Required value: must not be empty for specified object fields",
            ],
        ),
        (
            object(json!({"a": {"type": "array", "items": {}}})),
            vec![
                "S.properties[a].items.type: Required value: must not be empty for specified array items",
            ],
        ),
        (
            object(json!({"a": {"type": "array"}})),
            vec!["S.properties[a].items: Required value: must be specified"],
        ),
        (
            object(json!({"a": {"type": "string", "anyOf": [{"type": "string"}]}})),
            vec!["S.properties[a].anyOf[0].type: Forbidden: must be empty to be structural"],
        ),
        (
            object(
                json!({"a": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}),
            ),
            vec![],
        ),
        (
            object(json!({"a": {"x-kubernetes-int-or-string": true,
                "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "^a"}]}})),
            vec![],
        ),
        (
            json!({"type": "object", "anyOf": [{"properties": {"a": {"minimum": 1}}}]}),
            vec![
                "S.properties[a]: Required value: because it is defined in S.anyOf[0].properties[a]",
            ],
        ),
        (
            object(
                json!({"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}),
            ),
            vec![
                "S.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
            ],
        ),
        (
            object(json!({"kind": {"type": "integer"}})),
            vec!["S.properties[kind].type: Invalid value: \"integer\": must be string"],
        ),
        (
            object(json!({"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": false}})),
            vec![
                "S.properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
            ],
        ),
        (
            object(json!({"a": {"type": "string", "$ref": "b"}})),
            vec!["S.properties[a].$ref: Forbidden: $ref is not supported"],
        ),
        (
            object(
                json!({"a": {"type": "object", "additionalProperties": {"type": "string"}, "properties": {"b": {"type": "string"}}}}),
            ),
            vec![
                "S.properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ],
        ),
        (
            object(
                json!({"a": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}),
            ),
            vec![
                "S.properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ],
        ),
        (
            object(json!({"a": {"type": "integer", "default": "x"}})),
            vec![
                "S.properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ],
        ),
        (
            object(
                json!({"a": {"type": "object", "default": {"b": 1}, "properties": {"c": {"type": "string"}}}}),
            ),
            vec!["S.properties[a].default: Invalid value: {\"b\":1}: must not have unknown fields"],
        ),
        (
            object(json!({"a": {"type": "string", "x-kubernetes-validations": [{"rule": ""}]}})),
            vec![
                "S.properties[a].x-kubernetes-validations[0].rule: Required value: rule is not specified",
            ],
        ),
    ];
    for (schema, wanted) in cases {
        assert_eq!(told(&schema), wanted, "{schema}");
    }
}

#[test]
fn what_was_let_in_before_can_still_be_changed() {
    let old = definition(&json!({"type": "object", "properties": {"a": {}}}));
    let mut new = old.clone();
    new["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["b"] = json!({});
    let mut errors = Errors::default();
    check(&new, Some(&old), &mut errors);
    assert!(errors.is_empty(), "{errors:?}");
    check(&new, None, &mut errors);
    assert_eq!(errors.0.len(), 2);
}

#[test]
fn schemas_that_differ_are_named_by_their_version() {
    let version = |schema: Value| json!({"schema": {"openAPIV3Schema": schema}});
    let definition = json!({"spec": {"versions": [version(json!({"type": "object"})), version(json!({"type": "string"}))]}});
    let mut errors = Errors::default();
    check(&definition, None, &mut errors);
    let fields: Vec<_> = errors.0.iter().map(|e| e.field.as_str()).collect();
    assert_eq!(fields, ["spec.versions[1].schema.openAPIV3Schema.type"]);
}
