//! What a pod refers to (`pkg/api/pod/util.go`).

use serde_json::Value;

use super::shape::{has, items, text};

/// The lists of containers a pod has.
const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Where volumes name a secret.
const VOLUME_SECRETS: [&str; 10] = [
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/flexVolume/secretRef/name",
    "/rbd/secretRef/name",
    "/secret/secretName",
    "/scaleIO/secretRef/name",
    "/iscsi/secretRef/name",
    "/storageos/secretRef/name",
    "/csi/nodePublishSecretRef/name",
];

/// Volumes that need nothing of the API.
const SELF_CONTAINED: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// Volumes that need other objects, and what upstream calls those.
const REFERRING: [(&str, &str); 7] = [
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    (
        "ephemeral",
        "persistentvolumeclaims (via ephemeral volumes)",
    ),
    ("azureFile", "secrets (via azureFile volumes)"),
];

/// The same for the sources of a projected volume.
const REFERRING_SOURCES: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    (
        "serviceAccountToken",
        "serviceaccounts (via projected volumes)",
    ),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// Every container of a pod.
pub(super) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    CONTAINER_LISTS
        .into_iter()
        .flat_map(|list| items(&pod["spec"][list]))
}

/// Whether a pod names a secret anywhere.
pub(super) fn names_secret(pod: &Value) -> bool {
    let pulls = items(&pod["spec"]["imagePullSecrets"])
        .iter()
        .any(|pull| !text(&pull["name"]).is_empty());
    let in_volume = |volume: &Value| {
        let direct = VOLUME_SECRETS.iter().any(|at| {
            volume
                .pointer(at)
                .is_some_and(|name| !text(name).is_empty())
        });
        direct || projects(volume, "secret")
    };
    pulls
        || containers(pod).any(|container| reads(container, "secretRef", "secretKeyRef"))
        || items(&pod["spec"]["volumes"]).iter().any(in_volume)
}

fn names_config_map(pod: &Value) -> bool {
    let in_volume = |volume: &Value| {
        !text(&volume["configMap"]["name"]).is_empty() || projects(volume, "configMap")
    };
    containers(pod).any(|container| reads(container, "configMapRef", "configMapKeyRef"))
        || items(&pod["spec"]["volumes"]).iter().any(in_volume)
}

// Whether a container's environment comes from an object.
fn reads(container: &Value, whole: &str, key: &str) -> bool {
    let named = |reference: &Value| !text(&reference["name"]).is_empty();
    items(&container["envFrom"])
        .iter()
        .any(|from| named(&from[whole]))
        || items(&container["env"])
            .iter()
            .any(|variable| named(&variable["valueFrom"][key]))
}

fn projects(volume: &Value, source: &str) -> bool {
    items(&volume["projected"]["sources"])
        .iter()
        .any(|projection| !text(&projection[source]["name"]).is_empty())
}

/// The kind of object a pod refers to, if any; `Err` for a volume nobody knows.
pub(super) fn api_reference(pod: &Value) -> Result<Option<&'static str>, String> {
    let spec = &pod["spec"];
    if !text(&spec["serviceAccountName"]).is_empty() {
        return Ok(Some("serviceaccounts"));
    }
    if names_secret(pod) {
        return Ok(Some("secrets"));
    }
    if names_config_map(pod) {
        return Ok(Some("configmaps"));
    }
    if !items(&spec["resourceClaims"]).is_empty() {
        return Ok(Some("resourceclaims"));
    }
    for volume in items(&spec["volumes"]) {
        if let Some(reference) = volume_reference(volume)? {
            return Ok(Some(reference));
        }
    }
    Ok(None)
}

fn volume_reference(volume: &Value) -> Result<Option<&'static str>, String> {
    if SELF_CONTAINED.iter().any(|kind| has(volume, kind)) {
        return Ok(None);
    }
    if let Some((_, reference)) = REFERRING.iter().find(|(kind, _)| has(volume, kind)) {
        return Ok(Some(reference));
    }
    let name = text(&volume["name"]);
    if !has(volume, "projected") {
        return Err(format!("unknown volume type for volume  {name:?}"));
    }
    for source in items(&volume["projected"]["sources"]) {
        match REFERRING_SOURCES.iter().find(|(kind, _)| has(source, kind)) {
            Some((_, reference)) => return Ok(Some(reference)),
            None if has(source, "downwardAPI") => {}
            None => return Err(format!("unknown source for projected volume {name:?}")),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_reference_to_the_api_is_found_and_named() {
        let volume = |source: Value| {
            let mut volume = source;
            volume["name"] = "v".into();
            json!({"volumes": [volume]})
        };
        let projected = |source: Value| volume(json!({"projected": {"sources": [source]}}));
        for (spec, found) in [
            (json!({}), Ok(None)),
            (volume(json!({"hostPath": {"path": "/"}})), Ok(None)),
            (projected(json!({"downwardAPI": {}})), Ok(None)),
            (
                json!({"serviceAccountName": "robot"}),
                Ok(Some("serviceaccounts")),
            ),
            (
                json!({"imagePullSecrets": [{"name": "pull"}]}),
                Ok(Some("secrets")),
            ),
            (json!({"imagePullSecrets": [{}]}), Ok(None)),
            (
                json!({"ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]}),
                Ok(Some("secrets")),
            ),
            (
                json!({"initContainers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "c"}}}]}]}),
                Ok(Some("configmaps")),
            ),
            (
                volume(json!({"cephfs": {"secretRef": {"name": "s"}}})),
                Ok(Some("secrets")),
            ),
            (
                volume(json!({"secret": {"secretName": "s"}})),
                Ok(Some("secrets")),
            ),
            (
                volume(json!({"secret": {}})),
                Ok(Some("secrets (via secret volumes)")),
            ),
            (
                volume(json!({"configMap": {"name": "c"}})),
                Ok(Some("configmaps")),
            ),
            (
                json!({"resourceClaims": [{"name": "gpu"}]}),
                Ok(Some("resourceclaims")),
            ),
            (
                volume(json!({"persistentVolumeClaim": {"claimName": "c"}})),
                Ok(Some("persistentvolumeclaims")),
            ),
            (
                projected(json!({"serviceAccountToken": {"path": "token"}})),
                Ok(Some("serviceaccounts (via projected volumes)")),
            ),
            (
                projected(json!({"clusterTrustBundle": {"name": "b"}})),
                Ok(Some("clustertrustbundles")),
            ),
            (
                volume(json!({"telepathy": {}})),
                Err("unknown volume type for volume  \"v\"".to_owned()),
            ),
        ] {
            assert_eq!(api_reference(&json!({"spec": spec})), found, "{spec}");
        }
    }
}
