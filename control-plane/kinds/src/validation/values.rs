//! Values with a small range: choices, modes, counts, integers or percentages.

use serde_json::Value;

use super::names;
use super::reading::{at, has, some_int, text};
use super::rules::{NEGATIVE, complain};
use crate::field::{Errors, FieldError, Path, Reason};

/// What upstream says about a number that must be at least one.
pub(super) const NOT_POSITIVE: &str = "must be greater than zero";
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// A text that must be there and be one of the allowed ones.
pub(super) fn choice(errors: &mut Errors, path: &Path<'_>, value: &str, allowed: &[&str]) {
    if value.is_empty() {
        errors.required(path, "");
    } else if !allowed.contains(&value) {
        errors.not_supported(path, &value.into(), allowed);
    }
}

/// A text that may be absent but not something else than the allowed ones.
pub(super) fn optional_choice(
    errors: &mut Errors,
    path: &Path<'_>,
    object: &Value,
    name: &str,
    allowed: &[&str],
) {
    if has(object, name) && !allowed.contains(&text(object, name)) {
        errors.not_supported(&path.child(name), at(object, name), allowed);
    }
}

/// The permission bits of a file.
pub(super) fn file_mode(errors: &mut Errors, path: &Path<'_>, object: &Value, name: &str) {
    if some_int(object, name).is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        errors.invalid(&path.child(name), at(object, name), FILE_MODE);
    }
}

/// A text that names a DNS label, when there is one.
pub(super) fn optional_label(errors: &mut Errors, path: &Path<'_>, object: &Value, name: &str) {
    let value = text(object, name);
    if !value.is_empty() {
        complain(
            errors,
            &path.child(name),
            value,
            names::dns1123_label(value),
        );
    }
}

/// A text that names another object, when there is one.
pub(super) fn optional_subdomain(errors: &mut Errors, path: &Path<'_>, object: &Value, name: &str) {
    let value = text(object, name);
    if !value.is_empty() {
        complain(
            errors,
            &path.child(name),
            value,
            names::dns1123_subdomain(value),
        );
    }
}

/// A user or group number, when there is one.
pub(super) fn optional_id(errors: &mut Errors, path: &Path<'_>, object: &Value, name: &str) {
    for complaint in some_int(object, name).into_iter().flat_map(names::user_id) {
        errors.invalid(&path.child(name), at(object, name), &complaint);
    }
}

/// A port given by number or by name.
pub(super) fn port(errors: &mut Errors, path: &Path<'_>, port: &Value) {
    let complaints = match port.as_str() {
        Some(name) => names::port_name(name),
        None => names::port_number(port.as_i64().unwrap_or_default()),
    };
    for complaint in complaints {
        errors.invalid(path, port, &complaint);
    }
}

/// A count or a percentage, neither negative.
pub(super) fn int_or_percent(errors: &mut Errors, path: &Path<'_>, value: &Value) {
    match value.as_str() {
        Some(text) => {
            for complaint in names::percent(text) {
                errors.invalid(path, value, &complaint);
            }
        }
        None if value.as_i64().is_some_and(|number| number < 0) => {
            errors.invalid(path, value, NEGATIVE);
        }
        None => {}
    }
}

/// A percentage of at most a hundred; counts are free.
pub(super) fn at_most_all(errors: &mut Errors, path: &Path<'_>, value: &Value) {
    if percentage(value).is_some_and(|percent| percent > 100) {
        errors.invalid(path, value, "must not be greater than 100%");
    }
}

/// The number in a count or percentage; texts that are neither count as nothing.
pub(super) fn amount(value: &Value) -> i64 {
    percentage(value).or(value.as_i64()).unwrap_or_default()
}

fn percentage(value: &Value) -> Option<i64> {
    let text = value
        .as_str()
        .filter(|text| names::percent(text).is_empty())?;
    text.trim_end_matches('%').parse().ok()
}

/// `Not found: <value>: detail`.
pub(super) fn not_found(errors: &mut Errors, path: &Path<'_>, value: &str, detail: &str) {
    let message = format!("Not found: {value:?}: {detail}");
    push(errors, Reason::NotFound, path, message);
}

/// `Invalid value: detail`, for values too large to show.
pub(super) fn invalid_unshown(errors: &mut Errors, path: &Path<'_>, detail: &str) {
    push(
        errors,
        Reason::Invalid,
        path,
        format!("Invalid value: {detail}"),
    );
}

fn push(errors: &mut Errors, reason: Reason, path: &Path<'_>, message: String) {
    errors.0.push(FieldError {
        reason,
        field: path.to_string(),
        message,
    });
}

/// Runs a check and gives back what it found, leaving it to the caller whether that counts.
pub(super) fn found(check: impl FnOnce(&mut Errors)) -> Errors {
    let mut errors = Errors::default();
    check(&mut errors);
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;

    #[test]
    fn a_value_is_a_count_or_a_percentage() {
        let root = Path::root("f");
        let check = |value: Value| {
            told(|e| {
                int_or_percent(e, &root, &value);
                at_most_all(e, &root, &value);
            })
        };
        assert!(check(json!(3)).is_empty());
        assert!(check(json!("100%")).is_empty());
        assert_eq!(
            check(json!(-1)),
            ["f: Invalid value: -1: must be greater than or equal to 0"]
        );
        assert_eq!(
            check(json!("101%")),
            ["f: Invalid value: \"101%\": must not be greater than 100%"]
        );
        assert_eq!(check(json!("x")).len(), 1);
        assert_eq!(
            (
                amount(&json!("25%")),
                amount(&json!(2)),
                amount(&json!("x"))
            ),
            (25, 2, 0)
        );
    }
}
