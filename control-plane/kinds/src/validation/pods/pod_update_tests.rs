use serde_json::json;

use super::*;
use crate::validation::cases::told;
use crate::validation::pods::pod_spec::tests::complete;

fn pod(extra: Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": "default"}, "spec": complete(extra)})
}

fn change(old: Value, new: Value) -> String {
    told(|e| update(e, &pod(new), &pod(old))).join("|")
}

#[test]
fn a_few_fields_of_a_pod_may_change() {
    let image = |image: &str| json!([{"name": "app", "image": image, "resources": {}, "imagePullPolicy": "Always"}]);
    let toleration = json!([{"key": "k", "operator": "Exists"}]);
    for (old, new) in [
        (json!({}), json!({})),
        (
            json!({"containers": image("a")}),
            json!({"containers": image("b")}),
        ),
        (json!({}), json!({"activeDeadlineSeconds": 5})),
        (
            json!({"activeDeadlineSeconds": 5}),
            json!({"activeDeadlineSeconds": 4}),
        ),
        (json!({}), json!({ "tolerations": toleration })),
        (
            json!({"terminationGracePeriodSeconds": -5}),
            json!({"terminationGracePeriodSeconds": 1}),
        ),
    ] {
        assert_eq!(change(old.clone(), new.clone()), "", "{old} -> {new}");
    }
}

#[test]
fn other_changes_of_a_pod_are_refused() {
    let host = change(json!({}), json!({"hostname": "a"}));
    assert!(
        host.starts_with(&format!("spec: Forbidden: {MAY_CHANGE}\n@@ ")),
        "{host}"
    );
    assert!(host.contains("\n+ \"hostname\": \"a\",\n"), "{host}");
    assert_eq!(
        change(
            json!({"activeDeadlineSeconds": 5}),
            json!({"activeDeadlineSeconds": 6})
        ),
        "spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous value"
    );
    assert_eq!(
        change(json!({"activeDeadlineSeconds": 5}), json!({})),
        "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"
    );
    let two = json!([{"name": "a", "image": "x", "resources": {}}, {"name": "b", "image": "x", "resources": {}}]);
    assert_eq!(
        change(json!({}), json!({ "containers": two })),
        "spec.containers: Forbidden: pod updates may not add or remove containers"
    );
    let cpu = json!([{"name": "app", "image": "nginx", "resources": {"limits": {"cpu": "1"}}}]);
    assert!(change(json!({}), json!({ "containers": cpu })).contains(MAY_CHANGE));
}

#[test]
fn a_gated_pod_may_change_more() {
    let gates = json!([{"name": "a"}, {"name": "b"}]);
    let gated = |extra: Value| {
        let mut spec = json!({ "schedulingGates": gates, "nodeSelector": {"x": "1"} });
        for (name, value) in extra.as_object().expect("an object") {
            spec[name] = value.clone();
        }
        spec
    };
    let old = gated(json!({}));
    assert_eq!(
        change(
            old.clone(),
            gated(json!({"schedulingGates": [{"name": "a"}]}))
        ),
        ""
    );
    assert_eq!(
        change(
            old.clone(),
            gated(json!({"nodeSelector": {"x": "1", "y": "2"}}))
        ),
        ""
    );
    let nodes = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
    }}});
    assert_eq!(change(old.clone(), gated(json!({ "affinity": nodes }))), "");
    assert_eq!(
        change(old.clone(), gated(json!({"nodeSelector": {"y": "2"}}))),
        format!("spec.nodeSelector: Invalid value: {{\"y\":\"2\"}}: {ONLY_ADDITIONS}")
    );
    assert_eq!(
        change(old, gated(json!({"schedulingGates": [{"name": "c"}]}))),
        "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'c'"
    );
    let free = change(
        json!({"nodeSelector": {"x": "1"}}),
        json!({"nodeSelector": {"x": "1", "y": "2"}}),
    );
    assert!(free.contains(MAY_CHANGE));
}

#[test]
fn ephemeral_containers_only_come() {
    let debug = |name: &str, image: &str| json!({"name": name, "image": image, "resources": {}});
    let change = |old: Value, new: Value| {
        let (old, new) = (
            pod(json!({ "ephemeralContainers": old })),
            pod(json!({ "ephemeralContainers": new })),
        );
        told(|e| ephemeral_containers(e, &new, &old)).join("|")
    };
    let (a, b) = (debug("a", "x"), debug("b", "x"));
    assert_eq!(change(json!([a]), json!([b, a])), "");
    assert_eq!(
        change(json!([a]), json!([b])),
        "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"a\" may not be removed\n"
    );
    assert!(change(json!([a]), json!([debug("a", "y")]))
        .starts_with("spec.ephemeralContainers: Forbidden: existing ephemeral containers \"a\" may not be changed\n@@"));
}
