#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::{Kind, Rbac};
use crate::{Attributes, Decision, ResourceTarget, Target, User};

mod properties;

fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: name.into(),
        groups: groups.iter().map(|g| g.to_string()).collect(),
        ..User::default()
    }
}

fn role(resource: &str) -> Value {
    json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": [resource]}]})
}

fn binding(role_kind: &str, role: &str, subjects: Value) -> Value {
    json!({"roleRef": {"kind": role_kind, "name": role}, "subjects": subjects})
}

fn get(rbac: &Rbac, user: &User, namespace: &str, resource: &str) -> Decision {
    rbac.authorize(&Attributes {
        user,
        verb: "get",
        target: Target::Resource(ResourceTarget {
            namespace,
            resource,
            ..ResourceTarget::default()
        }),
    })
}

#[test]
fn decisions_say_who_granted_them() {
    let rbac = Rbac::default();
    rbac.apply(Kind::ClusterRole, "", "nodes", Some(&role("nodes")));
    rbac.apply(Kind::ClusterRole, "", "pods", Some(&role("pods")));
    rbac.apply(Kind::Role, "ns", "secrets", Some(&role("secrets")));
    let subjects = json!([{"kind": "Group", "name": "ops"}, {"kind": "User", "name": "ann"}]);
    rbac.apply(
        Kind::ClusterRoleBinding,
        "",
        "all",
        Some(&binding("ClusterRole", "nodes", subjects)),
    );
    let subjects = json!([{"kind": "ServiceAccount", "name": "bot"}]);
    rbac.apply(
        Kind::RoleBinding,
        "ns",
        "here",
        Some(&binding("ClusterRole", "pods", subjects)),
    );
    let subjects = json!([{"kind": "ServiceAccount", "name": "bot", "namespace": "other"}]);
    rbac.apply(
        Kind::RoleBinding,
        "ns",
        "role",
        Some(&binding("Role", "secrets", subjects)),
    );

    let allowed = |reason: &str| Decision::Allow(format!("RBAC: allowed by {reason}"));
    let nothing = Decision::NoOpinion(String::new());
    let local = user("system:serviceaccount:ns:bot", &[]);
    let remote = user("system:serviceaccount:other:bot", &[]);
    for (user, namespace, resource, expected) in [
        (
            &user("x", &["a", "ops"]),
            "",
            "nodes",
            allowed(r#"ClusterRoleBinding "all" of ClusterRole "nodes" to Group "ops""#),
        ),
        (
            &user("ann", &[]),
            "ns",
            "nodes",
            allowed(r#"ClusterRoleBinding "all" of ClusterRole "nodes" to User "ann""#),
        ),
        (&user("ops", &["ann"]), "", "nodes", nothing.clone()),
        (
            &local,
            "ns",
            "pods",
            allowed(r#"RoleBinding "here/ns" of ClusterRole "pods" to ServiceAccount "bot/ns""#),
        ),
        (&local, "", "pods", nothing.clone()),
        (&local, "other", "pods", nothing.clone()),
        (
            &remote,
            "ns",
            "secrets",
            allowed(r#"RoleBinding "role/ns" of Role "secrets" to ServiceAccount "bot/other""#),
        ),
        (&remote, "ns", "pods", nothing.clone()),
    ] {
        assert_eq!(
            get(&rbac, user, namespace, resource),
            expected,
            "{} {namespace} {resource}",
            user.name
        );
    }
}

#[test]
fn a_change_counts_at_once() {
    let rbac = Rbac::default();
    let ann = user("ann", &["dev"]);
    let grants = |kind: &str| {
        binding(
            "ClusterRole",
            "pods",
            json!([{"kind": kind, "name": if kind == "User" {"ann"} else {"dev"}}]),
        )
    };
    let can = || get(&rbac, &ann, "ns", "pods").is_allowed();
    rbac.apply(Kind::RoleBinding, "ns", "b", Some(&grants("User")));
    assert_eq!(
        get(&rbac, &ann, "ns", "pods"),
        Decision::NoOpinion(
            r#"RBAC: clusterrole.rbac.authorization.k8s.io "pods" not found"#.into()
        )
    );
    rbac.apply(Kind::ClusterRole, "", "pods", Some(&role("pods")));
    assert!(can());
    rbac.apply(Kind::RoleBinding, "ns", "b", Some(&grants("Group")));
    assert!(can());
    rbac.apply(Kind::ClusterRole, "", "pods", Some(&role("nodes")));
    assert!(!can());
    rbac.apply(Kind::ClusterRole, "", "pods", Some(&role("*")));
    assert!(can());
    rbac.apply(Kind::RoleBinding, "ns", "b", None);
    assert!(!can());
    let index = rbac.read();
    assert!(
        index.namespaces.is_empty(),
        "nothing is kept for a namespace without bindings"
    );
}

#[test]
fn rules_come_once_per_binding_and_missing_roles_are_told() {
    let rbac = Rbac::default();
    rbac.apply(Kind::ClusterRole, "", "pods", Some(&role("pods")));
    let both = json!([{"kind": "User", "name": "ann"}, {"kind": "Group", "name": "dev"}]);
    for name in ["one", "two"] {
        rbac.apply(
            Kind::ClusterRoleBinding,
            "",
            name,
            Some(&binding("ClusterRole", "pods", both.clone())),
        );
    }
    rbac.apply(
        Kind::RoleBinding,
        "ns",
        "gone",
        Some(&binding("Role", "gone", both)),
    );
    let ann = user("ann", &["dev"]);
    assert_eq!(rbac.rules_for(&ann, "").len(), 2);
    let (rules, missing) = rbac.resolve(&ann, "ns");
    assert_eq!(rules.len(), 2);
    let missing: Vec<String> = missing.iter().map(|m| m.to_string()).collect();
    assert_eq!(
        missing,
        [r#"role.rbac.authorization.k8s.io "gone" not found"#]
    );
    let role_ref = json!({"kind": "ClusterRole", "name": "pods"});
    assert_eq!(
        rbac.rules_of_role_ref(&role_ref, "ns").map(|r| r.len()),
        Some(1)
    );
    let role_ref = json!({"kind": "Role", "name": "gone"});
    assert_eq!(rbac.rules_of_role_ref(&role_ref, "ns"), None);
}
