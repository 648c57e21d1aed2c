//! Storage classes, CSI drivers and attachments.

use std::collections::HashMap;

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::pod_resources;
use crate::validation::names;
use crate::validation::reading::{at, deep, entries, has, items, repeated, some_int, text, texts};
use crate::validation::rules::{
    NEGATIVE, complain, immutable, immutable_fields, label_selector, one_of, required, unique,
};

const SPEC: Path<'static> = Path::root("spec");
const PARAMETERS_SIZE_MAX: usize = 256 * 1024;
const PARAMETERS_MAX: usize = 512;
const ERROR_MESSAGE_MAX: usize = 1024;
const DRIVER_NAME_MAX: usize = 63;
const NODE_ID_MAX: usize = 256;
const FS_GROUP_POLICIES: &[&str] = &["File", "None", "ReadWriteOnceWithFSType"];

/// The name of a CSI driver: a subdomain of 63 at most, in any letter case.
pub fn driver_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > DRIVER_NAME_MAX {
        errors.too_long(path, DRIVER_NAME_MAX);
    }
    complain(
        errors,
        path,
        name,
        names::dns1123_subdomain(&name.to_lowercase()),
    );
}

/// A new StorageClass.
pub fn class(object: &Value, errors: &mut Errors) {
    provisioner(object, "provisioner", errors);
    parameters(object, errors);
    let policy = text(object, "reclaimPolicy");
    if !policy.is_empty() && !["Delete", "Retain"].contains(&policy) {
        let path = Path::root("reclaimPolicy");
        errors.not_supported(&path, &policy.into(), &["Delete", "Retain"]);
    }
    let (path, mode) = (
        Path::root("volumeBindingMode"),
        at(object, "volumeBindingMode"),
    );
    let modes = ["Immediate", "WaitForFirstConsumer"];
    match mode.as_str() {
        None => errors.required(&path, ""),
        Some(name) if !modes.contains(&name) => errors.not_supported(&path, mode, &modes),
        Some(_) => {}
    }
    topologies(object, errors);
}

/// A changed StorageClass.
pub fn class_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    let fixed = [
        "parameters",
        "provisioner",
        "reclaimPolicy",
        "volumeBindingMode",
    ];
    immutable_fields(errors, None, new, old, &fixed);
}

fn provisioner(object: &Value, field: &str, errors: &mut Errors) {
    let (path, name) = (Path::root(field), text(object, field).to_lowercase());
    if name.is_empty() {
        errors.required(&path, "");
    } else {
        complain(errors, &path, &name, names::qualified_name(&name));
    }
}

