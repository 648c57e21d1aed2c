//! Horizontal pod autoscalers (`v2`, and the older `v1` shape) and scale requests.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::pod_resources;
use crate::validation::names;
use crate::validation::reading::{at, deep, has, int, items, some_int, text};
use crate::validation::rules::{NEGATIVE, complain, non_negative, one_of};

const SPEC: Path<'static> = Path::root("spec");
const PERIOD_MAX: i64 = 1800;
const WINDOW_MAX: i64 = 3600;
const METRIC_TYPES: &[&str] = &[
    "ContainerResource",
    "External",
    "Object",
    "Pods",
    "Resource",
];

// The field that goes with each type, in the order upstream looks at them.
const METRIC_FIELDS: &[(&str, &str)] = &[
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

/// A new HorizontalPodAutoscaler.
pub fn create(object: &Value, errors: &mut Errors) {
    check(object, &Value::Null, errors);
}

/// A changed HorizontalPodAutoscaler, or its status.
pub fn update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        let path = Path::root("status");
        for name in ["currentReplicas", "desiredReplicas"] {
            non_negative(errors, &path, at(new, "status"), name);
        }
    } else {
        check(new, old, errors);
    }
}

fn check(object: &Value, old: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    replicas(spec, errors);
    target(spec, at(old, "spec"), errors);
    for (i, metric) in items(spec, "metrics").iter().enumerate() {
        metric_spec(metric, &SPEC.child("metrics").index(i), errors);
    }
    let outlives_pods = |metric: &Value| matches!(text(metric, "type"), "Object" | "External");
    let is_idle = some_int(spec, "minReplicas") == Some(0);
    if is_idle && !items(spec, "metrics").iter().any(outlives_pods) {
        errors.forbidden(
            &SPEC.child("metrics"),
            "must specify at least one Object or External metric to support scaling to zero replicas",
        );
    }
    let behavior = SPEC.child("behavior");
    for direction in ["scaleUp", "scaleDown"] {
        let rules = deep(spec, &["behavior", direction]);
        if !rules.is_null() {
            scaling_rules(rules, &behavior.child(direction), errors);
        }
    }
    // The `v1` shape has one metric, whose limits upstream reports as the `v2` field.
    if some_int(spec, "targetCPUUtilizationPercentage").is_some_and(|percent| percent < 1) {
        let path = Path::root("spec.metrics[0].resource.target.averageUtilization");
        errors.invalid(
            &path,
            at(spec, "targetCPUUtilizationPercentage"),
            "must be greater than 0",
        );
    }
}

fn replicas(spec: &Value, errors: &mut Errors) {
    let (min, max) = (some_int(spec, "minReplicas"), int(spec, "maxReplicas"));
    if min.is_some_and(|min| min < 1) {
        let complaint = "must be greater than or equal to 1";
        errors.invalid(
            &SPEC.child("minReplicas"),
            at(spec, "minReplicas"),
            complaint,
        );
    }
    let path = SPEC.child("maxReplicas");
    if max == 0 {
        errors.required(&path, "must be set and greater than 0");
    } else if max < 0 {
        errors.invalid(&path, &max.into(), "must be greater than or equal to 1");
    }
    if min.is_some_and(|min| max < min) {
        errors.invalid(
            &path,
            &max.into(),
            "must be greater than or equal to `minReplicas`",
        );
    }
}

// A target that was accepted without a group may stay.
fn target(spec: &Value, old: &Value, errors: &mut Errors) {
    let path = SPEC.child("scaleTargetRef");
    let reference = at(spec, "scaleTargetRef");
    reference_names(reference, &path, errors);
    let version = text(reference, "apiVersion");
    let was_lenient = !old.is_null()
        && api_version(text(at(old, "scaleTargetRef"), "apiVersion"), true).is_some();
    if let Some(complaint) = api_version(version, true).filter(|_| !was_lenient) {
        errors.invalid(&path.child("apiVersion"), &version.into(), &complaint);
    }
}

fn reference_names(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["kind", "name"] {
        let value = text(reference, name);
        if value.is_empty() {
            errors.required(&path.child(name), "");
        }
        complain(errors, &path.child(name), value, names::path_segment(value));
    }
}

