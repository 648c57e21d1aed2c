//! Columns for `kubectl get`.
//!
//! Names, types, order and cell contents are those of upstream's
//! `pkg/printers/internalversion/printers.go` in its wide form, which is the one the server always
//! answers with: the client hides columns of priority 1 unless asked. A kind without a printer shows
//! its name and creation time.

mod admission;
mod autoscaler;
mod cluster;
mod column;
mod config;
mod network;
mod pod;
mod row;
mod storage;
mod workload;

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resources::Resource;
use row::Row;

/// One column of a Table.
#[derive(Debug, Clone)]
pub struct Column {
    /// Heading.
    pub name: Cow<'static, str>,
    /// `string`, `integer`, `boolean`, `number` or `date`.
    pub ty: Cow<'static, str>,
    /// `name` for the object's name, otherwise empty.
    pub format: Cow<'static, str>,
    /// What it shows, in a sentence.
    pub description: Cow<'static, str>,
    /// 0 is always shown, 1 only in wide output.
    pub priority: i32,
}

/// How one kind is printed: its group and kind, its columns, and the cells of an object.
struct Printer(
    &'static str,
    &'static str,
    &'static [Column],
    fn(&Row<'_>) -> Vec<Value>,
);

const PRINTERS: [&[Printer]; 8] = [
    &pod::PRINTERS,
    &workload::PRINTERS,
    &autoscaler::PRINTERS,
    &network::PRINTERS,
    &storage::PRINTERS,
    &config::PRINTERS,
    &cluster::PRINTERS,
    &admission::PRINTERS,
];

const DEFAULT: Printer = Printer("", "", &[column::NAME, column::CREATED_AT], |row| {
    vec![row.name(), row.created_at().into()]
});

fn printer(group: &str, kind: &str) -> &'static Printer {
    let mut printers = PRINTERS.iter().flat_map(|family| family.iter());
    printers
        .find(|p| p.0 == group && p.1 == kind)
        .unwrap_or(&DEFAULT)
}

/// The columns of a resource.
pub fn columns(resource: &Resource) -> &[Column] {
    match resource.ty.defined() {
        Some(definition) => definition.columns(),
        None => columns_of(resource.gv.group, resource.kind),
    }
}

/// The cells of one object, one per column.
///
/// The object may be in the served or the stored version.
pub fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    match resource.ty.defined() {
        Some(definition) => definition.cells(object, now),
        None => cells_of(resource.gv.group, resource.kind, object, now),
    }
}

/// The columns of a kind, also of one that only a subresource serves (`autoscaling` `Scale`).
pub fn columns_of(group: &str, kind: &str) -> &'static [Column] {
    printer(group, kind).2
}

/// The cells of one object of a kind.
pub fn cells_of(group: &str, kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    (printer(group, kind).3)(&Row { object, now })
}

/// The conditions of a row: a pod that has ended is marked `Completed`, so that clients can hide it.
pub fn row_conditions(resource: &Resource, object: &Value) -> Vec<Value> {
    if (resource.gv.group, resource.kind) != ("", "Pod") {
        return Vec::new();
    }
    let (reason, message) = match object["status"]["phase"].as_str() {
        Some("Succeeded") => ("Succeeded", "The pod has completed successfully."),
        Some("Failed") => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

#[cfg(test)]
mod tests;
