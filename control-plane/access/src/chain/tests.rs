#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::{Attributes, ResourceTarget, Target, User};

const KNOWN: [&str; 4] = ["AlwaysAllow", "AlwaysDeny", "Node", "RBAC"];

fn read(authorizers: &Value) -> Result<Vec<Stage>, String> {
    let text = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthorizationConfiguration",
        "authorizers": authorizers,
    });
    parse(&text.to_string(), &KNOWN, &|path| match path.to_str() {
        Some("/hook.conf") => Ok(true),
        Some("/dir") => Ok(false),
        _ => Err("no such file".into()),
    })
}

fn settings() -> Value {
    json!({
        "timeout": "3s",
        "subjectAccessReviewVersion": "v1",
        "matchConditionSubjectAccessReviewVersion": "v1",
        "failurePolicy": "Deny",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/hook.conf"},
        "matchConditions": [{"expression": "request.user == 'jane'"}],
    })
}

fn with(changes: Value) -> Value {
    let mut settings = settings();
    for (field, value) in changes.as_object().unwrap() {
        settings[field] = value.clone();
    }
    json!([{"type": "Webhook", "name": "hook", "webhook": settings}])
}

#[test]
fn the_order_is_the_files() {
    let found = read(&json!([
        {"type": "Node", "name": "node"},
        {"type": "Webhook", "name": "first.example", "webhook": settings()},
        {"type": "RBAC", "name": "rbac"},
        {"type": "Webhook", "name": "second.example", "webhook": settings()},
    ]))
    .unwrap();
    let names = found.iter().map(|stage| match stage {
        Stage::BuiltIn(name) => name.as_str(),
        Stage::Webhook(webhook) => webhook.name.as_str(),
    });
    let names: Vec<&str> = names.collect();
    assert_eq!(names, ["Node", "first.example", "RBAC", "second.example"]);
    let Stage::Webhook(webhook) = &found[1] else {
        panic!("a webhook");
    };
    assert_eq!(webhook.timeout, Duration::from_secs(3));
    assert_eq!(webhook.authorized_ttl, Some(Duration::from_secs(300)));
    assert_eq!(webhook.unauthorized_ttl, Some(Duration::from_secs(30)));
    assert_eq!(webhook.on_failure, OnFailure::Deny);
    let uncached = read(&with(json!({"cacheAuthorizedRequests": false}))).unwrap();
    let Stage::Webhook(webhook) = &uncached[0] else {
        panic!("a webhook");
    };
    assert_eq!(webhook.authorized_ttl, None);
}

