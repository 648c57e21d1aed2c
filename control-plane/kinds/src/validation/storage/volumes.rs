//! Persistent volumes and their claims.

use kube_kit::quantity::Quantity;
use serde_json::Value;

use super::classes::driver_name;
use crate::field::{Errors, Path};
use crate::pod_resources;
use crate::validation::difference::difference;
use crate::validation::names;
use crate::validation::pods::affinity::node_selector;
use crate::validation::pods::resources::quantity;
use crate::validation::pods::volume_paths::no_backsteps;
use crate::validation::reading::{at, deep, entries, has, items, same, text, texts};
use crate::validation::rules::{complain, immutable, label_selector, one_of, required};

const SPEC: Path<'static> = Path::root("spec");
const ACCESS_MODES: &[&str] = &[
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const RESIZE_STATUSES: &[&str] = &[
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

// Every source a volume can have, in the order upstream looks at them.
const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

// Texts a source cannot do without.
const NEEDS: &[(&str, &[&str])] = &[
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("glusterfs", &["endpoints", "path"]),
    ("nfs", &["server", "path"]),
    ("cinder", &["volumeID"]),
    ("flexVolume", &["driver"]),
    ("azureFile", &["secretName", "shareName"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("local", &["path"]),
    ("hostPath", &["path"]),
    ("csi", &["volumeHandle"]),
];

/// A new PersistentVolume.
pub fn volume(object: &Value, errors: &mut Errors) {
    volume_spec(at(object, "spec"), errors);
}

fn volume_spec(spec: &Value, errors: &mut Errors) {
    if items(spec, "accessModes").is_empty() {
        errors.required(&SPEC.child("accessModes"), "");
    }
    access_modes(spec, &SPEC, errors);
    capacity(spec, errors);
    if !text(spec, "persistentVolumeReclaimPolicy").is_empty() {
        let allowed = ["Delete", "Recycle", "Retain"];
        one_of(
            errors,
            &SPEC,
            spec,
            "persistentVolumeReclaimPolicy",
            &allowed,
        );
    }
    if has(spec, "nodeAffinity") {
        affinity(at(spec, "nodeAffinity"), errors);
    }
    sources(spec, errors);
    class_name(spec, "storageClassName", &SPEC, errors);
    if has(spec, "volumeMode") {
        one_of(errors, &SPEC, spec, "volumeMode", VOLUME_MODES);
    }
    attributes_class(spec, errors);
}

fn access_modes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("accessModes");
    for mode in texts(spec, "accessModes").filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.not_supported(&path, &mode.into(), ACCESS_MODES);
    }
    let known: Vec<_> = texts(spec, "accessModes")
        .filter(|m| ACCESS_MODES.contains(m))
        .collect();
    if known.contains(&"ReadWriteOncePod") && known.iter().any(|mode| *mode != "ReadWriteOncePod") {
        errors.forbidden(
            &path,
            "may not use ReadWriteOncePod with other access modes",
        );
    }
}

fn capacity(spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("capacity");
    let capacity = at(spec, "capacity");
    let count = entries(spec, "capacity").count();
    if count == 0 {
        errors.required(&path, "");
    }
    if count != 1 || !has(capacity, "storage") {
        errors.not_supported(&path, capacity, &["storage"]);
    }
    for (resource, amount) in entries(spec, "capacity") {
        positive(amount, &path.key(resource), errors);
    }
}

fn positive(amount: &Value, path: &Path<'_>, errors: &mut Errors) -> bool {
    let is_positive = pod_resources::parse(amount).is_none_or(|amount| amount.signum() > 0);
    if !is_positive {
        errors.invalid(path, amount, "must be greater than zero");
    }
    is_positive
}

fn affinity(affinity: &Value, errors: &mut Errors) {
    let path = SPEC.child("nodeAffinity");
    let path = path.child("required");
    if has(affinity, "required") {
        node_selector(errors, &path, at(affinity, "required"));
    } else {
        errors.required(&path, "must specify required node constraints");
    }
}

fn class_name(spec: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let class = text(spec, name);
    if !class.is_empty() {
        complain(
            errors,
            &path.child(name),
            class,
            names::dns1123_subdomain(class),
        );
    }
}

fn attributes_class(spec: &Value, errors: &mut Errors) {
    let name = "volumeAttributesClassName";
    if !has(spec, name) {
        return;
    }
    if text(spec, name).is_empty() {
        errors.required(&SPEC.child(name), "an empty string is disallowed");
    }
    class_name(spec, name, &SPEC, errors);
    if !has(spec, "csi") {
        let complaint = "has to be specified when using volumeAttributesClassName";
        errors.required(&SPEC.child("csi"), complaint);
    }
}

fn sources(spec: &Value, errors: &mut Errors) {
    let present: Vec<_> = SOURCES.iter().filter(|name| has(spec, name)).collect();
    let Some((first, others)) = present.split_first() else {
        return errors.required(&SPEC, "must specify a volume type");
    };
    source(first, at(spec, first), spec, errors);
    for name in others {
        errors.forbidden(&SPEC.child(name), "may not specify more than 1 volume type");
    }
    let host_path = text(at(spec, "hostPath"), "path");
    let is_root =
        !host_path.is_empty() && host_path.split('/').all(|part| matches!(part, "" | "."));
    if is_root && text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        let complaint = "may not be 'recycle' for a hostPath mount of '/'";
        errors.forbidden(&SPEC.child("persistentVolumeReclaimPolicy"), complaint);
    }
}

fn source(name: &str, source: &Value, spec: &Value, errors: &mut Errors) {
    let path = SPEC.child(name);
    if name == "csi" {
        driver_name(text(source, "driver"), &path.child("driver"), errors);
    }
    let needs = NEEDS
        .iter()
        .find(|(source, _)| *source == name)
        .map_or(&[][..], |(_, n)| *n);
    for need in needs {
        required(errors, &path, source, need);
    }
    let value = text(source, "path");
    match name {
        "hostPath" | "local" => no_backsteps(errors, &path.child("path"), value),
        "nfs" if !value.starts_with('/') => {
            errors.invalid(
                &path.child("path"),
                &value.into(),
                "must be an absolute path",
            );
        }
        "csi" => csi_secrets(source, &path, errors),
        _ => {}
    }
    if name == "local" && !has(spec, "nodeAffinity") {
        errors.required(
            &SPEC.child("nodeAffinity"),
            "Local volume requires node affinity",
        );
    }
}

fn csi_secrets(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    for secret in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        if has(source, secret) {
            let path = path.child(secret);
            required(errors, &path, at(source, secret), "name");
            required(errors, &path, at(source, secret), "namespace");
        }
    }
}

