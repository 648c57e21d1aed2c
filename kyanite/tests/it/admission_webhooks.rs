//! Admission webhooks: a small HTTPS server of the test is asked about what kubectl writes.

use std::sync::atomic::Ordering;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::harness::{HookServer, Kubectl};

fn configuration(guard: &HookServer, kind: &str, path: &str, more: &Value) -> String {
    let mut hook = json!({
        "name": "guard.example.com",
        "clientConfig": {"url": format!("{}{path}", guard.url), "caBundle": guard.authority},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["configmaps"]}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "objectSelector": {"matchLabels": {"guarded": "yes"}},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        hook[field] = value.clone();
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": "guard"}, "webhooks": [hook]})
    .to_string()
}

fn respond(path: &str, review: &Value) -> Value {
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    if path.starts_with("/deny") {
        response["allowed"] = false.into();
        response["status"] = json!({"message": "not today", "code": 403, "reason": "Forbidden"});
        response["warnings"] = json!(["mind the guard"]);
    } else if path.starts_with("/patch") {
        let patch = json!([{"op": "add", "path": "/data/stamped", "value": "yes"}]).to_string();
        response["patchType"] = "JSONPatch".into();
        response["patch"] = base64::engine::general_purpose::STANDARD
            .encode(patch)
            .into();
    } else if path.starts_with("/lie") {
        response["uid"] = "another".into();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

fn map(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
        "metadata": {"name": name, "labels": {"guarded": "yes"}}})
    .to_string()
}

#[test]
fn a_validating_webhook_denies_warns_and_is_asked_over_one_connection() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let guard = HookServer::start(respond);
    let kind = "ValidatingWebhookConfiguration";
    kubectl
        .create(&configuration(&guard, kind, "/deny", &json!({})))
        .ok();
    for name in ["a", "b", "c"] {
        kubectl
            .with_input("create -f -", &map(name))
            .exits_with(1)
            .complains("admission webhook \"guard.example.com\" denied the request: not today")
            .complains("Warning: mind the guard");
    }
    assert_eq!(
        guard.seen.connections.load(Ordering::SeqCst),
        1,
        "connections are used again"
    );
    let reviews = guard.seen.bodies.lock().unwrap().clone();
    let request = &reviews[0]["request"];
    assert_eq!(request["operation"], "CREATE");
    assert_eq!(request["object"]["data"]["a"], "b");
    assert_eq!(request["oldObject"], Value::Null);
    assert_eq!(
        request["resource"],
        json!({"group": "", "version": "v1", "resource": "configmaps"})
    );
    assert_eq!(request["options"]["kind"], "CreateOptions");
    assert_eq!(request["dryRun"], false);
    kubectl.run("create configmap free").ok();
    kubectl
        .run("delete validatingwebhookconfiguration guard")
        .ok();
    kubectl.create(&map("a")).ok();
}

#[test]
fn a_mutating_webhook_patches_what_its_conditions_let_it_see() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let guard = HookServer::start(respond);
    let more = json!({"matchConditions": [{"name": "not-skipped", "expression": "object.metadata.name != 'skip-me'"}]});
    let kind = "MutatingWebhookConfiguration";
    kubectl
        .create(&configuration(&guard, kind, "/patch", &more))
        .ok();
    kubectl.create(&map("a")).ok();
    kubectl.create(&map("skip-me")).ok();
    assert_eq!(kubectl.field("configmap/a", ".data.stamped"), "yes");
    assert_eq!(kubectl.field("configmap/skip-me", ".data.stamped"), "");
    let bad = json!({"matchConditions": [{"name": "bad", "expression": "object.("}]});
    kubectl
        .with_input("replace -f -", &configuration(&guard, kind, "/patch", &bad))
        .exits_with(1)
        .complains("compilation failed");
}

#[test]
fn a_webhook_that_fails_closes_or_opens_as_it_says() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let guard = HookServer::start(respond);
    let kind = "ValidatingWebhookConfiguration";
    let slow = json!({"timeoutSeconds": 1});
    kubectl
        .create(&configuration(&guard, kind, "/hang", &slow))
        .ok();
    kubectl
        .with_input("create -f -", &map("a"))
        .exits_with(1)
        .complains("failed calling webhook \"guard.example.com\": failed to call webhook: Post")
        .complains("/hang?timeout=1s\": context deadline exceeded");
    kubectl
        .run("delete validatingwebhookconfiguration guard")
        .ok();
    kubectl
        .create(&configuration(&guard, kind, "/lie", &json!({})))
        .ok();
    kubectl
        .with_input("create -f -", &map("a"))
        .exits_with(1)
        .complains("received invalid webhook response: expected response.uid=");
    kubectl
        .run("delete validatingwebhookconfiguration guard")
        .ok();
    let open = json!({"failurePolicy": "Ignore", "sideEffects": "None"});
    kubectl
        .create(&configuration(&guard, kind, "/lie", &open))
        .ok();
    kubectl.create(&map("a")).ok();
    kubectl
        .run("delete validatingwebhookconfiguration guard")
        .ok();
    let stranger = json!({"clientConfig": {"url": format!("{}/allow", guard.url), "caBundle": ""}});
    kubectl
        .create(&configuration(&guard, kind, "/allow", &stranger))
        .ok();
    kubectl
        .with_input("create -f -", &map("b"))
        .exits_with(1)
        .complains("x509: certificate signed by unknown authority");
}
