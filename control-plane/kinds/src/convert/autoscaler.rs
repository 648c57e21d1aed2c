//! HorizontalPodAutoscaler between autoscaling/v1 and v2.
//!
//! v1 knows one target, the average CPU utilization. As upstream's
//! `pkg/apis/autoscaling/v1/conversion.go` does, everything else travels in annotations, in the
//! metrics' old v1 shape, and the annotations never show in v2.

use serde_json::{Map, Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const ROUND_TRIP: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// What upstream scales on when a v1 object names no target.
const DEFAULT_CPU_UTILIZATION: i64 = 80;

/// What stands in v1 for a value that v2 leaves out.
#[derive(Clone, Copy)]
enum Missing {
    Nothing,
    EmptyText,
    ZeroQuantity,
}

use Missing::{EmptyText, Nothing, ZeroQuantity};

/// A field of a v1 metric, where its value stands in v2, and what v1 has without it.
type Row = (&'static str, &'static [&'static str], Missing);

/// The metric sources: the field that holds one, its rows in a spec, its rows in a status.
const SOURCES: [(&str, &[Row], &[Row]); 5] = [
    (
        "object",
        &[
            ("target", &["describedObject"], Nothing),
            ("metricName", &["metric", "name"], EmptyText),
            ("targetValue", &["target", "value"], ZeroQuantity),
            ("selector", &["metric", "selector"], Nothing),
            ("averageValue", &["target", "averageValue"], Nothing),
        ],
        &[
            ("target", &["describedObject"], Nothing),
            ("metricName", &["metric", "name"], EmptyText),
            ("currentValue", &["current", "value"], ZeroQuantity),
            ("selector", &["metric", "selector"], Nothing),
            ("averageValue", &["current", "averageValue"], Nothing),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", &["metric", "name"], EmptyText),
            (
                "targetAverageValue",
                &["target", "averageValue"],
                ZeroQuantity,
            ),
            ("selector", &["metric", "selector"], Nothing),
        ],
        &[
            ("metricName", &["metric", "name"], EmptyText),
            (
                "currentAverageValue",
                &["current", "averageValue"],
                ZeroQuantity,
            ),
            ("selector", &["metric", "selector"], Nothing),
        ],
    ),
    (
        "resource",
        &[
            ("name", &["name"], EmptyText),
            (
                "targetAverageUtilization",
                &["target", "averageUtilization"],
                Nothing,
            ),
            ("targetAverageValue", &["target", "averageValue"], Nothing),
        ],
        &[
            ("name", &["name"], EmptyText),
            (
                "currentAverageUtilization",
                &["current", "averageUtilization"],
                Nothing,
            ),
            (
                "currentAverageValue",
                &["current", "averageValue"],
                ZeroQuantity,
            ),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", &["name"], EmptyText),
            (
                "targetAverageUtilization",
                &["target", "averageUtilization"],
                Nothing,
            ),
            ("targetAverageValue", &["target", "averageValue"], Nothing),
            ("container", &["container"], EmptyText),
        ],
        &[
            ("name", &["name"], EmptyText),
            (
                "currentAverageUtilization",
                &["current", "averageUtilization"],
                Nothing,
            ),
            (
                "currentAverageValue",
                &["current", "averageValue"],
                ZeroQuantity,
            ),
            ("container", &["container"], EmptyText),
        ],
    ),
    (
        "external",
        &[
            ("metricName", &["metric", "name"], EmptyText),
            ("metricSelector", &["metric", "selector"], Nothing),
            ("targetValue", &["target", "value"], Nothing),
            ("targetAverageValue", &["target", "averageValue"], Nothing),
        ],
        &[
            ("metricName", &["metric", "name"], EmptyText),
            ("metricSelector", &["metric", "selector"], Nothing),
            ("currentValue", &["current", "value"], ZeroQuantity),
            ("currentAverageValue", &["current", "averageValue"], Nothing),
        ],
    ),
];

/// Which of a source's two tables applies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Spec,
    Status,
}

fn rows(side: Side) -> impl Iterator<Item = (&'static str, &'static [Row])> {
    SOURCES
        .into_iter()
        .map(move |(source, spec, status)| (source, if side == Side::Spec { spec } else { status }))
}

pub(super) fn to_v1(object: &mut Value) {
    drop_round_trip(object);
    let metrics = take_list(object, "spec", "metrics");
    let current = take_list(object, "status", "currentMetrics");
    let conditions = take_list(object, "status", "conditions");
    if let Some(utilization) = metrics
        .iter()
        .find_map(|metric| cpu_utilization(metric, "target"))
    {
        object["spec"]["targetCPUUtilizationPercentage"] = utilization.clone();
    }
    if let Some(utilization) = current
        .iter()
        .rev()
        .find_map(|metric| cpu_utilization(metric, "current"))
    {
        object["status"]["currentCPUUtilizationPercentage"] = utilization.clone();
    }
    let others = metrics
        .iter()
        .filter(|metric| cpu_utilization(metric, "target").is_none());
    annotate(
        object,
        METRICS,
        others
            .map(|metric| metric_to_v1(metric, Side::Spec))
            .collect(),
    );
    annotate(
        object,
        CURRENT_METRICS,
        current
            .iter()
            .map(|metric| metric_to_v1(metric, Side::Status))
            .collect(),
    );
    annotate(object, CONDITIONS, conditions);
    if let Some(behavior) = object["spec"]
        .as_object_mut()
        .and_then(|spec| spec.remove("behavior"))
    {
        object["metadata"]["annotations"][BEHAVIOR] = behavior_to_go(&behavior).to_string().into();
    }
}

pub(super) fn to_v2(object: &mut Value) {
    let remove = |object: &mut Value, part: &str, field: &str| {
        object
            .get_mut(part)
            .and_then(Value::as_object_mut)
            .and_then(|part| part.remove(field))
    };
    let target =
        remove(object, "spec", "targetCPUUtilizationPercentage").filter(|value| !value.is_null());
    let current = remove(object, "status", "currentCPUUtilizationPercentage")
        .filter(|value| !value.is_null());
    let mut metrics = annotated_list(object, METRICS).unwrap_or_default();
    metrics
        .iter_mut()
        .for_each(|metric| *metric = metric_to_v2(metric, Side::Spec));
    metrics.extend(target.map(cpu_target));
    if metrics.is_empty() {
        metrics.push(cpu_target(DEFAULT_CPU_UTILIZATION.into()));
    }
    object["spec"]["metrics"] = metrics.into();
    // The annotation knows more than the percentage: it also has the absolute value.
    let statuses = match annotated_list(object, CURRENT_METRICS) {
        Some(list) => list
            .iter()
            .map(|metric| metric_to_v2(metric, Side::Status))
            .collect(),
        None => current.map(cpu_status).into_iter().collect::<Vec<Value>>(),
    };
    set_list(object, "currentMetrics", statuses);
    set_list(
        object,
        "conditions",
        annotated_list(object, CONDITIONS).unwrap_or_default(),
    );
    if let Some(behavior) = annotation(object, BEHAVIOR).and_then(|value| behavior_from_go(&value))
    {
        object["spec"]["behavior"] = behavior;
    }
    drop_round_trip(object);
}

fn set_list(object: &mut Value, field: &str, list: Vec<Value>) {
    if !list.is_empty() {
        object["status"][field] = list.into();
    }
}

fn take_list(object: &mut Value, part: &str, field: &str) -> Vec<Value> {
    match object
        .get_mut(part)
        .and_then(Value::as_object_mut)
        .and_then(|part| part.remove(field))
    {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// The average utilization of a CPU metric in v2, from `target` or `current`.
fn cpu_utilization<'a>(metric: &'a Value, part: &str) -> Option<&'a Value> {
    let is_cpu = metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
    Some(&metric["resource"][part]["averageUtilization"]).filter(|value| is_cpu && !value.is_null())
}

fn cpu_target(utilization: Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": utilization});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn cpu_status(utilization: Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": utilization}}})
}

