//! Priority classes, runtime classes and controller revisions.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::pods::affinity::tolerations;
use crate::validation::pods::resources::overhead;
use crate::validation::reading::{at, deep, flag, has, int, items, text};
use crate::validation::rules::{self, NEGATIVE, complain, immutable, unique};

const USER_PRIORITY_MAX: i64 = 1_000_000_000;
const SYSTEM_CLASSES: &[(&str, i64)] = &[
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];

/// A new PriorityClass.
pub fn priority_class(object: &Value, errors: &mut Errors) {
    let name = text(at(object, "metadata"), "name");
    if name.starts_with("system-") {
        if let Some(problem) = unlike_system_class(object, name) {
            let path = Path::root("metadata");
            errors.forbidden(&path.child("name"), &format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {problem}"
            ));
        }
    } else if int(object, "value") > USER_PRIORITY_MAX {
        let complaint =
            format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}");
        errors.forbidden(&Path::root("value"), &complaint);
    }
    let policies = ["PreemptLowerPriority", "Never"];
    let (path, policy) = (
        Path::root("preemptionPolicy"),
        at(object, "preemptionPolicy"),
    );
    match policy.as_str() {
        Some("") => errors.required(&path, ""),
        Some(name) if !policies.contains(&name) => errors.not_supported(&path, policy, &policies),
        _ => {}
    }
}

fn unlike_system_class(object: &Value, name: &str) -> Option<String> {
    let Some((_, value)) = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if int(object, "value") != *value {
        return Some(format!("value of {name} PriorityClass must be {value}"));
    }
    flag(object, "globalDefault")
        .then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

/// A changed PriorityClass.
pub fn priority_class_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    if int(new, "value") != int(old, "value") {
        errors.forbidden(&Path::root("value"), "may not be changed in an update.");
    }
    let name = "preemptionPolicy";
    immutable(errors, &Path::root(name), at(new, name), at(old, name));
}

/// A new RuntimeClass.
pub fn runtime_class(object: &Value, errors: &mut Errors) {
    let (path, handler) = (Path::root("handler"), text(object, "handler"));
    if handler.is_empty() {
        errors.required(&path, "");
    } else {
        complain(errors, &path, handler, names::dns1123_label(handler));
    }
    if has(object, "overhead") {
        let amounts = deep(object, &["overhead", "podFixed"]);
        overhead(errors, &Path::root("overhead"), amounts);
    }
    let (path, scheduling) = (Path::root("scheduling"), at(object, "scheduling"));
    rules::labels(errors, &path, scheduling, "nodeSelector");
    let list = items(scheduling, "tolerations");
    let path = path.child("tolerations");
    tolerations(errors, &path, list);
    unique(errors, &path, list, None, |t| {
        ["key", "operator", "value", "effect"]
            .map(|part| text(t, part))
            .join("\n")
    });
}

/// A changed RuntimeClass.
pub fn runtime_class_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    immutable(
        errors,
        &Path::root("handler"),
        at(new, "handler"),
        at(old, "handler"),
    );
}

/// A new ControllerRevision.
pub fn revision(object: &Value, errors: &mut Errors) {
    revision_number(object, errors);
    match at(object, "data") {
        Value::Null => errors.required(&Path::root("data"), "data is mandatory"),
        Value::Object(_) => {}
        _ => errors.required(&Path::root("data"), "data must be a valid JSON object"),
    }
}

fn revision_number(object: &Value, errors: &mut Errors) {
    if int(object, "revision") < 0 {
        errors.invalid(&Path::root("revision"), at(object, "revision"), NEGATIVE);
    }
}

/// A changed ControllerRevision.
pub fn revision_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    revision_number(new, errors);
    immutable(
        errors,
        &Path::root("data"),
        at(new, "data"),
        at(old, "data"),
    );
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates};

    #[test]
    fn priorities_of_users_have_a_ceiling() {
        let base =
            json!({"metadata": {"name": "a"}, "value": 1_000_000_000, "preemptionPolicy": "Never"});
        creates(
            priority_class,
            &base,
            &[
                (
                    json!({"value": 1_000_000_001}),
                    "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
                ),
                (
                    json!({"metadata": {"name": "system-mine"}}),
                    "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-mine is not a known system priority class",
                ),
                (
                    json!({"metadata": {"name": "system-node-critical"}}),
                    "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: value of system-node-critical PriorityClass must be 2000001000",
                ),
                (
                    json!({"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}),
                    "",
                ),
                (
                    json!({"preemptionPolicy": "Always"}),
                    "preemptionPolicy: Unsupported value: \"Always\": supported values: \"PreemptLowerPriority\", \"Never\"",
                ),
            ],
        );
        updates(
            priority_class_update,
            "",
            &base,
            &[
                (
                    json!({"value": 1}),
                    "value: Forbidden: may not be changed in an update.",
                ),
                (
                    json!({"preemptionPolicy": null}),
                    "preemptionPolicy: Invalid value: null: field is immutable",
                ),
                (json!({"description": "b"}), ""),
            ],
        );
    }

    #[test]
    fn runtime_classes_have_a_handler_that_stays() {
        let toleration = json!({"key": "a", "operator": "Exists"});
        creates(
            runtime_class,
            &json!({"handler": "runc"}),
            &[
                (json!({"handler": null}), "handler: Required value"),
                (json!({"handler": "A"}), "handler: Invalid value: \"A\""),
                (
                    json!({"scheduling": {"nodeSelector": {"a b": "c"}}}),
                    "scheduling.nodeSelector: Invalid value",
                ),
                (json!({"scheduling": {"tolerations": [toleration]}}), ""),
                (
                    json!({"scheduling": {"tolerations": [toleration, toleration]}}),
                    "scheduling.tolerations[1]: Duplicate value: {",
                ),
            ],
        );
        updates(
            runtime_class_update,
            "",
            &json!({"handler": "runc"}),
            &[(
                json!({"handler": "kata"}),
                "handler: Invalid value: \"kata\": field is immutable",
            )],
        );
    }

    #[test]
    fn revisions_keep_their_data() {
        let base = json!({"revision": 1, "data": {"spec": {}}});
        creates(
            revision,
            &base,
            &[
                (
                    json!({"data": null}),
                    "data: Required value: data is mandatory",
                ),
                (
                    json!({"data": [1]}),
                    "data: Required value: data must be a valid JSON object",
                ),
                (json!({"revision": -1}), "revision: Invalid value: -1"),
            ],
        );
        updates(
            revision_update,
            "",
            &base,
            &[
                (json!({"revision": 2}), ""),
                (
                    json!({"data": {"spec": {"a": 1}}}),
                    "data: Invalid value: {",
                ),
            ],
        );
    }
}
