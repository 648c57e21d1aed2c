//! Autoscalers and scales.

use std::borrow::Cow;

use serde_json::Value;

use super::column::{AGE, NAME, integer, text};
use super::row::{self, Row, is_set};
use super::{Column, Printer};
use crate::convert::autoscaler_v2;

pub(super) const PRINTERS: [Printer; 2] = [
    Printer(
        "autoscaling",
        "HorizontalPodAutoscaler",
        &AUTOSCALER,
        autoscaler,
    ),
    Printer("autoscaling", "Scale", &SCALE, scale),
];

const AUTOSCALER: [Column; 7] = [
    NAME,
    text("Reference", "What is scaled."),
    text("Targets", "Current and wanted values of the metrics."),
    text("MinPods", "Fewest pods."),
    text("MaxPods", "Most pods."),
    text("Replicas", "Pods now."),
    AGE,
];

fn autoscaler(row: &Row<'_>) -> Vec<Value> {
    // Only v2 has metrics; an object of a list may not tell its version.
    let is_v2 = row.text("/apiVersion") == "autoscaling/v2" || is_set(row.object, "/spec/metrics");
    let object = match is_v2 {
        true => Cow::Borrowed(row.object),
        false => Cow::Owned(autoscaler_v2(row.object)),
    };
    let row = Row {
        object: &object,
        now: row.now,
    };
    let min =
        is_set(row.object, "/spec/minReplicas").then(|| row.int("/spec/minReplicas").to_string());
    let target = [
        row.text("/spec/scaleTargetRef/kind"),
        row.text("/spec/scaleTargetRef/name"),
    ];
    vec![
        row.name(),
        target.join("/").into(),
        metrics(
            row.list("/spec/metrics"),
            row.list("/status/currentMetrics"),
        )
        .into(),
        min.unwrap_or_else(|| "<unset>".to_owned()).into(),
        row.int("/spec/maxReplicas").into(),
        row.int("/status/currentReplicas").into(),
        row.age(),
    ]
}

/// The first two metrics as `current/target`, then how many more there are.
fn metrics(specs: &[Value], statuses: &[Value]) -> String {
    const SHOWN: usize = 2;
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let metric = |(i, spec): (usize, &Value)| metric(spec, statuses.get(i).unwrap_or(&Value::Null));
    let shown = specs
        .iter()
        .enumerate()
        .take(SHOWN)
        .map(metric)
        .collect::<Vec<_>>()
        .join(", ");
    match specs.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

fn metric(spec: &Value, status: &Value) -> String {
    match row::text(spec, "/type") {
        "External" => valued(&spec["external"], &status["external"]),
        "Object" => valued(&spec["object"], &status["object"]),
        "Pods" => average(&spec["pods"], &status["pods"]),
        "Resource" => resource(&spec["resource"], &status["resource"]),
        "ContainerResource" => resource(&spec["containerResource"], &status["containerResource"]),
        _ => "<unknown type>".to_owned(),
    }
}

/// An object's or an external metric: its value, or its average over the pods.
fn valued(spec: &Value, status: &Value) -> String {
    if is_set(spec, "/target/averageValue") {
        let current = row::non_empty(row::text(status, "/current/averageValue"), "<unknown>");
        return format!(
            "{current}/{} (avg)",
            row::text(spec, "/target/averageValue")
        );
    }
    let current = if status.is_null() {
        "<unknown>"
    } else {
        quantity(status, "/current/value")
    };
    format!("{current}/{}", quantity(spec, "/target/value"))
}

fn average(spec: &Value, status: &Value) -> String {
    let current = if status.is_null() {
        "<unknown>"
    } else {
        quantity(status, "/current/averageValue")
    };
    format!("{current}/{}", quantity(spec, "/target/averageValue"))
}

fn resource(spec: &Value, status: &Value) -> String {
    let name = row::text(spec, "/name");
    if is_set(spec, "/target/averageValue") {
        return format!("{name}: {}", average(spec, status));
    }
    let percent =
        |part: &Value, field: &str, otherwise: &str| match part[field]["averageUtilization"]
            .as_i64()
        {
            Some(percent) => format!("{percent}%"),
            None => otherwise.to_owned(),
        };
    let current = percent(status, "current", "<unknown>");
    format!("{name}: {current}/{}", percent(spec, "target", "<auto>"))
}

// A quantity that is not there prints as Go's nil.
fn quantity<'a>(value: &'a Value, pointer: &str) -> &'a str {
    row::non_empty(row::text(value, pointer), "<nil>")
}

// A scale is only answered by a subresource; its name column has no format upstream.
const SCALE: [Column; 4] = [
    text("Name", "The object's name."),
    integer("Desired", "Wanted pods."),
    integer("Available", "Existing pods."),
    AGE,
];

fn scale(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.name(),
        row.int("/spec/replicas").into(),
        row.int("/status/replicas").into(),
        row.age(),
    ]
}
