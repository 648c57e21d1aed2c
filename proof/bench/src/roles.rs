//! Who may do what: the roles and bindings that the authorized gets are measured with and without.

use serde_json::{Value, json};

use crate::client::{JSON, Write};
use crate::pki::READER;
use crate::sample;

/// Namespaces that the roles and bindings are spread over.
pub(crate) const NAMESPACES: u32 = 50;
/// The namespace that is read.
pub(crate) const READ: &str = "team-00";

/// The namespaces themselves.
pub(crate) fn namespaces() -> Vec<Write> {
    (0..NAMESPACES)
        .map(|number| sample::namespace(&team(number)))
        .collect()
}

/// The one role and binding that let the reader in.
pub(crate) fn of_reader() -> [Write; 2] {
    [
        role("Role", READ, "reader"),
        binding("RoleBinding", READ, "reader", "reader", READER),
    ]
}

/// Roles, half of them of namespaces and half of the cluster.
pub(crate) fn roles(number: u32) -> Vec<Write> {
    (0..number)
        .map(|n| match n % 2 {
            0 => role("Role", &team(n / 2), &format!("role-{n:05}")),
            _ => role("ClusterRole", "", &format!("role-{n:05}")),
        })
        .collect()
}

/// Bindings of as many users to these roles, half of them in namespaces and half of the cluster.
pub(crate) fn bindings(number: u32, roles: u32) -> Vec<Write> {
    (0..number)
        .map(|n| {
            let (name, user) = (format!("binding-{n:05}"), format!("user-{n:05}"));
            // As even or odd as the binding, and so of the same kind and, if it has one, namespace.
            let role = n % roles;
            let role_name = format!("role-{role:05}");
            match n % 2 {
                0 => binding("RoleBinding", &team(role / 2), &name, &role_name, &user),
                _ => binding("ClusterRoleBinding", "", &name, &role_name, &user),
            }
        })
        .collect()
}

fn team(number: u32) -> String {
    format!("team-{:02}", number % NAMESPACES)
}

fn role(kind: &str, namespace: &str, name: &str) -> Write {
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["apps"], "resources": ["deployments", "replicasets"], "verbs": ["get", "list", "update"]},
    ]);
    create(kind, namespace, name, json!({"rules": rules}))
}

fn binding(kind: &str, namespace: &str, name: &str, role: &str, user: &str) -> Write {
    let group = "rbac.authorization.k8s.io";
    let role_kind = kind.trim_end_matches("Binding");
    let rest = json!({
        "roleRef": {"apiGroup": group, "kind": role_kind, "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}]});
    create(kind, namespace, name, rest)
}

fn create(kind: &str, namespace: &str, name: &str, mut object: Value) -> Write {
    object["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
    object["kind"] = kind.into();
    object["metadata"] = json!({"name": name});
    let root = "/apis/rbac.authorization.k8s.io/v1";
    let plural = format!("{}s", kind.to_lowercase());
    Write {
        method: "POST",
        path: match namespace {
            "" => format!("{root}/{plural}"),
            _ => format!("{root}/namespaces/{namespace}/{plural}"),
        },
        content_type: JSON,
        body: object.to_string().into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_binding_names_a_role_that_is_there() {
        let place = |write: &Write| write.path.replace("bindings", "s");
        let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = |write: &Write| -> Value {
            serde_json::from_slice(&write.body).expect("what we wrote")
        };
        let there: BTreeSet<(String, String)> = roles(100)
            .iter()
            .map(|role| (place(role), name(&object(role)["metadata"]["name"])))
            .collect();
        assert_eq!(there.len(), 100);
        for binding in bindings(1_000, 100) {
            let role = (place(&binding), name(&object(&binding)["roleRef"]["name"]));
            assert!(there.contains(&role), "{role:?}");
        }
    }
}
