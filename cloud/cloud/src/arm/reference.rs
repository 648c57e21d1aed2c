//! Which resource refers to which: written down at each write, so that nobody has to look through everything.
//!
//! `ref/<target>|<source>` holds the source as it is spelled. The source is the innermost thing with an id around the
//! reference: a card's address configuration rather than the card.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::document::Document;
use super::fault::Fault;
use super::id::Id;
use super::kind::{Draft, Kind};
use crate::turn::Turn;

/// A reference that a body makes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Reference {
    target: String,
    source: String,
}

/// The references along a type's paths.
fn of(kind: &Kind, body: &Value) -> Vec<Reference> {
    let own = body["id"].as_str().unwrap_or_default();
    let mut found = Vec::new();
    for path in kind.references {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        follow(body, &parts, own, &mut found);
    }
    found
}

fn follow(value: &Value, parts: &[&str], source: &str, found: &mut Vec<Reference>) {
    let source = match (value["id"].as_str(), value.as_object()) {
        (Some(id), Some(fields)) if fields.len() > 1 => id,
        _ => source,
    };
    match parts {
        [] => {
            if let Some(target) = value
                .as_str()
                .filter(|text| text.starts_with("/subscriptions/"))
            {
                found.push(Reference {
                    target: target.to_owned(),
                    source: source.to_owned(),
                });
            }
        }
        ["[]", rest @ ..] => {
            let elements = value.as_array().into_iter().flatten();
            elements.for_each(|element| follow(element, rest, source, found));
        }
        ["{}", rest @ ..] => {
            let keys = value.as_object().into_iter().flatten().map(|(key, _)| key);
            keys.for_each(|key| follow(&json!(key), rest, source, found));
        }
        [part, rest @ ..] => follow(&value[*part], rest, source, found),
    }
}

/// Whether everything a draft refers to is there.
pub(crate) fn check(turn: &Turn<'_>, draft: &Draft<'_>) -> Result<(), Fault> {
    let own = draft.body["id"].as_str().unwrap_or_default().to_lowercase();
    for reference in of(draft.kind, &draft.body) {
        let target = reference.target.to_lowercase();
        if target == own || target.starts_with(&format!("{own}/")) {
            continue;
        }
        let parsed = Id::parse(&reference.target);
        let Some(target) = parsed else {
            return Err(malformed(&reference.target));
        };
        if !exists(turn, &target) {
            let message = format!(
                "Resource {} referenced by resource {} was not found. Please make sure that the referenced resource \
                 exists, and that both resources are in the same region.",
                reference.target,
                draft.body["id"].as_str().unwrap_or_default()
            );
            return Err(Fault::bad("InvalidResourceReference", message));
        }
    }
    Ok(())
}

fn malformed(id: &str) -> Fault {
    let message = format!(
        "Property id '{id}' is invalid. Expect fully qualified resource Id that starts with \
        '/subscriptions/{{subscriptionId}}' or '/providers/{{resourceProviderNamespace}}/'."
    );
    Fault::bad("LinkedInvalidPropertyId", message)
}

/// Whether there is such a resource, be it inside another one.
pub(crate) fn exists(turn: &Turn<'_>, id: &Id) -> bool {
    let own = super::kind::named(&id.kind());
    match own {
        Some(kind) if kind.within.is_some() => super::inner::get(turn, id, kind).is_some(),
        Some(_) => turn.get(&id.key()).is_some(),
        // A type we know nothing of cannot be missed.
        None => true,
    }
}

fn key(reference: &Reference) -> String {
    format!(
        "ref{}|{}",
        reference.target.to_lowercase(),
        reference.source.to_lowercase()
    )
}

/// Writes down what a write changes about who refers to whom.
pub(crate) fn keep(
    turn: &mut Turn<'_>,
    kind: &Kind,
    before: Option<&Value>,
    after: Option<&Value>,
) {
    let all = |body: Option<&Value>| body.map(|body| of(kind, body)).unwrap_or_default();
    let (old, new): (HashSet<_>, HashSet<_>) = (
        all(before).into_iter().collect(),
        all(after).into_iter().collect(),
    );
    for gone in old.difference(&new) {
        turn.remove(key(gone));
    }
    for made in new.difference(&old) {
        turn.put(key(made), json!(made.source));
    }
}

