#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;
use crate::schema;

fn shape(name: &str) -> Shape<'static> {
    schema::lookup(name).unwrap().into()
}

fn lines(set: &FieldSet) -> Vec<String> {
    set.paths().iter().map(ToString::to_string).collect()
}

fn names(names: &[&str]) -> Value {
    names.iter().map(|n| json!({"name": n})).collect()
}

#[test]
fn keyed_lists_merge_in_the_order_of_the_configuration() {
    let table: [(&[&str], &[&str], &[&str]); 8] = [
        (&["a", "b"], &["c"], &["a", "b", "c"]),
        (&["a", "b", "c"], &["b"], &["a", "b", "c"]),
        (&["a", "b", "c"], &["c", "a"], &["b", "c", "a"]),
        (&["a", "b"], &["n", "b"], &["a", "n", "b"]),
        (&["a", "b"], &["a", "n", "b"], &["a", "n", "b"]),
        (&[], &["b", "a"], &["b", "a"]),
        (&["a"], &[], &["a"]),
        (&["a", "x", "b"], &["b", "y", "a"], &["x", "b", "y", "a"]),
    ];
    for (live, config, expected) in table {
        let (live, config) = (
            json!({"containers": names(live)}),
            json!({"containers": names(config)}),
        );
        let merged = merge(shape("core.v1.PodSpec"), &live, &config);
        assert_eq!(merged["containers"], names(expected), "{live} + {config}");
    }
}

#[test]
fn each_kind_of_value_merges_its_way() {
    let table = [
        (
            "structs merge",
            "core.v1.PodSpec",
            json!({"nodeName": "a"}),
            json!({"hostname": "h"}),
            json!({"nodeName": "a", "hostname": "h"}),
        ),
        (
            "leaves are replaced",
            "core.v1.PodSpec",
            json!({"nodeName": "a"}),
            json!({"nodeName": "b"}),
            json!({"nodeName": "b"}),
        ),
        (
            "nulls keep maps",
            "core.v1.Pod",
            json!({"spec": {"nodeName": "a"}}),
            json!({"spec": null}),
            json!({"spec": {"nodeName": "a"}}),
        ),
        (
            "atomic maps are replaced",
            "core.v1.PodSpec",
            json!({"nodeSelector": {"a": "1"}}),
            json!({"nodeSelector": {"b": "2"}}),
            json!({"nodeSelector": {"b": "2"}}),
        ),
        (
            "granular maps merge",
            "meta.v1.ObjectMeta",
            json!({"labels": {"a": "1"}}),
            json!({"labels": {"b": "2"}}),
            json!({"labels": {"a": "1", "b": "2"}}),
        ),
        (
            "atomic lists are replaced",
            "core.v1.PodSpec",
            json!({"tolerations": [{"key": "a"}]}),
            json!({"tolerations": [{"key": "b"}]}),
            json!({"tolerations": [{"key": "b"}]}),
        ),
        (
            "sets are united",
            "meta.v1.ObjectMeta",
            json!({"finalizers": ["a", "b"]}),
            json!({"finalizers": ["c", "a"]}),
            json!({"finalizers": ["c", "a", "b"]}),
        ),
        (
            "a field may undo its type's atomicity",
            "core.v1.PersistentVolumeSpec",
            json!({"claimRef": {"name": "a"}}),
            json!({"claimRef": {"uid": "u"}}),
            json!({"claimRef": {"name": "a", "uid": "u"}}),
        ),
        (
            "raw values are one value",
            "apps.v1.ControllerRevision",
            json!({"data": {"a": 1}}),
            json!({"data": {"b": 2}}),
            json!({"data": {"b": 2}}),
        ),
    ];
    for (what, ty, live, config, expected) in table {
        assert_eq!(merge(shape(ty), &live, &config), expected, "{what}");
    }
}

#[test]
fn keys_default_as_published() {
    let live = json!({"ports": [{"port": 80, "protocol": "TCP", "name": "x"}, {"port": 80, "protocol": "UDP"}]});
    let config = json!({"ports": [{"port": 80, "name": "y"}]});
    let merged = merge(shape("core.v1.ServiceSpec"), &live, &config);
    assert_eq!(
        merged["ports"][0],
        json!({"port": 80, "protocol": "TCP", "name": "y"})
    );
    assert_eq!(
        lines(&field_set(shape("core.v1.ServiceSpec"), &config)),
        [
            ".ports[port=80,protocol=\"TCP\"]",
            ".ports[port=80,protocol=\"TCP\"].name",
            ".ports[port=80,protocol=\"TCP\"].port"
        ]
    );
}

