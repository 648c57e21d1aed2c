//! Volumes, classes and drivers.

use serde_json::Value;

use super::column::{self, AGE, NAME, boolean, integer, text, wide};
use super::row::{self, Row, is_set, joined};
use super::{Column, Printer};

pub(super) const PRINTERS: [Printer; 7] = [
    Printer("", "PersistentVolume", &VOLUME, volume),
    Printer("", "PersistentVolumeClaim", &CLAIM, claim),
    Printer(
        "storage.k8s.io",
        "StorageClass",
        &STORAGE_CLASS,
        storage_class,
    ),
    Printer(
        "storage.k8s.io",
        "VolumeAttributesClass",
        &ATTRIBUTES_CLASS,
        attributes_class,
    ),
    Printer(
        "storage.k8s.io",
        "VolumeAttachment",
        &ATTACHMENT,
        attachment,
    ),
    Printer("storage.k8s.io", "CSINode", &CSI_NODE, csi_node),
    Printer("storage.k8s.io", "CSIDriver", &CSI_DRIVER, csi_driver),
];

const VOLUME: [Column; 11] = [
    NAME,
    text("Capacity", "Size of the volume."),
    text("Access Modes", "How the volume may be mounted."),
    text(
        "Reclaim Policy",
        "What becomes of the volume without its claim.",
    ),
    text("Status", "Where the volume is in its life."),
    text("Claim", "Claim the volume is bound to."),
    text("StorageClass", "Class of the volume."),
    text(
        "VolumeAttributesClass",
        "Class of the volume's changeable attributes.",
    ),
    text("Reason", "Why the volume is in its state."),
    AGE,
    wide("VolumeMode", "File system or raw block device."),
];

fn volume(row: &Row<'_>) -> Vec<Value> {
    let claim = &row.object["spec"]["claimRef"];
    let claim = match claim.is_null() {
        true => String::new(),
        false => format!(
            "{}/{}",
            row::text(claim, "/namespace"),
            row::text(claim, "/name")
        ),
    };
    vec![
        row.name(),
        row.quantity("/spec/capacity/storage").into(),
        access_modes(row.list("/spec/accessModes")),
        row.text("/spec/persistentVolumeReclaimPolicy").into(),
        phase(row),
        claim.into(),
        class(row).into(),
        set_or(row, "/spec/volumeAttributesClassName"),
        row.text("/status/reason").into(),
        row.age(),
        set_or(row, "/spec/volumeMode"),
    ]
}

const CLAIM: [Column; 9] = [
    NAME,
    text("Status", "Where the claim is in its life."),
    text("Volume", "Volume the claim is bound to."),
    text("Capacity", "Size of the volume."),
    text("Access Modes", "How the volume may be mounted."),
    text("StorageClass", "Class the claim asks for."),
    text(
        "VolumeAttributesClass",
        "Class of the volume's changeable attributes.",
    ),
    AGE,
    wide("VolumeMode", "File system or raw block device."),
];

fn claim(row: &Row<'_>) -> Vec<Value> {
    let volume = row.text("/spec/volumeName");
    let (capacity, modes) = match volume {
        "" => ("", "".into()),
        _ => (
            row.quantity("/status/capacity/storage"),
            access_modes(row.list("/status/accessModes")),
        ),
    };
    vec![
        row.name(),
        phase(row),
        volume.into(),
        capacity.into(),
        modes,
        class(row).into(),
        set_or(row, "/spec/volumeAttributesClassName"),
        row.age(),
        set_or(row, "/spec/volumeMode"),
    ]
}

fn phase(row: &Row<'_>) -> Value {
    if row.is_deleting() {
        "Terminating".into()
    } else {
        row.text("/status/phase").into()
    }
}

fn set_or(row: &Row<'_>, pointer: &str) -> Value {
    if is_set(row.object, pointer) {
        row.text(pointer).into()
    } else {
        "<unset>".into()
    }
}

