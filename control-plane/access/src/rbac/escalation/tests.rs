#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::{escalation_message, not_covered};
use crate::User;
use crate::rbac::Rule;

#[test]
fn the_message_lists_what_is_missing_as_upstream_does() {
    let user = User {
        name: "alice".into(),
        groups: vec!["dev".into(), "system:authenticated".into()],
        ..User::default()
    };
    let held = [Rule::from_json(
        &json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}),
    )];
    let wanted = Rule::all_from_json(&json!([
        {"verbs": ["get", "list", "watch"], "apiGroups": ["", "apps"], "resources": ["pods"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["b", "a"]},
        {"verbs": ["get", "post"], "nonResourceURLs": ["/x"]},
    ]));
    let uncovered = not_covered(&held, &wanted);
    let missing = r#"roles.rbac.authorization.k8s.io "gone" not found"#.to_owned();
    let text = "user \"alice\" (groups=[\"dev\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
        {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\" \"watch\"]}\n\
        {APIGroups:[\"\"], Resources:[\"secrets\"], ResourceNames:[\"a\"], Verbs:[\"get\"]}\n\
        {APIGroups:[\"\"], Resources:[\"secrets\"], ResourceNames:[\"b\"], Verbs:[\"get\"]}\n\
        {APIGroups:[\"apps\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\" \"watch\"]}\n\
        {NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}\n\
        {NonResourceURLs:[\"/x\"], Verbs:[\"post\"]}";
    assert_eq!(escalation_message(&user, &uncovered, &[]), text);
    assert_eq!(
        escalation_message(&user, &uncovered, &[missing.clone(), "b".into()]),
        format!("{text}; resolution errors: [[{missing}, b]]")
    );
    assert_eq!(
        escalation_message(&user, &uncovered, &[missing.clone(), missing]),
        format!("{text}; resolution errors: [roles.rbac.authorization.k8s.io \"gone\" not found]")
    );
}

#[test]
fn nothing_is_missing_where_everything_is_held() {
    let all = Rule::all_from_json(&json!([
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]));
    assert_eq!(not_covered(&all, &all), []);
    assert_eq!(not_covered(&all[..1], &all).len(), 1);
}
