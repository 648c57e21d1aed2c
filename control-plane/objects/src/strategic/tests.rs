#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema;

fn ty(name: &str) -> TypeRef {
    schema::lookup(name).unwrap()
}

fn patched(name: &str, doc: &Value, patch: &Value) -> Result<Value, String> {
    strategic_patch(ty(name), doc, patch).map_err(|e| e.to_string())
}

fn names(names: &[&str]) -> Value {
    names.iter().map(|n| json!({"name": n})).collect()
}

#[test]
fn maps_and_lists_merge_by_their_rules() {
    let table = [
        (
            "null deletes",
            json!({"nodeName": "a", "hostname": "h"}),
            json!({"nodeName": null}),
            json!({"hostname": "h"}),
        ),
        (
            "null for nothing",
            json!({"hostname": "h"}),
            json!({"nodeName": null}),
            json!({"hostname": "h"}),
        ),
        (
            "maps merge",
            json!({"nodeSelector": {"a": "1"}}),
            json!({"nodeSelector": {"b": "2"}}),
            json!({"nodeSelector": {"a": "1", "b": "2"}}),
        ),
        (
            "atomic lists replace",
            json!({"tolerations": [{"key": "a"}]}),
            json!({"tolerations": [{"key": "b"}]}),
            json!({"tolerations": [{"key": "b"}]}),
        ),
        (
            "lists merge by key",
            json!({"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}),
            json!({"containers": [{"name": "a", "image": "2"}]}),
            json!({"containers": [{"name": "a", "image": "2"}, {"name": "b"}]}),
        ),
        (
            "new elements come first",
            json!({"containers": names(&["a", "b"])}),
            json!({"containers": names(&["c"])}),
            json!({"containers": names(&["c", "a", "b"])}),
        ),
        (
            "known elements keep their place",
            json!({"containers": names(&["a", "b", "c"])}),
            json!({"containers": names(&["b"])}),
            json!({"containers": names(&["a", "b", "c"])}),
        ),
        (
            "the patch's order wins",
            json!({"containers": names(&["a", "b", "c"])}),
            json!({"containers": names(&["c", "a"])}),
            json!({"containers": names(&["b", "c", "a"])}),
        ),
        (
            "delete directive",
            json!({"containers": names(&["a", "b"])}),
            json!({"containers": [{"name": "a", "$patch": "delete"}]}),
            json!({"containers": names(&["b"])}),
        ),
        (
            "replace directive in a list",
            json!({"containers": names(&["a", "b"])}),
            json!({"containers": [{"name": "c"}, {"$patch": "replace"}]}),
            json!({"containers": names(&["c"])}),
        ),
        (
            "replace directive in a map",
            json!({"nodeSelector": {"a": "1"}}),
            json!({"nodeSelector": {"$patch": "replace", "b": "2"}}),
            json!({"nodeSelector": {"b": "2"}}),
        ),
        (
            "delete directive in a map",
            json!({"nodeSelector": {"a": "1"}}),
            json!({"nodeSelector": {"$patch": "delete"}}),
            json!({"nodeSelector": {}}),
        ),
        (
            "retainKeys drops the rest",
            json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
            json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}),
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}),
        ),
        (
            "directives vanish from what is new",
            json!({}),
            json!({"affinity": {"podAffinity": {"$patch": "delete"}, "nodeAffinity": {"x": null}}}),
            json!({"affinity": {"nodeAffinity": {}}}),
        ),
        (
            "set element order",
            json!({"containers": names(&["a", "b", "c"])}),
            json!({"$setElementOrder/containers": names(&["c", "a"])}),
            json!({"containers": names(&["b", "c", "a"])}),
        ),
        (
            "set element order with a new element",
            json!({"containers": names(&["a", "b"])}),
            json!({"$setElementOrder/containers": names(&["n", "b"]), "containers": names(&["n"])}),
            json!({"containers": names(&["n", "a", "b"])}),
        ),
        (
            "set element order for a new list",
            json!({}),
            json!({"$setElementOrder/containers": names(&["b", "a"]), "containers": names(&["b", "a"])}),
            json!({"containers": names(&["b", "a"])}),
        ),
        (
            "set element order for nothing",
            json!({}),
            json!({"$setElementOrder/containers": names(&["a"])}),
            json!({}),
        ),
        (
            "deletion with an order",
            json!({"containers": names(&["a", "b", "c"])}),
            json!({"$setElementOrder/containers": names(&["c", "a"]), "containers": [{"name": "b", "$patch": "delete"}]}),
            json!({"containers": names(&["c", "a"])}),
        ),
        (
            "types that differ replace",
            json!({"hostname": "h"}),
            json!({"hostname": {"a": null}}),
            json!({"hostname": {}}),
        ),
    ];
    for (what, doc, patch, expected) in table {
        assert_eq!(
            patched("core.v1.PodSpec", &doc, &patch),
            Ok(expected),
            "{what}"
        );
    }
}

