#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::{Thing, ThingKind, of_persistent_volume, of_pod};

fn names(things: &[Thing], kind: ThingKind) -> Vec<String> {
    let mut names: Vec<String> = things
        .iter()
        .filter(|t| t.kind == kind)
        .map(|t| format!("{}/{}", t.namespace, t.name))
        .collect();
    names.sort();
    names
}

fn every_reference() -> Value {
    let container = |n: &str| {
        json!({
            "env": [
                {"name": "plain", "value": "x"},
                {"valueFrom": {"secretKeyRef": {"name": format!("env-secret-{n}")}}},
                {"valueFrom": {"configMapKeyRef": {"name": format!("env-map-{n}")}}},
            ],
            "envFrom": [
                {"secretRef": {"name": format!("from-secret-{n}")}},
                {"configMapRef": {"name": format!("from-map-{n}")}},
            ],
        })
    };
    json!({
        "metadata": {"name": "p", "namespace": "ns"},
        "spec": {
            "serviceAccountName": "sa",
            "imagePullSecrets": [{"name": "pull"}, {"name": ""}],
            "containers": [container("c")],
            "initContainers": [container("i")],
            "ephemeralContainers": [container("e")],
            "volumes": [
                {"azureFile": {"secretName": "v-azure"}},
                {"cephfs": {"secretRef": {"name": "v-ceph"}}},
                {"cinder": {"secretRef": {"name": "v-cinder"}}},
                {"csi": {"nodePublishSecretRef": {"name": "v-csi"}}},
                {"flexVolume": {"secretRef": {"name": "v-flex"}}},
                {"iscsi": {"secretRef": {"name": "v-iscsi"}}},
                {"rbd": {"secretRef": {"name": "v-rbd"}}},
                {"scaleIO": {"secretRef": {"name": "v-scaleio"}}},
                {"secret": {"secretName": "v-secret"}},
                {"storageos": {"secretRef": {"name": "v-storageos"}}},
                {"configMap": {"name": "v-map"}},
                {"projected": {"sources": [{"secret": {"name": "p-secret"}}, {"configMap": {"name": "p-map"}}, {"downwardAPI": {}}]}},
                {"persistentVolumeClaim": {"claimName": "claim"}},
                {"name": "scratch", "ephemeral": {}},
            ],
            "resourceClaims": [
                {"name": "direct", "resourceClaimName": "given"},
                {"name": "made", "resourceClaimTemplateName": "t"},
                {"name": "not-needed", "resourceClaimTemplateName": "t"},
                {"name": "not-yet", "resourceClaimTemplateName": "t"},
            ],
        },
        "status": {
            "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}, {"name": "not-needed"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "extended"},
        },
    })
}

#[test]
fn a_pod_refers_to_all_the_kubelet_has_to_read() {
    let things = of_pod("ns", "p", &every_reference());
    let expected: &[(ThingKind, &[&str])] = &[
        (ThingKind::Pod, &["ns/p"]),
        (ThingKind::ServiceAccount, &["ns/sa"]),
        (
            ThingKind::Secret,
            &[
                "ns/env-secret-c",
                "ns/env-secret-e",
                "ns/env-secret-i",
                "ns/from-secret-c",
                "ns/from-secret-e",
                "ns/from-secret-i",
                "ns/p-secret",
                "ns/pull",
                "ns/v-azure",
                "ns/v-ceph",
                "ns/v-cinder",
                "ns/v-csi",
                "ns/v-flex",
                "ns/v-iscsi",
                "ns/v-rbd",
                "ns/v-scaleio",
                "ns/v-secret",
                "ns/v-storageos",
            ],
        ),
        (
            ThingKind::ConfigMap,
            &[
                "ns/env-map-c",
                "ns/env-map-e",
                "ns/env-map-i",
                "ns/from-map-c",
                "ns/from-map-e",
                "ns/from-map-i",
                "ns/p-map",
                "ns/v-map",
            ],
        ),
        (ThingKind::VolumeClaim, &["ns/claim", "ns/p-scratch"]),
        (
            ThingKind::ResourceClaim,
            &["ns/extended", "ns/given", "ns/p-made-x"],
        ),
    ];
    for (kind, expected) in expected {
        assert_eq!(names(&things, *kind), *expected, "{kind:?}");
    }
    let all: usize = expected.iter().map(|(_, names)| names.len()).sum();
    assert_eq!(things.len(), all);
}

#[test]
fn a_mirror_pod_refers_to_nothing() {
    let mut pod = every_reference();
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": ""});
    assert_eq!(
        of_pod("ns", "p", &pod),
        [Thing::new(ThingKind::Pod, "ns", "p")]
    );
}

#[test]
fn a_volume_refers_to_the_secrets_a_node_mounts_it_with() {
    let reference = |name: &str| json!({"name": name, "namespace": "own"});
    let bare = |name: &str| json!({ "name": name });
    let cases = [
        (json!({"azureFile": {"secretName": "a"}}), vec!["claims/a"]),
        (
            json!({"azureFile": {"secretName": "a", "secretNamespace": "own"}}),
            vec!["own/a"],
        ),
        (
            json!({"azureFile": {"secretName": "a", "secretNamespace": ""}}),
            vec!["claims/a"],
        ),
        (
            json!({"cephfs": {"secretRef": bare("a")}}),
            vec!["claims/a"],
        ),
        (json!({"rbd": {"secretRef": reference("a")}}), vec!["own/a"]),
        (json!({"cinder": {"secretRef": bare("a")}}), vec!["/a"]),
        (json!({"iscsi": {}}), vec![]),
        (
            json!({"csi": {
                "controllerPublishSecretRef": reference("no1"),
                "controllerExpandSecretRef": reference("no2"),
                "nodePublishSecretRef": reference("publish"),
                "nodeStageSecretRef": reference("stage"),
                "nodeExpandSecretRef": reference("expand"),
            }}),
            vec!["own/expand", "own/publish", "own/stage"],
        ),
    ];
    for (mut spec, expected) in cases {
        assert_eq!(
            of_persistent_volume(&json!({ "spec": spec.clone() })),
            None,
            "not bound"
        );
        spec["claimRef"] = json!({"namespace": "claims", "name": "c"});
        let (claim, secrets) = of_persistent_volume(&json!({ "spec": spec.clone() })).unwrap();
        assert_eq!(claim, Thing::new(ThingKind::VolumeClaim, "claims", "c"));
        assert_eq!(names(&secrets, ThingKind::Secret), expected, "{spec}");
    }
}
