//! Resource groups.

use std::collections::HashSet;

use http::Method;
use serde_json::{Value, json};

use super::document::{self, Document};
use super::fault::{self, Fault};
use super::id::{self, Id};
use super::operation::{self, Begin, Verb};
use super::{checks, kind, list, lock, region, resource};
use crate::exchange::{Asked, Reply};
use crate::turn::Turn;

/// How long a group takes to go, at a pace of 1.
const MILLISECONDS: u64 = 400;

/// The group, or how ARM says that there is none.
pub(crate) fn require(turn: &Turn<'_>, subscription: &str, name: &str) -> Result<Document, Fault> {
    document::get(turn, &id::group(subscription, name)).ok_or_else(|| fault::no_group(name))
}

/// The group, if something may still be made in it.
pub(crate) fn open(turn: &Turn<'_>, subscription: &str, name: &str) -> Result<Document, Fault> {
    let group = require(turn, subscription, name)?;
    match group.state() == "Deleting" {
        true => {
            let message = format!(
                "The resource group '{name}' is in deprovisioning state and cannot perform this operation."
            );
            Err(Fault::conflict("ResourceGroupBeingDeleted", message).gateway())
        }
        false => Ok(group),
    }
}

/// Does what is asked with a group.
pub(crate) fn answer(
    turn: &mut Turn<'_>,
    asked: &Asked,
    subscription: &str,
    name: &str,
) -> Result<Reply, Fault> {
    match asked.method {
        Method::GET => require(turn, subscription, name).map(|group| Reply::ok(group.body)),
        Method::HEAD => match require(turn, subscription, name) {
            Ok(_) => Ok(Reply::empty(204)),
            Err(_) => Ok(Reply::empty(404)),
        },
        Method::PUT => put(turn, asked, subscription, name),
        Method::PATCH => patch(turn, asked, subscription, name),
        Method::DELETE => delete(turn, asked, subscription, name),
        _ => Err(Fault::new(
            405,
            "MethodNotAllowed",
            "The requested resource group does not support this http method.",
        )),
    }
}

/// The groups of a subscription.
pub(crate) fn all(turn: &Turn<'_>, subscription: &str) -> Vec<Document> {
    let prefix = format!(
        "arm/subscriptions/{}/resourcegroups/",
        subscription.to_lowercase()
    );
    let keys = turn.right_below(&prefix).into_iter();
    let entries = keys.filter_map(|key| turn.get(&key));
    entries.map(Document::read).collect()
}

/// The answer of `…/resourcegroups`.
pub(crate) fn list(
    turn: &Turn<'_>,
    asked: &Asked,
    subscription: &str,
    may_see: impl Fn(&str) -> bool,
) -> Result<Reply, Fault> {
    let filter = list::Filter::parse(asked.param("$filter").unwrap_or_default())?;
    let seen = all(turn, subscription)
        .into_iter()
        .filter(|group| may_see(group.id()));
    let bodies = seen
        .map(|group| group.body)
        .filter(|body| filter.fits(body));
    list::page(turn, asked, bodies.collect())
}

fn put(turn: &mut Turn<'_>, asked: &Asked, subscription: &str, name: &str) -> Result<Reply, Fault> {
    let body = checks::body(asked)?;
    let (document, is_new) = write(turn, subscription, name, &body)?;
    let status = if is_new { 201 } else { 200 };
    Ok(Reply::json(status, document.body))
}

/// Makes or changes a group, whoever asks; also whether it is new.
pub(crate) fn write(
    turn: &mut Turn<'_>,
    subscription: &str,
    name: &str,
    body: &Value,
) -> Result<(Document, bool), Fault> {
    check_name(name)?;
    let before = document::get(turn, &id::group(subscription, name));
    let location = body["location"].as_str().map(region::plain);
    let location = location.ok_or_else(|| {
        Fault::bad(
            "LocationRequired",
            "The location property is required for this definition.",
        )
        .gateway()
    })?;
    if !region::is_known(&location) {
        let known: Vec<&str> = region::names().collect();
        let message = format!(
            "The provided location '{location}' is not available for resource group. List of available regions is \
             '{}'.",
            known.join(",")
        );
        return Err(Fault::bad("LocationNotAvailableForResourceGroup", message).gateway());
    }
    if let Some(before) = &before
        && before.body["location"] != *location
    {
        let message = format!(
            "Invalid resource group location '{location}'. The Resource group already exists in location '{}'.",
            before.body["location"].as_str().unwrap_or_default()
        );
        return Err(Fault::conflict("InvalidResourceGroupLocation", message).gateway());
    }
    if before.is_some() {
        open(turn, subscription, name)?;
        lock::allows_write(turn, &id::group(subscription, name))?;
    }
    let is_new = before.is_none();
    let document = made(turn, before, subscription, name, &location, body);
    Ok((document, is_new))
}

