//! Reading an object for its cells. A missing value reads as Go's zero.

use jiff::Timestamp;
use kube_kit::duration;
use kube_kit::selector::LabelSelector;
use serde_json::Value;

/// The object being printed and the time it is printed at.
pub(super) struct Row<'a> {
    pub(super) object: &'a Value,
    pub(super) now: Timestamp,
}

impl<'a> Row<'a> {
    /// The name's cell.
    pub(super) fn name(&self) -> Value {
        self.text("/metadata/name").into()
    }

    /// The age's cell.
    pub(super) fn age(&self) -> Value {
        self.since("/metadata/creationTimestamp").into()
    }

    /// The creation time as it stands, Go's zero time without one.
    pub(super) fn created_at(&self) -> &'a str {
        non_empty(
            self.text("/metadata/creationTimestamp"),
            "0001-01-01T00:00:00Z",
        )
    }

    /// Whether the object is being deleted.
    pub(super) fn is_deleting(&self) -> bool {
        is_set(self.object, "/metadata/deletionTimestamp")
    }

    /// The age of a time, `<unknown>` without one.
    pub(super) fn since(&self, pointer: &str) -> String {
        duration::age(self.text(pointer), self.now)
    }

    pub(super) fn text(&self, pointer: &str) -> &'a str {
        text(self.object, pointer)
    }

    pub(super) fn text_or(&self, pointer: &str, otherwise: &'a str) -> Value {
        non_empty(self.text(pointer), otherwise).into()
    }

    pub(super) fn int(&self, pointer: &str) -> i64 {
        int(self.object, pointer)
    }

    pub(super) fn flag(&self, pointer: &str) -> bool {
        flag(self.object, pointer)
    }

    pub(super) fn list(&self, pointer: &str) -> &'a [Value] {
        list(self.object, pointer)
    }

    /// Number of items in a list or map.
    pub(super) fn count(&self, pointer: &str) -> usize {
        match self.object.pointer(pointer) {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        }
    }

    /// A quantity, zero without one.
    pub(super) fn quantity(&self, pointer: &str) -> &'a str {
        non_empty(self.text(pointer), "0")
    }

    /// Names and images of a pod template's containers.
    pub(super) fn containers(&self, pod_spec: &str) -> [Value; 2] {
        let containers = self.list(&format!("{pod_spec}/containers"));
        ["/name", "/image"].map(|field| joined(containers.iter().map(|c| text(c, field)), ","))
    }

    /// A label selector object as text: `<none>` for null and empty, `<error>` for a bad one.
    pub(super) fn selector(&self, pointer: &str) -> Value {
        match LabelSelector::from_object(self.object.pointer(pointer).unwrap_or(&Value::Null)) {
            Ok(selector) => non_empty(&selector.to_string(), "<none>").into(),
            Err(_) => "<error>".into(),
        }
    }

    /// A map of labels as text, `<none>` when empty.
    pub(super) fn labels(&self, pointer: &str) -> Value {
        let labels = LabelSelector::from_map(self.object.pointer(pointer).unwrap_or(&Value::Null));
        non_empty(&labels.to_string(), "<none>").into()
    }
}

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(super) fn int(value: &Value, pointer: &str) -> i64 {
    value
        .pointer(pointer)
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

pub(super) fn flag(value: &Value, pointer: &str) -> bool {
    value
        .pointer(pointer)
        .and_then(Value::as_bool)
        .unwrap_or_default()
}

pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Whether an optional field has a value, zero or not.
pub(super) fn is_set(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).is_some_and(|value| !value.is_null())
}

pub(super) fn non_empty<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

pub(super) fn joined<'a>(texts: impl Iterator<Item = &'a str>, separator: &str) -> Value {
    texts.collect::<Vec<_>>().join(separator).into()
}

/// The condition of a type, the first one when there are several.
pub(super) fn condition<'a>(conditions: &'a [Value], ty: &str) -> Option<&'a Value> {
    conditions
        .iter()
        .find(|condition| text(condition, "/type") == ty)
}

/// Whether a condition is there and true.
pub(super) fn is_true(conditions: &[Value], ty: &str) -> bool {
    condition(conditions, ty).is_some_and(|condition| text(condition, "/status") == "True")
}

/// At most three items, then how many more there are; `<unset>` for none.
pub(super) fn first_three(items: &[&str]) -> Value {
    const SHOWN: usize = 3;
    let shown = items
        .iter()
        .take(SHOWN)
        .copied()
        .collect::<Vec<_>>()
        .join(",");
    match items.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{shown} + {more} more...").into(),
        _ => non_empty(&shown, "<unset>").into(),
    }
}