fn parameters(object: &Value, errors: &mut Errors) {
    let path = Path::root("parameters");
    if entries(object, "parameters").count() > PARAMETERS_MAX {
        return errors.too_long(&path, PARAMETERS_MAX);
    }
    let mut size = 0;
    for (key, value) in entries(object, "parameters") {
        if key.is_empty() {
            errors.invalid(&path, &"".into(), "field can not be empty.");
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > PARAMETERS_SIZE_MAX {
        errors.too_long(&path, PARAMETERS_SIZE_MAX);
    }
}

fn topologies(object: &Value, errors: &mut Errors) {
    let path = Path::root("allowedTopologies");
    let terms = items(object, "allowedTopologies");
    let same_term = repeated(terms);
    for (i, term) in terms.iter().enumerate() {
        let term_path = path.index(i);
        let path = term_path.child("matchLabelExpressions");
        let requirements = items(term, "matchLabelExpressions");
        for (j, requirement) in requirements.iter().enumerate() {
            topology_requirement(requirement, &path.index(j), errors);
        }
        unique(errors, &path, requirements, Some("key"), |r| {
            text(r, "key").to_owned()
        });
        if same_term[i] {
            errors.duplicate(&path, &"".into());
        }
    }
}

fn topology_requirement(requirement: &Value, path: &Path<'_>, errors: &mut Errors) {
    let values = path.child("values");
    if items(requirement, "values").is_empty() {
        errors.required(&values, "");
    }
    let same_value = repeated(texts(requirement, "values"));
    for (i, value) in texts(requirement, "values").enumerate() {
        let path = values.index(i);
        complain(errors, &path, value, names::label_value(value));
        if same_value[i] {
            errors.duplicate(&path, &value.into());
        }
    }
    let key = text(requirement, "key");
    complain(errors, &path.child("key"), key, names::qualified_name(key));
}

/// A new VolumeAttributesClass.
pub fn attributes_class(object: &Value, errors: &mut Errors) {
    provisioner(object, "driverName", errors);
    parameters(object, errors);
    if entries(object, "parameters").next().is_none() {
        let complaint = "must contain at least one key/value pair";
        errors.required(&Path::root("parameters"), complaint);
    }
}

/// A changed VolumeAttributesClass.
pub fn attributes_class_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    for name in ["driverName", "parameters"] {
        if at(new, name) != at(old, name) {
            let complaint = format!("updates to {name} are forbidden.");
            errors.forbidden(&Path::root(name), &complaint);
        }
    }
    attributes_class(new, errors);
}

/// A new VolumeAttachment.
pub fn attachment(object: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    driver_name(text(spec, "attacher"), &SPEC.child("attacher"), errors);
    attachment_source(at(spec, "source"), &SPEC.child("source"), errors);
    let node = text(spec, "nodeName");
    complain(
        errors,
        &SPEC.child("nodeName"),
        node,
        names::dns1123_subdomain(node),
    );
    attachment_status(at(object, "status"), errors);
    if let Some(name) = deep(spec, &["source", "persistentVolumeName"]).as_str() {
        let path = Path::root("spec.source.persistentVolumeName");
        complain(errors, &path, name, names::dns1123_subdomain(name));
    }
}

fn attachment_source(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let complaint = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (
        has(source, "inlineVolumeSpec"),
        has(source, "persistentVolumeName"),
    ) {
        (false, false) => errors.required(path, complaint),
        (true, true) => errors.forbidden(path, complaint),
        (false, true) if text(source, "persistentVolumeName").is_empty() => errors.required(
            &path.child("persistentVolumeName"),
            "must specify non empty persistentVolumeName",
        ),
        _ => {}
    }
}

fn attachment_status(status: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let size: usize = entries(status, "attachmentMetadata")
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > PARAMETERS_SIZE_MAX {
        errors.too_long(&path.child("attachmentMetadata"), PARAMETERS_SIZE_MAX);
    }
    for name in ["attachError", "detachError"] {
        let (path, error) = (path.child(name), at(status, name));
        // Upstream names the size of the metadata here.
        if text(error, "message").len() > ERROR_MESSAGE_MAX {
            errors.too_long(&path.child("message"), PARAMETERS_SIZE_MAX);
        }
        if some_int(error, "errorCode").is_some_and(|code| code < 0) {
            let complaint = format!("must be between 0 and {}, inclusive", i32::MAX);
            errors.invalid(&path.child("errorCode"), at(error, "errorCode"), &complaint);
        }
    }
}

/// A changed VolumeAttachment.
pub fn attachment_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    attachment(new, errors);
    immutable(errors, &SPEC, at(new, "spec"), at(old, "spec"));
}

/// A new CSINode.
pub fn csi_node(object: &Value, errors: &mut Errors) {
    let path = SPEC.child("drivers");
    let drivers = items(at(object, "spec"), "drivers");
    for (i, driver) in drivers.iter().enumerate() {
        let path = path.index(i);
        driver_name(text(driver, "name"), &path.child("name"), errors);
        node_id(driver, &path, errors);
        let count = deep(driver, &["allocatable", "count"]);
        if count.as_i64().is_some_and(|count| count < 0) {
            let path = path.child("allocatable");
            errors.invalid(&path.child("count"), count, NEGATIVE);
        }
        topology_keys(driver, &path, errors);
    }
    unique(errors, &path, drivers, Some("name"), |driver| {
        text(driver, "name").to_owned()
    });
}

fn node_id(driver: &Value, path: &Path<'_>, errors: &mut Errors) {
    if required(errors, path, driver, "nodeID") && text(driver, "nodeID").len() > NODE_ID_MAX {
        let complaint = format!("must be {NODE_ID_MAX} characters or less");
        errors.invalid(&path.child("nodeID"), at(driver, "nodeID"), &complaint);
    }
}

