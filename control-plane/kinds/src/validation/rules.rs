//! Rules that many kinds share: immutability, uniqueness, selectors, conditions.

use std::collections::HashSet;

use serde_json::Value;

use super::names;
use super::reading::{at, entries, int, items, same, text};
use crate::field::{Errors, Path};

/// What upstream says about a field that may not change.
pub const IMMUTABLE: &str = "field is immutable";
/// What upstream says about a negative number.
pub const NEGATIVE: &str = "must be greater than or equal to 0";

/// One `Invalid value` per complaint about a value.
pub fn complain(errors: &mut Errors, path: &Path<'_>, value: &str, complaints: Vec<String>) {
    for complaint in complaints {
        errors.invalid(path, &value.into(), &complaint);
    }
}

/// The field may not differ from the old one.
pub fn immutable(errors: &mut Errors, path: &Path<'_>, new: &Value, old: &Value) {
    if !same(new, old) {
        errors.invalid(path, new, IMMUTABLE);
    }
}

/// Each of these fields of `new` equals the one of `old`.
pub fn immutable_fields(
    errors: &mut Errors,
    parent: Option<&Path<'_>>,
    new: &Value,
    old: &Value,
    names: &[&str],
) {
    for name in names {
        let path = parent.map_or(Path::root(name), |parent| parent.child(name));
        immutable(errors, &path, at(new, name), at(old, name));
    }
}

/// The number is zero or more.
pub fn non_negative(errors: &mut Errors, path: &Path<'_>, object: &Value, name: &str) {
    if int(object, name) < 0 {
        errors.invalid(&path.child(name), at(object, name), NEGATIVE);
    }
}

/// The text is not empty; `true` when it is there.
pub fn required(errors: &mut Errors, path: &Path<'_>, object: &Value, name: &str) -> bool {
    let is_there = !text(object, name).is_empty();
    if !is_there {
        errors.required(&path.child(name), "");
    }
    is_there
}

/// The text is one of the allowed ones; `true` when it is.
pub fn one_of(
    errors: &mut Errors,
    path: &Path<'_>,
    object: &Value,
    name: &str,
    allowed: &[&str],
) -> bool {
    let value = text(object, name);
    let is_allowed = allowed.contains(&value);
    if !is_allowed {
        errors.not_supported(&path.child(name), &value.into(), allowed);
    }
    is_allowed
}

/// Reports the elements of a list whose key occurred before, at `path[i]` plus `field` if given.
pub fn unique<'v>(
    errors: &mut Errors,
    path: &Path<'_>,
    list: &'v [Value],
    field: Option<&str>,
    key: impl Fn(&'v Value) -> String,
) {
    let mut seen = HashSet::new();
    for (i, item) in list.iter().enumerate() {
        if seen.insert(key(item)) {
            continue;
        }
        let element = path.index(i);
        match field {
            Some(name) => errors.duplicate(&element.child(name), at(item, name)),
            None => errors.duplicate(&element, item),
        }
    }
}

