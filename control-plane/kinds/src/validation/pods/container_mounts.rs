//! What a container mounts: each path once, every volume known.

use std::collections::HashSet;

use serde_json::Value;

use super::pod_spec::PodContext;
use super::volume_paths;
use crate::field::{Errors, Path};
use crate::validation::reading::{at, flag, has, items, text};
use crate::validation::values::optional_choice;

const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
const UNIQUE: &str = "must be unique";

/// The mounts of a container.
pub(crate) fn mounts(
    errors: &mut Errors,
    path: &Path<'_>,
    container: &Value,
    pod: &PodContext<'_>,
) {
    let [device_names, device_paths] = texts_of(container, "volumeDevices", ["name", "devicePath"]);
    let mut seen = HashSet::new();
    for (i, mount) in items(container, "volumeMounts").iter().enumerate() {
        let element = path.index(i);
        let (name, target) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.required(&element.child("name"), "");
        }
        if !pod.volumes.contains_key(name) {
            errors.not_found(&element.child("name"), &name.into());
        }
        if target.is_empty() {
            errors.required(&element.child("mountPath"), "");
        }
        if !seen.insert(target) {
            errors.invalid(&element.child("mountPath"), &target.into(), UNIQUE);
        }
        if device_names.contains(name) {
            let detail = "must not already exist in volumeDevices";
            errors.invalid(&element.child("name"), &name.into(), detail);
        }
        if device_paths.contains(target) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.invalid(&element.child("mountPath"), &target.into(), detail);
        }
        sub_path(errors, path, &element, mount);
        propagation(errors, path, mount, container);
    }
}

// Upstream reports these paths at the list, without the element's index.
fn sub_path(errors: &mut Errors, list: &Path<'_>, element: &Path<'_>, mount: &Value) {
    let (plain, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    if !plain.is_empty() {
        volume_paths::descending(errors, &list.child("subPath"), plain);
    }
    if expression.is_empty() {
        return;
    }
    if !plain.is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        errors.invalid(&element.child("subPathExpr"), &expression.into(), detail);
    }
    volume_paths::descending(errors, &list.child("subPathExpr"), expression);
}

fn propagation(errors: &mut Errors, list: &Path<'_>, mount: &Value, container: &Value) {
    optional_choice(errors, list, mount, "mountPropagation", &PROPAGATIONS);
    let mode = text(mount, "mountPropagation");
    if mode == "Bidirectional" && !flag(at(container, "securityContext"), "privileged") {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(&list.child("mountPropagation"), detail);
    }
    let path = list.child("recursiveReadOnly");
    match text(mount, "recursiveReadOnly") {
        "Enabled" | "IfPossible" => {
            if !flag(mount, "readOnly") {
                errors.forbidden(&path, "may only be specified when readOnly is true");
            }
            if !matches!(mode, "" | "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.forbidden(&path, detail);
            }
        }
        "Disabled" => {}
        _ => {
            let allowed = ["Disabled", "Enabled", "IfPossible"];
            optional_choice(errors, list, mount, "recursiveReadOnly", &allowed);
        }
    }
}

/// The raw devices of a container; only claims can be raw.
pub(crate) fn devices(
    errors: &mut Errors,
    path: &Path<'_>,
    container: &Value,
    pod: &PodContext<'_>,
) {
    let [mount_names, mount_paths] = texts_of(container, "volumeMounts", ["name", "mountPath"]);
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for (i, device) in items(container, "volumeDevices").iter().enumerate() {
        let element = path.index(i);
        let (name, target) = (text(device, "name"), text(device, "devicePath"));
        let (name_path, target_path) = (element.child("name"), element.child("devicePath"));
        if name.is_empty() {
            errors.required(&name_path, "");
        } else if !names.insert(name) {
            errors.invalid(&name_path, &name.into(), UNIQUE);
        }
        match pod.volumes.get(name) {
            None => errors.not_found(&name_path, &name.into()),
            Some(volume) if has(volume, "persistentVolumeClaim") || has(volume, "ephemeral") => {}
            Some(_) => errors.invalid(
                &name_path,
                &name.into(),
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            ),
        }
        if target.is_empty() {
            errors.required(&target_path, "");
        }
        if paths.contains(target) {
            errors.invalid(&target_path, &target.into(), UNIQUE);
        }
        if volume_paths::has_backsteps(target) {
            errors.invalid(
                &target_path,
                &target.into(),
                "can not contain backsteps ('..')",
            );
        } else {
            paths.insert(target);
        }
        if mount_names.contains(name) {
            let detail = "must not already exist in volumeMounts";
            errors.invalid(&name_path, &name.into(), detail);
        }
        if mount_paths.contains(target) {
            let detail = "must not already exist as a path in volumeMounts";
            errors.invalid(&target_path, &target.into(), detail);
        }
    }
}

