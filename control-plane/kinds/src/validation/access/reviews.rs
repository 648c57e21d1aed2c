//! Reviews and other requests that are answered and never stored.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::reading::{at, entries, has, items, text};
use crate::validation::rules::one_of;

const SPEC: Path<'static> = Path::root("spec");

/// The body of a `serviceaccounts/token` request.
pub fn token_request(object: &Value, errors: &mut Errors) {
    let seconds = at(at(object, "spec"), "expirationSeconds")
        .as_i64()
        .unwrap_or(3600);
    let path = SPEC.child("expirationSeconds");
    if seconds < 600 {
        errors.invalid(
            &path,
            &seconds.into(),
            "may not specify a duration less than 10 minutes",
        );
    }
    if seconds > 1 << 32 {
        let complaint = "may not specify a duration larger than 2^32 seconds";
        errors.invalid(&path, &seconds.into(), complaint);
    }
}

/// A SubjectAccessReview.
pub fn subject_access_review(object: &Value, errors: &mut Errors) {
    subject(at(object, "spec"), errors);
    no_metadata(object, false, errors);
}

/// A SelfSubjectAccessReview.
pub fn self_subject_access_review(object: &Value, errors: &mut Errors) {
    attributes(at(object, "spec"), errors);
    no_metadata(object, false, errors);
}

/// A LocalSubjectAccessReview.
pub fn local_subject_access_review(object: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    subject(spec, errors);
    no_metadata(object, true, errors);
    let namespace = text(at(spec, "resourceAttributes"), "namespace");
    if has(spec, "resourceAttributes") && namespace != text(at(object, "metadata"), "namespace") {
        let path = Path::root("spec.resourceAttributes.namespace");
        errors.invalid(&path, &namespace.into(), "must match metadata.namespace");
    }
    if has(spec, "nonResourceAttributes") {
        let path = Path::root("spec.nonResourceAttributes");
        let value = at(spec, "nonResourceAttributes");
        errors.invalid(&path, value, "disallowed on this kind of request");
    }
}

fn subject(spec: &Value, errors: &mut Errors) {
    attributes(spec, errors);
    if text(spec, "user").is_empty() && items(spec, "groups").is_empty() {
        let complaint = "at least one of user or group must be specified";
        errors.invalid(&SPEC.child("user"), &"".into(), complaint);
    }
}

