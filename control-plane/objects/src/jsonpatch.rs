//! JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7396), with the deviations clients rely on.
//!
//! Upstream's library is laxer than the RFCs: negative indices count from the end, `replace` on a
//! missing object key adds it, a missing key tests and copies as null, and a merge patch prunes
//! nulls inside lists it inserts. A crate that follows the RFC to the letter would refuse patches
//! the real server accepts, so the operations are written out here.

use serde_json::{Map, Value};

/// The most operations one JSON patch may hold.
pub const MAX_OPERATIONS: usize = 10_000;
/// How many bytes all `copy` operations of one patch may add together.
pub const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

const MISSING: &str = "missing value";

/// Why a JSON patch or merge patch was refused.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum JsonPatchError {
    /// The patch document is not a patch at all (upstream: 400).
    #[error("{0}")]
    Malformed(String),
    /// More than [`MAX_OPERATIONS`] operations (upstream: 413).
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {got}")]
    TooManyOperations {
        /// How many there were.
        got: usize,
    },
    /// An operation does not apply or a test failed (upstream: 422; clients see only the generic
    /// text for that code, this one is for the log).
    #[error("{0}")]
    Failed(String),
}

type Step<T> = Result<T, String>;

/// Applies a JSON patch: the operations of `patch` in order, all or nothing.
pub fn json_patch(doc: &Value, patch: &Value) -> Result<Value, JsonPatchError> {
    let operations = decode(patch)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(JsonPatchError::TooManyOperations {
            got: operations.len(),
        });
    }
    let mut doc = doc.clone();
    let mut copied = 0;
    for operation in operations {
        apply_operation(&mut doc, operation, &mut copied).map_err(JsonPatchError::Failed)?;
    }
    Ok(doc)
}

fn decode(patch: &Value) -> Result<Vec<&Map<String, Value>>, JsonPatchError> {
    let list = match patch {
        Value::Array(list) => list,
        Value::Null => return Ok(Vec::new()),
        other => return Err(bad_json_type(other, "[]handlers.jsonPatchOp")),
    };
    let as_operation = |op: &'_ Value| match op {
        Value::Object(_) => Ok(()),
        other => Err(bad_json_type(other, "handlers.jsonPatchOp")),
    };
    list.iter().try_for_each(as_operation)?;
    Ok(list.iter().filter_map(Value::as_object).collect())
}

fn bad_json_type(value: &Value, target: &str) -> JsonPatchError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    JsonPatchError::Malformed(format!(
        "error decoding patch: json: cannot unmarshal {found} into Go value of type {target}"
    ))
}

fn apply_operation(doc: &mut Value, op: &Map<String, Value>, copied: &mut usize) -> Step<()> {
    let kind = op.get("op").and_then(Value::as_str).unwrap_or("unknown");
    let value = || op.get("value").cloned().unwrap_or(Value::Null);
    match kind {
        "add" => add(doc, pointer(op, "path", kind)?, value()),
        "remove" => remove(doc, pointer(op, "path", kind)?),
        "replace" => replace(doc, pointer(op, "path", kind)?, value()),
        "test" => test(doc, pointer(op, "path", kind)?, &value()),
        "move" => {
            let moved = take(doc, pointer(op, "from", kind)?)?;
            place(doc, pointer(op, "path", kind)?, moved, kind)
        }
        "copy" => {
            let copy = get(doc, pointer(op, "from", kind)?)?;
            *copied += copy.to_string().len();
            if *copied > MAX_COPIED_BYTES {
                return Err(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED_BYTES}"
                ));
            }
            place(doc, pointer(op, "path", kind)?, copy, kind)
        }
        other => Err(format!("Unexpected kind: {other}")),
    }
}

fn pointer<'a>(op: &'a Map<String, Value>, field: &str, kind: &str) -> Step<&'a str> {
    op.get(field)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("{kind} operation failed to decode {field}: {MISSING}"))
}

fn add(doc: &mut Value, path: &str, value: Value) -> Step<()> {
    let (parent, key) = parent_of(doc, path).ok_or_else(|| {
        format!("add operation does not apply: doc is missing path: \"{path}\": {MISSING}")
    })?;
    insert(parent, &key, value).map_err(|e| format!("error in add for path: '{path}': {e}"))
}

fn remove(doc: &mut Value, path: &str) -> Step<()> {
    let (parent, key) = parent_of(doc, path).ok_or_else(|| {
        format!("remove operation does not apply: doc is missing path: \"{path}\": {MISSING}")
    })?;
    delete(parent, &key).map_err(|e| format!("error in remove for path: '{path}': {e}"))
}

fn replace(doc: &mut Value, path: &str, value: Value) -> Step<()> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("replace operation value must be object or array".to_owned());
        }
        *doc = value;
        return Ok(());
    }
    let (parent, key) = parent_of(doc, path).ok_or_else(|| {
        format!("replace operation does not apply: doc is missing path: {path}: {MISSING}")
    })?;
    match parent {
        Value::Object(map) => _ = map.insert(key, value),
        Value::Array(items) => {
            let at = index(&key, items.len()).map_err(|_| {
                format!("replace operation does not apply: doc is missing key: {path}: {MISSING}")
            })?;
            items[at] = value;
        }
        _ => unreachable!("parent_of only answers containers"),
    }
    Ok(())
}