#[test]
fn mistakes_are_named() {
    let cases = [
        (json!([]), "at least one authorization mode must be defined"),
        (
            json!([{"name": "a"}]),
            "authorizers[0].type: Required value",
        ),
        (
            json!([{"type": "Odd", "name": "a"}]),
            "authorizers[0].type: Unsupported value: \"Odd\": supported values: \"AlwaysAllow\", \"AlwaysDeny\", \"Node\", \"RBAC\", \"Webhook\"",
        ),
        (
            json!([{"type": "RBAC", "name": "a"}, {"type": "RBAC", "name": "b"}]),
            "authorizers[1].type: Duplicate value: \"RBAC\"",
        ),
        (
            json!([{"type": "RBAC", "name": "a"}, {"type": "Node", "name": "a"}]),
            "authorizers[1].name: Duplicate value: \"a\"",
        ),
        (
            json!([{"type": "RBAC"}]),
            "authorizers[0].name: Required value",
        ),
        (
            json!([{"type": "RBAC", "name": "A_b"}]),
            "authorizer name is invalid",
        ),
        (
            json!([{"type": "Webhook", "name": "a"}]),
            "required when type=Webhook",
        ),
        (
            json!([{"type": "RBAC", "name": "a", "webhook": settings()}]),
            "may only be specified when type=Webhook",
        ),
        (
            with(json!({"timeout": ""})),
            "authorizers[0].timeout: Required value",
        ),
        (
            with(json!({"timeout": "31s"})),
            "authorizers[0].timeout: Invalid value: \"31s\": must be > 0s and <= 30s",
        ),
        (
            with(json!({"authorizedTTL": "-1s"})),
            "authorizers[0].authorizedTTL: Invalid value: \"-1s\": must be > 0s",
        ),
        (
            with(json!({"subjectAccessReviewVersion": "v2"})),
            "supported values: \"v1\", \"v1beta1\"",
        ),
        (
            with(json!({"matchConditionSubjectAccessReviewVersion": ""})),
            "required if match conditions are specified",
        ),
        (
            with(json!({"failurePolicy": "Allow"})),
            "supported values: \"NoOpinion\", \"Deny\"",
        ),
        (
            with(json!({"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "x"}})),
            "must be an absolute path",
        ),
        (
            with(json!({"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/none"}})),
            "error loading file: no such file",
        ),
        (
            with(json!({"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/dir"}})),
            "must be a regular file",
        ),
        (
            with(
                json!({"connectionInfo": {"type": "InClusterConfig", "kubeConfigFile": "/hook.conf"}}),
            ),
            "can only be set when type=KubeConfigFile",
        ),
        (
            with(json!({"matchConditions": [{"expression": "request.name == 'a'"}]})),
            "undefined field 'name'",
        ),
        (
            with(json!({"matchConditions": [{"expression": "request.user"}]})),
            "must evaluate to bool but got string",
        ),
        (
            with(json!({"matchConditions": [{"expression": "true"}, {"expression": "true"}]})),
            "matchConditions[1].expression: Duplicate value: \"true\"",
        ),
    ];
    for (authorizers, why) in cases {
        let said = read(&authorizers).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
    assert!(parse("{kind: Other, apiVersion: v1}", &KNOWN, &|_| Ok(true)).is_err());
    assert!(read(&with(json!({"odd": 1}))).is_err(), "unknown fields");
}

fn jane() -> User {
    User {
        name: "jane".into(),
        groups: vec!["dev".into()],
        ..User::default()
    }
}

fn listing(user: &User) -> Attributes<'_> {
    Attributes {
        user,
        verb: "list",
        target: Target::Resource(ResourceTarget {
            namespace: "shop",
            version: "v1",
            resource: "pods",
            field_selector: "spec.nodeName=n1,status.phase!=Failed",
            label_selector: "app in (a,b),!gone",
            ..ResourceTarget::default()
        }),
    }
}

#[test]
fn a_question_is_a_review() {
    let user = jane();
    let spec = question(&listing(&user));
    assert_eq!(
        spec,
        json!({
            "user": "jane", "groups": ["dev"],
            "resourceAttributes": {
                "namespace": "shop", "verb": "list", "version": "v1", "resource": "pods",
                "fieldSelector": {"requirements": [
                    {"key": "spec.nodeName", "operator": "In", "values": ["n1"]},
                    {"key": "status.phase", "operator": "NotIn", "values": ["Failed"]},
                ]},
                "labelSelector": {"requirements": [
                    {"key": "app", "operator": "In", "values": ["a", "b"]},
                    {"key": "gone", "operator": "DoesNotExist"},
                ]},
            },
        })
    );
    let path = Attributes {
        user: &user,
        verb: "get",
        target: Target::Path("/metrics"),
    };
    let spec = question(&path);
    assert_eq!(
        spec["nonResourceAttributes"],
        json!({"path": "/metrics", "verb": "get"})
    );
    assert_eq!(body(&spec, "v1beta1")["spec"]["group"], json!(["dev"]));
    assert_eq!(body(&spec, "v1")["spec"], spec);
}

#[test]
fn conditions_say_when_a_webhook_is_asked() {
    let user = jane();
    let spec = question(&listing(&user));
    let cases: [(&[&str], Verdict); 6] = [
        (&[], Verdict::Met),
        (&["request.user == 'jane'"], Verdict::Met),
        (
            &["has(request.resourceAttributes) && request.resourceAttributes.namespace == 'other'"],
            Verdict::NotMet,
        ),
        (
            &["request.nonResourceAttributes.path == '/x'", "'dev' in request.groups && false"],
            Verdict::NotMet,
        ),
        (
            &["!('system:masters' in request.groups)", "request.resourceAttributes.labelSelector.requirements.exists(r, r.key == 'app')"],
            Verdict::Met,
        ),
        (
            &["request.nonResourceAttributes.path == '/x'"],
            Verdict::Failed(
                "cel evaluation error: expression 'request.nonResourceAttributes.path == '/x'' resulted in error: no such key: nonResourceAttributes".into(),
            ),
        ),
    ];
    for (expressions, expected) in cases {
        let mut conditions = Conditions::default();
        for text in expressions {
            conditions.add(text).unwrap();
        }
        assert_eq!(conditions.verdict(&spec), expected, "{expressions:?}");
    }
}

#[test]
fn an_answer_decides() {
    let cases = [
        (
            json!({"allowed": true, "reason": "r"}),
            Decision::Allow("r".into()),
        ),
        (
            json!({"allowed": true, "denied": true}),
            Decision::Deny(String::new()),
        ),
        (json!({"denied": true}), Decision::Deny(String::new())),
        (json!({}), Decision::NoOpinion(String::new())),
        (json!("odd"), Decision::NoOpinion(String::new())),
    ];
    for (status, expected) in cases {
        assert_eq!(decision(&status), expected, "{status}");
    }
    assert!(may_be_kept(&json!({"resourceAttributes": {"name": "a"}})));
    let long = "a".repeat(10_000);
    assert!(!may_be_kept(
        &json!({"nonResourceAttributes": {"path": long}})
    ));
}
