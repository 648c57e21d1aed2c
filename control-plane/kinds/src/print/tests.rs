#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;
mod network;
mod pods;
mod storage;
mod workloads;

use serde_json::{Value, json};

use super::*;
use crate::resources;

/// Five minutes after the objects of these tests were created.
const NOW: &str = "2026-01-01T00:05:00Z";

/// The cells of an object created five minutes ago, with the name `x`.
fn printed(group: &str, kind: &str, mut object: Value) -> Vec<Value> {
    let metadata = object
        .as_object_mut()
        .unwrap()
        .entry("metadata")
        .or_insert(json!({}));
    metadata["name"] = "x".into();
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    cells_of(group, kind, &object, NOW.parse().unwrap())
}

fn check(group: &str, kind: &str, object: Value, expected: Value) {
    assert_eq!(
        Value::from(printed(group, kind, object.clone())),
        expected,
        "{kind} {object}"
    );
}

#[test]
fn every_resource_has_as_many_cells_as_columns_and_survives_an_empty_object() {
    for resource in resources::all() {
        let cells = cells(resource, &json!({}), NOW.parse().unwrap());
        assert_eq!(
            cells.len(),
            columns(resource).len(),
            "{}",
            resource.qualified()
        );
    }
}

#[test]
fn every_printer_names_a_kind_that_is_served() {
    for Printer(group, kind, ..) in PRINTERS.iter().flat_map(|family| family.iter()) {
        let served = resources::all()
            .iter()
            .any(|r| r.gv.group == *group && r.kind == *kind);
        assert!(served || *kind == "Scale", "{group}/{kind}");
    }
}

#[test]
fn columns_are_described_and_typed() {
    for column in resources::all().iter().flat_map(|r| columns(r)) {
        assert!(
            ["string", "integer", "boolean", "date"].contains(&&*column.ty),
            "{column:?}"
        );
        assert!(
            column.description.ends_with('.') && column.priority <= 1,
            "{column:?}"
        );
    }
    let pod = resources::find("", "v1", "pods").unwrap();
    let headings: Vec<(&str, i32)> = columns(pod)
        .iter()
        .map(|c| (&*c.name, c.priority))
        .collect();
    assert_eq!(
        headings[..6],
        [
            ("Name", 0),
            ("Ready", 0),
            ("Status", 0),
            ("Restarts", 0),
            ("Age", 0),
            ("IP", 1)
        ]
    );
}

#[test]
fn a_kind_without_a_printer_shows_when_it_was_created() {
    let roles = resources::find("rbac.authorization.k8s.io", "v1", "roles").unwrap();
    let shown: Vec<(&str, &str)> = columns(roles).iter().map(|c| (&*c.name, &*c.ty)).collect();
    assert_eq!(shown, [("Name", "string"), ("Created At", "date")]);
    check(
        "rbac.authorization.k8s.io",
        "Role",
        json!({}),
        json!(["x", "2026-01-01T00:00:00Z"]),
    );
}

#[test]
fn an_ended_pod_has_a_completed_row() {
    let pods = resources::find("", "v1", "pods").unwrap();
    let phase = |phase: &str| row_conditions(pods, &json!({"status": {"phase": phase}}));
    assert_eq!(
        phase("Succeeded")[0]["message"],
        "The pod has completed successfully."
    );
    assert_eq!(phase("Failed")[0]["reason"], "Failed");
    assert!(phase("Running").is_empty());
    let nodes = resources::find("", "v1", "nodes").unwrap();
    assert!(row_conditions(nodes, &json!({"status": {"phase": "Failed"}})).is_empty());
}