fn api_version(version: &str, needs_group: bool) -> Option<String> {
    match version.split('/').count() {
        1 if needs_group => Some("apiVersion must specify API group".to_owned()),
        1 | 2 => None,
        _ => Some(format!("unexpected GroupVersion string: {version}")),
    }
}

fn metric_spec(metric: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ty = text(metric, "type");
    if ty.is_empty() {
        errors.required(&path.child("type"), "must specify a metric source type");
    }
    one_of(errors, path, metric, "type", METRIC_TYPES);
    let present: Vec<_> = METRIC_FIELDS
        .iter()
        .map(|(_, field)| *field)
        .filter(|field| has(metric, field))
        .collect();
    if let Some(first) = present.first() {
        metric_source(first, at(metric, first), &path.child(first), errors);
    }
    let expected = METRIC_FIELDS
        .iter()
        .find(|(name, _)| *name == ty)
        .map(|(_, field)| *field);
    if let Some(field) = expected.filter(|field| !has(metric, field)) {
        let complaint = "must populate information for the given metric source";
        errors.required(&path.child(field), complaint);
    }
    for field in present
        .iter()
        .filter(|field| present.len() > 1 && Some(**field) != expected)
    {
        errors.forbidden(
            &path.child(field),
            "must populate the given metric source only",
        );
    }
}

fn metric_source(field: &str, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    match field {
        "object" => {
            let (path, object) = (path.child("describedObject"), at(source, "describedObject"));
            reference_names(object, &path, errors);
            let version = text(object, "apiVersion");
            if let Some(complaint) = api_version(version, false) {
                errors.invalid(&path.child("apiVersion"), &version.into(), &complaint);
            }
        }
        "resource" | "containerResource" if text(source, "name").is_empty() => {
            errors.required(&path.child("name"), "must specify a resource name");
        }
        _ => {}
    }
    if field == "containerResource" {
        let container = text(source, "container");
        if container.is_empty() {
            errors.required(&path.child("container"), "must specify a container");
        } else {
            complain(
                errors,
                &path.child("container"),
                container,
                names::dns1123_label(container),
            );
        }
    }
    if matches!(field, "object" | "external" | "pods") {
        metric_identifier(at(source, "metric"), &path.child("metric"), errors);
    }
    let (path, target) = (path.child("target"), at(source, "target"));
    metric_target(target, &path, errors);
    metric_amounts(field, target, &path, errors);
}

fn metric_identifier(metric: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(metric, "name");
    if name.is_empty() {
        errors.required(&path.child("name"), "must specify a metric name");
    }
    complain(errors, &path.child("name"), name, names::path_segment(name));
}

fn metric_target(target: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ty = text(target, "type");
    if ty.is_empty() {
        errors.required(&path.child("type"), "must specify a metric target type");
    }
    if !matches!(ty, "Utilization" | "Value" | "AverageValue") {
        let complaint = "must be either Utilization, Value, or AverageValue";
        errors.invalid(&path.child("type"), &ty.into(), complaint);
    }
    for name in ["value", "averageValue"] {
        if pod_resources::parse(at(target, name)).is_some_and(|amount| amount.signum() <= 0) {
            errors.invalid(&path.child(name), at(target, name), "must be positive");
        }
    }
    if some_int(target, "averageUtilization").is_some_and(|percent| percent < 1) {
        let value = at(target, "averageUtilization");
        errors.invalid(
            &path.child("averageUtilization"),
            value,
            "must be greater than 0",
        );
    }
}

// Which amounts a source needs, and which exclude each other.
fn metric_amounts(field: &str, target: &Value, path: &Path<'_>, errors: &mut Errors) {
    let value = has(target, "value");
    let average = has(target, "averageValue");
    let utilization = has(target, "averageUtilization");
    match field {
        "object" if !value && !average => errors.required(
            &path.child("averageValue"),
            "must set either a target value or averageValue",
        ),
        "external" if !value && !average => errors.required(
            &path.child("averageValue"),
            "must set either a target value for metric or a per-pod target",
        ),
        "external" if value && average => errors.forbidden(
            &path.child("value"),
            "may not set both a target value for metric and a per-pod target",
        ),
        "pods" if !average => errors.required(
            &path.child("averageValue"),
            "must specify a positive target averageValue",
        ),
        "resource" | "containerResource" if !utilization && !average => errors.required(
            &path.child("averageUtilization"),
            "must set either a target raw value or a target utilization",
        ),
        "resource" | "containerResource" if utilization && average => errors.forbidden(
            &path.child("averageValue"),
            "may not set both a target raw value and a target utilization",
        ),
        _ => {}
    }
}

