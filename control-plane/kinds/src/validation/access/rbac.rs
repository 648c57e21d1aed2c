//! Roles and their bindings.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, has, items, text};
use crate::validation::rules::{complain, label_selector, required};

const GROUP: &str = "rbac.authorization.k8s.io";

/// A new Role.
pub fn role(object: &Value, errors: &mut Errors) {
    rules(object, true, errors);
}

/// A changed Role.
pub fn role_update(new: &Value, _old: &Value, _: &str, errors: &mut Errors) {
    role(new, errors);
}

/// A new ClusterRole.
pub fn cluster_role(object: &Value, errors: &mut Errors) {
    rules(object, false, errors);
    if !has(object, "aggregationRule") {
        return;
    }
    let root = Path::root("aggregationRule");
    let path = root.child("clusterRoleSelectors");
    let selectors = items(at(object, "aggregationRule"), "clusterRoleSelectors");
    if selectors.is_empty() {
        let complaint = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.required(&path, complaint);
    }
    for (i, selector) in selectors.iter().enumerate() {
        label_selector(errors, &path.index(i), selector);
    }
}

/// A changed ClusterRole.
pub fn cluster_role_update(new: &Value, _old: &Value, _: &str, errors: &mut Errors) {
    cluster_role(new, errors);
}

fn rules(object: &Value, namespaced: bool, errors: &mut Errors) {
    for (i, rule) in items(object, "rules").iter().enumerate() {
        policy_rule(rule, namespaced, &Path::root("rules").index(i), errors);
    }
}

fn policy_rule(rule: &Value, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    let is_empty = |list| items(rule, list).is_empty();
    if is_empty("verbs") {
        errors.required(
            &path.child("verbs"),
            "verbs must contain at least one value",
        );
    }
    if is_empty("nonResourceURLs") {
        for (list, complaint) in [
            (
                "apiGroups",
                "resource rules must supply at least one api group",
            ),
            (
                "resources",
                "resource rules must supply at least one resource",
            ),
        ] {
            if is_empty(list) {
                errors.required(&path.child(list), complaint);
            }
        }
        return;
    }
    let (path, urls) = (path.child("nonResourceURLs"), at(rule, "nonResourceURLs"));
    if namespaced {
        errors.invalid(
            &path,
            urls,
            "namespaced rules cannot apply to non-resource URLs",
        );
    }
    if !["apiGroups", "resources", "resourceNames"]
        .into_iter()
        .all(is_empty)
    {
        let complaint = "rules cannot apply to both regular resources and non-resource URLs";
        errors.invalid(&path, urls, complaint);
    }
}

/// A new RoleBinding.
pub fn role_binding(object: &Value, errors: &mut Errors) {
    binding(object, &["Role", "ClusterRole"], true, errors);
}

/// A changed RoleBinding.
pub fn role_binding_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    role_binding(new, errors);
    same_role(new, old, errors);
}

/// A new ClusterRoleBinding.
pub fn cluster_role_binding(object: &Value, errors: &mut Errors) {
    binding(object, &["ClusterRole"], false, errors);
}

/// A changed ClusterRoleBinding.
pub fn cluster_role_binding_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    cluster_role_binding(new, errors);
    same_role(new, old, errors);
}

fn same_role(new: &Value, old: &Value, errors: &mut Errors) {
    let parts = |o| ["apiGroup", "kind", "name"].map(|part| text(at(o, "roleRef"), part));
    if parts(new) != parts(old) {
        errors.invalid(
            &Path::root("roleRef"),
            at(new, "roleRef"),
            "cannot change roleRef",
        );
    }
}

fn binding(object: &Value, kinds: &[&str], namespaced: bool, errors: &mut Errors) {
    let (path, role) = (Path::root("roleRef"), at(object, "roleRef"));
    let (group, kind, name) = (
        text(role, "apiGroup"),
        text(role, "kind"),
        text(role, "name"),
    );
    if group != GROUP {
        errors.not_supported(&path.child("apiGroup"), &group.into(), &[GROUP]);
    }
    if !kinds.contains(&kind) {
        errors.not_supported(&path.child("kind"), &kind.into(), kinds);
    }
    if required(errors, &path, role, "name") {
        complain(errors, &path.child("name"), name, names::path_segment(name));
    }
    for (i, item) in items(object, "subjects").iter().enumerate() {
        subject(item, namespaced, &Path::root("subjects").index(i), errors);
    }
}

