//! Field selectors: which fields a list or watch can be filtered by, and their values.
//!
//! Every kind answers to its name and namespace; a few have more (`pkg/apis/*/conversion.go` and
//! the strategies' selectable fields). Resolve a selector's field once with [`position`] and look it
//! up in the [`values`] of every object.

use serde_json::Value;

use crate::resources::Resource;

/// Reads a field of an object as the text a selector compares.
pub type Extractor = fn(&Value) -> String;

type Field = (&'static str, Extractor);

/// The fields of one kind: group, kind, fields.
type Row = (&'static str, &'static str, &'static [Field]);

const ROWS: &[Row] = &[
    (
        "",
        "Pod",
        &[
            ("spec.nodeName", |o| text(o, &["spec", "nodeName"])),
            ("spec.host", |o| text(o, &["spec", "nodeName"])),
            ("spec.restartPolicy", |o| {
                text(o, &["spec", "restartPolicy"])
            }),
            ("spec.schedulerName", |o| {
                text(o, &["spec", "schedulerName"])
            }),
            ("spec.serviceAccountName", |o| {
                text(o, &["spec", "serviceAccountName"])
            }),
            ("spec.hostNetwork", |o| flag(o, &["spec", "hostNetwork"])),
            ("status.phase", |o| text(o, &["status", "phase"])),
            ("status.podIP", pod_ip),
            ("status.podIPs", pod_ip),
            ("status.nominatedNodeName", |o| {
                text(o, &["status", "nominatedNodeName"])
            }),
        ],
    ),
    (
        "",
        "Node",
        &[("spec.unschedulable", |o| {
            flag(o, &["spec", "unschedulable"])
        })],
    ),
    (
        "",
        "Namespace",
        &[("status.phase", |o| text(o, &["status", "phase"]))],
    ),
    ("", "Secret", &[("type", |o| text(o, &["type"]))]),
    (
        "",
        "Service",
        &[
            ("spec.clusterIP", |o| text(o, &["spec", "clusterIP"])),
            ("spec.type", |o| text(o, &["spec", "type"])),
        ],
    ),
    (
        "",
        "ReplicationController",
        &[("status.replicas", |o| number(o, &["status", "replicas"]))],
    ),
    (
        "",
        "Event",
        &[
            ("involvedObject.kind", |o| about(o, "kind")),
            ("involvedObject.namespace", |o| about(o, "namespace")),
            ("involvedObject.name", |o| about(o, "name")),
            ("involvedObject.uid", |o| about(o, "uid")),
            ("involvedObject.apiVersion", |o| about(o, "apiVersion")),
            ("involvedObject.resourceVersion", |o| {
                about(o, "resourceVersion")
            }),
            ("involvedObject.fieldPath", |o| about(o, "fieldPath")),
            ("reason", |o| text(o, &["reason"])),
            ("reportingComponent", reporter),
            ("source", event_source),
            ("type", |o| text(o, &["type"])),
        ],
    ),
    (
        "batch",
        "Job",
        &[("status.successful", |o| number(o, &["status", "succeeded"]))],
    ),
    (
        "certificates.k8s.io",
        "CertificateSigningRequest",
        &[("spec.signerName", |o| text(o, &["spec", "signerName"]))],
    ),
    (
        "resource.k8s.io",
        "ResourceSlice",
        &[
            ("spec.nodeName", |o| text(o, &["spec", "nodeName"])),
            ("spec.driver", |o| text(o, &["spec", "driver"])),
        ],
    ),
];

/// The place of a field among [`values`], if the kind's objects can be selected by it. Name and
/// namespace are not among them: they are known from an object's key.
pub fn position(resource: &Resource, field: &str) -> Option<usize> {
    if let Some(definition) = resource.ty.defined() {
        return definition
            .selectable()
            .iter()
            .position(|name| name == field);
    }
    if resource.gv.group == "events.k8s.io" {
        let field = core_event_field(field)?;
        return fields_of("", "Event")
            .iter()
            .position(|(name, _)| *name == field);
    }
    fields_of(resource.gv.group, resource.kind)
        .iter()
        .position(|(name, _)| *name == field)
}

/// Why a kind's objects cannot be selected by a field, in upstream's words: each kind has its own.
pub fn unsupported(resource: &Resource, field: &str) -> String {
    let gv = resource.gv;
    match (gv.group, resource.kind) {
        ("batch", "Job") => format!("field label {field:?} not supported for Job"),
        ("resource.k8s.io", kind @ "ResourceSlice") => format!(
            "field label not supported for {}/{}, Kind={kind}: {field}",
            gv.group, gv.version
        ),
        _ if has_own(resource) => format!("field label not supported: {field}"),
        _ => format!(
            "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ),
    }
}

/// The selectable fields of a stored object, in the kind's order.
pub fn values(resource: &Resource, object: &Value) -> Vec<String> {
    if let Some(definition) = resource.ty.defined() {
        return definition.selected(object);
    }
    let fields = fields_of(resource.gv.group, resource.kind);
    fields.iter().map(|(_, extract)| extract(object)).collect()
}

// Events of either group have fields of their own.
fn has_own(resource: &Resource) -> bool {
    resource.ty.defined().is_some()
        || resource.gv.group == "events.k8s.io"
        || !fields_of(resource.gv.group, resource.kind).is_empty()
}

fn fields_of(group: &str, kind: &str) -> &'static [Field] {
    ROWS.iter()
        .find(|row| row.0 == group && row.1 == kind)
        .map_or(&[], |row| row.2)
}

// Events are stored as core events; the newer group calls the same fields by other names, and only by those.
fn core_event_field(field: &str) -> Option<String> {
    match (field, field.strip_prefix("regarding.")) {
        (_, Some(rest)) => Some(format!("involvedObject.{rest}")),
        ("reportingController", _) => Some("reportingComponent".to_owned()),
        ("reason" | "type", _) => Some(field.to_owned()),
        _ => None,
    }
}

fn at<'v>(object: &'v Value, names: &[&str]) -> Option<&'v Value> {
    names.iter().try_fold(object, |value, name| value.get(name))
}

