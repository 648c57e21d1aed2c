//! Volume sources that were part of the tree before CSI. Most only ask that their fields are set.

use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

use super::volume_paths;
use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, entries, flag, has, int, items, some_int, text};
use crate::validation::rules::{complain, required};
use crate::validation::values::{optional_choice, optional_label};

const LONG_PORTAL: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
const MANAGED_DISK: &str = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
const BLOB_DISK: &str =
    "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";

fn all_required(errors: &mut Errors, path: &Path<'_>, source: &Value, fields: &[&str]) {
    for field in fields {
        required(errors, path, source, field);
    }
}

fn secret_ref(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    if has(source, "secretRef") && text(at(source, "secretRef"), "name").is_empty() {
        errors.required(&path.child("secretRef").child("name"), "");
    }
}

pub(crate) fn git_repo(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    required(errors, path, source, "repository");
    volume_paths::descending(errors, &path.child("directory"), text(source, "directory"));
}

/// Disks of Google and Amazon: an id and perhaps a partition.
pub(crate) fn disk(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    let id = if has(source, "pdName") {
        "pdName"
    } else {
        "volumeID"
    };
    required(errors, path, source, id);
    let partition = int(source, "partition");
    if !(0..=255).contains(&partition) {
        let detail = "must be between 1 and 255, inclusive";
        errors.invalid(&path.child("partition"), &partition.into(), detail);
    }
}

pub(crate) fn nfs(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    all_required(errors, path, source, &["server", "path"]);
    let target = text(source, "path");
    if !target.starts_with('/') {
        errors.invalid(
            &path.child("path"),
            &target.into(),
            "must be an absolute path",
        );
    }
}

pub(crate) fn iscsi(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    required(errors, path, source, "targetPortal");
    if required(errors, path, source, "iqn") {
        qualified_name(errors, &path.child("iqn"), text(source, "iqn"));
    }
    let lun = int(source, "lun");
    if !(0..=255).contains(&lun) {
        let detail = "must be between 0 and 255, inclusive";
        errors.invalid(&path.child("lun"), &lun.into(), detail);
    }
    let authenticates = flag(source, "chapAuthDiscovery") || flag(source, "chapAuthSession");
    if authenticates && !has(source, "secretRef") {
        errors.required(&path.child("secretRef"), "");
    }
    if has(source, "initiatorName") {
        qualified_name(
            errors,
            &path.child("initiatorname"),
            text(source, "initiatorName"),
        );
    }
}

fn qualified_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    static FORMATS: OnceLock<[Regex; 3]> = OnceLock::new();
    let formats = FORMATS.get_or_init(|| {
        [
            r"iqn\.[0-9]{4}-[0-9]{2}\.([[:alnum:].-]+)(:[^,;*&$|[:space:]]+)$",
            r"^eui.[[:alnum:]]{16}$",
            r"^naa.[[:alnum:]]{32}$",
        ]
        .map(|format| Regex::new(format).expect("the pattern is constant"))
    });
    match ["iqn", "eui", "naa"]
        .iter()
        .position(|prefix| name.starts_with(prefix))
    {
        None => {
            let detail = "must be valid format starting with iqn, eui, or naa";
            errors.invalid(path, &name.into(), detail);
        }
        Some(i) if !formats[i].is_match(name) => {
            errors.invalid(path, &name.into(), "must be valid format");
        }
        Some(_) => {}
    }
}

/// The initiator is told apart by the volume's name and portal, which must fit.
pub(crate) fn iscsi_name(errors: &mut Errors, path: &Path<'_>, volume: &Value) {
    let (name, source) = (text(volume, "name"), at(volume, "iscsi"));
    let length = name.len() + 1 + text(source, "targetPortal").len();
    if has(source, "initiatorName") && length > 64 {
        errors.invalid(&path.child("name"), &name.into(), LONG_PORTAL);
    }
}

pub(crate) fn glusterfs(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    all_required(errors, path, source, &["endpoints", "path"]);
}

pub(crate) fn flocker(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    let (name, id) = (text(source, "datasetName"), text(source, "datasetUUID"));
    if name.is_empty() && id.is_empty() {
        errors.required(path, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !id.is_empty() {
        let detail = "datasetName and datasetUUID can not be specified simultaneously";
        errors.invalid(path, &"resource".into(), detail);
    }
    if name.contains('/') {
        errors.invalid(
            &path.child("datasetName"),
            &name.into(),
            "must not contain '/'",
        );
    }
}

pub(crate) fn rbd(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    cephfs(errors, path, source);
    required(errors, path, source, "image");
}

pub(crate) fn cinder(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    required(errors, path, source, "volumeID");
    secret_ref(errors, path, source);
}

pub(crate) fn cephfs(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    if items(source, "monitors").is_empty() {
        errors.required(&path.child("monitors"), "");
    }
}

pub(crate) fn quobyte(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    let registry = text(source, "registry");
    let registry_path = path.child("registry");
    if registry.is_empty() {
        errors.required(&registry_path, PAIRS);
    } else if text(source, "tenant").len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.required(&path.child("tenant"), detail);
    } else {
        for _ in registry.split(',').filter(|pair| !pair.contains(':')) {
            errors.invalid(&registry_path, &registry.into(), PAIRS);
        }
    }
    required(errors, path, source, "volume");
}

pub(crate) fn fibre_channel(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    let (targets, ids) = (items(source, "targetWWNs"), items(source, "wwids"));
    let targets_path = path.child("targetWWNs");
    if targets.is_empty() && ids.is_empty() {
        errors.required(
            &targets_path,
            "must specify either targetWWNs or wwids, but not both",
        );
    }
    if !targets.is_empty() && !ids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(&targets_path, at(source, "targetWWNs"), detail);
    }
    if targets.is_empty() {
        return;
    }
    let lun_path = path.child("lun");
    match some_int(source, "lun") {
        None => errors.required(&lun_path, "lun is required if targetWWNs is specified"),
        Some(lun) if !(0..=255).contains(&lun) => {
            errors.invalid(
                &lun_path,
                &lun.into(),
                "must be between 0 and 255, inclusive",
            );
        }
        Some(_) => {}
    }
}