/// Who refers to something.
pub(crate) fn sources(turn: &Turn<'_>, target: &str) -> Vec<String> {
    let found = turn
        .under(&format!("ref{}|", target.to_lowercase()))
        .into_iter();
    found
        .filter_map(|(_, source)| source.as_str().map(str::to_owned))
        .collect()
}

/// Shows in a resource who refers to it.
pub(crate) fn show(turn: &Turn<'_>, kind: &Kind, body: &mut Value) {
    if kind.shows.is_empty() {
        return;
    }
    let own = body["id"].as_str().unwrap_or_default().to_owned();
    let sources = sources(turn, &own);
    for (field, part, many) in kind.shows {
        let fits = |source: &&String| source.to_lowercase().contains(&part.to_lowercase());
        let mut found = sources
            .iter()
            .filter(fits)
            .map(|source| json!({ "id": source }))
            .peekable();
        if found.peek().is_none() {
            continue;
        }
        body["properties"][*field] = match many {
            true => found.collect(),
            false => found.next().unwrap_or_default(),
        };
    }
}

/// Takes out of a body what only shows who refers to it: clients send back what they have read.
pub(crate) fn hide(kind: &Kind, body: &mut Value) {
    for (field, ..) in kind.shows {
        super::document::take(body, &format!("/properties/{field}"));
    }
}

/// Whether something is needed by nobody but those that go with it.
pub(crate) fn check_unused(
    turn: &Turn<'_>,
    kind: &'static Kind,
    document: &Document,
    together: &HashSet<String>,
) -> Result<(), Fault> {
    if !kind.guarded && kind.inner().all(|inner| !inner.guarded) {
        return Ok(());
    }
    let own = document.id().to_lowercase();
    let prefixes = [format!("ref{own}|"), format!("ref{own}/")];
    let users = prefixes.iter().flat_map(|prefix| turn.under(prefix));
    for (entry, source) in users {
        let source = source.as_str().unwrap_or_default();
        let lower = source.to_lowercase();
        let goes_too = |id: &str| lower == id || lower.starts_with(&format!("{id}/"));
        if goes_too(&own) || together.iter().any(|id| goes_too(id)) {
            continue;
        }
        let target = entry
            .split('|')
            .next()
            .unwrap_or_default()
            .trim_start_matches("ref");
        return Err(in_use(kind, document, target, source));
    }
    Ok(())
}

fn in_use(kind: &Kind, document: &Document, target: &str, source: &str) -> Fault {
    let id = document.id();
    match kind.collection() {
        "publicIPAddresses" => Fault::bad(
            "PublicIPAddressCannotBeDeleted",
            format!(
                "Public IP address {id} can not be deleted since it is still allocated to resource {source}. In \
                order to delete the public IP, disassociate/detach the Public IP address from the resource."
            ),
        ),
        "disks" => Fault::conflict(
            "OperationNotAllowed",
            format!(
                "Disk {} is attached to VM {source}.",
                document.body["name"].as_str().unwrap_or_default()
            ),
        ),
        "virtualNetworks" | "subnets" => Fault::bad(
            "InUseSubnetCannotBeDeleted",
            format!(
                "Subnet {} is in use by {source} and cannot be deleted. In order to delete the subnet, delete all \
                the resources within the subnet. See aka.ms/deletesubnet.",
                target.rsplit('/').next().unwrap_or_default()
            ),
        ),
        other => {
            let word = other.strip_suffix('s').unwrap_or(other);
            let title: String = word[..1].to_uppercase() + &word[1..];
            Fault::bad(
                &format!("InUse{title}CannotBeDeleted"),
                format!(
                    "{title} {id} cannot be deleted because it is in use by the following resources: {source}."
                ),
            )
        }
    }
}
