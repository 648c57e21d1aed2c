use serde_json::json;

use super::*;
use crate::validation::cases::told;

fn check(list: Value) -> String {
    let list = list.as_array().expect("a list").clone();
    told(|e| {
        volumes(e, &Path::root("v"), &list, "pod", true);
    })
    .join("|")
}

#[test]
fn every_source_of_the_schema_is_known() {
    let schema = objects::schema::lookup("core.v1.VolumeSource")
        .expect("exists")
        .get();
    let known: HashSet<&str> = SOURCES.iter().map(|source| source.field).collect();
    let declared: HashSet<&str> = schema.json_fields().map(|field| field.name).collect();
    assert_eq!(known, declared);
}

#[test]
fn a_volume_has_a_name_and_one_source() {
    let cases = [
        (
            json!([{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/x", "type": ""}}]),
            "",
        ),
        (
            json!([{"name": "a"}]),
            "v[0]: Required value: must specify a volume type",
        ),
        (
            json!([{"name": "", "emptyDir": {}}]),
            "v[0].name: Required value",
        ),
        (
            json!([{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]),
            "v[1].name: Duplicate value: \"a\"",
        ),
        (
            json!([{"name": "a", "emptyDir": {}, "configMap": {"name": "c"}}]),
            "v[0].configMap: Forbidden: may not specify more than 1 volume type",
        ),
        (
            json!([{"name": "a", "emptyDir": {"sizeLimit": "-1"}}]),
            "v[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity",
        ),
        (
            json!([{"name": "a", "hostPath": {"path": "/a/../b"}}]),
            "v[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
        ),
        (
            json!([{"name": "a", "secret": {}}]),
            "v[0].secret.secretName: Required value",
        ),
        (
            json!([{"name": "a", "configMap": {"name": "c", "defaultMode": 1000}}]),
            "v[0].configMap.defaultMode: Invalid value: 1000: must be a number between 0 and 0777 (octal), both inclusive",
        ),
        (
            json!([{"name": "a", "configMap": {"name": "c", "items": [{"key": "k", "path": "/x"}]}}]),
            "v[0].configMap.items[0].path: Invalid value: \"/x\": must be a relative path",
        ),
        (
            json!([{"name": "a", "persistentVolumeClaim": {}}]),
            "v[0].persistentVolumeClaim.claimName: Required value",
        ),
        (
            json!([{"name": "a", "csi": {}}]),
            "v[0].csi.driver: Required value",
        ),
        (
            json!([{"name": "a", "image": {"pullPolicy": "Always"}}]),
            "v[0].image.reference: Required value",
        ),
        (
            json!([{"name": "a", "ephemeral": {}}]),
            "v[0].ephemeral.volumeClaimTemplate: Required value",
        ),
    ];
    for (list, expected) in cases {
        assert_eq!(check(list.clone()), expected, "{list}");
    }
}

#[test]
fn ephemeral_claims_are_the_pods_own() {
    let template = json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    });
    let ephemeral = json!({"name": "data", "ephemeral": {"volumeClaimTemplate": template}});
    assert_eq!(check(json!([ephemeral])), "");
    assert_eq!(
        check(
            json!([ephemeral, {"name": "b", "persistentVolumeClaim": {"claimName": "pod-data"}}])
        ),
        "v[1].persistentVolumeClaim.claimName: Invalid value: \"pod-data\": must not reference a PVC that gets created for an ephemeral volume"
    );
    let mut named = ephemeral.clone();
    named["ephemeral"]["volumeClaimTemplate"]["metadata"]["name"] = "x".into();
    assert_eq!(
        check(json!([named])),
        "v[0].ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set"
    );
}
