//! Reading and writing objects that may lack what is asked for.

use serde_json::Value;

/// The items of a list; none if there is no list.
pub(super) fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// A text; empty if there is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A text of an object's metadata.
pub(super) fn meta<'o>(object: &'o Value, field: &str) -> &'o str {
    text(&object["metadata"][field])
}

/// An annotation, if the object has it.
pub(super) fn annotation<'o>(object: &'o Value, key: &str) -> Option<&'o str> {
    object["metadata"]["annotations"].get(key)?.as_str()
}

/// Whether a field is there and is not null.
pub(super) fn has(owner: &Value, field: &str) -> bool {
    owner.get(field).is_some_and(|value| !value.is_null())
}

/// Appends to a list that may not be there yet.
pub(super) fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = Value::Array(vec![item]),
    }
}

/// Whether a pod is the API's picture of one that a kubelet found on its own disk.
pub(super) fn is_mirror(pod: &Value) -> bool {
    annotation(pod, "kubernetes.io/config.mirror").is_some()
}