/// The class, for which old objects have an annotation.
fn class<'a>(row: &Row<'a>) -> &'a str {
    let annotation =
        &row.object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    annotation
        .as_str()
        .unwrap_or_else(|| row.text("/spec/storageClassName"))
}

const MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

fn access_modes(modes: &[Value]) -> Value {
    let present = MODES
        .iter()
        .filter(|(mode, _)| modes.iter().any(|m| m == mode));
    joined(present.map(|(_, short)| *short), ",")
}

const STORAGE_CLASS: [Column; 6] = [
    NAME,
    text("Provisioner", "Driver that makes the volumes."),
    text(
        "ReclaimPolicy",
        "What becomes of a volume without its claim.",
    ),
    text("VolumeBindingMode", "When a volume is made and bound."),
    text("AllowVolumeExpansion", "Whether volumes may grow."),
    AGE,
];

fn storage_class(row: &Row<'_>) -> Vec<Value> {
    let annotations = &row.object["metadata"]["annotations"];
    let is_default = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ]
    .iter()
    .any(|name| annotations[*name] == "true");
    let name = row.text("/metadata/name");
    let name = if is_default {
        format!("{name} (default)")
    } else {
        name.to_owned()
    };
    vec![
        name.into(),
        row.text("/provisioner").into(),
        row.text_or("/reclaimPolicy", "Delete"),
        row.text_or("/volumeBindingMode", "Immediate"),
        row.flag("/allowVolumeExpansion").into(),
        row.age(),
    ]
}

const ATTRIBUTES_CLASS: [Column; 3] = [
    NAME,
    text("DriverName", "Driver the attributes are for."),
    AGE,
];

fn attributes_class(row: &Row<'_>) -> Vec<Value> {
    vec![row.name(), row.text("/driverName").into(), row.age()]
}

const ATTACHMENT: [Column; 6] = [
    NAME,
    column::name("Attacher", "Driver that attaches the volume.", 0),
    text("PV", "Volume to attach."),
    text("Node", "Node to attach the volume to."),
    boolean("Attached", "Whether the volume is attached."),
    AGE,
];

fn attachment(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.name(),
        row.text("/spec/attacher").into(),
        row.text("/spec/source/persistentVolumeName").into(),
        row.text("/spec/nodeName").into(),
        row.flag("/status/attached").into(),
        row.age(),
    ]
}

const CSI_NODE: [Column; 3] = [
    NAME,
    integer("Drivers", "Drivers installed on the node."),
    AGE,
];

fn csi_node(row: &Row<'_>) -> Vec<Value> {
    vec![row.name(), row.count("/spec/drivers").into(), row.age()]
}

const CSI_DRIVER: [Column; 8] = [
    NAME,
    boolean(
        "AttachRequired",
        "Whether volumes must be attached before they are mounted.",
    ),
    boolean("PodInfoOnMount", "Whether a mount is told about the pod."),
    boolean(
        "StorageCapacity",
        "Whether the driver publishes how much room there is.",
    ),
    text("TokenRequests", "Audiences of the tokens a mount is given."),
    boolean(
        "RequiresRepublish",
        "Whether a mount is refreshed from time to time.",
    ),
    text("Modes", "Lives a volume of the driver may have."),
    AGE,
];

fn csi_driver(row: &Row<'_>) -> Vec<Value> {
    let modes = row
        .list("/spec/volumeLifecycleModes")
        .iter()
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(",");
    let tokens = match is_set(row.object, "/spec/tokenRequests") {
        true => joined(
            row.list("/spec/tokenRequests")
                .iter()
                .map(|token| row::text(token, "/audience")),
            ",",
        ),
        false => "<unset>".into(),
    };
    vec![
        row.name(),
        row.object["spec"]["attachRequired"]
            .as_bool()
            .unwrap_or(true)
            .into(),
        row.flag("/spec/podInfoOnMount").into(),
        row.flag("/spec/storageCapacity").into(),
        tokens,
        row.flag("/spec/requiresRepublish").into(),
        row::non_empty(&modes, "<none>").into(),
        row.age(),
    ]
}
