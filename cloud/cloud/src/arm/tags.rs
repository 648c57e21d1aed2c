//! `Microsoft.Resources/tags/default`: the tags of anything, by themselves.

use http::Method;
use serde_json::{Value, json};

use super::document;
use super::fault::{self, Fault};
use super::id::Id;
use super::{checks, lock};
use crate::exchange::{Asked, Reply};
use crate::turn::Turn;

/// Reads, replaces, merges or removes the tags of a scope.
pub(crate) fn answer(turn: &mut Turn<'_>, asked: &Asked, scope: &str) -> Result<Reply, Fault> {
    let absent = || match Id::parse(scope) {
        Some(id) => fault::no_resource(&id),
        None => fault::no_group(scope.rsplit('/').next().unwrap_or_default()),
    };
    let mut found = document::get(turn, scope).ok_or_else(absent)?;
    if !found.body["tags"].is_object() {
        found.body["tags"] = json!({});
    }
    if asked.method != Method::GET {
        lock::allows_write(turn, scope)?;
    }
    match asked.method {
        Method::GET => {}
        Method::PUT => found.body["tags"] = sent(asked)?.1,
        Method::PATCH => {
            let (operation, tags) = sent(asked)?;
            merge(&mut found.body["tags"], &operation, tags);
        }
        Method::DELETE => found.body["tags"] = json!({}),
        _ => {
            return Err(Fault::new(
                405,
                "MethodNotAllowed",
                "Tags do not support this http method.",
            ));
        }
    }
    if asked.method != Method::GET {
        document::put(turn, &found);
    }
    Ok(Reply::ok(json!({
        "id": format!("{scope}/providers/Microsoft.Resources/tags/default"), "name": "default",
        "type": "Microsoft.Resources/tags", "properties": {"tags": found.body["tags"]},
    })))
}

fn sent(asked: &Asked) -> Result<(String, Value), Fault> {
    let body = checks::body(asked)?;
    let tags = body["properties"]["tags"].clone();
    let operation = body["operation"].as_str().unwrap_or("Merge").to_lowercase();
    Ok((operation, if tags.is_object() { tags } else { json!({}) }))
}

fn merge(present: &mut Value, operation: &str, tags: Value) {
    let (Some(map), Some(sent)) = (present.as_object_mut(), tags.as_object()) else {
        return;
    };
    match operation {
        "replace" => *map = sent.clone(),
        "delete" => map.retain(|key, _| !sent.contains_key(key)),
        _ => map.extend(sent.clone()),
    }
}
