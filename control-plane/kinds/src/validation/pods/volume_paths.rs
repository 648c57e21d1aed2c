//! Paths inside volumes: relative, and never upwards.

use crate::field::{Errors, Path};
use crate::validation::rules::complain;

/// No `..` anywhere.
pub(crate) fn no_backsteps(errors: &mut Errors, path: &Path<'_>, value: &str) {
    if has_backsteps(value) {
        errors.invalid(path, &value.into(), "must not contain '..'");
    }
}

/// Whether a path goes upwards anywhere.
pub(crate) fn has_backsteps(value: &str) -> bool {
    value.split('/').any(|part| part == "..")
}

/// Relative and without `..`.
pub(crate) fn descending(errors: &mut Errors, path: &Path<'_>, value: &str) {
    if value.starts_with('/') {
        complain(
            errors,
            path,
            value,
            vec!["must be a relative path".to_owned()],
        );
    }
    no_backsteps(errors, path, value);
}

/// Relative, without `..`, and not one of the names the kubelet keeps for itself.
pub(crate) fn not_reserved(errors: &mut Errors, path: &Path<'_>, value: &str) {
    descending(errors, path, value);
    if value.starts_with("..") && !value.starts_with("../") {
        errors.invalid(path, &value.into(), "must not start with '..'");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::cases::told;

    #[test]
    fn paths_stay_inside() {
        for (value, complaint) in [
            ("a/b", ""),
            ("a..b", ""),
            ("/a", "p: Invalid value: \"/a\": must be a relative path"),
            (
                "a/../b",
                "p: Invalid value: \"a/../b\": must not contain '..'",
            ),
            (
                "..data",
                "p: Invalid value: \"..data\": must not start with '..'",
            ),
            ("../a", "p: Invalid value: \"../a\": must not contain '..'"),
        ] {
            let found = told(|e| not_reserved(e, &Path::root("p"), value)).join("|");
            assert_eq!(found, complaint, "{value}");
        }
    }
}
