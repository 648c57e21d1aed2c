//! Annotations of pods that mean something to the cluster, most of them older than a field.

use serde_json::Value;

use super::pod_windows::for_each_container;
use super::{affinity, volume_paths};
use crate::field::{Errors, Path};
use crate::validation::reading::{at, entries, has, items, text};

/// Marks the pod the kubelet shows for a static pod.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The annotations of a pod or template, at `path`.
pub(crate) fn values(errors: &mut Errors, path: &Path<'_>, metadata: &Value, spec: &Value) {
    for (key, value) in entries(metadata, "annotations") {
        let value = value.as_str().unwrap_or_default();
        match key {
            MIRROR if text(spec, "nodeName").is_empty() => {
                let detail = "must set spec.nodeName if mirror pod annotation is set";
                errors.invalid(&path.key(MIRROR), &value.into(), detail);
            }
            TOLERATIONS if !value.is_empty() => tolerations(errors, path, value),
            DELETION_COST if !is_deletion_cost(value) => {
                let detail = "must be a 32bit integer";
                errors.invalid(&path.key(DELETION_COST), &value.into(), detail);
            }
            SECCOMP_POD => seccomp(errors, &path.child(key), value),
            _ if key.starts_with(SECCOMP_CONTAINER) => seccomp(errors, &path.child(key), value),
            _ => {}
        }
    }
    for (key, value) in entries(metadata, "annotations") {
        if let Some(container) = key.strip_prefix(APP_ARMOR) {
            let value = value.as_str().unwrap_or_default();
            app_armor(errors, &path.key(key), container, value, spec);
        }
    }
}

fn tolerations(errors: &mut Errors, path: &Path<'_>, value: &str) {
    match serde_json::from_str::<Vec<Value>>(value) {
        Ok(list) => affinity::tolerations(errors, &path.child(TOLERATIONS), &list),
        Err(error) => errors.invalid(path, &TOLERATIONS.into(), &error.to_string()),
    }
}

// A plain decimal: no sign but minus, no leading zeros.
fn is_deletion_cost(value: &str) -> bool {
    value
        .parse::<i32>()
        .is_ok_and(|number| number.to_string() == value)
}

fn seccomp(errors: &mut Errors, path: &Path<'_>, profile: &str) {
    match profile {
        "runtime/default" | "docker/default" | "unconfined" => {}
        _ => match profile.strip_prefix("localhost/") {
            Some(local) => volume_paths::descending(errors, path, local),
            None => errors.invalid(path, &profile.into(), "must be a valid seccomp profile"),
        },
    }
}

fn app_armor(errors: &mut Errors, path: &Path<'_>, container: &str, profile: &str, spec: &Value) {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let exists = lists
        .iter()
        .flat_map(|list| items(spec, list))
        .any(|candidate| text(candidate, "name") == container);
    if !exists {
        errors.invalid(path, &container.into(), "container not found");
    }
    let known = matches!(profile, "" | "runtime/default" | "unconfined");
    if !known && !profile.starts_with("localhost/") {
        let detail = format!("invalid AppArmor profile name: {profile:?}");
        errors.invalid(path, &profile.into(), &detail);
    }
}

/// The annotations of a pod that may not change any more.
pub(crate) fn changes(errors: &mut Errors, new: &Value, old: &Value) {
    let root = Path::root("metadata");
    let path = root.child("annotations");
    let (new_metadata, old_metadata) = (at(new, "metadata"), at(old, "metadata"));
    let (news, olds) = (
        at(new_metadata, "annotations"),
        at(old_metadata, "annotations"),
    );
    let kinds = [
        (MIRROR, "mirror pod annotation"),
        (APP_ARMOR, "AppArmor annotations"),
    ];
    let kind = |key: &str| {
        let matches = |name: &str| key == name || (name == APP_ARMOR && key.starts_with(name));
        kinds
            .iter()
            .find(|(name, _)| matches(name))
            .map(|(_, what)| *what)
    };
    for (key, value) in entries(old_metadata, "annotations") {
        if let Some(what) = kind(key).filter(|_| news.get(key) != Some(value)) {
            errors.forbidden(&path.key(key), &format!("may not remove or update {what}"));
        }
    }
    for (key, _) in entries(new_metadata, "annotations") {
        if let Some(what) = kind(key).filter(|_| olds.get(key).is_none()) {
            errors.forbidden(&path.key(key), &format!("may not add {what}"));
        }
    }
    values(errors, &path, new_metadata, at(new, "spec"));
}

