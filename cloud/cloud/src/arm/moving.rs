//! Moves: resources go from one group to another, and whoever refers to them follows.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Map, Value};

use super::document::{self, Document};
use super::fault::{self, Fault};
use super::id::{Id, Path};
use super::kind::{self, Kind};
use super::{checks, group, lock, reference, resource};
use crate::entra::token::Caller;
use crate::exchange::{Asked, Reply};
use crate::providers;
use crate::turn::Turn;

/// What stays where it was made: machines are known by their ids, and the rest has a name outside of its group.
const STAYS: [&str; 2] = ["virtualMachines", "virtualMachineScaleSets"];
const MOVES: [&str; 3] = [
    "Microsoft.Network",
    "Microsoft.Compute",
    "Microsoft.KeyVault",
];

/// A resource that goes, and what it is called then.
struct Going {
    document: Document,
    kind: &'static Kind,
    to: String,
}

/// `POST …/resourceGroups/<group>/moveResources` and `…/validateMoveResources`.
pub(crate) fn answer(
    turn: &mut Turn<'_>,
    caller: &Caller,
    asked: &Asked,
    path: &Path,
    is_meant: bool,
) -> Result<Reply, Fault> {
    if asked.method != Method::POST {
        return Err(Fault::new(
            405,
            "MethodNotAllowed",
            "Resources are moved by POST.",
        ));
    }
    let body = checks::body(asked)?;
    let target = target(turn, caller, &body)?;
    let going = going(turn, path, &body, &target)?;
    if is_meant {
        for one in &going {
            carry(turn, one);
        }
    }
    Ok(Reply::empty(204))
}

fn target(turn: &Turn<'_>, caller: &Caller, body: &Value) -> Result<Document, Fault> {
    let text = body["targetResourceGroup"].as_str().unwrap_or_default();
    let path = Path::parse(text);
    let (Some(subscription), Some(name), true) =
        (&path.subscription, &path.group, path.rest.is_empty())
    else {
        let message = format!("The target resource group '{text}' is no id of a resource group.");
        return Err(Fault::bad("InvalidTargetResourceGroup", message).gateway());
    };
    super::subscription::require(turn, subscription)?;
    let group = group::open(turn, subscription, name)?;
    let action = super::access::Action {
        name: "Microsoft.Resources/subscriptions/resourceGroups/write".into(),
        scope: group.id().to_owned(),
    };
    super::access::check(turn, caller, &action)?;
    lock::allows_write(turn, group.id())?;
    Ok(group)
}

fn going(
    turn: &Turn<'_>,
    from: &Path,
    body: &Value,
    target: &Document,
) -> Result<Vec<Going>, Fault> {
    let ids: Vec<&str> = body["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if ids.is_empty() {
        let message = "The request to move resources names none.";
        return Err(Fault::bad("InvalidMoveResourcesRequest", message).gateway());
    }
    ids.into_iter()
        .map(|id| one(turn, from, id, target))
        .collect()
}

fn one(turn: &Turn<'_>, from: &Path, text: &str, target: &Document) -> Result<Going, Fault> {
    let outside = || {
        let message = format!(
            "The resource '{text}' is not in the resource group that resources are moved from."
        );
        Fault::bad("ResourcesNotInSameResourceGroup", message).gateway()
    };
    let id = Id::parse(text).ok_or_else(outside)?;
    let is_here = |own: &Option<String>| own.as_ref().map(|name| name.to_lowercase());
    if is_here(&id.group) != is_here(&from.group) {
        return Err(outside());
    }
    let kind = resource::kind_of(&id.namespace, &id.types)?;
    let may =
        MOVES.contains(&kind.namespace()) && !STAYS.contains(&kind.path()) && id.types.len() == 1;
    if !may {
        let message = format!(
            "Resource move is not supported for resource types '{}'.",
            kind.name
        );
        return Err(Fault::conflict("ResourceMoveNotSupported", message).gateway());
    }
    let document = document::get(turn, text).ok_or_else(|| fault::no_resource(&id))?;
    lock::allows_delete(turn, document.id())?;
    if document.operation.is_some() {
        let message = format!(
            "The resource '{}' is being changed; it can be moved when that has ended.",
            document.id()
        );
        return Err(Fault::conflict("ResourceMoveFailed", message).gateway());
    }
    let own = Id::parse(document.id()).unwrap_or(id);
    let to = Id {
        scope: target.id().to_owned(),
        ..own
    }
    .to_string();
    match document::get(turn, &to) {
        Some(_) => {
            let message = format!("The target resource group has a resource '{to}' already.");
            Err(Fault::conflict("ResourceMoveConflict", message).gateway())
        }
        None => Ok(Going { document, kind, to }),
    }
}

