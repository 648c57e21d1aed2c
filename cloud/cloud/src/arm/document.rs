//! A resource as it is kept: what clients see, and what only we know.

use serde_json::{Map, Value, json};

use super::id::{self, Id};
use super::kind::{self, At};
use crate::chance::seven_digits;
use crate::turn::Turn;

/// A kept resource.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Document {
    pub(crate) body: Value,
    pub(crate) hidden: Value,
    /// The operation that works on it.
    pub(crate) operation: Option<String>,
    pub(crate) created: String,
    pub(crate) changed: String,
    /// How often it was written.
    pub(crate) version: u64,
}

impl Document {
    pub(crate) fn new(turn: &Turn<'_>, body: Value) -> Document {
        let now = seven_digits(turn.now);
        Document {
            body,
            hidden: Value::Null,
            operation: None,
            created: now.clone(),
            changed: now,
            version: 0,
        }
    }

    pub(crate) fn read(mut entry: Value) -> Document {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Document {
            operation: entry["operation"].as_str().map(str::to_owned),
            created: text(&entry["created"]),
            changed: text(&entry["changed"]),
            version: entry["version"].as_u64().unwrap_or(0),
            hidden: entry["hidden"].take(),
            body: entry["body"].take(),
        }
    }

    pub(crate) fn entry(&self) -> Value {
        json!({"body": self.body, "hidden": self.hidden, "operation": self.operation, "created": self.created,
            "changed": self.changed, "version": self.version})
    }

    pub(crate) fn id(&self) -> &str {
        self.body["id"].as_str().unwrap_or_default()
    }

    pub(crate) fn state(&self) -> &str {
        self.body["properties"]["provisioningState"]
            .as_str()
            .unwrap_or_default()
    }
}

/// The resource of an id.
pub(crate) fn get(turn: &Turn<'_>, id: &str) -> Option<Document> {
    turn.get(&id::key(id)).map(Document::read)
}

pub(crate) fn put(turn: &mut Turn<'_>, document: &Document) {
    turn.put(id::key(document.id()), document.entry());
}

/// The resources of a type in a scope: a group, or a whole subscription.
pub(crate) fn of_kind(turn: &Turn<'_>, scope: &str, kind: &str) -> Vec<Document> {
    let of_group = kind::named(kind).is_some_and(|kind| kind.at == At::Group);
    if !of_group || kind.matches('/').count() > 1 {
        return below(turn, scope, kind);
    }
    let word = kind.to_lowercase();
    let mut places = vec![id::key(scope)];
    // A subscription's resources are in its groups.
    if scope.matches('/').count() == 2 {
        places.extend(turn.right_below(&format!("{}/resourcegroups/", id::key(scope))));
    }
    let keys = places
        .iter()
        .flat_map(|place| turn.right_below(&format!("{place}/providers/{word}/")));
    let found = keys.filter_map(|key| turn.get(&key));
    found.map(Document::read).collect()
}

/// Those that may be anywhere: whatever is below a scope is looked at.
fn below(turn: &Turn<'_>, scope: &str, kind: &str) -> Vec<Document> {
    let all = turn.under(&format!("{}/", id::key(scope))).into_iter();
    let fits = |document: &Document| {
        Id::parse(document.id()).is_some_and(|id| id.kind().eq_ignore_ascii_case(kind))
    };
    all.map(|(_, entry)| Document::read(entry))
        .filter(fits)
        .collect()
}

/// The children of a type of a resource.
pub(crate) fn children(turn: &Turn<'_>, id: &Id, collection: &str) -> Vec<Document> {
    let prefix = format!("{}/{}/", id.key(), collection.to_lowercase());
    let found = turn.under(&prefix).into_iter();
    let direct = found.filter(|(key, _)| !key[prefix.len()..].contains('/'));
    direct.map(|(_, entry)| Document::read(entry)).collect()
}

/// Fills in what a document does not say. Arrays are left alone.
pub(crate) fn fill(target: &mut Value, defaults: &Value) {
    let (Value::Object(target), Value::Object(defaults)) = (target, defaults) else {
        return;
    };
    for (key, default) in defaults {
        match target.get_mut(key) {
            Some(present) if !present.is_null() => fill(present, default),
            _ => {
                target.insert(key.clone(), default.clone());
            }
        }
    }
}

/// Lays a document over another one: RFC 7396, but what is null is left alone.
pub(crate) fn overlay(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                match target.get_mut(key) {
                    Some(present) => overlay(present, value),
                    None => {
                        target.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (_, Value::Null) => {}
        (target, patch) => *target = patch.clone(),
    }
}

/// Takes away what is null: to ARM it is the same as not said.
pub(crate) fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(all) => all.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// What a pointer leads to, made where it is missing.
pub(crate) fn at<'v>(value: &'v mut Value, pointer: &str) -> &'v mut Value {
    pointer
        .split('/')
        .filter(|part| !part.is_empty())
        .fold(value, |value, part| {
            if !value.is_object() {
                *value = Value::Object(Map::new());
            }
            &mut value[part]
        })
}

/// Removes what a pointer leads to.
pub(crate) fn take(value: &mut Value, pointer: &str) -> Option<Value> {
    let (parent, name) = pointer.rsplit_once('/')?;
    value.pointer_mut(parent)?.as_object_mut()?.remove(name)
}

/// An object without anything in it, unless it is one already.
pub(crate) fn object(value: &mut Value) {
    if !value.is_object() {
        *value = json!({});
    }
}
