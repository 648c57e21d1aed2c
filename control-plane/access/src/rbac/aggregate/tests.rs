#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::aggregate;

fn role(name: &str, label: &str, resources: &[&str]) -> Value {
    let rules: Vec<Value> = resources
        .iter()
        .map(|r| json!({"verbs": ["get"], "apiGroups": [""], "resources": [r]}))
        .collect();
    json!({"metadata": {"name": name, "labels": {label: "true"}}, "rules": rules})
}

#[test]
fn selectors_then_names_give_the_order_and_each_rule_comes_once() {
    let roles = [
        role("sum", "to-sum", &["own"]),
        role("b", "to-sum", &["pods", "secrets"]),
        role("a", "to-sum", &["services", "pods"]),
        role("first", "other", &["nodes"]),
        role("unrelated", "nothing", &["leases"]),
    ];
    let selectors = [
        json!({"matchLabels": {"other": "true"}}),
        json!({"matchExpressions": [{"key": "to-sum", "operator": "Exists"}]}),
    ];
    let rules = aggregate("sum", &selectors, &roles).unwrap();
    let resources: Vec<&str> = rules.iter().map(|r| r.resources[0].as_str()).collect();
    assert_eq!(resources, ["nodes", "services", "pods", "secrets"]);
}

#[test]
fn a_selector_that_cannot_be_read_is_an_error() {
    let selectors = [json!({"matchExpressions": [{"key": "a", "operator": "Like"}]})];
    assert!(aggregate("sum", &selectors, &[]).is_err());
}