// Where the volume is, without the rest of its spec.
fn only_sources(spec: &Value) -> Value {
    let present = SOURCES
        .iter()
        .filter_map(|name| Some((*name, spec.get(name)?.clone())));
    present
        .map(|(name, source)| (name.to_owned(), source))
        .collect()
}

/// A changed PersistentVolume.
pub fn volume_update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        return;
    }
    volume(new, errors);
    let (spec, before) = (at(new, "spec"), at(old, "spec"));
    if !SOURCES
        .iter()
        .all(|name| same_source(at(spec, name), at(before, name)))
    {
        let changed = difference(&only_sources(before), &only_sources(spec));
        let complaint =
            format!("spec.persistentvolumesource is immutable after creation\n{changed}");
        errors.forbidden(&SPEC.child("persistentvolumesource"), &complaint);
    }
    immutable(
        errors,
        &Path::root("volumeMode"),
        at(spec, "volumeMode"),
        at(before, "volumeMode"),
    );
    if has(before, "nodeAffinity") && !same(at(spec, "nodeAffinity"), at(before, "nodeAffinity")) {
        let complaint = "field is immutable, except for updating from beta label to GA";
        errors.invalid(
            &Path::root("nodeAffinity"),
            at(spec, "nodeAffinity"),
            complaint,
        );
    }
    let class = "volumeAttributesClassName";
    if has(before, class) && !has(spec, class) {
        let complaint = "update from non-nil value to nil is forbidden";
        errors.forbidden(&SPEC.child(class), complaint);
    }
}

// The secret for growing a volume may be added later.
fn same_source(new: &Value, old: &Value) -> bool {
    let secret = "controllerExpandSecretRef";
    if has(old, secret) || !has(new, secret) || old.is_null() {
        return same(new, old);
    }
    let mut new = new.clone();
    if let Some(fields) = new.as_object_mut() {
        fields.remove(secret);
    }
    same(&new, old)
}

/// A new PersistentVolumeClaim.
pub fn claim(object: &Value, errors: &mut Errors) {
    claim_spec(at(object, "spec"), &SPEC, errors);
}