fn text(object: &Value, names: &[&str]) -> String {
    at(object, names)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn flag(object: &Value, names: &[&str]) -> String {
    at(object, names)
        .and_then(Value::as_bool)
        .unwrap_or_default()
        .to_string()
}

fn number(object: &Value, names: &[&str]) -> String {
    at(object, names)
        .and_then(Value::as_i64)
        .unwrap_or_default()
        .to_string()
}

// The first address counts, for both fields.
fn pod_ip(pod: &Value) -> String {
    let first = at(pod, &["status", "podIPs"]).and_then(|ips| ips.get(0));
    first.map_or_else(|| text(pod, &["status", "podIP"]), |ip| text(ip, &["ip"]))
}

// Events are stored as `v1` whichever group they came through, so either spelling may be met.
fn about(event: &Value, name: &str) -> String {
    let object = event
        .get("involvedObject")
        .or_else(|| event.get("regarding"));
    object.map_or_else(String::new, |object| text(object, &[name]))
}

fn reporter(event: &Value) -> String {
    match text(event, &["reportingComponent"]) {
        reporter if reporter.is_empty() => text(event, &["reportingController"]),
        reporter => reporter,
    }
}

// Events that name no source are from their reporter.
fn event_source(event: &Value) -> String {
    match text(event, &["source", "component"]) {
        component if component.is_empty() => reporter(event),
        component => component,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;
    use crate::resources;

    #[test]
    fn every_row_is_a_served_kind() {
        for (group, kind, _) in ROWS {
            assert!(
                resources::all()
                    .iter()
                    .any(|r| r.gv.group == *group && r.kind == *kind),
                "{kind}"
            );
        }
    }

    #[test]
    fn fields_read_as_the_text_selectors_compare() {
        let pod = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": {"nodeName": "n"},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]}});
        let pods = resources::find("", "v1", "pods").unwrap();
        let cases = [
            ("spec.nodeName", Some("n")),
            ("spec.host", Some("n")),
            ("spec.hostNetwork", Some("false")),
            ("status.podIP", Some("10.0.0.1")),
            ("spec.other", None),
        ];
        for (field, expected) in cases {
            let found = position(pods, field).map(|i| values(pods, &pod)[i].clone());
            assert_eq!(found.as_deref(), expected, "{field}");
        }
        let maps = resources::find("", "v1", "configmaps").unwrap();
        assert_eq!(position(maps, "status.phase"), None);
    }

    #[test]
    fn both_event_groups_select_by_the_same_values() {
        let core = resources::find("", "v1", "events").unwrap();
        let newer = resources::find("events.k8s.io", "v1", "events").unwrap();
        for (old, new) in [
            ("involvedObject.name", "regarding.name"),
            ("reportingComponent", "reportingController"),
        ] {
            assert_eq!(position(newer, new), position(core, old));
            assert!(position(core, old).is_some());
            assert_eq!(
                position(newer, old),
                None,
                "{old} is the older group's name"
            );
        }
        let event = json!({"reportingComponent": "kubelet"});
        assert_eq!(
            values(core, &event)[position(core, "source").unwrap()],
            "kubelet"
        );
    }

    #[test]
    fn what_cannot_be_selected_by_is_said_in_each_kinds_own_words() {
        let cases = [
            ("", "v1", "pods", "field label not supported: x"),
            (
                "",
                "v1",
                "configmaps",
                r#""x" is not a known field selector: only "metadata.name", "metadata.namespace""#,
            ),
            (
                "batch",
                "v1",
                "jobs",
                r#"field label "x" not supported for Job"#,
            ),
            (
                "resource.k8s.io",
                "v1",
                "resourceslices",
                "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: x",
            ),
            (
                "events.k8s.io",
                "v1",
                "events",
                "field label not supported: x",
            ),
        ];
        for (group, version, plural, expected) in cases {
            let resource = resources::find(group, version, plural).unwrap();
            assert_eq!(position(resource, "x"), None);
            assert_eq!(unsupported(resource, "x"), expected);
        }
    }
}
