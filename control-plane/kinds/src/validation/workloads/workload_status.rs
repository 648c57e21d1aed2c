//! The statuses of workloads: counts that fit each other.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::reading::{at, int, some_int};
use crate::validation::rules::non_negative;

/// The status of a Deployment.
pub(crate) fn deployment(errors: &mut Errors, new: &Value, old: &Value) {
    let status = at(new, "status");
    counts(
        errors,
        status,
        &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
    );
    within_replicas(
        errors,
        status,
        &["updatedReplicas", "readyReplicas", "availableReplicas"],
    );
    available_are_ready(errors, status, "readyReplicas");
    more_collisions(errors, status, at(old, "status"));
}

/// The status of a ReplicaSet or ReplicationController.
pub(crate) fn replica_set(errors: &mut Errors, new: &Value, _old: &Value) {
    let status = at(new, "status");
    let below = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    counts(errors, status, &["replicas"]);
    counts(errors, status, &below);
    counts(
        errors,
        status,
        &["observedGeneration", "terminatingReplicas"],
    );
    within_replicas(errors, status, &below);
    available_are_ready(errors, status, "readyReplicas");
}

/// The status of a StatefulSet.
pub(crate) fn stateful_set(errors: &mut Errors, new: &Value, old: &Value) {
    let status = at(new, "status");
    let below = [
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
    ];
    counts(errors, status, &["replicas"]);
    counts(errors, status, &below);
    counts(errors, status, &["observedGeneration", "collisionCount"]);
    within_replicas(errors, status, &below);
    available_are_ready(errors, status, "status.readyReplicas");
    more_collisions(errors, status, at(old, "status"));
}

/// The status of a DaemonSet.
pub(crate) fn daemon_set(errors: &mut Errors, new: &Value, old: &Value) {
    let status = at(new, "status");
    counts(
        errors,
        status,
        &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
    );
    more_collisions(errors, status, at(old, "status"));
}

fn counts(errors: &mut Errors, status: &Value, fields: &[&str]) {
    let path = Path::root("status");
    for field in fields {
        non_negative(errors, &path, status, field);
    }
}

fn within_replicas(errors: &mut Errors, status: &Value, fields: &[&str]) {
    let path = Path::root("status");
    for field in fields
        .iter()
        .filter(|field| int(status, field) > int(status, "replicas"))
    {
        let detail = "cannot be greater than status.replicas";
        errors.invalid(&path.child(field), &int(status, field).into(), detail);
    }
}

fn available_are_ready(errors: &mut Errors, status: &Value, shown: &str) {
    if int(status, "availableReplicas") > int(status, "readyReplicas") {
        let path = Path::root("status");
        let detail = format!("cannot be greater than {shown}");
        errors.invalid(
            &path.child("availableReplicas"),
            at(status, "availableReplicas"),
            &detail,
        );
    }
}

fn more_collisions(errors: &mut Errors, status: &Value, before: &Value) {
    let count = int(status, "collisionCount");
    if some_int(before, "collisionCount").is_some_and(|before| count < before) {
        let path = Path::root("status");
        errors.invalid(
            &path.child("collisionCount"),
            &count.into(),
            "cannot be decremented",
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;

    type Check = fn(&mut Errors, &Value, &Value);

    #[test]
    fn counts_fit_each_other() {
        let cases: [(Check, Value, Value, &str); 8] = [
            (
                deployment,
                json!({"replicas": 2, "readyReplicas": 2, "availableReplicas": 1}),
                json!({}),
                "",
            ),
            (
                deployment,
                json!({"unavailableReplicas": -1}),
                json!({}),
                "status.unavailableReplicas: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                deployment,
                json!({"replicas": 1, "updatedReplicas": 2}),
                json!({}),
                "status.updatedReplicas: Invalid value: 2: cannot be greater than status.replicas",
            ),
            (
                deployment,
                json!({}),
                json!({"collisionCount": 1}),
                "status.collisionCount: Invalid value: 0: cannot be decremented",
            ),
            (
                replica_set,
                json!({"replicas": 2, "readyReplicas": 1, "availableReplicas": 2}),
                json!({}),
                "status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas",
            ),
            (
                stateful_set,
                json!({"replicas": 2, "readyReplicas": 1, "availableReplicas": 2}),
                json!({}),
                "status.availableReplicas: Invalid value: 2: cannot be greater than status.readyReplicas",
            ),
            (daemon_set, json!({"numberReady": 3}), json!({}), ""),
            (
                daemon_set,
                json!({"numberReady": -3}),
                json!({}),
                "status.numberReady: Invalid value: -3: must be greater than or equal to 0",
            ),
        ];
        for (check, new, old, expected) in cases {
            let (new, old) = (json!({ "status": new }), json!({ "status": old }));
            assert_eq!(told(|e| check(e, &new, &old)).join("|"), expected, "{new}");
        }
    }
}