/// The spec of a claim, also in the templates of pods and StatefulSets.
pub fn claim_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if items(spec, "accessModes").is_empty() {
        errors.required(
            &path.child("accessModes"),
            "at least 1 access mode is required",
        );
    }
    label_selector(errors, &path.child("selector"), at(spec, "selector"));
    access_modes(spec, path, errors);
    claim_request(spec, path, errors);
    class_name(spec, "storageClassName", path, errors);
    if has(spec, "volumeMode") {
        one_of(errors, path, spec, "volumeMode", VOLUME_MODES);
    }
    for name in ["dataSource", "dataSourceRef"] {
        if has(spec, name) {
            data_source(at(spec, name), &path.child(name), errors);
        }
    }
    data_sources_agree(spec, path, errors);
    class_name(spec, "volumeAttributesClassName", path, errors);
}

// Upstream reports the request below `resources` without naming the requests.
fn claim_request(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let resources = path.child("resources");
    let path = resources.key("storage");
    let request = deep(spec, &["resources", "requests", "storage"]);
    if request.is_null() {
        errors.required(&path, "");
    } else if positive(request, &path, errors) {
        quantity(errors, &path, "storage", request);
    }
}

fn data_source(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    required(errors, path, source, "name");
    required(errors, path, source, "kind");
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let complaint = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.invalid(path, &kind.into(), complaint);
    } else if !group.is_empty() {
        complain(
            errors,
            &path.child("apiGroup"),
            group,
            names::dns1123_subdomain(group),
        );
    }
    let namespace = text(source, "namespace");
    if !namespace.is_empty() {
        complain(
            errors,
            &path.child("namespace"),
            namespace,
            names::dns1123_label(namespace),
        );
    }
}

fn data_sources_agree(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (source, reference) = (at(spec, "dataSource"), at(spec, "dataSourceRef"));
    if source.is_null() || reference.is_null() {
        return;
    }
    let shown = Value::Object(serde_json::Map::new());
    if !text(reference, "namespace").is_empty() {
        let complaint = "may not be specified when dataSourceRef.namespace is specified";
        errors.invalid(path, &shown, complaint);
    } else if ["apiGroup", "kind", "name"]
        .iter()
        .any(|part| at(source, part) != at(reference, part))
    {
        errors.invalid(path, &shown, "must match dataSourceRef");
    }
}

/// A changed PersistentVolumeClaim, or its status.
pub fn claim_update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        return claim_status(new, errors);
    }
    claim(new, errors);
    class_annotation(new, old, errors);
    let (spec, before) = (at(new, "spec"), at(old, "spec"));
    let compared = comparable(new, old);
    if !same(&compared, before) {
        let changed = difference(before, &compared);
        let complaint = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{changed}"
        );
        errors.forbidden(&SPEC, &complaint);
    }
    shrinking(new, old, errors);
    immutable(
        errors,
        &Path::root("volumeMode"),
        at(spec, "volumeMode"),
        at(before, "volumeMode"),
    );
    removed_attributes_class(spec, old, errors);
}

fn is_upgrade_from_annotation(new: &Value, old: &Value) -> bool {
    let annotation = |o| at(deep(o, &["metadata", "annotations"]), CLASS_ANNOTATION);
    let class = |o| deep(o, &["spec", "storageClassName"]);
    let was = annotation(old);
    !was.is_null()
        && class(old).is_null()
        && class(new) == was
        && (annotation(new).is_null() || annotation(new) == was)
}

fn class_annotation(new: &Value, old: &Value, errors: &mut Errors) {
    let annotation = |o| text(deep(o, &["metadata", "annotations"]), CLASS_ANNOTATION);
    if !is_upgrade_from_annotation(new, old) && annotation(new) != annotation(old) {
        let metadata = Path::root("metadata");
        let path = metadata.child("annotations");
        let value = annotation(new).into();
        errors.invalid(&path.child(CLASS_ANNOTATION), &value, "field is immutable");
    }
}