fn metric_to_v1(metric: &Value, side: Side) -> Value {
    let mut converted = json!({"type": metric["type"]});
    for (source, rows) in rows(side).filter(|(source, _)| metric[*source].is_object()) {
        for (field, path, missing) in rows {
            let value = path
                .iter()
                .fold(&metric[source], |value, step| &value[*step]);
            let value = match (value, missing) {
                (Value::Null, Missing::Nothing) => continue,
                (Value::Null, Missing::EmptyText) => "".into(),
                (Value::Null, Missing::ZeroQuantity) => "0".into(),
                (value, _) => value.clone(),
            };
            converted[source][*field] = value;
        }
    }
    converted
}

fn metric_to_v2(metric: &Value, side: Side) -> Value {
    let mut converted = json!({"type": metric["type"]});
    for (source, rows) in rows(side).filter(|(source, _)| metric[*source].is_object()) {
        for (field, path, _) in rows
            .iter()
            .filter(|(field, _, _)| !metric[source][*field].is_null())
        {
            *path
                .iter()
                .fold(&mut converted[source], |value, step| &mut value[*step]) =
                metric[source][*field].clone();
        }
        if side == Side::Spec {
            complete_target(source, &mut converted[source]["target"]);
        }
    }
    converted
}

/// v1 has no target type; which values are set tells it. An object's average leaves no zero value
/// behind, because v2 refuses it.
fn complete_target(source: &str, target: &mut Value) {
    let has = |field: &str| !target[field].is_null();
    let ty = match source {
        "object" if !has("averageValue") => "Value",
        "external" if has("value") => "Value",
        _ if has("averageUtilization") => "Utilization",
        _ => "AverageValue",
    };
    if source == "object" && ty == "AverageValue" && target["value"] == "0" {
        target.as_object_mut().map(|target| target.remove("value"));
    }
    target["type"] = ty.into();
}

