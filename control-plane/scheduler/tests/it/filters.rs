//! Each plugin by a table: a cluster of three nodes, a pod, and where it goes or what is said.

use serde_json::{Value, json};

use super::world::{Mind, World, node, pod};

fn three() -> World {
    World {
        nodes: vec![
            node("a", &json!({ "zone": "1", "disk": "ssd" }), &json!({})),
            node(
                "b",
                &json!({ "zone": "1" }),
                &json!({ "spec": { "taints": [{ "key": "spot", "value": "true", "effect": "NoSchedule" }] } }),
            ),
            node(
                "c",
                &json!({ "zone": "2" }),
                &json!({ "spec": { "unschedulable": true } }),
            ),
        ],
        ..World::default()
    }
}

fn goes(spec: &Value) -> Result<String, String> {
    Mind::of(&three()).place(&pod(
        "p",
        "1",
        &json!({ "spec": spec, "metadata": { "labels": { "app": "web" } } }),
    ))
}

#[test]
fn a_pod_goes_where_the_filters_let_it() {
    let spot = json!({ "key": "spot", "operator": "Exists" });
    let cordon = json!({ "key": "node.kubernetes.io/unschedulable", "operator": "Exists" });
    let anywhere = json!([{ "operator": "Exists" }]);
    let fields = |name: &str| {
        json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
        { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [name] }] } ] } } })
    };
    for (spec, expected) in [
        (json!({}), Ok("a")),
        (
            json!({ "nodeSelector": { "disk": "ssd" }, "tolerations": anywhere }),
            Ok("a"),
        ),
        (
            json!({ "affinity": fields("b"), "tolerations": [spot] }),
            Ok("b"),
        ),
        (
            json!({ "affinity": fields("c"), "tolerations": [cordon] }),
            Ok("c"),
        ),
        (
            json!({ "affinity": fields("b") }),
            Err(
                "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't satisfy plugin(s) [NodeAffinity].",
            ),
        ),
        (
            json!({ "nodeSelector": { "zone": "3" } }),
            Err(
                "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable.",
            ),
        ),
        (
            json!({ "containers": [{ "name": "a", "resources": { "requests": { "cpu": "5", "memory": "9Gi", "example.com/gpu": "1" } } }], "tolerations": anywhere }),
            Err(
                "0/3 nodes are available: 3 Insufficient cpu, 3 Insufficient example.com/gpu, 3 Insufficient memory.",
            ),
        ),
        (
            json!({ "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {} }], "tolerations": anywhere }),
            Err(
                "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints (missing required label).",
            ),
        ),
    ] {
        assert_eq!(
            goes(&spec),
            expected.map(str::to_owned).map_err(str::to_owned),
            "{spec}"
        );
    }
}

#[test]
fn host_ports_are_taken_once_per_node() {
    let spec = json!({ "spec": { "containers": [{ "name": "a", "ports": [{ "containerPort": 1, "hostPort": 80 }] }] } });
    let mut mind = Mind::of(&three());
    let first = pod("first", "0", &spec);
    assert_eq!(mind.place(&first), Ok("a".into()));
    mind.put(&first, "a");
    let said = mind.place(&pod("second", "0", &spec)).unwrap_err();
    assert!(
        said.contains("1 node(s) didn't have free ports for the requested pod ports"),
        "{said}"
    );
    mind.take(&first);
    assert_eq!(mind.place(&pod("second", "0", &spec)), Ok("a".into()));
}

#[test]
fn equal_pods_are_spread_over_empty_nodes() {
    let nodes = (0..50)
        .map(|n| node(&format!("n{n}"), &json!({}), &json!({})))
        .collect();
    let mut mind = Mind::of(&World {
        nodes,
        ..World::default()
    });
    let mut counts = std::collections::BTreeMap::new();
    for number in 0..200 {
        let pod = pod(&format!("p{number}"), "100m", &json!({}));
        let node = mind.place(&pod).unwrap();
        mind.put(&pod, &node);
        *counts.entry(node).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 50);
    assert!(counts.values().all(|count| *count == 4), "{counts:?}");
}

#[test]
fn the_first_of_a_group_that_gathers_may_go_anywhere_and_draws_the_others() {
    let near = json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "affinity": { "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "zone", "labelSelector": { "matchLabels": { "app": "web" } } }] } },
        "tolerations": [{ "operator": "Exists" }] } });
    let mut mind = Mind::of(&three());
    let first = pod("first", "1", &near);
    let node = mind.place(&first).unwrap();
    mind.put(&first, "c");
    assert!(["a", "b", "c"].contains(&node.as_str()));
    assert_eq!(mind.place(&pod("second", "1", &near)), Ok("c".into()));
}

#[test]
fn a_node_with_the_image_is_preferred() {
    let image =
        json!({ "status": { "images": [{ "names": ["web:latest"], "sizeBytes": 900_000_000 }] } });
    let nodes = vec![
        node("with", &json!({}), &image),
        node("with-too", &json!({}), &image),
        node("without", &json!({}), &json!({})),
    ];
    let mut mind = Mind::of(&World {
        nodes,
        ..World::default()
    });
    for number in 0..10 {
        let node = mind
            .place(&pod(&format!("p{number}"), "1m", &json!({})))
            .unwrap();
        assert_ne!(node, "without");
    }
}
