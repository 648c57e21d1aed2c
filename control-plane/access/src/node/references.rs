//! What an object refers to, as far as the kubelet has to read it.

use serde_json::Value;

/// What can be tied to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ThingKind {
    Pod,
    Secret,
    ConfigMap,
    ServiceAccount,
    VolumeClaim,
    Volume,
    ResourceClaim,
    VolumeAttachment,
    Slice,
    PodCertificateRequest,
}

/// One object that can be tied to a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Thing {
    pub kind: ThingKind,
    pub namespace: Box<str>,
    pub name: Box<str>,
}

impl Thing {
    pub(super) fn new(kind: ThingKind, namespace: &str, name: &str) -> Thing {
        Thing {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// Where a pod's volume names a secret of the pod's namespace.
const VOLUME_SECRETS: &[&str] = &[
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/csi/nodePublishSecretRef/name",
    "/flexVolume/secretRef/name",
    "/iscsi/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/secret/secretName",
    "/storageos/secretRef/name",
];

/// Where a container's `env` and `envFrom` entries name what.
const CONTAINER_REFERENCES: &[(&str, &str, ThingKind)] = &[
    ("envFrom", "/secretRef/name", ThingKind::Secret),
    ("envFrom", "/configMapRef/name", ThingKind::ConfigMap),
    ("env", "/valueFrom/secretKeyRef/name", ThingKind::Secret),
    (
        "env",
        "/valueFrom/configMapKeyRef/name",
        ThingKind::ConfigMap,
    ),
];

/// Where a persistent volume has its reference to a secret the kubelet reads, and whether a reference without
/// a namespace means the claim's.
const PERSISTENT_VOLUME_SECRETS: &[(&str, bool)] = &[
    ("/cephfs/secretRef", true),
    ("/cinder/secretRef", false),
    ("/csi/nodeExpandSecretRef", false),
    ("/csi/nodePublishSecretRef", false),
    ("/csi/nodeStageSecretRef", false),
    ("/flexVolume/secretRef", true),
    ("/iscsi/secretRef", true),
    ("/rbd/secretRef", true),
    ("/scaleIO/secretRef", true),
    ("/storageos/secretRef", false),
];

/// Everything a pod ties to its node: itself and what it refers to. A mirror pod ties only itself, for a node
/// makes mirror pods and must not grant itself anything by them.
pub(super) fn of_pod(namespace: &str, name: &str, pod: &Value) -> Vec<Thing> {
    let mut found = References {
        namespace,
        things: vec![Thing::new(ThingKind::Pod, namespace, name)],
    };
    let mirror = &pod["metadata"]["annotations"]["kubernetes.io/config.mirror"];
    if mirror.is_string() {
        return found.things;
    }
    let spec = &pod["spec"];
    found.add(ThingKind::ServiceAccount, &spec["serviceAccountName"]);
    for secret in items(&spec["imagePullSecrets"]) {
        found.add(ThingKind::Secret, &secret["name"]);
    }
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        items(&spec[field]).for_each(|container| found.add_container(container));
    }
    for volume in items(&spec["volumes"]) {
        found.add_volume(name, volume);
    }
    found.add_resource_claims(pod);
    found.things
}

struct References<'a> {
    namespace: &'a str,
    things: Vec<Thing>,
}

impl References<'_> {
    fn add(&mut self, kind: ThingKind, name: &Value) {
        if let Some(name) = text(name) {
            let thing = Thing::new(kind, self.namespace, name);
            if !self.things.contains(&thing) {
                self.things.push(thing);
            }
        }
    }

    fn add_at(&mut self, kind: ThingKind, object: &Value, pointer: &str) {
        if let Some(name) = object.pointer(pointer) {
            self.add(kind, name);
        }
    }

    fn add_container(&mut self, container: &Value) {
        for (list, pointer, kind) in CONTAINER_REFERENCES {
            for entry in items(&container[list]) {
                self.add_at(*kind, entry, pointer);
            }
        }
    }

    fn add_volume(&mut self, pod: &str, volume: &Value) {
        for pointer in VOLUME_SECRETS {
            self.add_at(ThingKind::Secret, volume, pointer);
        }
        self.add_at(ThingKind::ConfigMap, volume, "/configMap/name");
        for source in items(&volume["projected"]["sources"]) {
            self.add_at(ThingKind::Secret, source, "/secret/name");
            self.add_at(ThingKind::ConfigMap, source, "/configMap/name");
        }
        if volume["persistentVolumeClaim"].is_object() {
            self.add_at(
                ThingKind::VolumeClaim,
                volume,
                "/persistentVolumeClaim/claimName",
            );
        } else if volume["ephemeral"].is_object() {
            let claim = format!("{pod}-{}", text(&volume["name"]).unwrap_or_default());
            self.add(ThingKind::VolumeClaim, &claim.into());
        }
    }

    // A claim made from a template has the name the pod's status tells.
    fn add_resource_claims(&mut self, pod: &Value) {
        let status = &pod["status"];
        for claim in items(&pod["spec"]["resourceClaims"]) {
            if claim["resourceClaimName"].is_string() {
                self.add(ThingKind::ResourceClaim, &claim["resourceClaimName"]);
            } else if claim["resourceClaimTemplateName"].is_string() {
                let mut made = items(&status["resourceClaimStatuses"]);
                if let Some(made) = made.find(|made| made["name"] == claim["name"]) {
                    self.add(ThingKind::ResourceClaim, &made["resourceClaimName"]);
                }
            }
        }
        let extended = &status["extendedResourceClaimStatus"];
        self.add(ThingKind::ResourceClaim, &extended["resourceClaimName"]);
    }
}

/// The claim a persistent volume is for, and the secrets a node needs to mount it.
pub(super) fn of_persistent_volume(volume: &Value) -> Option<(Thing, Vec<Thing>)> {
    let spec = &volume["spec"];
    let claim = spec["claimRef"].as_object()?;
    let part = |field: &str| claim.get(field).and_then(text).unwrap_or_default();
    let claim = Thing::new(ThingKind::VolumeClaim, part("namespace"), part("name"));
    let mut secrets = Vec::new();
    let mut add = |name: &Value, namespace: &Value, default: &str| {
        if let Some(name) = text(name) {
            let namespace = text(namespace).unwrap_or(default);
            secrets.push(Thing::new(ThingKind::Secret, namespace, name));
        }
    };
    let file = &spec["azureFile"];
    add(
        &file["secretName"],
        &file["secretNamespace"],
        &claim.namespace,
    );
    for (pointer, of_claim) in PERSISTENT_VOLUME_SECRETS {
        if let Some(secret) = spec.pointer(pointer) {
            let default = if *of_claim { &*claim.namespace } else { "" };
            add(&secret["name"], &secret["namespace"], default);
        }
    }
    Some((claim, secrets))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// A text that is not empty.
fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