fn subject(subject: &Value, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    let has_name = required(errors, path, subject, "name");
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
    match text(subject, "kind") {
        "ServiceAccount" => {
            if has_name {
                complain(
                    errors,
                    &path.child("name"),
                    name,
                    names::dns1123_subdomain(name),
                );
            }
            if !group.is_empty() {
                errors.not_supported(&path.child("apiGroup"), &group.into(), &[""]);
            }
            if !namespaced {
                required(errors, path, subject, "namespace");
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.not_supported(&path.child("apiGroup"), &group.into(), &[GROUP]);
            }
        }
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            errors.not_supported(&path.child("kind"), &other.into(), &kinds);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates};

    #[test]
    fn rules_name_verbs_and_one_sort_of_target() {
        let rule = |rule: Value| json!({"rules": [rule]});
        let base = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}));
        creates(
            role,
            &base,
            &[
                (
                    rule(json!({"apiGroups": [""], "resources": ["pods"]})),
                    "rules[0].verbs: Required value: verbs must contain at least one value",
                ),
                (
                    rule(json!({"verbs": ["get"], "resources": ["pods"]})),
                    "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                ),
                (
                    rule(json!({"verbs": ["get"], "apiGroups": [""]})),
                    "rules[0].resources: Required value: resource rules must supply at least one resource",
                ),
                (
                    rule(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz"]})),
                    "rules[0].nonResourceURLs: Invalid value: [\"/healthz\"]: namespaced rules cannot apply to non-resource URLs",
                ),
            ],
        );
        creates(
            cluster_role,
            &base,
            &[
                (
                    rule(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz"]})),
                    "",
                ),
                (
                    rule(
                        json!({"verbs": ["get"], "nonResourceURLs": ["/a"], "resources": ["pods"]}),
                    ),
                    "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both",
                ),
                (
                    json!({"aggregationRule": {}}),
                    "aggregationRule.clusterRoleSelectors: Required value: at least one",
                ),
                (
                    json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}),
                    "",
                ),
                (
                    json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a b": "b"}}]}}),
                    "aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid value",
                ),
            ],
        );
        updates(
            role_update,
            "",
            &base,
            &[(json!({"rules": [{}]}), "rules[0].verbs: Required")],
        );
        updates(
            cluster_role_update,
            "",
            &base,
            &[(json!({"rules": [{}]}), "rules[0].verbs: Required")],
        );
    }

    #[test]
    fn bindings_join_subjects_to_a_role_that_stays() {
        let base = json!({"roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "system:a"},
            "subjects": [{"kind": "User", "apiGroup": GROUP, "name": "a"}]});
        let subject = |subject: Value| json!({"subjects": [subject]});
        creates(
            role_binding,
            &base,
            &[
                (json!({"roleRef": {"kind": "Role"}}), ""),
                (
                    json!({"roleRef": {"kind": "Else"}}),
                    "roleRef.kind: Unsupported value: \"Else\": supported values: \"Role\", \"ClusterRole\"",
                ),
                (
                    json!({"roleRef": {"apiGroup": ""}}),
                    "roleRef.apiGroup: Unsupported value: \"\": supported values: \"rbac.authorization.k8s.io\"",
                ),
                (
                    json!({"roleRef": {"name": null}}),
                    "roleRef.name: Required value",
                ),
                (
                    json!({"roleRef": {"name": "a/b"}}),
                    "roleRef.name: Invalid value: \"a/b\": may not contain '/'",
                ),
                (subject(json!({"kind": "ServiceAccount", "name": "a"})), ""),
                (
                    subject(json!({"kind": "ServiceAccount", "name": "A"})),
                    "subjects[0].name: Invalid value: \"A\"",
                ),
                (
                    subject(json!({"kind": "ServiceAccount", "name": "a", "apiGroup": "x"})),
                    "subjects[0].apiGroup: Unsupported value: \"x\": supported values: \"\"",
                ),
                (
                    subject(json!({"kind": "Group", "name": "a"})),
                    "subjects[0].apiGroup: Unsupported value: \"\"",
                ),
                (
                    subject(json!({"kind": "Else", "name": "a"})),
                    "subjects[0].kind: Unsupported value: \"Else\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
                ),
                (
                    subject(json!({"kind": "User", "apiGroup": GROUP})),
                    "subjects[0].name: Required value",
                ),
            ],
        );
        creates(
            cluster_role_binding,
            &base,
            &[
                (
                    json!({"roleRef": {"kind": "Role"}}),
                    "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
                ),
                (
                    subject(json!({"kind": "ServiceAccount", "name": "a"})),
                    "subjects[0].namespace: Required value",
                ),
            ],
        );
        let moved = (
            json!({"roleRef": {"name": "b"}}),
            "roleRef: Invalid value: {\"apiGroup\":\"rbac.authorization.k8s.io\",\"kind\":\"ClusterRole\",\"name\":\"b\"}: cannot change roleRef",
        );
        updates(role_binding_update, "", &base, std::slice::from_ref(&moved));
        updates(cluster_role_binding_update, "", &base, &[moved]);
    }
}
