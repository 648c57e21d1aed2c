//! Whatever is sent as a schema or as an object: nothing ends the server, and what is made of an object is made once.

use extensions::schema::Node;
use extensions::{coerce, structural, validate};
use kinds::field::Errors;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..5).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2.5f64..2.5).prop_map(Value::from),
        "[a-d]{0,3}".prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
    ]
}

fn anything() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 32, 4, |below| {
        let key = prop_oneof![
            Just("apiVersion"),
            Just("kind"),
            Just("metadata"),
            Just("a"),
            Just("b"),
            Just("c"),
            Just("name")
        ];
        prop_oneof![
            prop::collection::vec(below.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, below), 0..4).prop_map(|all| {
                Value::Object(all.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
            }),
        ]
    })
}

/// Schemas that are mostly in order.
fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string"})),
        Just(json!({"type": "string", "default": "a", "maxLength": 2})),
        Just(json!({"type": "string", "pattern": "^[a-c]+$", "nullable": true})),
        Just(json!({"type": "string", "enum": ["a", "b"], "format": "date-time"})),
        Just(json!({"type": "integer", "minimum": 0, "default": 1})),
        Just(json!({"type": "number", "multipleOf": 0.5})),
        Just(json!({"type": "boolean"})),
        Just(json!({"x-kubernetes-int-or-string": true})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
    ];
    leaf.prop_recursive(4, 24, 4, |below| {
        let key = prop_oneof![Just("a"), Just("b"), Just("c"), Just("name"), Just("metadata")];
        let extra = prop_oneof![
            Just(json!({})),
            Just(json!({"default": {}})),
            Just(json!({"required": ["a"], "maxProperties": 2})),
            Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
            Just(json!({"x-kubernetes-embedded-resource": true})),
            Just(json!({"nullable": true, "anyOf": [{"required": ["b"]}, {"not": {"required": ["c"]}}]})),
        ];
        prop_oneof![
            (prop::collection::vec((key, below.clone()), 0..4), extra).prop_map(|(all, extra)| {
                let properties: Map<String, Value> = all.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
                let mut schema = json!({"type": "object", "properties": properties});
                if let (Some(schema), Value::Object(extra)) = (schema.as_object_mut(), extra) {
                    schema.extend(extra);
                }
                schema
            }),
            below.clone().prop_map(|items| json!({"type": "array", "items": items, "maxItems": 3})),
            below.clone().prop_map(|items| json!({"type": "array", "items": items, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"]})),
            below.prop_map(|values| json!({"type": "object", "additionalProperties": values})),
        ]
    })
}

fn definition(schema: &Value) -> Value {
    json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}})
}

fn judged(schema: &Value) -> Errors {
    let mut errors = Errors::default();
    structural::check(&definition(schema), None, &mut errors);
    errors
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_schema_and_no_object_ends_the_server(schema in anything(), object in anything()) {
        let _ = judged(&schema);
        let node = Node::read(&schema);
        if let Ok(normal) = coerce::normalize(&node, object, coerce::Source::Request) {
            let _ = validate::check(&node, &normal.value, None, &validate::At::ROOT);
        }
    }

    #[test]
    fn what_is_made_of_an_object_is_made_once(schema in schema(), object in anything()) {
        let root = json!({"type": "object", "properties": {"spec": schema}});
        let _ = judged(&root);
        let node = Node::read(&root);
        let object = json!({"apiVersion": "e/v1", "kind": "K", "metadata": {"name": "n"}, "spec": object});
        let make = |object: Value| {
            let mut value = coerce::normalize(&node, object, coerce::Source::Storage).map(|n| n.value).unwrap_or_default();
            coerce::default(&node, &mut value);
            value
        };
        let once = make(object);
        let errors = validate::check(&node, &once, None, &validate::At::ROOT);
        // What did not change may stay as wrong as it was.
        let unchanged = validate::check(&node, &once, Some(&once), &validate::At::ROOT);
        prop_assert!(unchanged.len() <= errors.len());
        prop_assert_eq!(make(once.clone()), once);
    }
}