// Upstream reports the keys at the path of the driver.
fn topology_keys(driver: &Value, path: &Path<'_>, errors: &mut Errors) {
    let same_key = repeated(texts(driver, "topologyKeys"));
    for (i, key) in texts(driver, "topologyKeys").enumerate() {
        if key.is_empty() {
            errors.required(path, "");
        }
        if same_key[i] {
            errors.duplicate(path, &key.into());
        }
        complain(errors, path, key, names::qualified_name(key));
    }
}

/// A changed CSINode: a driver that stays keeps its name, node and topology.
pub fn csi_node_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    csi_node(new, errors);
    let drivers = |o| items(at(o, "spec"), "drivers");
    let known: HashMap<&str, &Value> = (drivers(old).iter().rev())
        .map(|driver| (text(driver, "name"), driver))
        .collect();
    for driver in drivers(new) {
        let before = known.get(text(driver, "name")).copied();
        let is_changed = |before: &&Value| {
            ["nodeID", "topologyKeys"]
                .iter()
                .any(|f| at(before, f) != at(driver, f))
        };
        if before.filter(is_changed).is_some() {
            errors.invalid(
                &SPEC.child("drivers"),
                driver,
                crate::validation::rules::IMMUTABLE,
            );
        }
    }
}

/// A new CSIDriver.
pub fn csi_driver(object: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    // Upstream misspells the first path.
    for (field, path) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if !has(spec, field) {
            errors.required(&SPEC.child(path), "");
        }
    }
    if has(spec, "fsGroupPolicy") {
        one_of(errors, &SPEC, spec, "fsGroupPolicy", FS_GROUP_POLICIES);
    }
    token_requests(spec, errors);
    for mode in texts(spec, "volumeLifecycleModes") {
        if !matches!(mode, "Persistent" | "Ephemeral") {
            let path = SPEC.child("volumeLifecycleModes");
            errors.not_supported(&path, &mode.into(), &["Persistent", "Ephemeral"]);
        }
    }
    let period = "nodeAllocatableUpdatePeriodSeconds";
    if some_int(spec, period).is_some_and(|seconds| seconds < 10) {
        let complaint = "must be greater than or equal to 10 seconds";
        errors.invalid(&SPEC.child(period), at(spec, period), complaint);
    }
    let secrets = "serviceAccountTokenInSecrets";
    if has(spec, secrets) && items(spec, "tokenRequests").is_empty() {
        let complaint = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.invalid(&SPEC.child(secrets), at(spec, secrets), complaint);
    }
}

fn token_requests(spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("tokenRequests");
    let requests = items(spec, "tokenRequests");
    unique(errors, &path, requests, Some("audience"), |r| {
        text(r, "audience").to_owned()
    });
    for (i, request) in requests.iter().enumerate() {
        let complaint = match some_int(request, "expirationSeconds") {
            Some(seconds) if seconds < 600 => "may not specify a duration less than 10 minutes",
            Some(seconds) if seconds > 1 << 32 => {
                "may not specify a duration larger than 2^32 seconds"
            }
            _ => continue,
        };
        let path = path.index(i);
        errors.invalid(
            &path.child("expirationSeconds"),
            at(request, "expirationSeconds"),
            complaint,
        );
    }
}

/// A changed CSIDriver.
pub fn csi_driver_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    csi_driver(new, errors);
    let (spec, before) = (at(new, "spec"), at(old, "spec"));
    for (field, path) in [
        ("attachRequired", "attachedRequired"),
        ("volumeLifecycleModes", "volumeLifecycleModes"),
    ] {
        immutable(
            errors,
            &SPEC.child(path),
            at(spec, field),
            at(before, field),
        );
    }
}

/// A new CSIStorageCapacity.
pub fn capacity(object: &Value, errors: &mut Errors) {
    label_selector(
        errors,
        &Path::root("nodeTopology"),
        at(object, "nodeTopology"),
    );
    let class = text(object, "storageClassName");
    let path = Path::root("storageClassName");
    complain(errors, &path, class, names::dns1123_subdomain(class));
    let amount = pod_resources::parse(at(object, "capacity"));
    if let Some(amount) = amount.filter(|amount| amount.signum() < 0) {
        errors.invalid(
            &Path::root("capacity"),
            &amount.to_string().into(),
            NEGATIVE,
        );
    }
}

