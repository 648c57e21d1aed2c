#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::schema::kind;

fn normal(group: &str, version: &str, name: &str, value: Value) -> Normalized {
    normalize(kind(group, version, name).unwrap(), value).unwrap()
}

fn refused(group: &str, version: &str, name: &str, value: Value) -> String {
    normalize(kind(group, version, name).unwrap(), value)
        .unwrap_err()
        .to_string()
}

#[test]
fn structs_are_printed_even_when_empty_and_zeros_are_not() {
    let pod = normal(
        "",
        "v1",
        "Pod",
        json!({
            "kind": "Pod",
            "metadata": {"name": "a", "labels": {}, "creationTimestamp": null, "generation": 0},
            "spec": {"containers": null, "hostNetwork": false, "nodeName": ""},
        }),
    );
    assert_eq!(
        pod.value,
        json!({
            "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": null}, "status": {},
        })
    );
    assert!(pod.unknown.is_empty());
}

#[test]
fn pointers_keep_their_zeros() {
    let deployment = normal(
        "apps",
        "v1",
        "Deployment",
        json!({"spec": {"replicas": 0, "paused": false}}),
    );
    assert_eq!(deployment.value["spec"]["replicas"], json!(0));
    assert_eq!(deployment.value["spec"].get("paused"), None);
    assert_eq!(deployment.value["spec"]["selector"], Value::Null);
    assert_eq!(deployment.value["spec"]["template"]["metadata"], json!({}));
}

#[test]
fn zero_times_are_null_except_where_go_omits_them() {
    let pod = normal(
        "",
        "v1",
        "Pod",
        json!({
            "metadata": {"creationTimestamp": "0001-01-01T00:00:00Z"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "startTime": "2024-01-01T01:00:00+01:00"},
        }),
    );
    assert_eq!(pod.value["metadata"], json!({}));
    assert_eq!(
        pod.value["status"],
        json!({
            "conditions": [{
                "type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null,
            }],
            "startTime": "2024-01-01T00:00:00Z",
        })
    );
}

#[test]
fn unknown_fields_are_dropped_and_reported_with_their_path() {
    let deployment = normal(
        "apps",
        "v1",
        "Deployment",
        json!({
            "spec": {"foo": 1, "template": {"spec": {"containers": [{"name": "a", "Image": "b"}]}}},
            "bar": {},
        }),
    );
    assert_eq!(
        deployment.unknown,
        [
            r#"unknown field "bar""#,
            r#"unknown field "spec.foo""#,
            r#"unknown field "spec.template.spec.containers[0].Image""#,
        ]
    );
    assert_eq!(
        deployment.value["spec"]["template"]["spec"]["containers"],
        json!([{"name": "a", "resources": {}}])
    );
}

#[test]
fn mismatches_read_like_gos() {
    let table = [
        (
            json!({"spec": {"replicas": "3"}}),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            json!({"spec": {"replicas": 1.5}}),
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            json!({"spec": {"replicas": 3_000_000_000_u32}}),
            "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            json!({"metadata": {"labels": {"a": 1}}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            json!({"spec": {"template": {"spec": {"containers": {}}}}}),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            json!({"spec": []}),
            "json: cannot unmarshal array into Go struct field Deployment.spec of type v1.DeploymentSpec",
        ),
        (
            json!([]),
            "json: cannot unmarshal array into Go value of type v1.Deployment",
        ),
    ];
    for (value, want) in table {
        assert_eq!(refused("apps", "v1", "Deployment", value), want);
    }
}

#[test]
fn leaves_are_brought_into_their_canonical_text() {
    let node = normal(
        "",
        "v1",
        "Node",
        json!({"status": {"capacity": {"cpu": 2, "memory": "1024Ki", "x": 0.5}}}),
    );
    assert_eq!(
        node.value["status"]["capacity"],
        json!({"cpu": "2", "memory": "1Mi", "x": "500m"})
    );
    let secret = normal(
        "",
        "v1",
        "Secret",
        json!({"data": {"a": "YQ==", "b": "Y\nR==", "c": null, "d": [104, 105]}}),
    );
    assert_eq!(
        secret.value["data"],
        json!({"a": "YQ==", "b": "YQ==", "c": null, "d": "aGk="})
    );
    let service = normal(
        "",
        "v1",
        "Service",
        json!({"spec": {"ports": [{"port": 1, "targetPort": "http"}, {"port": 2}]}}),
    );
    assert_eq!(
        service.value["spec"]["ports"],
        json!([
            {"port": 1, "targetPort": "http"}, {"port": 2, "targetPort": 0},
        ])
    );
    let lease = normal(
        "coordination.k8s.io",
        "v1",
        "Lease",
        json!({"spec": {"renewTime": "2024-01-01T00:00:00.120000+00:00"}}),
    );
    assert_eq!(
        lease.value["spec"]["renewTime"],
        json!("2024-01-01T00:00:00.120000Z")
    );
}

#[test]
fn bad_leaves_are_refused_in_upstreams_words() {
    let table = [
        (
            "Node",
            json!({"status": {"capacity": {"cpu": "2 cores"}}}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "Secret",
            json!({"data": {"a": "!"}}),
            "illegal base64 data at input byte 0",
        ),
        (
            "Pod",
            json!({"status": {"startTime": 1}}),
            "json: cannot unmarshal number into Go struct field PodStatus.status.startTime of type string",
        ),
        (
            "Service",
            json!({"spec": {"ports": [{"targetPort": true}]}}),
            "json: cannot unmarshal bool into Go struct field ServicePort.spec.ports.targetPort of type int32",
        ),
    ];
    for (name, value, want) in table {
        assert_eq!(refused("", "v1", name, value), want);
    }
}

#[test]
fn lists_always_have_items() {
    let list = normal("", "v1", "PodList", json!({"items": null}));
    assert_eq!(list.value, json!({"metadata": {}, "items": []}));
}

#[test]
fn schemas_keep_their_unions_and_report_nothing_inside_them() {
    let schema = json!({
        "properties": {"a": {"items": {"type": "string", "odd": 1}, "maximum": 5.0}},
        "additionalProperties": false,
        "dependencies": {"a": ["b"]},
        "enum": [null, 1, "x"],
    });
    let crd = normal(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        json!({
            "spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]},
        }),
    );
    let printed = &crd.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert_eq!(
        printed["properties"]["a"],
        json!({"items": {"type": "string"}, "maximum": 5})
    );
    assert_eq!(printed["additionalProperties"], json!(false));
    assert_eq!(printed["enum"], json!([null, 1, "x"]));
    assert!(crd.unknown.is_empty(), "{:?}", crd.unknown);
}