#[test]
fn field_sets_name_leaves_elements_and_empty_maps() {
    let value = json!({
        "metadata": {"labels": {"a": "1"}, "annotations": {}, "finalizers": ["f"]},
        "spec": {"containers": [{"name": "c"}], "nodeSelector": {"x": "y"}, "volumes": [], "securityContext": {}},
    });
    assert_eq!(
        lines(&field_set(shape("core.v1.Pod"), &value)),
        [
            ".metadata.annotations",
            ".metadata.finalizers[=\"f\"]",
            ".metadata.labels.a",
            ".spec.nodeSelector",
            ".spec.securityContext",
            ".spec.containers[name=\"c\"]",
            ".spec.containers[name=\"c\"].name"
        ]
    );
}

#[test]
fn duplicate_elements_are_owned_by_key_only() {
    let value =
        json!({"addresses": [{"type": "IP", "address": "1"}, {"type": "IP", "address": "2"}]});
    assert_eq!(
        lines(&field_set(shape("core.v1.NodeStatus"), &value)),
        [".addresses[type=\"IP\"]"]
    );
}

#[test]
fn comparison_tells_added_modified_and_removed() {
    let old = json!({"spec": {"replicas": 1, "paused": true, "selector": {"a": 1}}});
    let new = json!({"spec": {"replicas": 2, "minReadySeconds": 5, "selector": {"a": 1}}});
    let changes = compare(shape("apps.v1.Deployment"), &old, &new);
    assert_eq!(lines(&changes.modified), [".spec.replicas"]);
    assert_eq!(lines(&changes.added), [".spec.minReadySeconds"]);
    assert_eq!(lines(&changes.removed), [".spec.paused"]);
}

#[test]
fn comparison_of_lists_goes_by_key() {
    let old = json!({"containers": [{"name": "a", "image": "1"}, {"name": "b"}]});
    let new = json!({"containers": [{"name": "c"}, {"name": "a", "image": "2"}]});
    let changes = compare(shape("core.v1.PodSpec"), &old, &new);
    assert_eq!(lines(&changes.modified), [".containers[name=\"a\"].image"]);
    assert_eq!(
        lines(&changes.added),
        [".containers[name=\"c\"]", ".containers[name=\"c\"].name"]
    );
    assert_eq!(
        lines(&changes.removed),
        [".containers[name=\"b\"]", ".containers[name=\"b\"].name"]
    );
}

#[test]
fn comparison_of_duplicates_marks_the_key() {
    let ip = |a: &str| json!({"type": "IP", "address": a});
    let status = |items: Vec<Value>| json!({"addresses": items});
    let run = |old, new| compare(shape("core.v1.NodeStatus"), &status(old), &status(new));
    let key = "[type=\"IP\"]";
    let changed = run(vec![ip("1"), ip("2")], vec![ip("1"), ip("3")]);
    assert_eq!(lines(&changed.modified), [format!(".addresses{key}")]);
    let fewer = run(vec![ip("1"), ip("2")], vec![ip("1")]);
    assert_eq!(lines(&fewer.removed), [format!(".addresses{key}")]);
    assert_eq!(lines(&fewer.added).len(), 3);
    let more = run(vec![ip("1")], vec![ip("1"), ip("2")]);
    assert_eq!(lines(&more.added), [format!(".addresses{key}")]);
    assert_eq!(lines(&more.removed).len(), 3);
}

#[test]
fn numbers_compare_by_value() {
    let changes = compare(
        Shape::DEDUCED,
        &json!({"a": 1, "b": 1}),
        &json!({"a": 1.0, "b": 2}),
    );
    assert_eq!(lines(&changes.modified), [".b"]);
}

#[test]
fn items_are_removed_and_extracted_by_path() {
    let pod = json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}], "nodeName": "n"}});
    let set = FieldSet::from_fields_v1(&json!({"f:spec": {"f:containers": {
        "k:{\"name\":\"a\"}": {"f:image": {}}, "k:{\"name\":\"b\"}": {}}}}))
    .unwrap();
    let rest = remove_items(shape("core.v1.Pod"), &pod, &set);
    assert_eq!(
        rest,
        json!({"spec": {"containers": [{"name": "a"}], "nodeName": "n"}})
    );
    let part = extract_items(shape("core.v1.Pod"), &pod, &set);
    assert_eq!(
        part,
        json!({"spec": {"containers": [{"image": "1"}, {"name": "b"}]}})
    );
}