/// The behavior's fields, which the annotation spells as Go does.
const BEHAVIOR_FIELDS: [&str; 9] = [
    "scaleUp",
    "scaleDown",
    "stabilizationWindowSeconds",
    "selectPolicy",
    "policies",
    "tolerance",
    "type",
    "value",
    "periodSeconds",
];

// Upstream writes its internal type, whose fields have Go's names.
fn behavior_to_go(behavior: &Value) -> Value {
    renamed(behavior, |name| {
        let mut chars = name.chars();
        chars
            .next()
            .map(|first| first.to_ascii_uppercase().to_string() + chars.as_str())
    })
}

// Go reads names in any case and ignores the ones it does not know.
fn behavior_from_go(behavior: &Value) -> Option<Value> {
    let behavior = renamed(behavior, |name| {
        BEHAVIOR_FIELDS
            .iter()
            .find(|known| known.eq_ignore_ascii_case(name))
            .map(|known| (*known).to_owned())
    });
    let has_rules = behavior["scaleUp"].is_object() || behavior["scaleDown"].is_object();
    has_rules.then_some(behavior)
}

fn renamed(value: &Value, rename: impl Fn(&str) -> Option<String> + Copy) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.iter().filter(|(_, value)| !value.is_null());
            fields
                .filter_map(|(name, value)| Some((rename(name)?, renamed(value, rename))))
                .collect::<Map<_, _>>()
                .into()
        }
        Value::Array(list) => list
            .iter()
            .map(|item| renamed(item, rename))
            .collect::<Vec<_>>()
            .into(),
        value => value.clone(),
    }
}

fn annotate(object: &mut Value, name: &str, list: Vec<Value>) {
    if !list.is_empty() {
        object["metadata"]["annotations"][name] = Value::Array(list).to_string().into();
    }
}

/// An annotation's JSON; text that is none is passed over, as upstream does.
fn annotation(object: &Value, name: &str) -> Option<Value> {
    serde_json::from_str(object["metadata"]["annotations"][name].as_str()?).ok()
}

fn annotated_list(object: &Value, name: &str) -> Option<Vec<Value>> {
    match annotation(object, name)? {
        Value::Array(list) if list.iter().all(Value::is_object) => Some(list),
        _ => None,
    }
}

