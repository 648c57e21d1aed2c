//! What has to happen outside of the state before an operation may end, and what that came to. Pure.

use serde_json::{Value, json};

use super::document::{self, Document};
use super::id::Id;
use super::kind::{self, Kind};
use super::operation::{self, Verb};
use super::{deployment, group};
use crate::providers;
use crate::region::{Done, Order, Task, Trouble};
use crate::turn::Turn;

fn kind_of(document: &Document) -> Option<&'static Kind> {
    Id::parse(document.id()).and_then(|id| kind::named(&id.kind()))
}

/// Whether something stands behind a resource's type.
pub(crate) fn is_real(turn: &Turn<'_>, document: &Document) -> bool {
    kind_of(document).is_some_and(|kind| turn.settings.region.has(kind.name))
}

/// The order for a resource, if something stands behind its type.
fn order(turn: &Turn<'_>, document: &Document, task: Task) -> Option<Order> {
    let kind = kind_of(document).filter(|_| is_real(turn, document))?;
    Some(Order {
        id: document.id().to_owned(),
        kind: kind.name,
        task,
        body: document.body.clone(),
        hidden: document.hidden.clone(),
        nodes: providers::nodes(turn, kind, document),
        disks: providers::disks(turn, kind, document),
    })
}

/// What an operation needs before it may end.
#[derive(Debug)]
pub(crate) enum Needs {
    /// These orders; often none.
    Orders(Vec<Order>),
    /// Other operations that have not ended.
    Others,
}

/// What an operation needs before its end. What it lays over its resource is laid now: orders describe the resource
/// as it is to be.
pub(crate) fn needs(turn: &mut Turn<'_>, id: &str) -> Needs {
    let Some(operation) = operation::under_way(turn, id) else {
        return Needs::Orders(Vec::new());
    };
    let target = operation["resource"].as_str().unwrap_or_default();
    if operation::verb(&operation) == Verb::DeleteGroup {
        let all = group::inside(turn, target);
        let removals = all.iter().filter_map(|d| order(turn, d, Task::Remove));
        return Needs::Orders(removals.collect());
    }
    match document::get(turn, target) {
        Some(document) if kind_of(&document).is_some_and(|kind| kind.name == deployment::KIND) => {
            needs_of_deployment(turn, id, operation, document)
        }
        Some(document) => Needs::Orders(needs_of_resource(turn, id, operation, document)),
        None => Needs::Orders(Vec::new()),
    }
}

fn needs_of_resource(
    turn: &mut Turn<'_>,
    id: &str,
    operation: Value,
    mut document: Document,
) -> Vec<Order> {
    let is_its = document.operation.as_deref() == Some(id);
    let task = match (
        operation::verb(&operation),
        operation["action"]["word"].as_str(),
    ) {
        _ if !is_real(turn, &document) => return Vec::new(),
        (Verb::Delete, _) if is_its => Task::Remove,
        (Verb::Put | Verb::Action, None) if is_its => Task::Bring,
        (Verb::Action, Some(word)) => Task::Act {
            word: word.to_owned(),
            input: operation["action"]["input"].clone(),
        },
        _ => return Vec::new(),
    };
    if is_its && task != Task::Remove {
        lay(turn, id, operation, &mut document);
    }
    match document.state() {
        // What the operation leads to is a failure; one that failed before can still be acted on.
        "Failed" if is_its => Vec::new(),
        _ => order(turn, &document, task).into_iter().collect(),
    }
}

/// Lays over a resource what its operation leads to, once.
fn lay(turn: &mut Turn<'_>, id: &str, mut operation: Value, document: &mut Document) {
    if operation["laid"] == true {
        return;
    }
    operation::lay(turn, document, &operation["then"]);
    document::put(turn, document);
    operation["laid"] = json!(true);
    turn.put(operation::key(id), operation);
}

/// A deployment makes its resources, and has ended when they have; it fails with the first of them that did.
fn needs_of_deployment(
    turn: &mut Turn<'_>,
    id: &str,
    operation: Value,
    mut document: Document,
) -> Needs {
    if document.operation.as_deref() != Some(id) {
        return Needs::Orders(Vec::new());
    }
    lay(turn, id, operation, &mut document);
    let made = document.body["properties"]["outputResources"].as_array();
    let ids = made
        .into_iter()
        .flatten()
        .filter_map(|one| one["id"].as_str());
    let made: Vec<Document> = ids.filter_map(|id| document::get(turn, id)).collect();
    let is_real = |d: &&Document| is_real(turn, d);
    if made.iter().filter(is_real).any(|d| d.operation.is_some()) {
        return Needs::Others;
    }
    if let Some(failed) = made.iter().filter(is_real).find(|d| d.state() == "Failed") {
        let properties = &mut document.body["properties"];
        properties["provisioningState"] = json!("Failed");
        properties["error"] = json!({"code": "DeploymentFailed", "message": "At least one resource deployment operation \
            failed. Please list deployment operations for details.",
            "details": [failed.body["properties"]["status"]["provisioningError"]]});
        document::put(turn, &document);
    }
    Needs::Orders(Vec::new())
}

/// Every resource that the region has something behind, as it is to be; and whether an operation works on it.
pub(crate) fn standing(turn: &Turn<'_>) -> Vec<(Order, bool)> {
    let all = turn.under("arm/").into_iter();
    let documents = all.map(|(_, entry)| Document::read(entry));
    documents
        .filter_map(|d| Some((order(turn, &d, Task::Bring)?, d.operation.is_some())))
        .collect()
}

/// Lays what an order came to over its resource.
pub(crate) fn lay_done(document: &mut Document, done: &Done) {
    document::overlay(&mut document.body, &done.body);
    if done.hidden.is_object() {
        document::object(&mut document.hidden);
        document::overlay(&mut document.hidden, &done.hidden);
    }
}

/// Keeps what an order came to that no operation waited for.
pub(crate) fn keep(turn: &mut Turn<'_>, id: &str, done: &Done) {
    if let Some(mut document) = document::get(turn, id).filter(|d| d.operation.is_none()) {
        lay_done(&mut document, done);
        document::put(turn, &document);
    }
}

/// The error of an operation whose order was not carried out.
pub(crate) fn error(trouble: &Trouble) -> Value {
    json!({"code": trouble.code, "message": trouble.message})
}
