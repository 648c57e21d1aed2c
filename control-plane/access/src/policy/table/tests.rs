#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use serde_json::json;

use super::super::{objects, rules_of};
use super::parse;

#[test]
fn every_form_of_line_is_read() {
    let table = "# comment\n\nClusterRole r\n label l\n sum s\n core,apps pods,pods/log get,list a,b\n paths /x,/y/* get\n\
                 RoleBinding ns/b Role r\n User u\n Group g\n ServiceAccount sa-ns/sa\n";
    let metadata = |more: serde_json::Value| {
        let mut all = json!({
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        });
        for (key, value) in more.as_object().unwrap() {
            all[key] = value.clone();
        }
        all
    };
    let mut role_metadata = metadata(json!({"name": "r"}));
    role_metadata["labels"]["l"] = "true".into();
    let group = "rbac.authorization.k8s.io";
    let expected = [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": role_metadata,
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"s": "true"}}]},
            "rules": [
                {"apiGroups": ["", "apps"], "resources": ["pods", "pods/log"], "verbs": ["get", "list"], "resourceNames": ["a", "b"]},
                {"nonResourceURLs": ["/x", "/y/*"], "verbs": ["get"]},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": metadata(json!({"name": "b", "namespace": "ns"})),
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "r"},
            "subjects": [
                {"apiGroup": group, "kind": "User", "name": "u"},
                {"apiGroup": group, "kind": "Group", "name": "g"},
                {"kind": "ServiceAccount", "name": "sa", "namespace": "sa-ns"},
            ],
        }),
    ];
    assert_eq!(parse(table), expected);
}

#[test]
fn every_binding_of_the_policy_names_a_role_of_the_policy() {
    let objects = objects();
    let roles: BTreeSet<(&str, &str, &str)> = objects
        .iter()
        .filter(|o| o.get("rules").is_some())
        .map(|o| {
            let namespace = o["metadata"]["namespace"].as_str().unwrap_or("");
            (
                o["kind"].as_str().unwrap(),
                namespace,
                o["metadata"]["name"].as_str().unwrap(),
            )
        })
        .collect();
    let bindings: Vec<_> = objects
        .iter()
        .filter(|o| o.get("roleRef").is_some())
        .collect();
    assert_eq!(
        roles.len() + bindings.len(),
        objects.len(),
        "names are unique"
    );
    for binding in bindings {
        let kind = binding["roleRef"]["kind"].as_str().unwrap();
        let namespace = match kind {
            "Role" => binding["metadata"]["namespace"].as_str().unwrap(),
            _ => "",
        };
        let name = binding["roleRef"]["name"].as_str().unwrap();
        assert!(roles.contains(&(kind, namespace, name)), "{binding}");
    }
}

#[test]
fn rules_are_found_by_the_name_of_their_role() {
    assert_eq!(rules_of("cluster-admin").unwrap().len(), 2);
    assert_eq!(rules_of("no-such-role"), None);
}