/// Where an annotation and a field say the same thing, they must agree.
pub(crate) fn agree_with_fields(
    errors: &mut Errors,
    path: &Path<'_>,
    metadata: &Value,
    spec: &Value,
) {
    let annotations = at(metadata, "annotations");
    let pod_context = at(spec, "securityContext");
    let context_path = path.child("securityContext");
    let said = |key: &str| annotations.get(key).and_then(Value::as_str);
    let pod_profile = at(pod_context, "seccompProfile");
    same_profile(
        errors,
        &context_path.child("seccompProfile"),
        "seccomp",
        said(SECCOMP_POD),
        pod_profile,
    );
    let is_windows = text(at(spec, "os"), "name") == "windows";
    for_each_container(path, spec, |path, container| {
        let name = text(container, "name");
        let context = at(container, "securityContext");
        let context_path = path.child("securityContext");
        let annotation = said(&format!("{SECCOMP_CONTAINER}{name}"));
        let profile = at(context, "seccompProfile");
        same_profile(
            errors,
            &context_path.child("seccompProfile"),
            "seccomp",
            annotation,
            profile,
        );
        if is_windows {
            return;
        }
        let annotation = said(&format!("{APP_ARMOR}{name}"));
        let owner = if has(context, "appArmorProfile") {
            context
        } else {
            pod_context
        };
        let profile = at(owner, "appArmorProfile");
        let profile_path = context_path.child("appArmorProfile");
        same_profile(errors, &profile_path, "apparmor", annotation, profile);
    });
}

fn same_profile(
    errors: &mut Errors,
    path: &Path<'_>,
    what: &str,
    annotation: Option<&str>,
    profile: &Value,
) {
    let Some(annotation) = annotation.filter(|_| !profile.is_null()) else {
        return;
    };
    let is_same_type = match text(profile, "type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default")
        }
        "Localhost" => annotation.starts_with("localhost/"),
        _ => true,
    };
    if !is_same_type {
        let detail = format!("{what} type in annotation and field must match");
        return errors.forbidden(&path.child("type"), &detail);
    }
    let local = annotation.strip_prefix("localhost/");
    if text(profile, "type") == "Localhost" && local != Some(text(profile, "localhostProfile")) {
        let detail = format!("{what} profile in annotation and field must match");
        errors.forbidden(&path.child("localhostProfile"), &detail);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;

    #[test]
    fn annotations_hold_what_they_promise() {
        let spec = json!({"containers": [{"name": "app"}]});
        let check = |key: &str, value: &str| {
            let metadata = json!({"annotations": {key: value}});
            told(|e| values(e, &Path::root("a"), &metadata, &spec)).join("|")
        };
        for (key, value) in [
            (DELETION_COST, "-5"),
            (SECCOMP_POD, "runtime/default"),
            (
                "container.apparmor.security.beta.kubernetes.io/app",
                "localhost/x",
            ),
            ("example.com/free", "text"),
        ] {
            assert_eq!(check(key, value), "", "{key}");
        }
        for (key, value, complaint) in [
            (
                MIRROR,
                "x",
                "must set spec.nodeName if mirror pod annotation is set",
            ),
            (DELETION_COST, "+5", "must be a 32bit integer"),
            (SECCOMP_POD, "x", "must be a valid seccomp profile"),
            (
                "container.apparmor.security.beta.kubernetes.io/no",
                "",
                "container not found",
            ),
            (
                "container.apparmor.security.beta.kubernetes.io/app",
                "x",
                "invalid AppArmor profile name",
            ),
            (
                TOLERATIONS,
                "[{\"operator\":\"x\",\"key\":\"k\"}]",
                "Unsupported value: \"x\"",
            ),
        ] {
            let found = check(key, value);
            assert!(found.contains(complaint), "{key}: {found}");
        }
    }

    #[test]
    fn static_pods_stay_what_they_are() {
        let pod = |annotations: Value| json!({"metadata": {"annotations": annotations}, "spec": {"nodeName": "n"}});
        let (mirror, plain) = (pod(json!({MIRROR: "x"})), pod(json!({"a": "b"})));
        assert!(told(|e| changes(e, &mirror, &mirror)).is_empty());
        assert_eq!(
            told(|e| changes(e, &plain, &mirror)),
            [
                "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not remove or update mirror pod annotation"
            ]
        );
        assert_eq!(
            told(|e| changes(e, &mirror, &plain)),
            [
                "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation"
            ]
        );
    }

    #[test]
    fn profiles_agree() {
        let check = |annotation: &str, profile: Value| {
            let metadata = json!({"annotations": {"container.seccomp.security.alpha.kubernetes.io/app": annotation}});
            let spec = json!({"containers": [{"name": "app", "securityContext": {"seccompProfile": profile}}]});
            told(|e| agree_with_fields(e, &Path::root("spec"), &metadata, &spec)).join("|")
        };
        assert_eq!(
            check("runtime/default", json!({"type": "RuntimeDefault"})),
            ""
        );
        assert_eq!(
            check(
                "localhost/x",
                json!({"type": "Localhost", "localhostProfile": "x"})
            ),
            ""
        );
        assert_eq!(
            check("unconfined", json!({"type": "RuntimeDefault"})),
            "spec.containers[0].securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match"
        );
        assert_eq!(
            check(
                "localhost/y",
                json!({"type": "Localhost", "localhostProfile": "x"})
            ),
            "spec.containers[0].securityContext.seccompProfile.localhostProfile: Forbidden: seccomp profile in annotation and field must match"
        );
    }
}
