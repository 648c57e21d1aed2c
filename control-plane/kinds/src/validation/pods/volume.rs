//! The volumes of a pod: unique names, exactly one source each.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::container::PULL_POLICIES;
use super::{volume_legacy, volume_paths, volume_projected};
use crate::field::{Errors, Path};
use crate::pod_resources;
use crate::validation::reading::{at, has, items, text};
use crate::validation::rules::complain;
use crate::validation::storage::{classes, volumes};
use crate::validation::values::{choice, file_mode, found};
use crate::validation::{metadata, names};

type Check = fn(&mut Errors, &Path<'_>, &Value);

/// A source: its field, the name upstream gives it in the paths of its errors, and its check. Of
/// several sources the first in this order counts and the others are refused.
struct Source {
    field: &'static str,
    path: &'static str,
    extra_path: &'static str,
    check: Check,
}

const fn source(field: &'static str, check: Check) -> Source {
    Source {
        field,
        path: field,
        extra_path: field,
        check,
    }
}

// Two paths are misspelt upstream; clients have seen them so for years.
const SOURCES: &[Source] = &[
    source("emptyDir", empty_dir),
    source("hostPath", host_path),
    source("gitRepo", volume_legacy::git_repo),
    Source {
        path: "persistentDisk",
        ..source("gcePersistentDisk", volume_legacy::disk)
    },
    source("awsElasticBlockStore", volume_legacy::disk),
    source("secret", secret),
    source("nfs", volume_legacy::nfs),
    source("iscsi", volume_legacy::iscsi),
    source("glusterfs", volume_legacy::glusterfs),
    source("flocker", volume_legacy::flocker),
    source("persistentVolumeClaim", claim),
    source("rbd", volume_legacy::rbd),
    source("cinder", volume_legacy::cinder),
    Source {
        extra_path: "cephFS",
        ..source("cephfs", volume_legacy::cephfs)
    },
    source("quobyte", volume_legacy::quobyte),
    Source {
        extra_path: "downwarAPI",
        ..source("downwardAPI", volume_projected::downward)
    },
    source("fc", volume_legacy::fibre_channel),
    source("flexVolume", volume_legacy::flex),
    source("configMap", config_map),
    source("azureFile", volume_legacy::azure_file),
    source("vsphereVolume", volume_legacy::vsphere),
    source("photonPersistentDisk", volume_legacy::photon),
    source("portworxVolume", volume_legacy::portworx),
    source("azureDisk", volume_legacy::azure_disk),
    source("storageos", volume_legacy::storage_os),
    source("projected", volume_projected::projected),
    source("scaleIO", volume_legacy::scale_io),
    source("csi", csi),
    source("ephemeral", ephemeral),
    source("image", image),
];

/// Checks the volumes of a pod and gives back the good ones by name. `pod_name` is empty for
/// templates.
pub(crate) fn volumes<'v>(
    errors: &mut Errors,
    path: &Path<'_>,
    list: &'v [Value],
    pod_name: &str,
    is_pod: bool,
) -> HashMap<&'v str, &'v Value> {
    let mut good = HashMap::new();
    let created = claims_to_create(list, pod_name);
    for (i, volume) in list.iter().enumerate() {
        let element = path.index(i);
        let name = text(volume, "name");
        let problems = found(|errors| {
            one_source(errors, &element, volume, pod_name, is_pod);
            if name.is_empty() {
                errors.required(&element.child("name"), "");
            } else {
                complain(
                    errors,
                    &element.child("name"),
                    name,
                    names::dns1123_label(name),
                );
            }
            if good.contains_key(name) {
                errors.duplicate(&element.child("name"), &name.into());
            }
        });
        if problems.is_empty() {
            good.insert(name, volume);
        }
        errors.0.extend(problems.0);
        let claim_name = text(at(volume, "persistentVolumeClaim"), "claimName");
        if created.contains(claim_name) {
            let claim_path = element.child("persistentVolumeClaim");
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            errors.invalid(&claim_path.child("claimName"), &claim_name.into(), detail);
        }
    }
    good
}

fn claims_to_create(list: &[Value], pod_name: &str) -> HashSet<String> {
    list.iter()
        .filter(|volume| !pod_name.is_empty() && has(volume, "ephemeral"))
        .map(|volume| format!("{pod_name}-{}", text(volume, "name")))
        .collect()
}