#[test]
fn named_fields_are_struct_fields_only() {
    let set = FieldSet::from_fields_v1(&json!({"f:metadata": {"f:labels": {"f:a": {}}}})).unwrap();
    let named = with_named_fields(shape("core.v1.Pod"), &set);
    assert_eq!(
        lines(&named),
        [".metadata", ".metadata.labels", ".metadata.labels.a"]
    );
    let map = json!({"f:attributes": {"f:x": {"f:int": {}}}});
    let named = with_named_fields(
        shape("resource.v1.Device"),
        &FieldSet::from_fields_v1(&map).unwrap(),
    );
    assert_eq!(lines(&named), [".attributes", ".attributes.x.int"]);
}

#[test]
fn sets_follow_types_that_became_atomic() {
    let old = json!({"f:spec": {"f:selector": {"f:matchLabels": {"f:a": {}}}, "f:replicas": {}}});
    let set = reconciled(
        shape("apps.v1.Deployment"),
        &FieldSet::from_fields_v1(&old).unwrap(),
    );
    assert_eq!(lines(&set), [".spec.replicas", ".spec.selector"]);
}

#[test]
fn mismatches_carry_upstreams_texts() {
    let table = [
        (
            "apps.v1.Deployment",
            json!({"spec": {"bogus": 1}}),
            ".spec.bogus: field not declared in schema",
        ),
        (
            "apps.v1.Deployment",
            json!({"spec": {"replicas": "3"}}),
            ".spec.replicas: expected numeric (int or float), got string",
        ),
        (
            "core.v1.ConfigMap",
            json!({"data": {"a": 1}}),
            ".data.a: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (
            "core.v1.ConfigMap",
            json!({"immutable": "yes"}),
            ".immutable: expected boolean, got &{yes}",
        ),
        (
            "core.v1.ConfigMap",
            json!({"data": []}),
            ".data: expected map, got &{[]}",
        ),
        (
            "core.v1.PodSpec",
            json!({"containers": {}}),
            ".containers: expected list, got &{map[]}",
        ),
        (
            "core.v1.PodSpec",
            json!({"containers": [1]}),
            ".containers: element 0: associative list with keys may not have non-map elements",
        ),
        (
            "core.v1.PodSpec",
            json!({"containers": [{"name": "x"}, {"name": "x"}]}),
            ".containers: duplicate entries for key [name=\"x\"]",
        ),
        (
            "core.v1.PodSpec",
            json!({"tolerations": [{"key": 1}]}),
            ".tolerations[0].key: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (
            "meta.v1.ObjectMeta",
            json!({"finalizers": ["a", "a"], "x": 1}),
            "errors:\n  .finalizers: duplicate entries for key [=\"a\"]\n  .x: field not declared in schema",
        ),
    ];
    for (ty, value, text) in table {
        let errors = validate(shape(ty), &value, Duplicates::Refused).unwrap_err();
        assert_eq!(errors.to_string(), text);
    }
    let twice = json!({"containers": [{"name": "x"}, {"name": "x"}]});
    assert!(validate(shape("core.v1.PodSpec"), &twice, Duplicates::Allowed).is_ok());
    let many_forms = json!({"cpu": 1, "memory": "1Gi"});
    assert!(
        validate(
            shape("core.v1.Container"),
            &json!({"resources": {"limits": many_forms}}),
            Duplicates::Refused
        )
        .is_ok()
    );
}

#[test]
fn custom_resources_follow_their_schema() {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "rules": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id", "zone"],
                "items": {"type": "object", "properties": {"id": {"type": "integer"}, "zone": {"type": "string", "default": "a"}, "on": {"type": "boolean"}}}},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "ref": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"name": {"type": "string"}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "port": {"x-kubernetes-int-or-string": true},
        }},
    }});
    let shape = Shape::of_custom_resource(&schema, false);
    let object = json!({
        "apiVersion": "x/v1", "kind": "X", "metadata": {"name": "n", "labels": {"l": "1"}},
        "spec": {"rules": [{"id": 1, "on": true}], "tags": ["t"], "ref": {"name": "r"}, "free": {"a": {"b": [1]}}, "port": "http"},
    });
    assert_eq!(validate(shape, &object, Duplicates::Refused), Ok(()));
    let owned = lines(&field_set(shape, &json!({"spec": object["spec"]})));
    assert_eq!(
        owned,
        [
            ".spec.port",
            ".spec.ref",
            ".spec.free.a",
            ".spec.free.a.b",
            ".spec.rules[id=1,zone=\"a\"]",
            ".spec.rules[id=1,zone=\"a\"].id",
            ".spec.rules[id=1,zone=\"a\"].on",
            ".spec.tags[=\"t\"]",
        ]
    );
    let unknown = json!({"spec": {"nope": 1}});
    assert!(validate(shape, &unknown, Duplicates::Refused).is_err());
    assert!(
        validate(
            Shape::of_custom_resource(&schema, true),
            &unknown,
            Duplicates::Refused
        )
        .is_ok()
    );
}