fn scaling_rules(rules: &Value, path: &Path<'_>, errors: &mut Errors) {
    let window = "stabilizationWindowSeconds";
    let complaint = match some_int(rules, window) {
        Some(seconds) if seconds < 0 => Some("must be greater than or equal to zero".to_owned()),
        Some(seconds) if seconds > WINDOW_MAX => {
            Some(format!("must be less than or equal to {WINDOW_MAX}"))
        }
        _ => None,
    };
    if let Some(complaint) = complaint {
        errors.invalid(&path.child(window), at(rules, window), &complaint);
    }
    if has(rules, "selectPolicy") {
        one_of(
            errors,
            path,
            rules,
            "selectPolicy",
            &["Disabled", "Max", "Min"],
        );
    }
    let policies = path.child("policies");
    if items(rules, "policies").is_empty() {
        errors.required(&policies, "must specify at least one Policy");
    }
    for (i, policy) in items(rules, "policies").iter().enumerate() {
        scaling_policy(policy, &policies.index(i), errors);
    }
    let tolerance = pod_resources::parse(at(rules, "tolerance"));
    if let Some(amount) = tolerance.filter(|amount| amount.signum() < 0) {
        errors.invalid(
            &path.child("tolerance"),
            &amount.to_string().into(),
            NEGATIVE,
        );
    }
}

fn scaling_policy(policy: &Value, path: &Path<'_>, errors: &mut Errors) {
    one_of(errors, path, policy, "type", &["Percent", "Pods"]);
    for name in ["value", "periodSeconds"] {
        let value = int(policy, name);
        if value <= 0 {
            errors.invalid(
                &path.child(name),
                &value.into(),
                "must be greater than zero",
            );
        }
    }
    let seconds = int(policy, "periodSeconds");
    if seconds > PERIOD_MAX {
        let complaint = format!("must be less than or equal to {PERIOD_MAX}");
        errors.invalid(&path.child("periodSeconds"), &seconds.into(), &complaint);
    }
}

