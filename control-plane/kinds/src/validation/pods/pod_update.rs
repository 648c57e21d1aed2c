//! Changes to a pod: nearly nothing of a running pod's spec may change.

use serde_json::Value;

use super::pod_annotations::MIRROR;
use super::{affinity, container, pod, pod_annotations};
use crate::field::{Errors, Path};
use crate::validation::difference::difference;
use crate::validation::names;
use crate::validation::reading::{at, items, same, some_int, text};

const MAY_CHANGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const ONLY_ADDITIONS: &str =
    "only additions to spec.nodeSelector are allowed (no mutations or deletions)";

/// A changed pod.
pub(crate) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    pod::whole(errors, new);
    pod_annotations::changes(errors, new, old);
    let path = Path::root("spec");
    let (new, old) = (at(new, "spec"), at(old, "spec"));
    for list in ["containers", "initContainers"] {
        if !same_containers(
            errors,
            &path.child(list),
            items(new, list),
            items(old, list),
        ) {
            return;
        }
    }
    if !deadline(errors, &path.child("activeDeadlineSeconds"), new, old) {
        return;
    }
    let tolerations = path.child("tolerations");
    let (new_tolerations, old_tolerations) = (items(new, "tolerations"), items(old, "tolerations"));
    affinity::only_added_tolerations(errors, &tolerations, new_tolerations, old_tolerations);
    fewer_gates(errors, &path.child("schedulingGates"), new, old);
    if same(new, old) {
        return;
    }
    let mut munged = without_free_changes(new, old);
    if !items(old, "schedulingGates").is_empty() {
        gated_changes(errors, &path, &mut munged, old);
    }
    if !same(&munged, old) {
        errors.forbidden(
            &path,
            &format!("{MAY_CHANGE}\n{}", difference(old, &munged)),
        );
    }
}

// `false` when containers came or went, and the rest cannot be compared.
fn same_containers(errors: &mut Errors, path: &Path<'_>, new: &[Value], old: &[Value]) -> bool {
    if new.len() != old.len() {
        errors.forbidden(path, "pod updates may not add or remove containers");
        return false;
    }
    for (i, container) in new.iter().enumerate() {
        if text(container, "image").is_empty() {
            errors.required(&path.index(i).child("image"), "");
        }
        container::trimmed_image(errors, &path.index(i), container);
    }
    true
}

// The deadline may be set once and then only come nearer. `false` ends the checks, as upstream.
fn deadline(errors: &mut Errors, path: &Path<'_>, new: &Value, old: &Value) -> bool {
    let field = "activeDeadlineSeconds";
    match (some_int(new, field), some_int(old, field)) {
        (Some(seconds), before) => {
            let mut complaints = names::in_range(seconds, 0, i64::from(i32::MAX));
            if complaints.is_empty() && before.is_some_and(|before| before < seconds) {
                complaints.push("must be less than or equal to previous value".to_owned());
            }
            for complaint in &complaints {
                errors.invalid(path, &seconds.into(), complaint);
            }
            complaints.is_empty()
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.invalid(path, &Value::Null, detail);
            true
        }
        (None, None) => true,
    }
}

fn fewer_gates(errors: &mut Errors, path: &Path<'_>, new: &Value, old: &Value) {
    let before: Vec<&str> = items(old, "schedulingGates")
        .iter()
        .map(|gate| text(gate, "name"))
        .collect();
    for (i, gate) in items(new, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !before.contains(&name) {
            let detail =
                format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&path.index(i).child("name"), &detail);
        }
    }
}

// The new spec with everything put back that may change or was judged already.
fn without_free_changes(new: &Value, old: &Value) -> Value {
    let mut munged = new.clone();
    for list in ["containers", "initContainers"] {
        for (i, before) in items(old, list).iter().enumerate() {
            restore(&mut munged[list][i], before, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore(&mut munged, old, field);
    }
    let grace = "terminationGracePeriodSeconds";
    let was_negative = some_int(old, grace).is_some_and(|seconds| seconds < 0);
    if was_negative && some_int(new, grace) == Some(1) {
        restore(&mut munged, old, grace);
    }
    munged
}

/// Puts a field back to what it was.
pub(crate) fn restore(new: &mut Value, old: &Value, field: &str) {
    let Some(map) = new.as_object_mut() else {
        return;
    };
    match old.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

// Before a pod is scheduled, the nodes it may run on can be narrowed.
fn gated_changes(errors: &mut Errors, path: &Path<'_>, munged: &mut Value, old: &Value) {
    let selector = at(munged, "nodeSelector").clone();
    let before = at(old, "nodeSelector");
    let lost = before
        .as_object()
        .into_iter()
        .flatten()
        .any(|(k, v)| selector.get(k) != Some(v));
    if lost {
        errors.invalid(&path.child("nodeSelector"), &selector, ONLY_ADDITIONS);
    }
    restore(munged, old, "nodeSelector");
    let affinity_path = path.child("affinity");
    let before = at(at(old, "affinity"), "nodeAffinity").clone();
    let after = at(at(munged, "affinity"), "nodeAffinity").clone();
    if same(&before, &after) {
        return;
    }
    affinity::narrowed(
        errors,
        &affinity_path.child("nodeAffinity"),
        &after,
        &before,
    );
    let others = ["podAffinity", "podAntiAffinity"];
    let only_nodes = others
        .iter()
        .all(|name| at(at(munged, "affinity"), name).is_null());
    if only_nodes
        && others
            .iter()
            .all(|name| at(at(old, "affinity"), name).is_null())
    {
        restore(munged, old, "affinity");
    } else if let Some(affinity) = munged.get_mut("affinity") {
        restore(affinity, at(old, "affinity"), "nodeAffinity");
    }
}

/// Changes through `ephemeralcontainers`: only additions.
pub(crate) fn ephemeral_containers(errors: &mut Errors, new: &Value, old: &Value) {
    if at(at(old, "metadata"), "annotations").get(MIRROR).is_some() {
        let detail = "static pods do not support ephemeral containers";
        return errors.forbidden(&Path::root(""), detail);
    }
    pod::whole(errors, new);
    pod_annotations::changes(errors, new, old);
    let root = Path::root("spec");
    let path = root.child("ephemeralContainers");
    let after = items(at(new, "spec"), "ephemeralContainers");
    for before in items(at(old, "spec"), "ephemeralContainers") {
        let name = text(before, "name");
        match after
            .iter()
            .find(|container| text(container, "name") == name)
        {
            None => {
                let detail = format!("existing ephemeral containers {name:?} may not be removed\n");
                errors.forbidden(&path, &detail);
            }
            Some(container) if !same(container, before) => {
                let changes = difference(before, container);
                let detail =
                    format!("existing ephemeral containers {name:?} may not be changed\n{changes}");
                errors.forbidden(&path, &detail);
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
#[path = "pod_update_tests.rs"]
mod tests;