#[test]
fn primitive_lists_merge_as_sets() {
    let table = [
        (
            json!(["a", "b"]),
            json!({"finalizers": ["c"]}),
            json!(["c", "a", "b"]),
        ),
        (
            json!(["a", "b"]),
            json!({"finalizers": ["b"]}),
            json!(["a", "b"]),
        ),
        (
            json!(["a", "b", "c"]),
            json!({"$deleteFromPrimitiveList/finalizers": ["b", "x"]}),
            json!(["a", "c"]),
        ),
        (
            json!(["a", "b", "c"]),
            json!({"$setElementOrder/finalizers": ["c", "a"], "$deleteFromPrimitiveList/finalizers": ["b"]}),
            json!(["c", "a"]),
        ),
        (
            json!(["a"]),
            json!({"$setElementOrder/finalizers": ["b", "a"], "finalizers": ["b"]}),
            json!(["b", "a"]),
        ),
    ];
    for (live, patch, expected) in table {
        let merged = patched("meta.v1.ObjectMeta", &json!({"finalizers": live}), &patch);
        assert_eq!(merged, Ok(json!({"finalizers": expected})), "{patch}");
    }
}

#[test]
fn parts_outside_the_table_merge_plainly() {
    let doc = json!({"data": {"a": {"x": 1}, "l": [1]}});
    let patch = json!({"data": {"a": {"y": 2, "x": null}, "l": [2]}});
    let merged = patched("apps.v1.ControllerRevision", &doc, &patch);
    assert_eq!(merged, Ok(json!({"data": {"a": {"y": 2}, "l": [2]}})));
}

#[test]
fn a_field_may_ask_to_be_replaced() {
    let doc = json!({"selector": {"matchLabels": {"a": "1"}}});
    let patch = json!({"selector": {"matchLabels": {"b": "2"}}});
    assert_eq!(
        patched("policy.v1.PodDisruptionBudgetSpec", &doc, &patch),
        Ok(patch)
    );
}

#[test]
fn duplicate_merge_keys_patch_the_first() {
    let doc = json!({"addresses": [{"type": "InternalIP", "address": "1"}, {"type": "InternalIP", "address": "2"}]});
    let patch = json!({"addresses": [{"type": "InternalIP", "address": "3"}]});
    let merged = json!({"addresses": [{"type": "InternalIP", "address": "3"}, {"type": "InternalIP", "address": "2"}]});
    assert_eq!(patched("core.v1.NodeStatus", &doc, &patch), Ok(merged));
}

