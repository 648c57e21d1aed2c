#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::{AUTO_UPDATE, Reconciled, reconcile};
use crate::policy::objects;

fn role(rules: Value) -> Value {
    json!({
        "kind": "ClusterRole",
        "metadata": {"name": "r", "annotations": {AUTO_UPDATE: "true"}, "labels": {"a": "true"}},
        "rules": rules,
    })
}

fn binding(role: &str, subjects: Value) -> Value {
    json!({
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "b", "annotations": {AUTO_UPDATE: "true"}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    })
}

fn rule(resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [""], "resources": [resource], "verbs": verbs})
}

/// `value` with the text at a JSON pointer changed.
fn with(mut value: Value, pointer: &str, new: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let key = key.replace("~1", "/");
    value.pointer_mut(parent).unwrap()[key] = new;
    value
}

#[test]
fn every_bootstrap_object_is_created_once_and_then_left_alone() {
    for wanted in objects() {
        assert_eq!(reconcile(None, &wanted), Reconciled::Create);
        let mut stored = wanted.clone();
        stored["metadata"]["uid"] = "u".into();
        assert_eq!(reconcile(Some(&stored), &wanted), Reconciled::Unchanged);
    }
}

#[test]
fn what_is_missing_is_added_and_what_was_added_stays() {
    let user =
        |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
    let account = json!({"kind": "ServiceAccount", "name": "s", "namespace": "n"});
    let defaulted_account =
        json!({"apiGroup": "", "kind": "ServiceAccount", "name": "s", "namespace": "n"});
    let wanted = role(json!([rule("pods", &["get", "list"])]));
    let selector = |key: &str| json!({"matchLabels": {key: "true"}});
    let sum = |keys: &[&str]| {
        let selectors: Vec<Value> = keys.iter().map(|k| selector(k)).collect();
        with(
            role(Value::Null),
            "/aggregationRule",
            json!({"clusterRoleSelectors": selectors}),
        )
    };
    let updated = |value: Value| Reconciled::Update(value);
    let cases = [
        (
            "rules",
            role(json!([rule("nodes", &["get"]), rule("pods", &["get"])])),
            wanted.clone(),
            updated(role(json!([
                rule("nodes", &["get"]),
                rule("pods", &["get"]),
                rule("pods", &["list"])
            ]))),
        ),
        (
            "a wider rule",
            role(json!([rule("*", &["*"])])),
            wanted.clone(),
            Reconciled::Unchanged,
        ),
        (
            "no rules",
            role(Value::Null),
            role(json!([rule("pods", &["get"])])),
            updated(role(json!([rule("pods", &["get"])]))),
        ),
        (
            "labels",
            with(wanted.clone(), "/metadata/labels", json!({"mine": "x"})),
            wanted.clone(),
            updated(with(
                wanted.clone(),
                "/metadata/labels",
                json!({"mine": "x", "a": "true"}),
            )),
        ),
        (
            "no labels",
            with(wanted.clone(), "/metadata/labels", Value::Null),
            wanted.clone(),
            updated(wanted.clone()),
        ),
        (
            "a changed label",
            with(wanted.clone(), "/metadata/labels/a", "false".into()),
            wanted.clone(),
            Reconciled::Unchanged,
        ),
        (
            "opted out",
            with(
                role(Value::Null),
                &format!("/metadata/annotations/{}", AUTO_UPDATE.replace('/', "~1")),
                "false".into(),
            ),
            wanted.clone(),
            Reconciled::Unchanged,
        ),
        (
            "opted out, other role",
            with(
                binding("x", json!([])),
                &format!("/metadata/annotations/{}", AUTO_UPDATE.replace('/', "~1")),
                "false".into(),
            ),
            binding("r", json!([])),
            Reconciled::Unchanged,
        ),
        (
            "subjects",
            binding("r", json!([user("a"), defaulted_account])),
            binding("r", json!([user("b"), account, user("b")])),
            updated(binding(
                "r",
                json!([user("a"), defaulted_account, user("b")]),
            )),
        ),
        (
            "other role",
            binding("x", json!([user("a")])),
            binding("r", json!([user("b")])),
            Reconciled::Recreate(binding("r", json!([user("b")]))),
        ),
        (
            "unwanted aggregation",
            with(
                wanted.clone(),
                "/aggregationRule",
                json!({"clusterRoleSelectors": []}),
            ),
            wanted.clone(),
            updated(wanted.clone()),
        ),
        (
            "new aggregation",
            role(Value::Null),
            sum(&["s"]),
            updated(sum(&["s"])),
        ),
        (
            "another selector",
            sum(&["mine", "s"]),
            sum(&["s", "t"]),
            updated(sum(&["mine", "s", "t"])),
        ),
        (
            "aggregated rules",
            with(sum(&["s"]), "/rules", json!([rule("pods", &["get"])])),
            sum(&["s"]),
            Reconciled::Unchanged,
        ),
    ];
    for (case, existing, wanted, expected) in cases {
        assert_eq!(reconcile(Some(&existing), &wanted), expected, "{case}");
    }
}
