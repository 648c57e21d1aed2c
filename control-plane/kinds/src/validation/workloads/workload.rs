//! Deployments, ReplicaSets, ReplicationControllers and DaemonSets.

use kube_kit::selector::LabelSelector;
use serde_json::Value;

use super::workload_status;
use crate::field::{Errors, Path};
use crate::validation::pods::pod;
use crate::validation::reading::{at, has, int, some_int, text};
use crate::validation::rules::{immutable, label_selector, non_negative, selects_all};
use crate::validation::values::{amount, at_most_all, int_or_percent};

const NO_MATCH: &str = "`selector` does not match template `labels`";

/// A new Deployment.
pub(crate) fn deployment(object: &Value, errors: &mut Errors) {
    let (path, spec) = (Path::root("spec"), at(object, "spec"));
    non_negative(errors, &path, spec, "replicas");
    if selector(errors, &path, spec, "deployment") {
        template(errors, &path, spec, "ReplicaSet");
    }
    deployment_strategy(errors, &path.child("strategy"), at(spec, "strategy"));
    for field in [
        "minReadySeconds",
        "revisionHistoryLimit",
        "progressDeadlineSeconds",
    ] {
        non_negative(errors, &path, spec, field);
    }
    let deadline = some_int(spec, "progressDeadlineSeconds");
    if deadline.is_some_and(|seconds| seconds <= int(spec, "minReadySeconds")) {
        let value = at(spec, "progressDeadlineSeconds");
        let detail = "must be greater than minReadySeconds";
        errors.invalid(&path.child("progressDeadlineSeconds"), value, detail);
    }
}

/// A changed Deployment.
pub(crate) fn deployment_update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        return workload_status::deployment(errors, new, old);
    }
    deployment(new, errors);
    same_selector(errors, new, old);
}

/// A new ReplicaSet.
pub(crate) fn replica_set(object: &Value, errors: &mut Errors) {
    let (path, spec) = (Path::root("spec"), at(object, "spec"));
    for field in ["replicas", "minReadySeconds"] {
        non_negative(errors, &path, spec, field);
    }
    // Upstream names the Deployment here, too.
    if selector(errors, &path, spec, "deployment") {
        template(errors, &path, spec, "ReplicaSet");
    }
}

/// A changed ReplicaSet.
pub(crate) fn replica_set_update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        return workload_status::replica_set(errors, new, old);
    }
    replica_set(new, errors);
    same_selector(errors, new, old);
}

/// A new ReplicationController.
pub(crate) fn replication_controller(object: &Value, errors: &mut Errors) {
    let (path, spec) = (Path::root("spec"), at(object, "spec"));
    non_negative(errors, &path, spec, "minReadySeconds");
    if at(spec, "selector")
        .as_object()
        .is_none_or(serde_json::Map::is_empty)
    {
        errors.required(&path.child("selector"), "");
    }
    if !has(spec, "replicas") {
        errors.required(&path.child("replicas"), "");
    }
    non_negative(errors, &path, spec, "replicas");
    if !has(spec, "template") {
        return errors.required(&path.child("template"), "");
    }
    let selector = LabelSelector::from_map(at(spec, "selector"));
    matching_labels(errors, &path, spec, &selector);
    template(errors, &path, spec, "ReplicationController");
}

/// A changed ReplicationController.
pub(crate) fn replication_controller_update(
    new: &Value,
    old: &Value,
    subresource: &str,
    errors: &mut Errors,
) {
    match subresource {
        "status" => workload_status::replica_set(errors, new, old),
        _ => replication_controller(new, errors),
    }
}

/// A new DaemonSet.
pub(crate) fn daemon_set(object: &Value, errors: &mut Errors) {
    let (path, spec) = (Path::root("spec"), at(object, "spec"));
    let selector = at(spec, "selector");
    label_selector(errors, &path.child("selector"), selector);
    if let Ok(parsed) = LabelSelector::from_object(selector) {
        matching_labels(errors, &path, spec, &parsed);
    }
    if !selector.is_null() && selects_all(selector) {
        let detail = "empty selector is invalid for daemonset";
        errors.invalid(&path.child("selector"), selector, detail);
    }
    template(errors, &path, spec, "DaemonSet");
    for field in ["minReadySeconds", "revisionHistoryLimit"] {
        non_negative(errors, &path, spec, field);
    }
    daemon_set_strategy(
        errors,
        &path.child("updateStrategy"),
        at(spec, "updateStrategy"),
    );
}

/// A changed DaemonSet.
pub(crate) fn daemon_set_update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        return workload_status::daemon_set(errors, new, old);
    }
    same_selector(errors, new, old);
    daemon_set(new, errors);
}