/// Stages a group.
pub(crate) fn made(
    turn: &mut Turn<'_>,
    before: Option<Document>,
    subscription: &str,
    name: &str,
    location: &str,
    body: &Value,
) -> Document {
    let mut document = before.unwrap_or_else(|| Document::new(turn, Value::Null));
    let spelled = match document.id() {
        "" => id::group(subscription, name),
        id => id.to_owned(),
    };
    let name = spelled.rsplit('/').next().unwrap_or(name).to_owned();
    document.body = json!({"id": spelled, "name": name, "type": "Microsoft.Resources/resourceGroups",
        "location": location, "properties": {"provisioningState": "Succeeded"}});
    for field in ["tags", "managedBy"] {
        if body[field].is_object() || body[field].is_string() {
            document.body[field] = body[field].clone();
        }
    }
    document::put(turn, &document);
    document
}

fn check_name(name: &str) -> Result<(), Fault> {
    let fits = |c: char| c.is_alphanumeric() || "-_.()".contains(c);
    if name.len() > 90 {
        let message = format!(
            "The resource group name '{name}' exceeds the maximum length of '90' characters."
        );
        return Err(Fault::bad("InvalidResourceGroup", message).gateway());
    }
    match name.chars().all(fits) && !name.ends_with('.') {
        true => Ok(()),
        false => Err(Fault::bad(
            "InvalidResourceGroup",
            format!(
                "The provided resource group name '{name}' has these invalid characters or ends with '.'. The name \
                 can only be a letter, digit, '-', '.', '(', ')' or '_'."
            ),
        )
        .gateway()),
    }
}

fn patch(
    turn: &mut Turn<'_>,
    asked: &Asked,
    subscription: &str,
    name: &str,
) -> Result<Reply, Fault> {
    let body = checks::body(asked)?;
    let mut group = open(turn, subscription, name)?;
    lock::allows_write(turn, group.id())?;
    if body["tags"].is_object() {
        group.body["tags"] = body["tags"].clone();
    }
    document::put(turn, &group);
    Ok(Reply::ok(group.body))
}

fn delete(
    turn: &mut Turn<'_>,
    asked: &Asked,
    subscription: &str,
    name: &str,
) -> Result<Reply, Fault> {
    let group = require(turn, subscription, name)?;
    let operation = begin_delete(turn, group)?;
    let version = asked.param("api-version").unwrap_or_default();
    let address = format!(
        "{}/subscriptions/{subscription}/operationresults/{operation}?api-version={version}",
        turn.settings.origin
    );
    let reply = Reply::empty(202).with("location", &address);
    Ok(reply.with("retry-after-ms", "100"))
}

/// Begins to remove a group and all in it, unless something outside needs it or a lock forbids it.
pub(crate) fn begin_delete(turn: &mut Turn<'_>, mut group: Document) -> Result<String, Fault> {
    lock::allows_delete_of_all(turn, group.id())?;
    let inside: Vec<Document> = inside(turn, group.id());
    let together: HashSet<String> = inside.iter().map(|d| d.id().to_lowercase()).collect();
    for document in &inside {
        let id = Id::parse(document.id());
        if let Some((id, kind)) = id.and_then(|id| Some((id.clone(), kind::named(&id.kind())?))) {
            resource::may_leave(turn, &id, kind, document, &together)?;
        }
    }
    let operation = operation::begin(
        turn,
        Begin::new(Verb::DeleteGroup, group.id(), MILLISECONDS),
    );
    group.operation = Some(operation.clone());
    group.body["properties"]["provisioningState"] = json!("Deleting");
    document::put(turn, &group);
    Ok(operation)
}

/// The resources of a group.
pub(crate) fn inside(turn: &Turn<'_>, group: &str) -> Vec<Document> {
    let found = turn.under(&format!("{}/", id::key(group))).into_iter();
    found.map(|(_, entry)| Document::read(entry)).collect()
}

/// Removes a group and all in it.
pub(crate) fn clear(turn: &mut Turn<'_>, group: &str) {
    for document in inside(turn, group) {
        operation::supersede(turn, &document);
        resource::forget(turn, &document);
        turn.remove(id::key(document.id()));
    }
    turn.remove(id::key(group));
}
