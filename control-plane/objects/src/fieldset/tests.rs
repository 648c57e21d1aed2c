#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn set(fields: Value) -> FieldSet {
    FieldSet::from_fields_v1(&fields).unwrap()
}

#[test]
fn fields_v1_reads_and_writes_members_children_and_both() {
    let fields = json!({
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:finalizers": {"v:\"a\"": {}}},
        "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}},
    });
    let decoded = set(fields.clone());
    assert_eq!(decoded.to_fields_v1(), fields);
    let paths: Vec<_> = decoded.paths().iter().map(ToString::to_string).collect();
    assert_eq!(
        paths,
        [
            ".metadata.labels",
            ".metadata.finalizers[=\"a\"]",
            ".metadata.labels.app",
            ".spec.ports[port=80,protocol=\"TCP\"]",
            ".spec.ports[port=80,protocol=\"TCP\"].port",
        ]
    );
}

#[test]
fn the_text_is_in_canonical_order() {
    let mut s = FieldSet::default();
    for port in [443, 80, 8080] {
        let key = PathElement::key(vec![("port".into(), Literal(json!(port)))]);
        s.insert(&[PathElement::Field("ports".into()), key]);
    }
    s.insert(&[PathElement::Index(1)]);
    s.insert(&[PathElement::Value(Literal(json!("a<b")))]);
    s.insert(&[PathElement::Field("ports".into())]);
    assert_eq!(
        s.to_fields_v1_text(),
        r#"{"f:ports":{".":{},"k:{\"port\":80}":{},"k:{\"port\":443}":{},"k:{\"port\":8080}":{}},"v:\"a\\u003cb\"":{},"i:1":{}}"#
    );
}

#[test]
fn keys_are_equal_whatever_their_order_and_number_form() {
    let a = set(json!({"k:{\"a\":1,\"b\":2}": {}}));
    assert_eq!(a, set(json!({"k:{\"b\":2.0,\"a\":1}": {}})));
}

#[test]
fn unknown_elements_are_dropped_and_bad_ones_refused() {
    assert_eq!(
        set(json!({"x:future": {}, "f:a": {}})),
        set(json!({"f:a": {}}))
    );
    assert_eq!(
        set(json!({"f:a": {"x:future": {}}})),
        set(json!({"f:a": {}}))
    );
    assert_eq!(set(json!({"f:a": null})), set(json!({"f:a": {}})));
    for bad in [
        json!(1),
        json!({"f": {}}),
        json!({"fab": {}}),
        json!({"v:{": {}}),
        json!({"k:1": {}}),
        json!({"i:x": {}}),
        json!({"f:a": 1}),
    ] {
        assert!(FieldSet::from_fields_v1(&bad).is_err(), "{bad}");
    }
}

#[test]
fn differences_treat_parents_and_children_apart() {
    let both = set(json!({"f:a": {".": {}, "f:b": {}}}));
    let parent = set(json!({"f:a": {}}));
    let child = set(json!({"f:a": {"f:b": {}}}));
    assert_eq!(both.difference(&parent), child);
    assert_eq!(both.difference(&child), parent);
    assert!(both.recursive_difference(&parent).is_empty());
    assert_eq!(both.recursive_difference(&child), parent);
    assert_eq!(both.intersection(&child), child);
    assert_eq!(parent.union(&child), both);
    assert_eq!(both.leaves(), child);
}

fn arbitrary_set() -> impl Strategy<Value = FieldSet> {
    let element = prop_oneof![
        "[a-c.:]{0,2}".prop_map(PathElement::Field),
        (0i64..3).prop_map(|n| PathElement::key(vec![("n".into(), Literal(json!(n)))])),
        "[a-c<\"]{0,2}".prop_map(|s| PathElement::Value(Literal(json!(s)))),
        (0i64..3).prop_map(PathElement::Index),
    ];
    let path = proptest::collection::vec(element, 1..4).prop_map(FieldPath);
    proptest::collection::vec(path, 0..8).prop_map(|paths| FieldSet::from_paths(&paths))
}

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let key = prop_oneof!["[fkvix.]:?.{0,6}", "\\PC{0,4}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::hash_map(key, inner, 0..4)
                .prop_map(|m| m.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #[test]
    fn encoding_round_trips(s in arbitrary_set()) {
        prop_assert_eq!(&set(s.to_fields_v1()), &s);
        let text: Value = serde_json::from_str(&s.to_fields_v1_text()).unwrap();
        prop_assert_eq!(text, s.to_fields_v1());
    }

    #[test]
    fn sets_obey_set_algebra(a in arbitrary_set(), b in arbitrary_set()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert!(a.difference(&b).intersection(&b).is_empty());
        prop_assert!(a.paths().iter().all(|p| a.has(&p.0)));
        prop_assert_eq!(a.paths().len(), a.len());
    }

    #[test]
    fn decoding_never_panics(value in arbitrary_json()) {
        let _ = FieldSet::from_fields_v1(&value);
    }
}
