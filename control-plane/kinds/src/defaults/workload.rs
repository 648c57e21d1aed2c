//! Deployments, jobs, autoscalers and their kin.

use serde_json::{Value, json};

use super::{Object, child, fill, objects, text, unset};

/// Surge and unavailability of a rolling update.
pub(super) fn deployment(deployment: &mut Object) {
    let strategy = child(child(deployment, "spec"), "strategy");
    rolling_update(
        strategy,
        &json!({ "maxUnavailable": "25%", "maxSurge": "25%" }),
    );
}

/// Surge and unavailability of a rolling update.
pub(super) fn daemon_set(daemon_set: &mut Object) {
    let strategy = child(child(daemon_set, "spec"), "updateStrategy");
    rolling_update(strategy, &json!({ "maxUnavailable": 1, "maxSurge": 0 }));
}

fn rolling_update(strategy: &mut Object, defaults: &Value) {
    if text(strategy, "type") == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        for (name, value) in defaults.as_object().into_iter().flatten() {
            fill(rolling, name, value.clone());
        }
    }
}

/// The update strategy is completed only when the type was left out or parameters are given, and
/// claim templates carry their kind, as they did before conversions were typed.
pub(super) fn stateful_set(stateful_set: &mut Object) {
    let spec = child(stateful_set, "spec");
    let strategy = child(spec, "updateStrategy");
    if unset(strategy, "type") {
        strategy.insert("type".to_owned(), "RollingUpdate".into());
        child(strategy, "rollingUpdate");
    }
    if text(strategy, "type") == "RollingUpdate"
        && let Some(Value::Object(rolling)) = strategy.get_mut("rollingUpdate")
    {
        fill(rolling, "partition", 0);
    }
    let retention = child(spec, "persistentVolumeClaimRetentionPolicy");
    for when in ["whenDeleted", "whenScaled"] {
        if unset(retention, when) {
            retention.insert(when.to_owned(), "Retain".into());
        }
    }
    for claim in objects(spec, "volumeClaimTemplates") {
        claim.insert("apiVersion".to_owned(), "v1".into());
        claim.insert("kind".to_owned(), "PersistentVolumeClaim".into());
    }
}

/// Counts and policies that depend on each other; labels come from the template.
pub(super) fn job(job: &mut Object) {
    let spec = child(job, "spec");
    if spec.get("parallelism").is_none_or(Value::is_null) {
        fill(spec, "completions", 1);
    }
    fill(spec, "parallelism", 1);
    let per_index = spec
        .get("backoffLimitPerIndex")
        .is_some_and(|v| !v.is_null());
    fill(spec, "backoffLimit", if per_index { i32::MAX } else { 6 });
    let has_policy = spec.get("podFailurePolicy").is_some_and(|v| !v.is_null());
    let replacement = if has_policy {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    fill(spec, "podReplacementPolicy", replacement);
    labels_from_template(job);
}

/// Selector and labels come from the template.
pub(super) fn replication_controller(controller: &mut Object) {
    let labels = template_labels(controller);
    let spec = child(controller, "spec");
    if let Some(labels) = labels
        && unset(spec, "selector")
    {
        spec.insert("selector".to_owned(), labels);
    }
    labels_from_template(controller);
}

fn labels_from_template(workload: &mut Object) {
    let labels = template_labels(workload);
    let metadata = child(workload, "metadata");
    if let Some(labels) = labels
        && unset(metadata, "labels")
    {
        metadata.insert("labels".to_owned(), labels);
    }
}

fn template_labels(workload: &Object) -> Option<Value> {
    let labels = workload
        .get("spec")?
        .get("template")?
        .get("metadata")?
        .get("labels")?;
    labels
        .as_object()
        .filter(|map| !map.is_empty())
        .map(|map| Value::Object(map.clone()))
}

const METRICS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/metrics";

/// In v1 other metrics live in an annotation; without any the target is 80 % of the CPU request.
pub(super) fn autoscaler_v1(autoscaler: &mut Object) {
    let annotations = autoscaler
        .get("metadata")
        .and_then(|m| m.get("annotations"));
    let has_other_metrics = annotations.is_some_and(|a| a.get(METRICS_ANNOTATION).is_some());
    if !has_other_metrics {
        fill(
            child(autoscaler, "spec"),
            "targetCPUUtilizationPercentage",
            80,
        );
    }
}

/// Without metrics the target is 80 % of the CPU request; a behavior that is given is completed.
pub(super) fn autoscaler_v2(autoscaler: &mut Object) {
    let spec = child(autoscaler, "spec");
    if unset(spec, "metrics") {
        let target = json!({ "type": "Utilization", "averageUtilization": 80 });
        let metric = json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
        spec.insert("metrics".to_owned(), Value::Array(vec![metric]));
    }
    if let Some(Value::Object(behavior)) = spec.get_mut("behavior") {
        let percent = json!({ "type": "Percent", "value": 100, "periodSeconds": 15 });
        let pods = json!({ "type": "Pods", "value": 4, "periodSeconds": 15 });
        let up = child(behavior, "scaleUp");
        fill(up, "stabilizationWindowSeconds", 0);
        scaling_rules(up, json!([pods, percent]));
        scaling_rules(child(behavior, "scaleDown"), json!([percent]));
    }
}

fn scaling_rules(rules: &mut Object, policies: Value) {
    fill(rules, "selectPolicy", "Max");
    fill(rules, "policies", policies);
}