/// Gives a resource, what is below it, and who refers to it their new ids.
fn carry(turn: &mut Turn<'_>, going: &Going) {
    let from = going.document.id().to_owned();
    let old = super::id::key(&from);
    let referrers = referrers(turn, &from);
    for (key, entry) in turn.under(&format!("{old}/")) {
        turn.remove(key);
        let below = Document::read(entry);
        // As in Azure, whoever had a role at a resource has none at its new place.
        let is_role = below
            .id()
            .to_lowercase()
            .contains("/microsoft.authorization/roleassignments/");
        match is_role {
            true => resource::forget(turn, &below),
            false => rename(turn, below, &from, &going.to),
        }
    }
    turn.remove(old);
    rename(turn, going.document.clone(), &from, &going.to);
    for id in referrers {
        if let Some(document) = document::get(turn, &id) {
            rename(turn, document, &from, &going.to);
        }
    }
    providers::moved(turn, going.kind, &going.document, &going.to);
}

/// The kept resources that refer to something or to what is inside it.
fn referrers(turn: &Turn<'_>, id: &str) -> BTreeSet<String> {
    let prefix = format!("ref{}", id.to_lowercase());
    let found = turn.under(&prefix).into_iter();
    let its = found.filter(|(key, _)| key[prefix.len()..].starts_with(['/', '|']));
    let sources = its.filter_map(|(_, source)| source.as_str().map(str::to_owned));
    let own = id.to_lowercase();
    sources
        .filter_map(|source| kept(turn, &source))
        .filter(|source| source.to_lowercase() != own)
        .collect()
}

/// The id of the resource that is kept, around whatever has this id.
fn kept(turn: &Turn<'_>, id: &str) -> Option<String> {
    let mut id = Id::parse(id)?;
    loop {
        if let Some(document) = document::get(turn, &id.to_string()) {
            return Some(document.id().to_owned());
        }
        id = id.parent()?;
    }
}

fn rename(turn: &mut Turn<'_>, mut document: Document, from: &str, to: &str) {
    let before = document.body.clone();
    replace(&mut document.body, from, to);
    let kind = Id::parse(document.id()).and_then(|id| kind::named(&id.kind()));
    if let Some(kind) = kind {
        reference::keep(turn, kind, Some(&before), Some(&document.body));
    }
    document::put(turn, &document);
}

fn replace(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) => {
            if let Some(new) = renamed(text, from, to) {
                *text = new;
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|one| replace(one, from, to)),
        Value::Object(map) => {
            let old = std::mem::take(map);
            let renamed_keys = old.into_iter().map(|(key, mut value)| {
                replace(&mut value, from, to);
                (renamed(&key, from, to).unwrap_or(key), value)
            });
            *map = renamed_keys.collect::<Map<String, Value>>();
        }
        _ => {}
    }
}

