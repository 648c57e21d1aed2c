//! Pod disruption budgets and evictions.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::internal;
use crate::validation::reading::{at, has, items};
use crate::validation::rules::{conditions, label_selector, non_negative, one_of};
use crate::validation::values::{at_most_all, int_or_percent};

/// A new PodDisruptionBudget.
pub fn budget(object: &Value, errors: &mut Errors) {
    let (path, spec) = (Path::root("spec"), at(object, "spec"));
    if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
        let complaint = "minAvailable and maxUnavailable cannot be both set";
        errors.invalid_text(&path, &internal::BUDGET.shown(spec), complaint);
    }
    for name in ["minAvailable", "maxUnavailable"] {
        if has(spec, name) {
            int_or_percent(errors, &path.child(name), at(spec, name));
            at_most_all(errors, &path.child(name), at(spec, name));
        }
    }
    label_selector(errors, &path.child("selector"), at(spec, "selector"));
    if has(spec, "unhealthyPodEvictionPolicy") {
        let allowed = ["AlwaysAllow", "IfHealthyBudget"];
        one_of(errors, &path, spec, "unhealthyPodEvictionPolicy", &allowed);
    }
}

/// A changed PodDisruptionBudget, or its status.
pub fn budget_update(new: &Value, _old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource != "status" {
        return budget(new, errors);
    }
    let (path, status) = (Path::root("status"), at(new, "status"));
    conditions(
        errors,
        &path.child("conditions"),
        items(status, "conditions"),
    );
    for name in [
        "disruptionsAllowed",
        "currentHealthy",
        "desiredHealthy",
        "expectedPods",
    ] {
        non_negative(errors, &path, status, name);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates};

    #[test]
    fn budgets_limit_one_way() {
        let base = json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
        creates(
            budget,
            &base,
            &[
                (
                    json!({"spec": {"maxUnavailable": 1}}),
                    "spec: Invalid value: {",
                ),
                (json!({"spec": {"minAvailable": "50%"}}), ""),
                (
                    json!({"spec": {"minAvailable": "150%"}}),
                    "spec.minAvailable: Invalid value: \"150%\": must not be greater than 100%",
                ),
                (
                    json!({"spec": {"minAvailable": -1}}),
                    "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0",
                ),
                (
                    json!({"spec": {"selector": {"matchLabels": {"a": "b c"}}}}),
                    "spec.selector.matchLabels: Invalid value",
                ),
                (
                    json!({"spec": {"unhealthyPodEvictionPolicy": "Never"}}),
                    "spec.unhealthyPodEvictionPolicy: Unsupported value: \"Never\": supported values: \"AlwaysAllow\", \"IfHealthyBudget\"",
                ),
            ],
        );
        updates(
            budget_update,
            "",
            &base,
            &[(
                json!({"spec": {"minAvailable": "x"}}),
                "spec.minAvailable: Invalid value: \"x\": a valid percent",
            )],
        );
        updates(
            budget_update,
            "status",
            &base,
            &[
                (
                    json!({"status": {"currentHealthy": -1}}),
                    "status.currentHealthy: Invalid value: -1",
                ),
                (
                    json!({"status": {"conditions": [{}]}}),
                    "status.conditions[0].type: Invalid value",
                ),
            ],
        );
    }
}
