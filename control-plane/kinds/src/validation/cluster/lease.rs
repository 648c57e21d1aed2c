//! Leases.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::reading::{at, has, some_int, text};
use crate::validation::rules::{NEGATIVE, one_of};

/// A new Lease.
pub fn create(object: &Value, errors: &mut Errors) {
    let (path, spec) = (Path::root("spec"), at(object, "spec"));
    if some_int(spec, "leaseDurationSeconds").is_some_and(|seconds| seconds <= 0) {
        let value = at(spec, "leaseDurationSeconds");
        errors.invalid(
            &path.child("leaseDurationSeconds"),
            value,
            "must be greater than 0",
        );
    }
    if some_int(spec, "leaseTransitions").is_some_and(|count| count < 0) {
        errors.invalid(
            &path.child("leaseTransitions"),
            at(spec, "leaseTransitions"),
            NEGATIVE,
        );
    }
    if has(spec, "strategy") {
        one_of(errors, &path, spec, "strategy", &["OldestEmulationVersion"]);
    }
    if !text(spec, "preferredHolder").is_empty() && text(spec, "strategy").is_empty() {
        let complaint = "may only be specified if `strategy` is defined";
        errors.forbidden(&path.child("preferredHolder"), complaint);
    }
}

/// A changed Lease.
pub fn update(new: &Value, _old: &Value, _: &str, errors: &mut Errors) {
    create(new, errors);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates};

    #[test]
    fn leases_last_and_count_upwards() {
        let base = json!({"spec": {"leaseDurationSeconds": 15, "leaseTransitions": 0}});
        creates(
            create,
            &base,
            &[
                (
                    json!({"spec": {"leaseDurationSeconds": 0}}),
                    "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                ),
                (
                    json!({"spec": {"leaseTransitions": -1}}),
                    "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
                ),
                (
                    json!({"spec": {"strategy": "First"}}),
                    "spec.strategy: Unsupported value: \"First\"",
                ),
                (
                    json!({"spec": {"preferredHolder": "a"}}),
                    "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined",
                ),
                (
                    json!({"spec": {"preferredHolder": "a", "strategy": "OldestEmulationVersion"}}),
                    "",
                ),
            ],
        );
        updates(
            update,
            "",
            &base,
            &[(
                json!({"spec": {"leaseTransitions": -1}}),
                "spec.leaseTransitions: Invalid",
            )],
        );
    }
}
