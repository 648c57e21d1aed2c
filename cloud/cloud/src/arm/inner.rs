//! Children that live inside their parent: a network's subnets, a balancer's probes, a cluster's pools.
//!
//! There is one copy, in the parent. A write of a child is a write of the parent.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::document::{self, Document};
use super::fault::{self, Fault};
use super::id::Id;
use super::kind::{self, Draft, Kind};
use super::resource::{self, Stored};
use crate::turn::Turn;

fn field(kind: &Kind) -> &'static str {
    kind.within.expect("only kinds inside others come here")
}

fn is_named(element: &Value, name: &str) -> bool {
    element["name"]
        .as_str()
        .is_some_and(|own| own.eq_ignore_ascii_case(name))
}

/// An element of the parent as a resource of its own.
fn outside(parent: &Document, kind: &Kind, element: &Value) -> Document {
    let mut document = parent.clone();
    document.body = element.clone();
    if kind.flat {
        let name = element["name"].as_str().unwrap_or_default();
        let mut properties = element.clone();
        document::take(&mut properties, "/name");
        document.body = json!({"id": format!("{}/{}/{name}", parent.id(), kind.collection()), "name": name,
            "type": kind.name, "properties": properties});
    }
    document
}

/// An element for the parent out of the body of a resource.
fn inside(kind: &Kind, name: &str, body: &Value) -> Value {
    let mut element = match kind.flat {
        true => body["properties"].clone(),
        false => body.clone(),
    };
    document::object(&mut element);
    element["name"] = json!(name);
    element
}

/// The child of an id.
pub(crate) fn get(turn: &Turn<'_>, id: &Id, kind: &Kind) -> Option<Document> {
    let parent = document::get(turn, &id.parent()?.to_string())?;
    let elements = parent.body["properties"][field(kind)].as_array()?;
    let element = elements
        .iter()
        .find(|element| is_named(element, id.name()))?;
    Some(outside(&parent, kind, element))
}

/// Every child of a type.
pub(crate) fn all(parent: &Document, kind: &Kind) -> Vec<Document> {
    let elements = parent.body["properties"][field(kind)]
        .as_array()
        .into_iter()
        .flatten();
    elements
        .map(|element| outside(parent, kind, element))
        .collect()
}

fn parent_of(turn: &Turn<'_>, id: &Id) -> Result<(Id, &'static Kind, Document), Fault> {
    let parent = id.parent().expect("a child has a parent");
    let kind = kind::named(&parent.kind()).expect("the table has the parent of every child");
    let document = document::get(turn, &parent.to_string());
    let document = document.ok_or_else(|| fault::no_parent(id, "write", &parent.to_string()))?;
    Ok((parent, kind, document))
}

/// Writes a child: into its parent, and the parent as it is then.
pub(crate) fn store(
    turn: &mut Turn<'_>,
    id: &Id,
    kind: &'static Kind,
    before: Option<Document>,
    mut body: Value,
    sparse: bool,
) -> Result<Stored, Fault> {
    let (parent_id, parent_kind, parent) = parent_of(turn, id)?;
    document::without_nulls(&mut body);
    let name = before
        .as_ref()
        .map_or(id.name(), |b| b.body["name"].as_str().unwrap_or_default())
        .to_owned();
    let mut element = inside(kind, &name, &body);
    if let (Some(before), true) = (&before, sparse || kind.flat) {
        let mut merged = inside(kind, &name, &before.body);
        document::overlay(&mut merged, &element);
        element = merged;
    }
    let mut changed = parent.body.clone();
    let list = &mut changed["properties"][field(kind)];
    if !list.is_array() {
        *list = json!([]);
    }
    let list = list.as_array_mut().expect("it is an array now");
    match list.iter_mut().find(|element| is_named(element, &name)) {
        Some(present) => *present = element,
        None => list.push(element),
    }
    let is_new = before.is_none();
    let stored = resource::store(turn, &parent_id, parent_kind, Some(parent), changed, false)?;
    let made = stored.document.body["properties"][field(kind)]
        .as_array()
        .into_iter()
        .flatten();
    let element = made
        .into_iter()
        .find(|element| is_named(element, &name))
        .cloned()
        .unwrap_or_default();
    let mut document = outside(&stored.document, kind, &element);
    document.body["location"] = stored.document.body["location"].clone();
    let mut shown = document;
    if !kind.has_location {
        // The location is only where the operation's address is found.
        shown.hidden = shown.body["location"].take();
        document::take(&mut shown.body, "/location");
    }
    Ok(Stored {
        document: shown,
        is_new,
        operation: stored.operation,
    })
}