fn drop_round_trip(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    ROUND_TRIP.iter().for_each(|name| {
        annotations.remove(*name);
    });
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::{AUTOSCALING_V1, AUTOSCALING_V2, convert};

    fn v2() -> Value {
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web", "annotations": {"owner": "me"}},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 1, "maxReplicas": 5,
                "metrics": [
                    {"type": "Pods", "pods": {"metric": {"name": "rps", "selector": {"matchLabels": {"a": "b"}}},
                        "target": {"type": "AverageValue", "averageValue": "10"}}},
                    {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"},
                        "metric": {"name": "hits"}, "target": {"type": "Value", "value": "3k"}}},
                    {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"},
                        "metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "3"}}},
                    {"type": "External", "external": {"metric": {"name": "queue"},
                        "target": {"type": "Value", "value": "30"}}},
                    {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "app",
                        "target": {"type": "Utilization", "averageUtilization": 40}}},
                    {"type": "Resource", "resource": {"name": "memory",
                        "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
                    {"type": "Resource", "resource": {"name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 60}}},
                ],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300, "selectPolicy": "Max",
                    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}], "tolerance": "100m"}},
            },
            "status": {
                "currentReplicas": 2, "desiredReplicas": 3,
                "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu",
                    "current": {"averageUtilization": 55, "averageValue": "110m"}}}],
                "conditions": [{"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"}],
            },
        })
    }

    #[test]
    fn v1_holds_the_cpu_target_and_annotations_the_rest() {
        let mut object = v2();
        assert!(convert(
            &mut object,
            AUTOSCALING_V2,
            AUTOSCALING_V1,
            "HorizontalPodAutoscaler"
        ));
        assert_eq!(object["apiVersion"], "autoscaling/v1");
        assert_eq!(
            object["spec"],
            json!({
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 1, "maxReplicas": 5, "targetCPUUtilizationPercentage": 60,
            })
        );
        assert_eq!(
            object["status"],
            json!({"currentReplicas": 2, "desiredReplicas": 3, "currentCPUUtilizationPercentage": 55})
        );
        let metrics = annotated_list(&object, METRICS).expect("metrics");
        assert_eq!(metrics.len(), 6);
        assert_eq!(
            metrics[0],
            json!({"type": "Pods", "pods": {"metricName": "rps", "targetAverageValue": "10",
                "selector": {"matchLabels": {"a": "b"}}}})
        );
        assert_eq!(metrics[2]["object"]["targetValue"], "0");
        let behavior = annotation(&object, BEHAVIOR).expect("behavior");
        assert_eq!(behavior["ScaleDown"]["Policies"][0]["PeriodSeconds"], 15);
        assert_eq!(object["metadata"]["annotations"]["owner"], "me");
    }

    #[test]
    fn nothing_is_lost_on_the_way_through_v1() {
        let mut object = v2();
        convert(
            &mut object,
            AUTOSCALING_V2,
            AUTOSCALING_V1,
            "HorizontalPodAutoscaler",
        );
        assert!(convert(
            &mut object,
            AUTOSCALING_V1,
            AUTOSCALING_V2,
            "HorizontalPodAutoscaler"
        ));
        assert_eq!(object, v2());
    }

    #[test]
    fn a_v1_object_without_a_target_scales_on_the_default() {
        let mut object = json!({"metadata": {"name": "web"}, "spec": {"maxReplicas": 3},
            "status": {"currentReplicas": 0, "desiredReplicas": 0}});
        convert(
            &mut object,
            AUTOSCALING_V1,
            AUTOSCALING_V2,
            "HorizontalPodAutoscaler",
        );
        assert_eq!(
            object["spec"]["metrics"],
            json!([{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 80}}}])
        );
        assert!(object["status"].get("currentMetrics").is_none());
    }

    #[test]
    fn annotations_that_are_not_json_are_dropped_unread() {
        let mut object = json!({
            "metadata": {"annotations": {METRICS: "{", BEHAVIOR: "{}", CONDITIONS: "7"}},
            "spec": {"targetCPUUtilizationPercentage": 10}, "status": {"currentCPUUtilizationPercentage": 5},
        });
        convert(
            &mut object,
            AUTOSCALING_V1,
            AUTOSCALING_V2,
            "HorizontalPodAutoscaler",
        );
        assert_eq!(object["metadata"], json!({}));
        assert_eq!(object["spec"]["metrics"].as_array().map(Vec::len), Some(1));
        assert!(object["spec"].get("behavior").is_none());
        assert_eq!(
            object["status"]["currentMetrics"][0]["resource"]["current"],
            json!({"averageUtilization": 5})
        );
    }
}