/// The body of a `scale` request.
pub fn scale(object: &Value, errors: &mut Errors) {
    non_negative(errors, &SPEC, at(object, "spec"), "replicas");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates};

    fn hpa() -> Value {
        json!({"spec": {"minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]}})
    }

    #[test]
    fn replicas_and_target_make_sense() {
        creates(
            create,
            &hpa(),
            &[
                (
                    json!({"spec": {"minReplicas": 0}}),
                    "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
                ),
                (
                    json!({"spec": {"maxReplicas": null}}),
                    "spec.maxReplicas: Required value: must be set and greater than 0",
                ),
                (
                    json!({"spec": {"maxReplicas": -1}}),
                    "spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1",
                ),
                (
                    json!({"spec": {"minReplicas": 4}}),
                    "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`",
                ),
                (
                    json!({"spec": {"scaleTargetRef": {"name": null}}}),
                    "spec.scaleTargetRef.name: Required value",
                ),
                (
                    json!({"spec": {"scaleTargetRef": {"kind": "a/b"}}}),
                    "spec.scaleTargetRef.kind: Invalid value: \"a/b\": may not contain '/'",
                ),
                (
                    json!({"spec": {"scaleTargetRef": {"apiVersion": "v1"}}}),
                    "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group",
                ),
                (
                    json!({"spec": {"targetCPUUtilizationPercentage": 0}}),
                    "spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0",
                ),
            ],
        );
        let old = json!({"spec": {"maxReplicas": 1, "scaleTargetRef": {"apiVersion": "v1", "kind": "ReplicationController", "name": "a"}}});
        updates(
            update,
            "",
            &old,
            &[(
                json!({"spec": {"maxReplicas": 0}}),
                "spec.maxReplicas: Required value",
            )],
        );
        updates(
            update,
            "status",
            &hpa(),
            &[(
                json!({"status": {"currentReplicas": -1}}),
                "status.currentReplicas: Invalid value: -1",
            )],
        );
    }

    #[test]
    fn metrics_fit_their_type() {
        let metric = |metric: Value| json!({"spec": {"metrics": [metric]}});
        let pods = |target: Value| {
            metric(json!({"type": "Pods", "pods": {"metric": {"name": "m"}, "target": target}}))
        };
        creates(
            create,
            &hpa(),
            &[
                (
                    metric(json!({"type": "Odd"})),
                    "spec.metrics[0].type: Unsupported value: \"Odd\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\"",
                ),
                (
                    metric(json!({"type": "Pods"})),
                    "spec.metrics[0].pods: Required value: must populate information for the given metric source",
                ),
                (
                    pods(json!({"type": "AverageValue", "averageValue": "1"})),
                    "",
                ),
                (
                    pods(json!({"type": "AverageValue"})),
                    "spec.metrics[0].pods.target.averageValue: Required value: must specify a positive target averageValue",
                ),
                (
                    pods(json!({"type": "AverageValue", "averageValue": "0"})),
                    "spec.metrics[0].pods.target.averageValue: Invalid value: \"0\": must be positive",
                ),
                (
                    pods(json!({"averageValue": "1"})),
                    "spec.metrics[0].pods.target.type: Required value: must specify a metric target type",
                ),
                (
                    metric(
                        json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}),
                    ),
                    "spec.metrics[0].resource.target.averageUtilization: Required value",
                ),
                (
                    metric(
                        json!({"type": "Resource", "resource": {"target": {"type": "Utilization", "averageUtilization": 1}}}),
                    ),
                    "spec.metrics[0].resource.name: Required value: must specify a resource name",
                ),
                (
                    metric(
                        json!({"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "1", "averageValue": "1"}}}),
                    ),
                    "spec.metrics[0].external.target.value: Forbidden",
                ),
                (
                    metric(
                        json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 1}}}),
                    ),
                    "spec.metrics[0].containerResource.container: Required value: must specify a container",
                ),
                (
                    metric(
                        json!({"type": "Object", "object": {"metric": {"name": "m"}, "describedObject": {"kind": "A", "name": "b", "apiVersion": "v1"}, "target": {"type": "Value", "value": "1"}}}),
                    ),
                    "",
                ),
                (
                    metric(
                        json!({"type": "Object", "object": {"metric": {}, "describedObject": {"kind": "A", "name": "b"}, "target": {"type": "Value", "value": "1"}}}),
                    ),
                    "spec.metrics[0].object.metric.name: Required value: must specify a metric name",
                ),
                (
                    metric(
                        json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 1}}, "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}}),
                    ),
                    "spec.metrics[0].pods: Forbidden: must populate the given metric source only",
                ),
            ],
        );
    }

    #[test]
    fn behaviour_has_policies() {
        let up = |rules: Value| json!({"spec": {"behavior": {"scaleUp": rules}}});
        let good = json!({"type": "Pods", "value": 1, "periodSeconds": 15});
        creates(
            create,
            &hpa(),
            &[
                (up(json!({"policies": [good], "selectPolicy": "Max"})), ""),
                (
                    up(json!({})),
                    "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy",
                ),
                (
                    up(json!({"policies": [good], "selectPolicy": "Any"})),
                    "spec.behavior.scaleUp.selectPolicy: Unsupported value: \"Any\": supported values: \"Disabled\", \"Max\", \"Min\"",
                ),
                (
                    up(json!({"policies": [good], "stabilizationWindowSeconds": 3601})),
                    "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
                ),
                (
                    up(json!({"policies": [{"type": "Odd", "value": 1, "periodSeconds": 15}]})),
                    "spec.behavior.scaleUp.policies[0].type: Unsupported value: \"Odd\": supported values: \"Percent\", \"Pods\"",
                ),
                (
                    up(json!({"policies": [{"type": "Pods", "value": 0, "periodSeconds": 15}]})),
                    "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
                ),
                (
                    up(json!({"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1801}]})),
                    "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
                ),
            ],
        );
    }

    #[test]
    fn scales_are_not_negative() {
        creates(
            scale,
            &json!({"spec": {"replicas": 0}}),
            &[(
                json!({"spec": {"replicas": -1}}),
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            )],
        );
    }
}
