use serde_json::json;

use super::*;
use crate::validation::cases::{told, with};

/// A workload with a selector and a template that match, and every default filled in.
pub(in super::super) fn complete(ty: &str, extra: Value) -> Value {
    let base = json!({
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "app", "image": "nginx", "resources": {}}]}
            }
        }
    });
    let mut object = with(&base, &json!({ "spec": extra }));
    let ty = objects::schema::lookup(ty).expect("exists");
    crate::defaults::apply(ty, &mut object);
    object
}

type Create = fn(&Value, &mut Errors);

fn check(create: Create, base: &Value, patch: &Value) -> String {
    let object = with(base, &json!({ "spec": patch }));
    told(|e| create(&object, e)).join("|")
}

#[test]
fn a_deployment_is_checked_field_by_field() {
    let base = complete("apps.v1.Deployment", json!({}));
    let cases = [
        (json!({}), ""),
        (
            json!({"replicas": -1}),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!({"selector": {"matchLabels": {"app": "x"}}}),
            "spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
        ),
        (
            json!({"selector": null}),
            "spec.selector: Required value|spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
        ),
        (
            json!({"selector": {"matchLabels": null}}),
            "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
        ),
        (
            json!({"template": {"spec": {"restartPolicy": "Never"}}}),
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
        ),
        (
            json!({"template": {"spec": {"activeDeadlineSeconds": 5}}}),
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
        ),
        (
            json!({"strategy": {"type": "Recreate"}}),
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ),
        (
            json!({"strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}}),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
        ),
        (
            json!({"strategy": {"rollingUpdate": {"maxUnavailable": "101%"}}}),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%",
        ),
        (
            json!({"strategy": {"type": "x", "rollingUpdate": null}}),
            "spec.strategy: Unsupported value: {\"type\":\"x\"}: supported values: \"Recreate\", \"RollingUpdate\"",
        ),
        (
            json!({"minReadySeconds": 600}),
            "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds",
        ),
    ];
    for (patch, expected) in cases {
        assert_eq!(check(deployment, &base, &patch), expected, "{patch}");
    }
    let bad = check(
        deployment,
        &base,
        &json!({"selector": {"matchLabels": {"a b": "c"}}}),
    );
    assert!(bad.ends_with(": invalid label selector"), "{bad}");
}

#[test]
fn selectors_are_fixed() {
    let old = complete(
        "apps.v1.Deployment",
        json!({"template": {"metadata": {"labels": {"app": "a", "x": "y"}}}}),
    );
    let new = with(
        &old,
        &json!({"spec": {"selector": {"matchLabels": {"x": "y"}}}}),
    );
    assert!(told(|e| deployment_update(&old, &old, "", e)).is_empty());
    assert_eq!(
        told(|e| deployment_update(&new, &old, "", e)),
        [
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"a\",\"x\":\"y\"}}: field is immutable"
        ]
    );
    let updates: [fn(&Value, &Value, &str, &mut Errors); 2] =
        [replica_set_update, daemon_set_update];
    for update in updates {
        let found = told(|e| update(&new, &old, "", e)).join("|");
        assert!(found.contains("spec.selector: Invalid value"), "{found}");
    }
}

#[test]
fn replica_sets_and_controllers() {
    let base = complete("apps.v1.ReplicaSet", json!({}));
    assert_eq!(check(replica_set, &base, &json!({})), "");
    assert!(
        check(replica_set, &base, &json!({"selector": null}))
            .starts_with("spec.selector: Required value|")
    );
    let base = complete(
        "core.v1.ReplicationController",
        json!({"selector": {"matchLabels": null, "app": "a"}}),
    );
    assert_eq!(check(replication_controller, &base, &json!({})), "");
    assert_eq!(
        check(
            replication_controller,
            &base,
            &json!({"selector": {"app": "x"}})
        ),
        "spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`"
    );
    assert_eq!(
        check(
            replication_controller,
            &base,
            &json!({"selector": null, "template": null})
        ),
        "spec.selector: Required value|spec.template: Required value"
    );
}

#[test]
fn a_daemon_set_is_checked_field_by_field() {
    let base = complete("apps.v1.DaemonSet", json!({}));
    let cases = [
        (json!({}), ""),
        (
            json!({"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}),
            "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
        ),
        (
            json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}}),
            "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
        ),
        (
            json!({"updateStrategy": {"type": "x", "rollingUpdate": null}}),
            "spec.updateStrategy: Unsupported value: {\"type\":\"x\"}: supported values: \"RollingUpdate\", \"OnDelete\"",
        ),
        (
            json!({"selector": {"matchLabels": null}}),
            "spec.selector: Invalid value: {}: empty selector is invalid for daemonset",
        ),
        (
            json!({"template": {"spec": {"activeDeadlineSeconds": 5}}}),
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not Supported",
        ),
    ];
    for (patch, expected) in cases {
        assert_eq!(check(daemon_set, &base, &patch), expected, "{patch}");
    }
}
