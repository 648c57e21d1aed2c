//! May this user write this role or binding: nobody hands out what they do not hold.

use serde_json::{Value, json};

use super::bindings::RoleRef;
use super::{Index, Kind, Rbac, Rule, escalation_message, not_covered};
use crate::{Attributes, ResourceTarget, Target, User};

const API_GROUP: &str = "rbac.authorization.k8s.io";

/// A role or binding about to be written.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// Who writes.
    pub user: &'a User,
    /// What is written.
    pub kind: Kind,
    /// The namespace of the request; empty for the cluster's.
    pub namespace: &'a str,
    /// The name in the request's path; empty where a create has none.
    pub path_name: &'a str,
    /// The object as it would be stored.
    pub object: &'a Value,
    /// The object as it is; none for a create.
    pub old: Option<&'a Value>,
}

/// Why a write is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteRefusal {
    /// Forbidden, with this cause.
    Forbidden(String),
    /// Not found: the role of this name, although the answer names the resource that was to be written.
    NotFound(String),
    /// An internal error: a role reference of a kind there is not, which is only validated later.
    Internal(String),
}

impl Kind {
    /// The kind of a plural.
    pub fn of_resource(plural: &str) -> Option<Kind> {
        let kinds = [
            Kind::Role,
            Kind::ClusterRole,
            Kind::RoleBinding,
            Kind::ClusterRoleBinding,
        ];
        kinds.into_iter().find(|kind| kind.resource() == plural)
    }

    /// The plural.
    pub fn resource(self) -> &'static str {
        match self {
            Kind::Role => "roles",
            Kind::ClusterRole => "clusterroles",
            Kind::RoleBinding => "rolebindings",
            Kind::ClusterRoleBinding => "clusterrolebindings",
        }
    }
}

impl Rbac {
    /// Whether a write grants nothing beyond what its user holds, or the user may do so all the same: as a
    /// member of `system:masters`, by the verb `escalate` on the role, or by the verb `bind` on the role that
    /// is bound. `authorize` asks all authorizers.
    pub fn check_write(
        &self,
        write: &Write,
        authorize: &dyn Fn(&Attributes) -> bool,
    ) -> Result<(), WriteRefusal> {
        if write.user.is_in("system:masters") {
            return Ok(());
        }
        match write.kind {
            Kind::Role | Kind::ClusterRole => self.check_role(write, authorize),
            Kind::RoleBinding | Kind::ClusterRoleBinding => self.check_binding(write, authorize),
        }
    }

    fn check_role(
        &self,
        write: &Write,
        authorize: &dyn Fn(&Attributes) -> bool,
    ) -> Result<(), WriteRefusal> {
        let resource = write.kind.resource();
        if authorize(&write.ask("escalate", resource, write.path_name)) || write.only_collects() {
            return Ok(());
        }
        let rules = Rule::all_from_json(&write.object["rules"]);
        self.check_held(write, &rules)?;
        if !sums(write.object) && !write.old.is_some_and(sums) {
            return Ok(());
        }
        // A sum can gather anything, now or later.
        let everything = Rule::all_from_json(&json!([
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]));
        self.check_held(write, &everything).map_err(|_| {
            let cause = "must have cluster-admin privileges to use the aggregationRule";
            WriteRefusal::Forbidden(cause.into())
        })
    }

    fn check_binding(
        &self,
        write: &Write,
        authorize: &dyn Fn(&Attributes) -> bool,
    ) -> Result<(), WriteRefusal> {
        if write.only_collects() {
            return Ok(());
        }
        let role_ref = &write.object["roleRef"];
        let role = RoleRef::from_json(role_ref);
        let resource = match role.kind.as_str() {
            "Role" => "roles",
            "ClusterRole" => "clusterroles",
            _ => return Err(WriteRefusal::Internal(Index::unresolved(&role).to_string())),
        };
        if authorize(&write.ask("bind", resource, &role.name)) {
            return Ok(());
        }
        match self.rules_of_role_ref(role_ref, write.namespace) {
            Some(rules) => self.check_held(write, &rules),
            None => Err(WriteRefusal::NotFound(role.name)),
        }
    }

    fn check_held(&self, write: &Write, wanted: &[Rule]) -> Result<(), WriteRefusal> {
        let (held, missing) = self.resolve(write.user, write.namespace);
        let uncovered = not_covered(&held, wanted);
        if uncovered.is_empty() {
            return Ok(());
        }
        let resource = write.kind.resource();
        let errors: Vec<String> = missing.iter().map(|m| m.in_request_for(resource)).collect();
        let message = escalation_message(write.user, &uncovered, &errors);
        Err(WriteRefusal::Forbidden(message))
    }
}

impl<'a> Write<'a> {
    fn ask(&self, verb: &'a str, resource: &'a str, name: &'a str) -> Attributes<'a> {
        Attributes {
            user: self.user,
            verb,
            target: Target::Resource(ResourceTarget {
                namespace: self.namespace,
                group: API_GROUP,
                version: "*",
                resource,
                name,
                ..ResourceTarget::default()
            }),
        }
    }

    /// Whether only what garbage collection needs is changed, which its controller may do to any role.
    fn only_collects(&self) -> bool {
        let rest = |object: &Value| {
            let mut rest = object.clone();
            if let Some(metadata) = rest["metadata"].as_object_mut() {
                for field in [
                    "ownerReferences",
                    "finalizers",
                    "selfLink",
                    "managedFields",
                    "resourceVersion",
                ] {
                    metadata.remove(field);
                }
            }
            rest
        };
        self.old.is_some_and(|old| rest(old) == rest(self.object))
    }
}

fn sums(role: &Value) -> bool {
    let selectors = &role["aggregationRule"]["clusterRoleSelectors"];
    selectors.as_array().is_some_and(|s| !s.is_empty())
}

#[cfg(test)]
mod tests;