/// Takes a child out of its parent.
pub(crate) fn remove(
    turn: &mut Turn<'_>,
    id: &Id,
    kind: &'static Kind,
) -> Result<Option<String>, Fault> {
    let (parent_id, parent_kind, parent) = parent_of(turn, id)?;
    let child = get(turn, id, kind).ok_or_else(|| resource::absent(id, kind))?;
    resource::may_leave(turn, id, kind, &child, &HashSet::new())?;
    let mut changed = parent.body.clone();
    if let Some(list) = changed["properties"][field(kind)].as_array_mut() {
        list.retain(|element| !is_named(element, id.name()));
    }
    let stored = resource::store(turn, &parent_id, parent_kind, Some(parent), changed, false)?;
    Ok(stored.operation)
}

/// Completes the children inside a draft: their ids, types, states, and what is filled in.
pub(crate) fn complete(turn: &Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let _ = turn;
    let parent = draft.body["id"].as_str().unwrap_or_default().to_owned();
    for kind in draft.kind.inner() {
        let before = draft.was(&format!("/properties/{}", field(kind)));
        let Some(list) = draft.body["properties"][field(kind)].as_array_mut() else {
            continue;
        };
        let mut seen = HashSet::new();
        for element in list {
            let name = element["name"].as_str().unwrap_or_default().to_owned();
            if name.is_empty() || !seen.insert(name.to_lowercase()) {
                return Err(bad_name(kind, &name));
            }
            let own = before
                .as_array()
                .into_iter()
                .flatten()
                .find(|old| is_named(old, &name));
            complete_one(kind, &parent, &name, own, element);
        }
    }
    Ok(())
}

fn bad_name(kind: &Kind, name: &str) -> Fault {
    match name {
        "" => Fault::bad(
            "InvalidRequestFormat",
            format!("An element of {} has no name.", field(kind)),
        ),
        _ => Fault::bad(
            "DuplicateResourceName",
            format!(
                "Resource {}/{name} has two child resources with the same name ({name}).",
                field(kind)
            ),
        ),
    }
}

fn complete_one(
    kind: &Kind,
    parent: &str,
    name: &str,
    before: Option<&Value>,
    element: &mut Value,
) {
    let defaults: Value =
        serde_json::from_str(kind.defaults).expect("the table's defaults are JSON");
    document::without_nulls(element);
    super::reference::hide(kind, element);
    for pointer in kind.read_only {
        document::take(element, pointer);
        if let Some(own) = before.and_then(|before| before.pointer(pointer)) {
            *document::at(element, pointer) = own.clone();
        }
    }
    // A pool keeps what a write of its cluster does not mention.
    if let (Some(before), true) = (before, kind.flat) {
        document::fill(element, before);
    }
    document::fill(element, &defaults);
    if kind.flat {
        return;
    }
    element["id"] = json!(format!("{parent}/{}/{name}", kind.collection()));
    element["type"] = json!(kind.name);
    document::object(&mut element["properties"]);
    element["properties"]["provisioningState"] = json!("Succeeded");
    if let Some(tag) = before
        .map(|before| &before["etag"])
        .filter(|tag| !tag.is_null())
    {
        element["etag"] = tag.clone();
    }
}