pub(crate) fn flex(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    required(errors, path, source, "driver");
    let options = path.child("options");
    for (key, _) in entries(source, "options") {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
        let namespace = format!(".{}", namespace.to_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid(&options.key(key), &key.into(), detail);
        }
    }
}

pub(crate) fn azure_file(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    all_required(errors, path, source, &["secretName", "shareName"]);
}

pub(crate) fn azure_disk(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    all_required(errors, path, source, &["diskName", "diskURI"]);
    let modes = ["None", "ReadOnly", "ReadWrite"];
    optional_choice(errors, path, source, "cachingMode", &modes);
    let kinds = ["Dedicated", "Managed", "Shared"];
    optional_choice(errors, path, source, "kind", &kinds);
    let uri = text(source, "diskURI");
    let (start, expected) = match text(source, "kind") {
        "" => return,
        "Managed" => ("/subscriptions/", MANAGED_DISK),
        _ => ("https://", BLOB_DISK),
    };
    if !uri.starts_with(start) {
        errors.not_supported(&path.child("diskURI"), &uri.into(), &[expected]);
    }
}

pub(crate) fn vsphere(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    required(errors, path, source, "volumePath");
}

pub(crate) fn photon(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    required(errors, path, source, "pdID");
}

pub(crate) fn portworx(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    required(errors, path, source, "volumeID");
}

pub(crate) fn storage_os(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    if required(errors, path, source, "volumeName") {
        let name = text(source, "volumeName");
        complain(
            errors,
            &path.child("volumeName"),
            name,
            names::dns1123_label(name),
        );
    }
    optional_label(errors, path, source, "volumeNamespace");
    secret_ref(errors, path, source);
}

pub(crate) fn scale_io(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    all_required(errors, path, source, &["gateway", "system", "volumeName"]);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;

    type Check = fn(&mut Errors, &Path<'_>, &Value);

    #[test]
    fn fields_are_set() {
        let cases: [(Check, Value, &str); 16] = [
            (nfs, json!({"server": "s", "path": "/p"}), ""),
            (
                nfs,
                json!({"server": "s", "path": "p"}),
                "v.path: Invalid value: \"p\": must be an absolute path",
            ),
            (
                azure_file,
                json!({"secretName": "s"}),
                "v.shareName: Required value",
            ),
            (
                azure_disk,
                json!({"diskName": "d", "diskURI": "/subscriptions/x", "kind": "Managed"}),
                "",
            ),
            (
                azure_disk,
                json!({"diskName": "d", "diskURI": "x", "kind": "Managed"}),
                "v.diskURI: Unsupported value: \"x\": supported values: \"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}\"",
            ),
            (
                iscsi,
                json!({"targetPortal": "p", "iqn": "iqn.2001-04.com.example:storage"}),
                "",
            ),
            (
                iscsi,
                json!({"targetPortal": "p", "iqn": "foo"}),
                "v.iqn: Invalid value: \"foo\": must be valid format starting with iqn, eui, or naa",
            ),
            (
                flocker,
                json!({}),
                "v: Required value: one of datasetName and datasetUUID is required",
            ),
            (rbd, json!({"monitors": ["m"]}), "v.image: Required value"),
            (fibre_channel, json!({"wwids": ["w"]}), ""),
            (
                fibre_channel,
                json!({"targetWWNs": ["w"]}),
                "v.lun: Required value: lun is required if targetWWNs is specified",
            ),
            (
                flex,
                json!({"driver": "d", "options": {"a.k8s.io/x": "y"}}),
                "v.options[a.k8s.io/x]: Invalid value: \"a.k8s.io/x\": kubernetes.io and k8s.io namespaces are reserved",
            ),
            (
                git_repo,
                json!({"repository": "r", "directory": "../x"}),
                "v.directory: Invalid value: \"../x\": must not contain '..'",
            ),
            (
                disk,
                json!({"pdName": "d", "partition": 300}),
                "v.partition: Invalid value: 300: must be between 1 and 255, inclusive",
            ),
            (
                storage_os,
                json!({"volumeName": "v", "secretRef": {}}),
                "v.secretRef.name: Required value",
            ),
            (
                quobyte,
                json!({"registry": "h:1,x", "volume": "v"}),
                "v.registry: Invalid value: \"h:1,x\": must be a host:port pair or multiple pairs separated by commas",
            ),
        ];
        for (check, source, expected) in cases {
            let found = told(|e| check(e, &Path::root("v"), &source)).join("|");
            assert_eq!(found, expected, "{source}");
        }
    }
}
