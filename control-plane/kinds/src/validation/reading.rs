//! Reading an object in Go normal form: what is absent reads as its zero value.

use serde_json::Value;

static ABSENT: Value = Value::Null;

/// Whether each of these was there before, looking at each once.
pub fn repeated<K: std::hash::Hash + Eq>(keys: impl IntoIterator<Item = K>) -> Vec<bool> {
    let mut seen = std::collections::HashSet::new();
    let keys = keys.into_iter();
    keys.map(|key| !seen.insert(key)).collect()
}

/// Whether each of these objects has a text in this field that one before it has, too.
pub fn same_text(list: &[Value], name: &str) -> Vec<bool> {
    repeated(list.iter().map(|item| text(item, name)))
}

/// The field, or null.
pub fn at<'v>(object: &'v Value, name: &str) -> &'v Value {
    object.get(name).unwrap_or(&ABSENT)
}

/// The field at the end of these names, or null.
pub fn deep<'v>(object: &'v Value, names: &[&str]) -> &'v Value {
    names.iter().fold(object, |value, name| at(value, name))
}

/// Whether the field is there at all (null counts as absent).
pub fn has(object: &Value, name: &str) -> bool {
    !at(object, name).is_null()
}

/// The text of a field; empty when absent.
pub fn text<'v>(object: &'v Value, name: &str) -> &'v str {
    at(object, name).as_str().unwrap_or_default()
}

/// The number of a field; 0 when absent.
pub fn int(object: &Value, name: &str) -> i64 {
    at(object, name).as_i64().unwrap_or_default()
}

/// The number of a field, if it is there.
pub fn some_int(object: &Value, name: &str) -> Option<i64> {
    at(object, name).as_i64()
}

/// The boolean of a field; false when absent.
pub fn flag(object: &Value, name: &str) -> bool {
    at(object, name).as_bool().unwrap_or_default()
}

/// The elements of a list field.
pub fn items<'v>(object: &'v Value, name: &str) -> &'v [Value] {
    at(object, name)
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The texts of a list field.
pub fn texts<'v>(object: &'v Value, name: &str) -> impl Iterator<Item = &'v str> {
    items(object, name)
        .iter()
        .map(|item| item.as_str().unwrap_or_default())
}

/// The entries of a map field.
pub fn entries<'v>(object: &'v Value, name: &str) -> impl Iterator<Item = (&'v str, &'v Value)> {
    at(object, name)
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.as_str(), v))
}

/// Whether two values say the same: an absent list and an empty one do not differ.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            x.iter().all(|(k, v)| same(v, y.get(k).unwrap_or(&ABSENT)))
                && y.iter().all(|(k, v)| x.contains_key(k) || same(&ABSENT, v))
        }
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(a, b)| same(a, b))
        }
        (Value::Null, Value::Array(list)) | (Value::Array(list), Value::Null) => list.is_empty(),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_reads_as_zero() {
        let object = json!({"a": {"b": [1]}, "n": null});
        assert_eq!(deep(&object, &["a", "b"]), &json!([1]));
        assert_eq!(deep(&object, &["x", "y"]), &Value::Null);
        assert!(!has(&object, "n"));
        assert_eq!(
            (text(&object, "t"), int(&object, "i"), flag(&object, "f")),
            ("", 0, false)
        );
    }

    #[test]
    fn empty_lists_equal_absent_ones() {
        assert!(same(&json!({"a": []}), &json!({})));
        assert!(same(&json!({}), &json!({"a": []})));
        assert!(!same(&json!({"a": {}}), &json!({})));
        assert!(!same(&json!([1]), &json!([2])));
    }
}