// What the elements of a list have in two of their fields.
fn texts_of<'v>(container: &'v Value, list: &str, fields: [&str; 2]) -> [HashSet<&'v str>; 2] {
    fields.map(|field| {
        items(container, list)
            .iter()
            .map(|item| text(item, field))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;

    fn check(container: Value) -> String {
        let spec = json!({"volumes": [
            {"name": "data", "emptyDir": {}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}}
        ]});
        let pod = PodContext::of(&spec, true);
        told(|e| {
            mounts(e, &Path::root("m"), &container, &pod);
            devices(e, &Path::root("d"), &container, &pod);
        })
        .join("|")
    }

    #[test]
    fn mounts_name_a_volume_and_a_path_of_their_own() {
        let cases = [
            (
                json!([{"name": "data", "mountPath": "/a", "subPath": "x/y"}]),
                "",
            ),
            (
                json!([{"name": "nope", "mountPath": "/a"}]),
                "m[0].name: Not found: \"nope\"",
            ),
            (json!([{"name": "data"}]), "m[0].mountPath: Required value"),
            (
                json!([{"name": "data", "mountPath": "/a"}, {"name": "claim", "mountPath": "/a"}]),
                "m[1].mountPath: Invalid value: \"/a\": must be unique",
            ),
            (
                json!([{"name": "data", "mountPath": "/a", "subPath": "/x"}]),
                "m.subPath: Invalid value: \"/x\": must be a relative path",
            ),
            (
                json!([{"name": "data", "mountPath": "/a", "subPath": "x", "subPathExpr": "y"}]),
                "m[0].subPathExpr: Invalid value: \"y\": subPathExpr and subPath are mutually exclusive",
            ),
            (
                json!([{"name": "data", "mountPath": "/a", "mountPropagation": "Bidirectional"}]),
                "m.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
            ),
            (
                json!([{"name": "data", "mountPath": "/a", "recursiveReadOnly": "Enabled"}]),
                "m.recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
            ),
        ];
        for (mounts, expected) in cases {
            assert_eq!(
                check(json!({ "volumeMounts": mounts })),
                expected,
                "{mounts}"
            );
        }
    }

    #[test]
    fn devices_are_claims_of_their_own() {
        let cases = [
            (json!([{"name": "claim", "devicePath": "/dev/x"}]), ""),
            (
                json!([{"name": "data", "devicePath": "/dev/x"}]),
                "d[0].name: Invalid value: \"data\": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            ),
            (
                json!([{"name": "claim"}]),
                "d[0].devicePath: Required value",
            ),
            (
                json!([{"name": "claim", "devicePath": "/dev/../x"}]),
                "d[0].devicePath: Invalid value: \"/dev/../x\": can not contain backsteps ('..')",
            ),
        ];
        for (devices, expected) in cases {
            assert_eq!(
                check(json!({ "volumeDevices": devices })),
                expected,
                "{devices}"
            );
        }
        let both = check(json!({
            "volumeMounts": [{"name": "claim", "mountPath": "/a"}],
            "volumeDevices": [{"name": "claim", "devicePath": "/b"}]
        }));
        assert!(
            both.contains("must not already exist in volumeDevices"),
            "{both}"
        );
        assert!(
            both.contains("must not already exist in volumeMounts"),
            "{both}"
        );
    }
}