/// The selector of a workload and the labels it must find; `false` when it is no selector at all.
pub(crate) fn selector(errors: &mut Errors, path: &Path<'_>, spec: &Value, kind: &str) -> bool {
    let selector = at(spec, "selector");
    let path_of_selector = path.child("selector");
    if selector.is_null() {
        errors.required(&path_of_selector, "");
    } else {
        label_selector(errors, &path_of_selector, selector);
        if selects_all(selector) {
            let detail = format!("empty selector is invalid for {kind}");
            errors.invalid(&path_of_selector, selector, &detail);
        }
    }
    match LabelSelector::from_object(selector) {
        Ok(parsed) => {
            matching_labels(errors, path, spec, &parsed);
            true
        }
        Err(_) => {
            let detail = if kind == "statefulset" {
                ""
            } else {
                "invalid label selector"
            };
            errors.invalid(&path_of_selector, selector, detail);
            false
        }
    }
}

/// The pods a workload makes must be pods it selects.
pub(crate) fn matching_labels(
    errors: &mut Errors,
    path: &Path<'_>,
    spec: &Value,
    selector: &LabelSelector,
) {
    let labels = at(at(at(spec, "template"), "metadata"), "labels");
    if !selector.matches_labels(labels) {
        let template = path.child("template");
        let metadata = template.child("metadata");
        errors.invalid(&metadata.child("labels"), labels, NO_MATCH);
    }
}

// The template of pods that run for ever.
fn template(errors: &mut Errors, path: &Path<'_>, spec: &Value, kind: &str) {
    let template_path = path.child("template");
    pod::template(errors, &template_path, at(spec, "template"));
    endless(errors, path, spec, kind);
}

/// Pods of these workloads run for ever: they restart always and have no deadline.
pub(crate) fn endless(errors: &mut Errors, path: &Path<'_>, spec: &Value, kind: &str) {
    let template_path = path.child("template");
    let path = template_path.child("spec");
    let pod = at(at(spec, "template"), "spec");
    let policy = text(pod, "restartPolicy");
    if policy != "Always" {
        errors.not_supported(&path.child("restartPolicy"), &policy.into(), &["Always"]);
    }
    if has(pod, "activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(&path.child("activeDeadlineSeconds"), &detail);
    }
}

fn same_selector(errors: &mut Errors, new: &Value, old: &Value) {
    let path = Path::root("spec");
    let (new, old) = (
        at(at(new, "spec"), "selector"),
        at(at(old, "spec"), "selector"),
    );
    immutable(errors, &path.child("selector"), new, old);
}

fn deployment_strategy(errors: &mut Errors, path: &Path<'_>, strategy: &Value) {
    let rolling = at(strategy, "rollingUpdate");
    let rolling_path = path.child("rollingUpdate");
    match text(strategy, "type") {
        "Recreate" if !rolling.is_null() => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.forbidden(&rolling_path, detail);
        }
        "Recreate" => {}
        "RollingUpdate" if rolling.is_null() => {
            errors.required(&rolling_path, "this should be defaulted and never be nil");
        }
        "RollingUpdate" => deployment_rollout(errors, &rolling_path, rolling),
        _ => errors.not_supported(path, strategy, &["Recreate", "RollingUpdate"]),
    }
}

fn deployment_rollout(errors: &mut Errors, path: &Path<'_>, rolling: &Value) {
    let unavailable = at(rolling, "maxUnavailable");
    for field in ["maxUnavailable", "maxSurge"] {
        int_or_percent(errors, &path.child(field), at(rolling, field));
    }
    let path = path.child("maxUnavailable");
    if amount(unavailable) == 0 && amount(at(rolling, "maxSurge")) == 0 {
        errors.invalid(&path, unavailable, "may not be 0 when `maxSurge` is 0");
    }
    at_most_all(errors, &path, unavailable);
}

fn daemon_set_strategy(errors: &mut Errors, path: &Path<'_>, strategy: &Value) {
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let path = path.child("rollingUpdate");
            match at(strategy, "rollingUpdate") {
                Value::Null => errors.required(&path, ""),
                rolling => daemon_set_rollout(errors, &path, rolling),
            }
        }
        _ => errors.not_supported(path, strategy, &["RollingUpdate", "OnDelete"]),
    }
}

// A node's pod is either replaced before or after the new one starts.
fn daemon_set_rollout(errors: &mut Errors, path: &Path<'_>, rolling: &Value) {
    let fields = ["maxUnavailable", "maxSurge"];
    for field in fields {
        int_or_percent(errors, &path.child(field), at(rolling, field));
    }
    for field in fields {
        at_most_all(errors, &path.child(field), at(rolling, field));
    }
    match fields.map(|field| amount(at(rolling, field)) != 0) {
        [true, true] => {
            let detail = "may not be set when maxUnavailable is non-zero";
            errors.invalid(&path.child("maxSurge"), at(rolling, "maxSurge"), detail);
        }
        [false, false] => {
            errors.required(
                &path.child("maxUnavailable"),
                "cannot be 0 when maxSurge is 0",
            );
        }
        _ => {}
    }
}

#[cfg(test)]
#[path = "workload_tests.rs"]
pub(crate) mod tests;