#[test]
fn refusals_carry_upstreams_texts() {
    let live = json!({"containers": names(&["a"]), "nodeSelector": {}});
    let table = [
        (
            json!({"containers": [{"image": "x"}]}),
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            json!({"containers": [{"$patch": "delete"}]}),
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        (
            json!({"containers": [{"$patch": "frob", "name": "a"}]}),
            "unknown patch type: frob in map: map[$patch:frob name:a]",
        ),
        (
            json!({"containers": [{"$patch": "merge", "name": "a"}]}),
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"nodeSelector": {"$patch": "merge"}}),
            "unknown patch type: merge in map: map[$patch:merge]",
        ),
        (
            json!({"containers": ["x"]}),
            "list element types are not identical: [[map[name:a]] [x]]",
        ),
        (
            json!({"$retainKeys": "x"}),
            "invalid patch format of retainKeys",
        ),
        (
            json!({"$retainKeys": ["a"], "b": 1}),
            "invalid patch format of retainKeys",
        ),
        (
            json!({"$setElementOrder": []}),
            "invalid patch format of setElementOrder list",
        ),
        (
            json!({"$deleteFromPrimitiveList": []}),
            "invalid patch format of primitive list",
        ),
        (
            json!({"$setElementOrder/containers": "x"}),
            "expected a []interface {}, but received a string",
        ),
        (
            json!({"$setElementOrder/bogus": []}),
            "unable to find api field in struct PodSpec for the json field \"bogus\"",
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}),
            "The order in patch list:\n[map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n",
        ),
    ];
    for (patch, text) in table {
        assert_eq!(
            patched("core.v1.PodSpec", &live, &patch),
            Err(text.to_owned()),
            "{patch}"
        );
    }
}

fn pod_spec() -> impl Strategy<Value = Value> {
    let container = ("[a-d]", "[a-z]{1,3}", proptest::option::of("[a-c]"))
        .prop_map(|(name, image, arg)| json!({"name": name, "image": image, "args": arg.into_iter().collect::<Vec<_>>()}));
    let containers = proptest::collection::vec(container, 1..4).prop_map(|mut list| {
        list.sort_by_key(|c| c["name"].to_string());
        list.dedup_by_key(|c| c["name"].clone());
        list
    });
    let selector = proptest::collection::btree_map("[a-c]", "[a-c]", 0..3);
    (containers, selector).prop_map(|(c, s)| json!({"containers": c, "nodeSelector": s}))
}

proptest! {
    #[test]
    fn an_empty_patch_changes_nothing(doc in pod_spec()) {
        prop_assert_eq!(patched("core.v1.PodSpec", &doc, &json!({})), Ok(doc));
    }

    #[test]
    fn patching_twice_is_patching_once(doc in pod_spec(), patch in pod_spec()) {
        let once = patched("core.v1.PodSpec", &doc, &patch).unwrap();
        prop_assert_eq!(patched("core.v1.PodSpec", &once, &patch).unwrap(), once);
    }

    #[test]
    fn no_patch_panics(doc in anything(), patch in anything()) {
        let _ = patched("core.v1.PodSpec", &doc, &patch);
        let _ = patched("meta.v1.ObjectMeta", &doc, &patch);
    }
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        "[a-c]|delete|replace|merge".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let field = "name|containers|finalizers|volumes|nodeSelector|affinity";
        let directive =
            "\\$(patch|retainKeys|setElementOrder(/containers)?|deleteFromPrimitiveList(/finalizers)?)";
        let key = prop_oneof![4 => field, 1 => directive];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::hash_map(key, inner, 0..4)
                .prop_map(|m| m.into_iter().collect::<Fields>().into()),
        ]
    })
}

#[test]
fn a_long_list_in_another_order_is_merged_in_time() {
    // Looking each element up in each list anew would take hours.
    const MANY: usize = 20_000;
    let entry = |n: usize, value: &str| json!({"name": format!("E{n}"), "value": value});
    let live: Value = (0..MANY).map(|n| entry(n, "old")).collect();
    let patch: Value = (0..MANY).rev().map(|n| entry(n, "new")).collect();
    let order: Value = (0..MANY)
        .rev()
        .map(|n| json!({"name": format!("E{n}")}))
        .collect();
    let merged = patched(
        "core.v1.Container",
        &json!({"name": "c", "env": live}),
        &json!({"name": "c", "$setElementOrder/env": order, "env": patch}),
    )
    .unwrap();
    assert_eq!(merged["env"], patch);
}