/// A changed CSIStorageCapacity.
pub fn capacity_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    immutable_fields(
        errors,
        None,
        new,
        old,
        &["nodeTopology", "storageClassName"],
    );
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates};

    #[test]
    fn classes_have_a_provisioner_and_stay() {
        let base = json!({"provisioner": "Disk.csi.azure.com", "volumeBindingMode": "Immediate", "reclaimPolicy": "Delete"});
        let topology =
            |term: Value| json!({"allowedTopologies": [{"matchLabelExpressions": [term]}]});
        creates(
            class,
            &base,
            &[
                (json!({"provisioner": null}), "provisioner: Required value"),
                (
                    json!({"provisioner": "a b"}),
                    "provisioner: Invalid value: \"a b\"",
                ),
                (
                    json!({"reclaimPolicy": "Recycle"}),
                    "reclaimPolicy: Unsupported value: \"Recycle\": supported values: \"Delete\", \"Retain\"",
                ),
                (
                    json!({"volumeBindingMode": null}),
                    "volumeBindingMode: Required value",
                ),
                (
                    json!({"volumeBindingMode": "Soon"}),
                    "volumeBindingMode: Unsupported value: \"Soon\": supported values: \"Immediate\", \"WaitForFirstConsumer\"",
                ),
                (
                    json!({"parameters": {"": "x"}}),
                    "parameters: Invalid value: \"\": field can not be empty.",
                ),
                (
                    json!({"parameters": {"a": "x".repeat(PARAMETERS_SIZE_MAX)}}),
                    "parameters: Too long: may not be more than 262144 bytes",
                ),
                (topology(json!({"key": "zone", "values": ["a"]})), ""),
                (
                    topology(json!({"key": "zone"})),
                    "allowedTopologies[0].matchLabelExpressions[0].values: Required value",
                ),
                (
                    topology(json!({"key": "zone", "values": ["a", "a"]})),
                    "allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: \"a\"",
                ),
            ],
        );
        updates(
            class_update,
            "",
            &base,
            &[
                (json!({"allowVolumeExpansion": true}), ""),
                (
                    json!({"provisioner": "b"}),
                    "provisioner: Invalid value: \"b\": field is immutable",
                ),
                (
                    json!({"parameters": {"a": "b"}}),
                    "parameters: Invalid value: {\"a\":\"b\"}: field is immutable",
                ),
            ],
        );
    }

    #[test]
    fn attribute_classes_have_parameters_that_stay() {
        let base = json!({"driverName": "a.b", "parameters": {"iops": "1"}});
        creates(
            attributes_class,
            &base,
            &[
                (
                    json!({"parameters": null}),
                    "parameters: Required value: must contain at least one key/value pair",
                ),
                (json!({"driverName": null}), "driverName: Required value"),
            ],
        );
        updates(
            attributes_class_update,
            "",
            &base,
            &[
                (
                    json!({"parameters": {"iops": "2"}}),
                    "parameters: Forbidden: updates to parameters are forbidden.",
                ),
                (
                    json!({"driverName": "c"}),
                    "driverName: Forbidden: updates to driverName are forbidden.",
                ),
            ],
        );
    }

    #[test]
    fn attachments_name_a_volume_and_a_node() {
        let base = json!({"spec": {"attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}});
        creates(
            attachment,
            &base,
            &[
                (
                    json!({"spec": {"attacher": null}}),
                    "spec.attacher: Required value",
                ),
                (
                    json!({"spec": {"attacher": "a".repeat(64)}}),
                    "spec.attacher: Too long: may not be more than 63 bytes",
                ),
                (
                    json!({"spec": {"nodeName": "N"}}),
                    "spec.nodeName: Invalid value: \"N\"",
                ),
                (
                    json!({"spec": {"source": null}}),
                    "spec.source: Required value: must specify exactly one of",
                ),
                (
                    json!({"spec": {"source": {"inlineVolumeSpec": {}}}}),
                    "spec.source: Forbidden: must specify exactly one of",
                ),
                (
                    json!({"spec": {"source": {"persistentVolumeName": "A"}}}),
                    "spec.source.persistentVolumeName: Invalid value: \"A\"",
                ),
                (
                    json!({"status": {"attachError": {"message": "x".repeat(1025)}}}),
                    "status.attachError.message: Too long",
                ),
                (
                    json!({"status": {"detachError": {"errorCode": -1}}}),
                    "status.detachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                ),
            ],
        );
        updates(
            attachment_update,
            "",
            &base,
            &[
                (json!({"status": {"attached": true}}), ""),
                (json!({"spec": {"nodeName": "m"}}), "spec: Invalid value: {"),
            ],
        );
    }

    #[test]
    fn csi_nodes_list_each_driver_once() {
        let driver = json!({"name": "a.b", "nodeID": "n", "topologyKeys": ["zone"]});
        let base = json!({"spec": {"drivers": [driver]}});
        let drivers = |list: Value| json!({"spec": {"drivers": list}});
        creates(
            csi_node,
            &base,
            &[
                (
                    drivers(json!([driver, driver])),
                    "spec.drivers[1].name: Duplicate value: \"a.b\"",
                ),
                (
                    drivers(json!([{"name": "a.b"}])),
                    "spec.drivers[0].nodeID: Required value",
                ),
                (
                    drivers(json!([{"name": "a.b", "nodeID": "n".repeat(257)}])),
                    "spec.drivers[0].nodeID: Invalid value",
                ),
                (
                    drivers(json!([{"name": "a.b", "nodeID": "n", "allocatable": {"count": -1}}])),
                    "spec.drivers[0].allocatable.count: Invalid value: -1",
                ),
                (
                    drivers(json!([{"name": "a.b", "nodeID": "n", "topologyKeys": ["a", "a"]}])),
                    "spec.drivers[0]: Duplicate value: \"a\"",
                ),
            ],
        );
        updates(
            csi_node_update,
            "",
            &base,
            &[
                (
                    drivers(json!([{"name": "a.b", "nodeID": "m", "topologyKeys": ["zone"]}])),
                    "spec.drivers: Invalid value: {",
                ),
                (drivers(json!([])), ""),
            ],
        );
    }

    #[test]
    fn csi_drivers_are_complete() {
        let base = json!({"spec": {"attachRequired": true, "podInfoOnMount": false, "storageCapacity": false, "volumeLifecycleModes": ["Persistent"]}});
        let token = |request: Value| json!({"spec": {"tokenRequests": [request]}});
        creates(
            csi_driver,
            &base,
            &[
                (
                    json!({"spec": {"attachRequired": null}}),
                    "spec.attachedRequired: Required value",
                ),
                (
                    json!({"spec": {"fsGroupPolicy": "Maybe"}}),
                    "spec.fsGroupPolicy: Unsupported value: \"Maybe\": supported values: \"File\", \"None\", \"ReadWriteOnceWithFSType\"",
                ),
                (
                    json!({"spec": {"volumeLifecycleModes": ["Odd"]}}),
                    "spec.volumeLifecycleModes: Unsupported value: \"Odd\"",
                ),
                (
                    token(json!({"audience": "a", "expirationSeconds": 599})),
                    "spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
                ),
                (
                    token(json!({"audience": "a", "expirationSeconds": 600})),
                    "",
                ),
                (
                    json!({"spec": {"nodeAllocatableUpdatePeriodSeconds": 9}}),
                    "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9",
                ),
                (
                    json!({"spec": {"serviceAccountTokenInSecrets": true}}),
                    "spec.serviceAccountTokenInSecrets: Invalid value: true",
                ),
            ],
        );
        updates(
            csi_driver_update,
            "",
            &base,
            &[
                (
                    json!({"spec": {"attachRequired": false}}),
                    "spec.attachedRequired: Invalid value: false: field is immutable",
                ),
                (json!({"spec": {"podInfoOnMount": true}}), ""),
            ],
        );
    }

    #[test]
    fn capacities_belong_to_a_class_and_place() {
        let base = json!({"storageClassName": "a", "capacity": "1Gi"});
        creates(
            capacity,
            &base,
            &[
                (
                    json!({"storageClassName": "A"}),
                    "storageClassName: Invalid value: \"A\"",
                ),
                (
                    json!({"capacity": "-1"}),
                    "capacity: Invalid value: \"-1\": must be greater than or equal to 0",
                ),
                (
                    json!({"nodeTopology": {"matchLabels": {"a b": ""}}}),
                    "nodeTopology.matchLabels: Invalid value",
                ),
            ],
        );
        updates(
            capacity_update,
            "",
            &base,
            &[
                (
                    json!({"storageClassName": "b"}),
                    "storageClassName: Invalid value: \"b\": field is immutable",
                ),
                (json!({"capacity": "2Gi"}), ""),
            ],
        );
    }
}