fn renamed(text: &str, from: &str, to: &str) -> Option<String> {
    let head = text.get(..from.len())?;
    let rest = &text[from.len()..];
    let fits = head.eq_ignore_ascii_case(from) && (rest.is_empty() || rest.starts_with('/'));
    fits.then(|| format!("{to}{rest}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::arena::{Arena, SUBSCRIPTION};

    const N: &str = "/resourceGroups/g/providers/Microsoft.Network";
    const M: &str = "/resourceGroups/h/providers/Microsoft.Network";

    fn prepared() -> Arena {
        let mut arena = Arena::new();
        arena.group("g");
        arena.group("h");
        let network = json!({"location": "eastus", "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]},
            "subnets": [{"name": "s", "properties": {"addressPrefix": "10.0.0.0/24"}}]}});
        arena.done("PUT", &format!("{N}/virtualNetworks/v"), network);
        let subnet = format!("{SUBSCRIPTION}{N}/virtualNetworks/v/subnets/s");
        let card = json!({"location": "eastus", "properties": {"ipConfigurations": [{"name": "one",
            "properties": {"subnet": {"id": subnet}}}]}});
        arena.done("PUT", &format!("{N}/networkInterfaces/n"), card);
        arena
    }

    fn ask(arena: &mut Arena, verb: &str, id: &str, group: &str) -> (u16, String) {
        let body = json!({"resources": [format!("{SUBSCRIPTION}{id}")],
            "targetResourceGroup": format!("{SUBSCRIPTION}/resourceGroups/{group}")});
        arena.done("POST", &format!("/resourceGroups/g/{verb}"), body)
    }

    #[test]
    fn what_moves_is_followed_by_whoever_refers_to_it() {
        let mut arena = prepared();
        let network = format!("{N}/virtualNetworks/v");
        let asked = ask(&mut arena, "validateMoveResources", &network, "h");
        assert_eq!(asked.0, 204);
        assert_eq!(
            arena.done("GET", &network, Value::Null).0,
            200,
            "it was only asked"
        );
        assert_eq!(ask(&mut arena, "moveResources", &network, "h").0, 204);
        assert_eq!(arena.done("GET", &network, Value::Null).0, 404);
        let card = arena.ask("GET", &format!("{N}/networkInterfaces/n"), Value::Null);
        let subnet =
            card.document()["properties"]["ipConfigurations"][0]["properties"]["subnet"]["id"]
                .clone();
        assert_eq!(
            subnet,
            format!("{SUBSCRIPTION}{M}/virtualNetworks/v/subnets/s")
        );
        // It is still known to be in use.
        let held = arena.done("DELETE", &format!("{M}/virtualNetworks/v"), Value::Null);
        assert_eq!(held, (400, "InUseSubnetCannotBeDeleted".into()));
        arena.done("DELETE", &format!("{N}/networkInterfaces/n"), Value::Null);
        let gone = arena.done("DELETE", &format!("{M}/virtualNetworks/v"), Value::Null);
        assert_eq!(gone.0, 202);
        let left = arena
            .state
            .0
            .keys()
            .filter(|key| key.starts_with("ref/"))
            .count();
        assert_eq!(left, 0);
    }

    #[test]
    fn what_cannot_move_stays() {
        let mut arena = prepared();
        let rows = [
            (
                format!("{N}/virtualNetworks/none"),
                "h",
                404,
                "ResourceNotFound",
            ),
            (
                format!("{N}/virtualNetworks/v"),
                "none",
                404,
                "ResourceGroupNotFound",
            ),
            (
                format!("{N}/virtualNetworks/v/subnets/s"),
                "h",
                409,
                "ResourceMoveNotSupported",
            ),
            (
                format!("{M}/virtualNetworks/v"),
                "h",
                400,
                "ResourcesNotInSameResourceGroup",
            ),
            (
                "/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c".into(),
                "h",
                409,
                "ResourceMoveNotSupported",
            ),
        ];
        for (id, group, status, code) in rows {
            assert_eq!(
                ask(&mut arena, "moveResources", &id, group),
                (status, code.to_owned()),
                "{id} {group}"
            );
        }
        let lock = json!({"properties": {"level": "CanNotDelete"}});
        arena.done(
            "PUT",
            "/resourceGroups/g/providers/Microsoft.Authorization/locks/l",
            lock,
        );
        let held = ask(
            &mut arena,
            "moveResources",
            &format!("{N}/virtualNetworks/v"),
            "h",
        );
        assert_eq!(held, (409, "ScopeLocked".into()));
    }
}