fn attributes(spec: &Value, errors: &mut Errors) {
    match (
        has(spec, "resourceAttributes"),
        has(spec, "nonResourceAttributes"),
    ) {
        (true, true) => errors.invalid(
            &SPEC.child("nonResourceAttributes"),
            at(spec, "nonResourceAttributes"),
            "cannot be specified in combination with resourceAttributes",
        ),
        (false, false) => errors.invalid(
            &SPEC.child("resourceAttributes"),
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        _ => {}
    }
    for name in ["fieldSelector", "labelSelector"] {
        let selector = at(at(spec, "resourceAttributes"), name);
        if !selector.is_null() {
            selector_attributes(
                selector,
                &Path::root("spec.resourceAttributes").child(name),
                errors,
            );
        }
    }
}

fn selector_attributes(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    let has_raw = !text(selector, "rawSelector").is_empty();
    let requirements = items(selector, "requirements");
    if has_raw && !requirements.is_empty() {
        let complaint = "may not specified at the same time as requirements";
        errors.invalid(
            &path.child("rawSelector"),
            at(selector, "rawSelector"),
            complaint,
        );
    }
    if !has_raw && requirements.is_empty() {
        let complaint =
            format!("when {path} is specified, requirements or rawSelector is required");
        errors.required(&path.child("requirements"), &complaint);
    }
}

fn no_metadata(object: &Value, namespaced: bool, errors: &mut Errors) {
    let metadata = at(object, "metadata");
    let allowed = |name: &str| name == "managedFields" || (namespaced && name == "namespace");
    let is_set = |value: &Value| !value.is_null() && value != "";
    if entries(object, "metadata").any(|(name, value)| !allowed(name) && is_set(value)) {
        let complaint = if namespaced {
            "must be empty except for namespace"
        } else {
            "must be empty"
        };
        errors.invalid(&Path::root("metadata"), metadata, complaint);
    }
}

/// A Binding of a pod to a node.
pub fn binding(object: &Value, errors: &mut Errors) {
    let (path, target) = (Path::root("target"), at(object, "target"));
    if !text(target, "kind").is_empty() {
        one_of(errors, &path, target, "kind", &["Node", "<empty>"]);
    }
    if text(target, "name").is_empty() {
        errors.required(&path.child("name"), "");
    }
}

/// The options of a delete request.
pub fn delete_options(options: &Value, errors: &mut Errors) {
    let path = Path::root("propagationPolicy");
    let policy = at(options, "propagationPolicy");
    if has(options, "orphanDependents") && !policy.is_null() {
        let complaint = "orphanDependents and deletionPropagation cannot be both set";
        errors.invalid(&path, policy, complaint);
    }
    let policies = ["Foreground", "Background", "Orphan", "nil"];
    if policy
        .as_str()
        .is_some_and(|name| !policies[..3].contains(&name))
    {
        errors.not_supported(&path, policy, &policies);
    }
    if items(options, "dryRun").iter().any(|value| value != "All") {
        errors.not_supported(&Path::root("dryRun"), at(options, "dryRun"), &["All"]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::creates;

    #[test]
    fn tokens_live_ten_minutes_at_least() {
        creates(
            token_request,
            &json!({"spec": {"expirationSeconds": 600}}),
            &[
                (
                    json!({"spec": {"expirationSeconds": 599}}),
                    "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
                ),
                (
                    json!({"spec": {"expirationSeconds": 4_294_967_297_i64}}),
                    "spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
                ),
            ],
        );
    }

    #[test]
    fn access_reviews_ask_one_question_about_someone() {
        let base = json!({"metadata": {"creationTimestamp": null}, "spec": {"user": "a", "resourceAttributes": {"verb": "get"}}});
        let cases = [
            (
                json!({"spec": {"nonResourceAttributes": {"path": "/"}}}),
                "spec.nonResourceAttributes: Invalid value: {\"path\":\"/\"}: cannot be specified in combination with resourceAttributes",
            ),
            (
                json!({"spec": {"resourceAttributes": null}}),
                "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
            ),
            (
                json!({"metadata": {"name": "a"}}),
                "metadata: Invalid value: {",
            ),
            (
                json!({"spec": {"resourceAttributes": {"labelSelector": {}}}}),
                "spec.resourceAttributes.labelSelector.requirements: Required value: when spec.resourceAttributes.labelSelector is specified",
            ),
            (
                json!({"spec": {"resourceAttributes": {"fieldSelector": {"rawSelector": "a=b"}}}}),
                "",
            ),
        ];
        creates(subject_access_review, &base, &cases);
        creates(self_subject_access_review, &base, &cases);
        creates(
            subject_access_review,
            &base,
            &[
                (
                    json!({"spec": {"user": null}}),
                    "spec.user: Invalid value: \"\": at least one of user or group must be specified",
                ),
                (json!({"spec": {"user": null, "groups": ["g"]}}), ""),
            ],
        );
        let local = json!({"metadata": {"namespace": "n"}, "spec": {"user": "a", "resourceAttributes": {"verb": "get", "namespace": "n"}}});
        creates(
            local_subject_access_review,
            &local,
            &[
                (
                    json!({"spec": {"resourceAttributes": {"namespace": "m"}}}),
                    "spec.resourceAttributes.namespace: Invalid value: \"m\": must match metadata.namespace",
                ),
                (
                    json!({"spec": {"resourceAttributes": null, "nonResourceAttributes": {}}}),
                    "spec.nonResourceAttributes: Invalid value: {}: disallowed on this kind of request",
                ),
                (
                    json!({"metadata": {"name": "a"}}),
                    "metadata: Invalid value: {",
                ),
            ],
        );
    }

    #[test]
    fn bindings_name_a_node() {
        creates(
            binding,
            &json!({"target": {"kind": "Node", "name": "a"}}),
            &[
                (json!({"target": {"kind": null}}), ""),
                (
                    json!({"target": {"kind": "Pod"}}),
                    "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"",
                ),
                (
                    json!({"target": {"name": null}}),
                    "target.name: Required value",
                ),
            ],
        );
    }

    #[test]
    fn deletes_propagate_one_known_way() {
        creates(
            delete_options,
            &json!({"propagationPolicy": "Foreground", "dryRun": ["All"]}),
            &[
                (
                    json!({"propagationPolicy": "Sideways"}),
                    "propagationPolicy: Unsupported value: \"Sideways\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
                ),
                (
                    json!({"orphanDependents": true}),
                    "propagationPolicy: Invalid value: \"Foreground\": orphanDependents and deletionPropagation cannot be both set",
                ),
                (
                    json!({"dryRun": ["Some"]}),
                    "dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
                ),
            ],
        );
    }
}