fn test(doc: &mut Value, path: &str, expected: &Value) -> Step<()> {
    let found = if path.is_empty() {
        doc.clone()
    } else {
        let (parent, key) = parent_of(doc, path).ok_or_else(|| {
            format!("test operation does not apply: is missing path: {path}: {MISSING}")
        })?;
        child(parent, &key).map_err(|e| format!("error in test for path: '{path}': {e}"))?
    };
    if found == *expected {
        return Ok(());
    }
    Err(format!("testing value {path} failed: test failed"))
}

fn take(doc: &mut Value, from: &str) -> Step<Value> {
    let (parent, key) = parent_of(doc, from).ok_or_else(|| {
        format!("move operation does not apply: doc is missing from path: {from}: {MISSING}")
    })?;
    let value = child(parent, &key).and_then(|value| delete(parent, &key).map(|()| value));
    value.map_err(|e| format!("error in move for path: '{key}': {e}"))
}

fn get(doc: &mut Value, from: &str) -> Step<Value> {
    let (parent, key) = parent_of(doc, from).ok_or_else(|| {
        format!("copy operation does not apply: doc is missing from path: {from}: {MISSING}")
    })?;
    child(parent, &key).map_err(|e| format!("error in copy for from: '{from}': {e}"))
}

fn place(doc: &mut Value, path: &str, value: Value, kind: &str) -> Step<()> {
    let (parent, key) = parent_of(doc, path).ok_or_else(|| {
        format!(
            "{kind} operation does not apply: doc is missing destination path: {path}: {MISSING}"
        )
    })?;
    insert(parent, &key, value).map_err(|e| match kind {
        "copy" => format!("error while adding value during copy: {e}"),
        _ => format!("error in {kind} for path: '{path}': {e}"),
    })
}

/// The container that holds `path`'s last key, and that key decoded.
fn parent_of<'d>(doc: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    let (parents, last) = path.rsplit_once('/')?;
    let mut at = doc;
    // The text before the first slash is ignored, as upstream ignores it.
    for part in parents.split('/').skip(1) {
        let key = unescape(part);
        at = match at {
            Value::Object(map) => map.get_mut(&key)?,
            Value::Array(items) => {
                let at = index(&key, items.len()).ok()?;
                items.get_mut(at)?
            }
            _ => return None,
        };
    }
    (at.is_object() || at.is_array()).then(|| (at, unescape(last)))
}

// RFC 6901: `~1` before `~0`; one pass, so `~01` stays `~1`.
fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

fn child(parent: &Value, key: &str) -> Step<Value> {
    match parent {
        Value::Array(items) => Ok(items[index(key, items.len())?].clone()),
        other => Ok(other.get(key).cloned().unwrap_or(Value::Null)),
    }
}

fn insert(parent: &mut Value, key: &str, value: Value) -> Step<()> {
    match parent {
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(key, items.len() + 1).map_err(|e| match key.parse::<i64>() {
                Ok(_) => e,
                Err(_) => format!("value was not a proper array index: '{key}': {e}"),
            })?;
            items.insert(at, value);
        }
        Value::Object(map) => _ = map.insert(key.to_owned(), value),
        _ => unreachable!("parent_of only answers containers"),
    }
    Ok(())
}

fn delete(parent: &mut Value, key: &str) -> Step<()> {
    match parent {
        Value::Array(items) => {
            let at = index(key, items.len())?;
            items.remove(at);
        }
        Value::Object(map) => {
            map.remove(key)
                .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: {MISSING}"))?;
        }
        _ => unreachable!("parent_of only answers containers"),
    }
    Ok(())
}

/// A list index below `len`; negative ones count from the end.
fn index(key: &str, len: usize) -> Step<usize> {
    let at: i64 = key.parse().map_err(|_| {
        format!(
            "strconv.Atoi: parsing {}: invalid syntax",
            crate::gotext::quoted(key)
        )
    })?;
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let at_from_start = if at < 0 { at.saturating_add(len) } else { at };
    if at_from_start < 0 || at_from_start >= len {
        return Err(format!(
            "Unable to access invalid index: {at}: invalid index referenced"
        ));
    }
    Ok(usize::try_from(at_from_start).expect("just checked to be at least zero"))
}

/// Applies a merge patch: maps merge, null deletes, everything else replaces.
pub fn merge_patch(doc: &Value, patch: &Value) -> Result<Value, JsonPatchError> {
    let Value::Object(patch) = patch else {
        return Err(JsonPatchError::Malformed("Invalid JSON Patch".to_owned()));
    };
    let mut doc = doc.as_object().cloned().unwrap_or_default();
    merge_maps(&mut doc, patch);
    Ok(Value::Object(doc))
}

fn merge_maps(doc: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        match (doc.get_mut(key), value) {
            (_, Value::Null) => _ = doc.remove(key),
            (Some(Value::Object(current)), Value::Object(value)) => merge_maps(current, value),
            (Some(Value::Object(_)), value) => _ = doc.insert(key.clone(), value.clone()),
            _ => _ = doc.insert(key.clone(), without_nulls(value)),
        }
    }
}

// A list keeps its null elements; only the fields of objects inside it are pruned.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(_, v)| !v.is_null())
            .map(|(k, v)| (k.clone(), without_nulls(v)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests;
