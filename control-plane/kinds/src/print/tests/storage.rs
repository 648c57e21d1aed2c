//! Volumes, classes and drivers.

use serde_json::json;

use super::check;

#[test]
fn volumes_have_upstreams_columns() {
    check(
        "",
        "PersistentVolume",
        json!({"spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadOnlyMany", "ReadWriteOnce", "ReadWriteOncePod"],
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "ns", "name": "data"},
            "storageClassName": "fast", "volumeMode": "Filesystem", "volumeAttributesClassName": "gold"},
            "status": {"phase": "Bound", "reason": "why"}}),
        json!([
            "x",
            "5Gi",
            "RWO,ROX,RWOP",
            "Retain",
            "Bound",
            "ns/data",
            "fast",
            "gold",
            "why",
            "5m",
            "Filesystem"
        ]),
    );
    check(
        "",
        "PersistentVolume",
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}}),
        json!([
            "x",
            "0",
            "",
            "",
            "Terminating",
            "",
            "old",
            "<unset>",
            "",
            "5m",
            "<unset>"
        ]),
    );
    check(
        "",
        "PersistentVolumeClaim",
        json!({"spec": {"volumeName": "pv", "storageClassName": "fast", "volumeMode": "Block"},
            "status": {"phase": "Bound", "accessModes": ["ReadWriteMany"], "capacity": {"storage": "5Gi"}}}),
        json!([
            "x", "Bound", "pv", "5Gi", "RWX", "fast", "<unset>", "5m", "Block"
        ]),
    );
    check(
        "",
        "PersistentVolumeClaim",
        json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Pending"}}),
        json!(["x", "Pending", "", "", "", "", "<unset>", "5m", "<unset>"]),
    );
}

#[test]
fn storage_objects_have_upstreams_columns() {
    const GROUP: &str = "storage.k8s.io";
    check(
        GROUP,
        "StorageClass",
        json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "disk",
            "reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true}),
        json!([
            "x (default)",
            "disk",
            "Retain",
            "WaitForFirstConsumer",
            true,
            "5m"
        ]),
    );
    check(
        GROUP,
        "StorageClass",
        json!({"provisioner": "disk"}),
        json!(["x", "disk", "Delete", "Immediate", false, "5m"]),
    );
    check(
        GROUP,
        "VolumeAttributesClass",
        json!({"driverName": "disk"}),
        json!(["x", "disk", "5m"]),
    );
    check(
        GROUP,
        "VolumeAttachment",
        json!({"spec": {"attacher": "disk", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}, "status": {"attached": true}}),
        json!(["x", "disk", "pv", "n", true, "5m"]),
    );
    check(
        GROUP,
        "CSINode",
        json!({"spec": {"drivers": [{}, {}]}}),
        json!(["x", 2, "5m"]),
    );
    check(
        GROUP,
        "CSIDriver",
        json!({}),
        json!(["x", true, false, false, "<unset>", false, "<none>", "5m"]),
    );
    check(
        GROUP,
        "CSIDriver",
        json!({"spec": {"attachRequired": false, "podInfoOnMount": true, "storageCapacity": true, "requiresRepublish": true,
            "tokenRequests": [{"audience": "a"}, {"audience": "b"}], "volumeLifecycleModes": ["Persistent", "Ephemeral"]}}),
        json!([
            "x",
            false,
            true,
            true,
            "a,b",
            true,
            "Persistent,Ephemeral",
            "5m"
        ]),
    );
}
