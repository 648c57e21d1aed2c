use super::*;
use serde_json::json;

fn told(schema: Value, value: Value) -> Vec<String> {
    let root = At::ROOT;
    check(&Node::read(&schema), &value, None, &root.key("spec"))
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn texts_are_upstreams() {
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let cases = [
        (
            object(json!({"a": {"type": "integer"}})),
            json!({"a": "x"}),
            vec![
                "spec.a: Invalid value: \"string\": spec.a in body must be of type integer: \"string\"",
            ],
        ),
        (
            object(json!({"a": {"type": "integer"}})),
            json!({"a": 1.0}),
            vec![],
        ),
        (
            object(json!({"a": {"type": "integer", "minimum": 1}})),
            json!({"a": 0}),
            vec!["spec.a: Invalid value: 0: spec.a in body should be greater than or equal to 1"],
        ),
        (
            object(json!({"a": {"type": "integer", "maximum": 10, "exclusiveMaximum": true}})),
            json!({"a": 10}),
            vec!["spec.a: Invalid value: 10: spec.a in body should be less than 10"],
        ),
        (
            object(json!({"a": {"type": "string", "enum": ["A", "B"]}})),
            json!({"a": "x"}),
            vec!["spec.a: Unsupported value: \"x\": supported values: \"A\", \"B\""],
        ),
        (
            object(json!({"a": {"type": "string", "maxLength": 2}})),
            json!({"a": "xyz"}),
            vec!["spec.a: Too long: may not be more than 2 bytes"],
        ),
        (
            object(json!({"a": {"type": "string", "minLength": 2}})),
            json!({"a": "x"}),
            vec!["spec.a: Invalid value: \"x\": spec.a in body should be at least 2 chars long"],
        ),
        (
            object(json!({"a": {"type": "string", "pattern": "^b$"}})),
            json!({"a": "x"}),
            vec!["spec.a: Invalid value: \"x\": spec.a in body should match '^b$'"],
        ),
        (
            object(json!({"a": {"type": "array", "maxItems": 1, "items": {"type": "string"}}})),
            json!({"a": ["x", "y"]}),
            vec!["spec.a: Too many: 2: must have at most 1 item"],
        ),
        (
            json!({"type": "object", "required": ["a"]}),
            json!({}),
            vec!["spec.a: Required value"],
        ),
        (
            json!({"type": "object", "minProperties": 2}),
            json!({"a": 1}),
            vec!["spec: Invalid value: 1: spec in body should have at least 2 properties"],
        ),
        (
            object(
                json!({"a": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "boolean"}}}}}),
            ),
            json!({"a": [{"b": "x"}]}),
            vec![
                "spec.a[0].b: Invalid value: \"string\": spec.a[0].b in body must be of type boolean: \"string\"",
            ],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"k": 1}),
            vec![
                "spec.k: Invalid value: \"integer\": spec.k in body must be of type string: \"integer\"",
            ],
        ),
        (
            json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"a": 1, "b": 1}),
            vec![
                "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
            ],
        ),
        (
            json!({"type": "object", "not": {"required": ["a"]}}),
            json!({"a": 1}),
            vec!["<nil>: Invalid value: \"\": \"spec\" must not validate the schema (not)"],
        ),
        (
            json!({"type": "object", "anyOf": [{"required": ["a"]}]}),
            json!({}),
            vec![
                "<nil>: Invalid value: \"\": \"spec\" must validate at least one schema (anyOf)",
                "spec.a: Required value",
            ],
        ),
        (
            object(json!({"a": {"x-kubernetes-int-or-string": true}})),
            json!({"a": "80%"}),
            vec![],
        ),
        (
            object(json!({"a": {"type": "string", "nullable": true}})),
            json!({"a": null}),
            vec![],
        ),
        (
            object(json!({"a": {"type": "string", "format": "date-time"}})),
            json!({"a": "today"}),
            vec![
                "spec.a: Invalid value: \"today\": spec.a in body must be of type date-time: \"today\"",
            ],
        ),
    ];
    for (schema, value, wanted) in cases {
        assert_eq!(
            told(schema.clone(), value.clone()),
            wanted,
            "{schema} {value}"
        );
    }
}

#[test]
fn what_has_not_changed_is_not_judged_again() {
    let node = Node::read(&json!({"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 1},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string", "maxLength": 1}}}},
        "plain": {"type": "array", "items": {"type": "string", "maxLength": 1}},
    }}));
    let old = json!({"a": "long", "keyed": [{"k": "1", "v": "long"}], "plain": ["long"]});
    let fields = |new: Value| -> Vec<String> {
        let errors = check(&node, &new, Some(&old), &At::ROOT);
        errors.into_iter().map(|e| e.field).collect()
    };
    let mut new = old.clone();
    new["b"] = 1.into();
    assert!(fields(new.clone()).is_empty());
    new["a"] = "longer".into();
    assert_eq!(fields(new.clone()), ["a"]);
    new["keyed"] = json!([{"k": "0"}, {"k": "1", "v": "long"}, {"k": "2", "v": "long"}]);
    assert_eq!(fields(new.clone()), ["a", "keyed[2].v"]);
    new["plain"] = json!(["long", "x"]);
    assert_eq!(
        fields(new),
        ["a", "keyed[2].v", "plain[0]"],
        "a list without keys is one value"
    );
}

#[test]
fn sets_and_keyed_lists_hold_a_value_once() {
    let node = Node::read(&json!({"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
    }}));
    let mut errors = Vec::new();
    let value = json!({"set": ["a", "b", "a", "a"], "map": [{"k": "1"}, {"k": "1", "v": 2}]});
    duplicates(&node, &value, &At::ROOT, &mut errors);
    let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "map[1]: Duplicate value: {\"k\":\"1\"}",
            "set[2]: Duplicate value: \"a\""
        ]
    );
}

#[test]
fn bounds_are_printed_as_go_does() {
    let cases = [
        (1.0, "1"),
        (0.5, "0.5"),
        (1e21, "1e+21"),
        (0.00001, "1e-05"),
        (2147483647.0, "2.147483647e+09"),
    ];
    for (number, text) in cases {
        assert_eq!(go_number(number), text);
    }
}