// The new spec with everything that may change set back to what it was.
fn comparable(new: &Value, old: &Value) -> Value {
    let mut spec = at(new, "spec").clone();
    let before = at(old, "spec");
    let is_bound = text(at(new, "status"), "phase") == "Bound";
    if text(before, "volumeName").is_empty() {
        put(&mut spec, "volumeName", at(before, "volumeName"));
    }
    // A claim without a class may be given one.
    let annotation = at(deep(old, &["metadata", "annotations"]), CLASS_ANNOTATION);
    let class = at(&spec, "storageClassName");
    let may_gain = at(before, "storageClassName").is_null()
        && !class.is_null()
        && (annotation.is_null() || class == annotation);
    if may_gain {
        put(&mut spec, "storageClassName", &Value::Null);
    }
    if is_bound {
        put(
            &mut spec,
            "volumeAttributesClassName",
            at(before, "volumeAttributesClassName"),
        );
        let request = deep(before, &["resources", "requests", "storage"]);
        if let Some(requests) = spec.pointer_mut("/resources/requests") {
            put(requests, "storage", request);
        }
    }
    spec
}

fn put(object: &mut Value, name: &str, value: &Value) {
    if let Some(fields) = object.as_object_mut() {
        match value {
            Value::Null => drop(fields.remove(name)),
            value => drop(fields.insert(name.to_owned(), value.clone())),
        }
    }
}

// A request may shrink to recover from a failed expansion, but not to what the volume has.
fn shrinking(new: &Value, old: &Value, errors: &mut Errors) {
    let request = |o| deep(o, &["spec", "resources", "requests", "storage"]);
    let parsed = (
        pod_resources::parse(request(new)),
        pod_resources::parse(request(old)),
    );
    let (Some(size), Some(before)) = parsed else {
        return;
    };
    let held = pod_resources::parse(deep(old, &["status", "capacity", "storage"]));
    let is_below_held = |size: &Quantity| held.as_ref().is_some_and(|held| size <= held);
    if size < before && is_below_held(&size) {
        let resources = SPEC.child("resources");
        let requests = resources.child("requests");
        errors.forbidden(
            &requests.child("storage"),
            "field can not be less than status.capacity",
        );
    }
}

fn removed_attributes_class(spec: &Value, old: &Value, errors: &mut Errors) {
    let name = "volumeAttributesClassName";
    let is_applied = has(at(old, "status"), "currentVolumeAttributesClassName");
    if !is_applied || at(spec, name) == deep(old, &["spec", name]) {
        return;
    }
    let what = match at(spec, name).as_str() {
        None => "nil",
        Some("") => "empty string",
        Some(_) => return,
    };
    let complaint = format!(
        "update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
    );
    errors.forbidden(&SPEC.child(name), &complaint);
}

fn claim_status(object: &Value, errors: &mut Errors) {
    let (root, status) = (Path::root("status"), at(object, "status"));
    for (resource, amount) in entries(status, "capacity") {
        basic(amount, &root.child("capacity").key(resource), errors);
    }
    let path = root.child("allocatedResourceStatuses");
    for (resource, resize) in entries(status, "allocatedResourceStatuses") {
        claim_resource(resource, &path, errors);
        if !RESIZE_STATUSES.contains(&resize.as_str().unwrap_or_default()) {
            errors.not_supported(&path, &resource.into(), RESIZE_STATUSES);
        }
    }
    let path = root.child("allocatedResources");
    for (resource, amount) in entries(status, "allocatedResources") {
        if claim_resource(resource, &path, errors) {
            basic(amount, &path.key(resource), errors);
        }
    }
}

fn basic(amount: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(amount) = pod_resources::parse(amount).filter(|amount| amount.signum() < 0) {
        errors.invalid(
            path,
            &amount.value().into(),
            "must be a valid resource quantity",
        );
    }
}