fn one_source(errors: &mut Errors, path: &Path<'_>, volume: &Value, pod_name: &str, is_pod: bool) {
    let mut given = SOURCES.iter().filter(|source| has(volume, source.field));
    let Some(first) = given.next() else {
        return errors.required(path, "must specify a volume type");
    };
    (first.check)(errors, &path.child(first.path), at(volume, first.field));
    match first.field {
        "ephemeral" => created_claim_name(errors, path, text(volume, "name"), pod_name),
        "image" if is_pod && text(at(volume, "image"), "reference").is_empty() => {
            errors.required(&path.child("image").child("reference"), "");
        }
        "iscsi" => volume_legacy::iscsi_name(errors, path, volume),
        _ => {}
    }
    for extra in given {
        let detail = "may not specify more than 1 volume type";
        errors.forbidden(&path.child(extra.extra_path), detail);
    }
}

fn created_claim_name(errors: &mut Errors, path: &Path<'_>, volume: &str, pod_name: &str) {
    if volume.is_empty() || pod_name.is_empty() {
        return;
    }
    let claim = format!("{pod_name}-{volume}");
    for complaint in names::dns1123_subdomain(&claim) {
        let detail = format!("PVC name {claim:?}: {complaint}");
        errors.invalid(&path.child("name"), &volume.into(), &detail);
    }
}

fn empty_dir(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    let limit = pod_resources::parse(at(source, "sizeLimit"));
    if limit.is_some_and(|limit| limit.signum() < 0) {
        let detail = "SizeLimit field must be a valid resource quantity";
        errors.forbidden(&path.child("sizeLimit"), detail);
    }
}

/// A directory or file of the node.
pub(crate) fn host_path(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    const TYPES: [&str; 8] = [
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    let target = text(source, "path");
    if target.is_empty() {
        return errors.required(&path.child("path"), "");
    }
    volume_paths::no_backsteps(errors, &path.child("path"), target);
    let ty = text(source, "type");
    if !TYPES.contains(&ty) {
        errors.not_supported(&path.child("type"), &ty.into(), &TYPES);
    }
}

fn secret(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    if text(source, "secretName").is_empty() {
        errors.required(&path.child("secretName"), "");
    }
    keys_and_mode(errors, path, source);
}

fn config_map(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    if text(source, "name").is_empty() {
        errors.required(&path.child("name"), "");
    }
    keys_and_mode(errors, path, source);
}

fn keys_and_mode(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    file_mode(errors, path, source, "defaultMode");
    let path = path.child("items");
    for (i, item) in items(source, "items").iter().enumerate() {
        key_to_path(errors, &path.index(i), item);
    }
}

/// A key of a config map or secret and the file it becomes.
pub(crate) fn key_to_path(errors: &mut Errors, path: &Path<'_>, item: &Value) {
    for name in ["key", "path"] {
        if text(item, name).is_empty() {
            errors.required(&path.child(name), "");
        }
    }
    volume_paths::not_reserved(errors, &path.child("path"), text(item, "path"));
    file_mode(errors, path, item, "mode");
}

fn claim(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    if text(source, "claimName").is_empty() {
        errors.required(&path.child("claimName"), "");
    }
}

fn csi(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    classes::driver_name(text(source, "driver"), &path.child("driver"), errors);
    if !has(source, "nodePublishSecretRef") {
        return;
    }
    match text(at(source, "nodePublishSecretRef"), "name") {
        "" => errors.required(&path.child("nodePublishSecretRef").child("name"), ""),
        name => complain(
            errors,
            &path.child("name"),
            name,
            names::dns1123_subdomain(name),
        ),
    }
}

fn ephemeral(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    let path = path.child("volumeClaimTemplate");
    let template = at(source, "volumeClaimTemplate");
    if template.is_null() {
        return errors.required(&path, "");
    }
    let metadata_path = path.child("metadata");
    metadata::template(at(template, "metadata"), &metadata_path, errors);
    only_labels_and_annotations(errors, &metadata_path, at(template, "metadata"));
    volumes::claim_spec(at(template, "spec"), &path.child("spec"), errors);
}

fn only_labels_and_annotations(errors: &mut Errors, path: &Path<'_>, metadata: &Value) {
    for (name, value) in metadata.as_object().into_iter().flatten() {
        if !matches!(name.as_str(), "labels" | "annotations") && !value.is_null() {
            errors.forbidden(&path.child(name), "cannot be set");
        }
    }
}

fn image(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    choice(
        errors,
        &path.child("pullPolicy"),
        text(source, "pullPolicy"),
        &PULL_POLICIES,
    );
}

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
