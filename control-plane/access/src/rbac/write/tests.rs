#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::{Write, WriteRefusal};
use crate::User;
use crate::rbac::{Kind, Rbac};

fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: name.into(),
        groups: groups.iter().map(|g| g.to_string()).collect(),
        ..User::default()
    }
}

fn rules(verbs: &[&str], group: &str, resource: &str, names: &[&str]) -> Value {
    json!([{"verbs": verbs, "apiGroups": [group], "resources": [resource], "resourceNames": names}])
}

/// `reader` reads pods, `escalator` may escalate the role `r`, `binder` may bind the cluster role `secrets`
/// in `ns`, `owner` is everything everywhere; `lost` is bound to a role that is gone.
fn rbac() -> Rbac {
    let rbac = Rbac::default();
    let rbac_group = "rbac.authorization.k8s.io";
    for (name, rules) in [
        ("reader", rules(&["get"], "", "pods", &[])),
        (
            "escalator",
            rules(&["escalate"], rbac_group, "clusterroles", &["r"]),
        ),
        (
            "binder",
            rules(&["bind"], rbac_group, "clusterroles", &["secrets"]),
        ),
        ("secrets", rules(&["get"], "", "secrets", &[])),
        (
            "owner",
            json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]),
        ),
    ] {
        rbac.apply(
            Kind::ClusterRole,
            "",
            name,
            Some(&json!({ "rules": rules })),
        );
    }
    for (name, role) in [
        ("reader", "reader"),
        ("escalator", "escalator"),
        ("owner", "owner"),
    ] {
        let binding = json!({"roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [{"kind": "User", "name": name}]});
        rbac.apply(Kind::ClusterRoleBinding, "", name, Some(&binding));
    }
    for (name, kind, role) in [
        ("binder", "ClusterRole", "binder"),
        ("lost", "Role", "gone"),
    ] {
        let binding = json!({"roleRef": {"kind": kind, "name": role}, "subjects": [{"kind": "User", "name": name}]});
        rbac.apply(Kind::RoleBinding, "ns", name, Some(&binding));
    }
    rbac
}

fn check(
    user: &User,
    kind: Kind,
    namespace: &str,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), WriteRefusal> {
    let rbac = rbac();
    let write = Write {
        user,
        kind,
        namespace,
        path_name: if old.is_some() { "r" } else { "" },
        object,
        old,
    };
    rbac.check_write(&write, &|asked| rbac.authorize(asked).is_allowed())
}

fn forbidden(user: &str, missing: &str) -> Result<(), WriteRefusal> {
    Err(WriteRefusal::Forbidden(format!(
        "user \"{user}\" (groups=[]) is attempting to grant RBAC permissions not currently held:\n{missing}"
    )))
}

#[test]
fn roles_hold_no_more_than_their_writer() {
    let role = |resource: &str| json!({"metadata": {"name": "r"}, "rules": rules(&["get"], "", resource, &[])});
    let (pods, secrets) = (role("pods"), role("secrets"));
    let missing = r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#;
    let someone = |name: &str| user(name, &[]);
    assert_eq!(
        check(&someone("reader"), Kind::ClusterRole, "", &pods, None),
        Ok(())
    );
    assert_eq!(
        check(&someone("reader"), Kind::Role, "ns", &pods, None),
        Ok(())
    );
    assert_eq!(
        check(&someone("reader"), Kind::ClusterRole, "", &secrets, None),
        forbidden("reader", missing)
    );
    assert_eq!(
        check(
            &user("x", &["system:masters"]),
            Kind::Role,
            "ns",
            &secrets,
            None
        ),
        Ok(())
    );
    let escalator = someone("escalator");
    assert_eq!(
        check(&escalator, Kind::ClusterRole, "", &secrets, Some(&pods)),
        Ok(())
    );
    assert_eq!(
        check(&escalator, Kind::ClusterRole, "", &secrets, None),
        forbidden("escalator", missing),
        "the name of a new object is not known yet"
    );
    let missing = format!(
        r#"{missing}; resolution errors: [roles.rbac.authorization.k8s.io "gone" not found]"#
    );
    assert_eq!(
        check(&someone("lost"), Kind::Role, "ns", &secrets, None),
        forbidden("lost", &missing)
    );
}

#[test]
fn sums_are_for_those_who_hold_everything() {
    let sum = json!({"aggregationRule": {"clusterRoleSelectors": [{}]}, "rules": null});
    let plain = json!({"rules": null});
    let refused = Err(WriteRefusal::Forbidden(
        "must have cluster-admin privileges to use the aggregationRule".into(),
    ));
    let (reader, owner) = (user("reader", &[]), user("owner", &[]));
    assert_eq!(check(&reader, Kind::ClusterRole, "", &sum, None), refused);
    assert_eq!(
        check(&reader, Kind::ClusterRole, "", &plain, Some(&sum)),
        refused
    );
    assert_eq!(
        check(&owner, Kind::ClusterRole, "", &sum, Some(&plain)),
        Ok(())
    );
    assert_eq!(check(&reader, Kind::ClusterRole, "", &plain, None), Ok(()));
}

#[test]
fn bindings_grant_no_more_than_their_writer_holds_or_may_bind() {
    let binding =
        |kind: &str, role: &str| json!({"roleRef": {"kind": kind, "name": role}, "subjects": []});
    let missing = r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#;
    let (reader, binder) = (user("reader", &[]), user("binder", &[]));
    let secrets = binding("ClusterRole", "secrets");
    for (user, kind, namespace, object, expected) in [
        (
            &reader,
            Kind::RoleBinding,
            "ns",
            &binding("ClusterRole", "reader"),
            Ok(()),
        ),
        (
            &reader,
            Kind::ClusterRoleBinding,
            "",
            &binding("ClusterRole", "reader"),
            Ok(()),
        ),
        (
            &reader,
            Kind::RoleBinding,
            "ns",
            &secrets,
            forbidden("reader", missing),
        ),
        (&binder, Kind::RoleBinding, "ns", &secrets, Ok(())),
        (
            &binder,
            Kind::RoleBinding,
            "other",
            &secrets,
            forbidden("binder", missing),
        ),
        (
            &binder,
            Kind::ClusterRoleBinding,
            "",
            &secrets,
            forbidden("binder", missing),
        ),
        (
            &reader,
            Kind::RoleBinding,
            "ns",
            &binding("Role", "gone"),
            Err(WriteRefusal::NotFound("gone".into())),
        ),
        (
            &reader,
            Kind::RoleBinding,
            "ns",
            &binding("Thing", "x"),
            Err(WriteRefusal::Internal(
                "unsupported role reference kind: \"Thing\"".into(),
            )),
        ),
    ] {
        assert_eq!(
            check(user, kind, namespace, object, None),
            expected,
            "{} {object}",
            user.name
        );
    }
}

#[test]
fn garbage_collection_may_change_what_it_needs() {
    let old = json!({
        "metadata": {"name": "r", "resourceVersion": "1", "finalizers": ["f"], "ownerReferences": [{"uid": "u"}]},
        "rules": rules(&["get"], "", "secrets", &[]),
    });
    let mut new = old.clone();
    new["metadata"] = json!({"name": "r", "resourceVersion": "2", "managedFields": [{}]});
    let nobody = user("nobody", &[]);
    assert_eq!(
        check(&nobody, Kind::ClusterRole, "", &new, Some(&old)),
        Ok(())
    );
    new["metadata"]["labels"] = json!({"a": "b"});
    assert!(check(&nobody, Kind::ClusterRole, "", &new, Some(&old)).is_err());
}
