//! Tables of cases for tests: a good object, small changes to it, and what they must lead to.

use serde_json::Value;

use crate::field::Errors;

/// The object with a merge patch applied: nulls remove, everything but objects replaces.
pub(crate) fn with(base: &Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else {
        return patch.clone();
    };
    let mut result = base.as_object().cloned().unwrap_or_default();
    for (key, change) in changes {
        let changed = match result.get(key) {
            _ if change.is_null() => None,
            Some(before) => Some(with(before, change)),
            None => Some(with(&Value::Null, change)),
        };
        match changed {
            Some(value) => drop(result.insert(key.clone(), value)),
            None => drop(result.remove(key)),
        }
    }
    Value::Object(result)
}

/// The lines of the errors a check reports.
pub(crate) fn told(check: impl FnOnce(&mut Errors)) -> Vec<String> {
    let mut errors = Errors::default();
    check(&mut errors);
    errors.0.iter().map(ToString::to_string).collect()
}

fn expect(found: &[String], expected: &str, case: &Value) {
    if expected.is_empty() {
        assert_eq!(found, Vec::<String>::new(), "{case}");
    } else {
        assert!(
            found.iter().any(|line| line.starts_with(expected)),
            "{case}\n{expected}\n{found:#?}"
        );
    }
}

/// The base is fine, and every patch leads to a line that starts so (or to none, when empty).
pub(crate) fn creates(check: impl Fn(&Value, &mut Errors), base: &Value, cases: &[(Value, &str)]) {
    expect(&told(|e| check(base, e)), "", base);
    for (patch, expected) in cases {
        expect(&told(|e| check(&with(base, patch), e)), expected, patch);
    }
}

/// As [`creates`], for changes of the base through a subresource.
pub(crate) fn updates(
    check: impl Fn(&Value, &Value, &str, &mut Errors),
    subresource: &str,
    base: &Value,
    cases: &[(Value, &str)],
) {
    expect(&told(|e| check(base, base, subresource, e)), "", base);
    for (patch, expected) in cases {
        let found = told(|e| check(&with(base, patch), base, subresource, e));
        expect(&found, expected, patch);
    }
}