fn claim_resource(resource: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let complaints = names::qualified_name(resource);
    let is_native = !resource.contains('/') || resource.contains("kubernetes.io/");
    if !complaints.is_empty() {
        complain(errors, path, resource, complaints);
    } else if is_native && resource != "storage" {
        errors.not_supported(path, &resource.into(), &["storage"]);
    } else {
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates, with};

    fn pv() -> Value {
        json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "csi": {"driver": "disk.csi.azure.com", "volumeHandle": "h"}}})
    }

    fn pvc() -> Value {
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "storageClassName": "a",
            "resources": {"requests": {"storage": "2Gi"}}}})
    }

    #[test]
    fn volumes_have_one_source_and_a_size() {
        let local = json!({"spec": {"csi": null, "local": {"path": "/a"}}});
        creates(
            volume,
            &pv(),
            &[
                (
                    json!({"spec": {"accessModes": null}}),
                    "spec.accessModes: Required value",
                ),
                (
                    json!({"spec": {"accessModes": ["Often"]}}),
                    "spec.accessModes: Unsupported value: \"Often\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\", \"ReadWriteOncePod\"",
                ),
                (
                    json!({"spec": {"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]}}),
                    "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
                ),
                (
                    json!({"spec": {"capacity": null}}),
                    "spec.capacity: Required value",
                ),
                (
                    json!({"spec": {"capacity": {"cpu": "1"}}}),
                    "spec.capacity: Unsupported value: {",
                ),
                (
                    json!({"spec": {"capacity": {"storage": "0"}}}),
                    "spec.capacity[storage]: Invalid value: \"0\": must be greater than zero",
                ),
                (
                    json!({"spec": {"csi": null}}),
                    "spec: Required value: must specify a volume type",
                ),
                (
                    json!({"spec": {"nfs": {"server": "a", "path": "/"}}}),
                    "spec.csi: Forbidden: may not specify more than 1 volume type",
                ),
                (
                    json!({"spec": {"csi": {"volumeHandle": null}}}),
                    "spec.csi.volumeHandle: Required value",
                ),
                (
                    json!({"spec": {"csi": {"driver": null}}}),
                    "spec.csi.driver: Required value",
                ),
                (
                    json!({"spec": {"csi": {"nodePublishSecretRef": {"name": "a"}}}}),
                    "spec.csi.nodePublishSecretRef.namespace: Required value",
                ),
                (
                    json!({"spec": {"csi": null, "hostPath": {"path": "/a/.."}}}),
                    "spec.hostPath.path: Invalid value: \"/a/..\": must not contain '..'",
                ),
                (
                    json!({"spec": {"csi": null, "hostPath": {"path": "/"}, "persistentVolumeReclaimPolicy": "Recycle"}}),
                    "spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'",
                ),
                (
                    json!({"spec": {"csi": null, "nfs": {"server": "a", "path": "b"}}}),
                    "spec.nfs.path: Invalid value: \"b\": must be an absolute path",
                ),
                (
                    local,
                    "spec.nodeAffinity: Required value: Local volume requires node affinity",
                ),
                (
                    json!({"spec": {"nodeAffinity": {}}}),
                    "spec.nodeAffinity.required: Required value: must specify required node constraints",
                ),
                (
                    json!({"spec": {"persistentVolumeReclaimPolicy": "Burn"}}),
                    "spec.persistentVolumeReclaimPolicy: Unsupported value: \"Burn\": supported values: \"Delete\", \"Recycle\", \"Retain\"",
                ),
                (
                    json!({"spec": {"volumeMode": "Tape"}}),
                    "spec.volumeMode: Unsupported value: \"Tape\": supported values: \"Block\", \"Filesystem\"",
                ),
                (
                    json!({"spec": {"storageClassName": "A"}}),
                    "spec.storageClassName: Invalid value: \"A\"",
                ),
                (
                    json!({"spec": {"volumeAttributesClassName": ""}}),
                    "spec.volumeAttributesClassName: Required value: an empty string is disallowed",
                ),
            ],
        );
    }

    #[test]
    fn sources_stay() {
        updates(
            volume_update,
            "",
            &pv(),
            &[
                (
                    json!({"spec": {"csi": {"volumeHandle": "i"}}}),
                    "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation",
                ),
                (
                    json!({"spec": {"csi": {"controllerExpandSecretRef": {"name": "a", "namespace": "b"}}}}),
                    "",
                ),
                (
                    json!({"spec": {"volumeMode": "Block"}}),
                    "volumeMode: Invalid value: \"Block\": field is immutable",
                ),
                (json!({"spec": {"capacity": {"storage": "2Gi"}}}), ""),
            ],
        );
        let terms = |key: &str| json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]}});
        let placed = with(
            &pv(),
            &json!({"spec": {"nodeAffinity": terms("a"), "volumeAttributesClassName": "a"}}),
        );
        updates(
            volume_update,
            "",
            &placed,
            &[
                (
                    json!({"spec": {"nodeAffinity": terms("b")}}),
                    "nodeAffinity: Invalid value: {",
                ),
                (
                    json!({"spec": {"volumeAttributesClassName": null}}),
                    "spec.volumeAttributesClassName: Forbidden: update from non-nil value to nil is forbidden",
                ),
            ],
        );
    }

    #[test]
    fn claims_ask_for_modes_and_space() {
        let source = |source: Value| json!({"spec": {"dataSource": source}});
        creates(
            claim,
            &pvc(),
            &[
                (
                    json!({"spec": {"accessModes": null}}),
                    "spec.accessModes: Required value: at least 1 access mode is required",
                ),
                (
                    json!({"spec": {"resources": null}}),
                    "spec.resources[storage]: Required value",
                ),
                (
                    json!({"spec": {"resources": {"requests": {"storage": "0"}}}}),
                    "spec.resources[storage]: Invalid value: \"0\": must be greater than zero",
                ),
                (
                    json!({"spec": {"storageClassName": "A"}}),
                    "spec.storageClassName: Invalid value",
                ),
                (json!({"spec": {"storageClassName": ""}}), ""),
                (
                    source(json!({"kind": "PersistentVolumeClaim", "name": "a"})),
                    "",
                ),
                (
                    source(json!({"kind": "PersistentVolumeClaim"})),
                    "spec.dataSource.name: Required value",
                ),
                (
                    source(json!({"kind": "Other", "name": "a"})),
                    "spec.dataSource: Invalid value: \"Other\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
                ),
                (
                    source(json!({"kind": "VolumeSnapshot", "name": "a", "apiGroup": "A"})),
                    "spec.dataSource.apiGroup: Invalid value",
                ),
                (
                    json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "a"}, "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "b"}}}),
                    "spec: Invalid value: {}: must match dataSourceRef",
                ),
                (
                    json!({"spec": {"selector": {"matchLabels": {"a b": "c"}}}}),
                    "spec.selector.matchLabels: Invalid value",
                ),
            ],
        );
    }

    #[test]
    fn claims_are_fixed_but_for_growth() {
        updates(
            claim_update,
            "",
            &pvc(),
            &[
                (json!({"spec": {"volumeName": "v"}}), ""),
                (
                    json!({"spec": {"accessModes": ["ReadOnlyMany"]}}),
                    "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
                ),
                (
                    json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}}),
                    "spec: Forbidden: spec is immutable",
                ),
                (
                    json!({"spec": {"storageClassName": "b"}}),
                    "spec: Forbidden: spec is immutable",
                ),
                (
                    json!({"spec": {"volumeMode": "Block"}}),
                    "volumeMode: Invalid value: \"Block\": field is immutable",
                ),
                (
                    json!({"metadata": {"annotations": {CLASS_ANNOTATION: "x"}}}),
                    "metadata.annotations.volume.beta.kubernetes.io/storage-class: Invalid value: \"x\": field is immutable",
                ),
            ],
        );
        let bound = with(
            &pvc(),
            &json!({"spec": {"volumeName": "v"}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "currentVolumeAttributesClassName": "c"}}),
        );
        updates(
            claim_update,
            "",
            &bound,
            &[
                (
                    json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}}),
                    "",
                ),
                (
                    json!({"spec": {"resources": {"requests": {"storage": "1500Mi"}}}}),
                    "",
                ),
                (
                    json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}}),
                    "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity",
                ),
                (
                    json!({"spec": {"volumeName": "w"}}),
                    "spec: Forbidden: spec is immutable",
                ),
                (json!({"spec": {"volumeAttributesClassName": "d"}}), ""),
                (
                    json!({"spec": {"volumeAttributesClassName": ""}}),
                    "spec.volumeAttributesClassName: Forbidden: update to empty string is forbidden",
                ),
            ],
        );
        let unclassed = with(&pvc(), &json!({"spec": {"storageClassName": null}}));
        updates(
            claim_update,
            "",
            &unclassed,
            &[(json!({"spec": {"storageClassName": "b"}}), "")],
        );
    }

    #[test]
    fn claim_status_counts_known_resources() {
        updates(
            claim_update,
            "status",
            &pvc(),
            &[
                (
                    json!({"status": {"capacity": {"storage": "-1"}}}),
                    "status.capacity[storage]: Invalid value: -1: must be a valid resource quantity",
                ),
                (
                    json!({"status": {"allocatedResources": {"cpu": "1"}}}),
                    "status.allocatedResources: Unsupported value: \"cpu\": supported values: \"storage\"",
                ),
                (
                    json!({"status": {"allocatedResourceStatuses": {"storage": "Soon"}}}),
                    "status.allocatedResourceStatuses: Unsupported value: \"storage\"",
                ),
                (
                    json!({"status": {"allocatedResourceStatuses": {"storage": "NodeResizePending"}}}),
                    "",
                ),
            ],
        );
    }
}