/// The keys and values of labels.
pub fn labels(errors: &mut Errors, path: &Path<'_>, object: &Value, name: &str) {
    let path = path.child(name);
    for (key, value) in entries(object, name) {
        complain(errors, &path, key, names::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        complain(errors, &path, value, names::label_value(value));
    }
}

/// A label selector at `path`.
pub fn label_selector(errors: &mut Errors, path: &Path<'_>, selector: &Value) {
    labels(errors, path, selector, "matchLabels");
    let expressions = path.child("matchExpressions");
    for (i, requirement) in items(selector, "matchExpressions").iter().enumerate() {
        selector_requirement(errors, &expressions.index(i), requirement);
    }
}

fn selector_requirement(errors: &mut Errors, path: &Path<'_>, requirement: &Value) {
    let values = items(requirement, "values");
    let values_path = path.child("values");
    match text(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => errors.required(
            &values_path,
            "must be specified when `operator` is 'In' or 'NotIn'",
        ),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.forbidden(
            &values_path,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.invalid(
            &path.child("operator"),
            &other.into(),
            "not a valid selector operator",
        ),
    }
    let key = text(requirement, "key");
    complain(errors, &path.child("key"), key, names::qualified_name(key));
    for (i, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        complain(
            errors,
            &values_path.index(i),
            value,
            names::label_value(value),
        );
    }
}

/// Whether a selector selects everything: neither labels nor expressions.
pub fn selects_all(selector: &Value) -> bool {
    entries(selector, "matchLabels").next().is_none()
        && items(selector, "matchExpressions").is_empty()
}

/// `metav1.Condition` entries: unique types, known status, reason and times.
pub fn conditions(errors: &mut Errors, path: &Path<'_>, list: &[Value]) {
    unique(errors, path, list, Some("type"), |c| {
        text(c, "type").to_owned()
    });
    for (i, condition) in list.iter().enumerate() {
        condition_fields(errors, &path.index(i), condition);
    }
}

fn condition_fields(errors: &mut Errors, path: &Path<'_>, condition: &Value) {
    let ty = text(condition, "type");
    complain(errors, &path.child("type"), ty, names::qualified_name(ty));
    one_of(
        errors,
        path,
        condition,
        "status",
        &["False", "True", "Unknown"],
    );
    if int(condition, "observedGeneration") < 0 {
        errors.invalid(
            &path.child("observedGeneration"),
            at(condition, "observedGeneration"),
            "must be greater than or equal to zero",
        );
    }
    required(errors, path, condition, "lastTransitionTime");
    if required(errors, path, condition, "reason") {
        let reason = text(condition, "reason");
        complain(
            errors,
            &path.child("reason"),
            reason,
            condition_reason(reason),
        );
        if reason.len() > 1024 {
            errors.too_long(&path.child("reason"), 1024);
        }
    }
    if text(condition, "message").len() > 32 * 1024 {
        errors.too_long(&path.child("message"), 32 * 1024);
    }
}

fn condition_reason(reason: &str) -> Vec<String> {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':');
    let fine = reason.bytes().all(inner)
        && reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && !reason.ends_with([',', ':']);
    if fine {
        return Vec::new();
    }
    vec![names::with_format(
        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
        "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
        &[
            "my_name",
            "MY_NAME",
            "MyName",
            "ReasonA,ReasonB",
            "ReasonA:ReasonB",
        ],
    )]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(check: impl Fn(&mut Errors)) -> Vec<String> {
        let mut errors = Errors::default();
        check(&mut errors);
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn selectors_need_values_where_operators_use_them() {
        let cases = [
            (json!({"matchLabels": {"a": "b"}}), ""),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}),
                "",
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
                "s.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
                "s.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}),
                "s.matchExpressions[0].operator: Invalid value: \"Gt\": not a valid selector operator",
            ),
        ];
        for (selector, expected) in cases {
            let found = told(|e| label_selector(e, &Path::root("s"), &selector));
            assert_eq!(found.join("|"), expected, "{selector}");
        }
        assert!(selects_all(&json!({})));
        assert!(!selects_all(&json!({"matchLabels": {"a": "b"}})));
    }

    #[test]
    fn conditions_are_complete_and_unique() {
        let good = json!({"type": "Ready", "status": "True", "reason": "Ok", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let path = Path::root("conditions");
        assert!(told(|e| conditions(e, &path, std::slice::from_ref(&good))).is_empty());
        let found = told(|e| conditions(e, &path, &[good.clone(), good.clone()]));
        assert_eq!(found, ["conditions[1].type: Duplicate value: \"Ready\""]);
        let bad = json!({"type": "Ready", "status": "Maybe", "reason": "no spaces please"});
        let found = told(|e| conditions(e, &path, std::slice::from_ref(&bad)));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("conditions[0].status: Unsupported value: \"Maybe\": supported values: \"False\", \"True\", \"Unknown\""));
    }
}
