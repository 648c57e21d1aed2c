//! Role based access control: roles, bindings, and what follows from them.
//!
//! Roles are compiled when they change and bindings are found by their subjects, so that a decision looks
//! only at the bindings of the user who asks. A change counts from the moment [`Rbac::apply`] returns.

mod aggregate;
mod bindings;
mod escalation;
mod rule;
mod write;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use kube_kit::selector::quoted;
use serde_json::Value;

use crate::{Attributes, Decision, Target, User};

pub use aggregate::aggregate;
use bindings::{Binding, RoleRef, Scope};
pub use escalation::{escalation_message, not_covered};
pub use rule::Rule;
pub use write::{Write, WriteRefusal};

/// The kinds of objects that grant access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Rules for one namespace.
    Role,
    /// Rules for the cluster, or for any namespace that binds them.
    ClusterRole,
    /// Grants a role in one namespace.
    RoleBinding,
    /// Grants a cluster role everywhere.
    ClusterRoleBinding,
}

/// A binding's role that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    role: RoleRef,
}

impl Unresolved {
    /// The error of a lookup in storage within a request: upstream names the resource the request is about,
    /// whatever was looked up.
    pub fn in_request_for(&self, resource: &str) -> String {
        self.describe(resource)
    }

    fn describe(&self, resource: &str) -> String {
        match self.role.kind.as_str() {
            "Role" | "ClusterRole" => {
                let name = quoted(&self.role.name);
                format!("{resource}.rbac.authorization.k8s.io {name} not found")
            }
            other => format!("unsupported role reference kind: {}", quoted(other)),
        }
    }
}

/// The error of a lookup in a cache, as in the reason of a decision.
impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(&self.role.kind.to_ascii_lowercase()))
    }
}

/// All roles and bindings, compiled.
#[derive(Debug, Default)]
pub struct Rbac {
    index: RwLock<Index>,
}

type Rules = Arc<[Rule]>;

#[derive(Debug, Default)]
struct Index {
    cluster_roles: HashMap<String, Rules>,
    roles: HashMap<String, HashMap<String, Rules>>,
    cluster: Scope,
    namespaces: HashMap<String, Scope>,
}

impl Rbac {
    /// Takes in an object as it is now, or that it is gone.
    pub fn apply(&self, kind: Kind, namespace: &str, name: &str, object: Option<&Value>) {
        let namespace = match kind {
            Kind::Role | Kind::RoleBinding => namespace,
            Kind::ClusterRole | Kind::ClusterRoleBinding => "",
        };
        let change = match kind {
            Kind::Role | Kind::ClusterRole => {
                Change::Rules(object.map(|role| Rule::all_from_json(&role["rules"]).into()))
            }
            Kind::RoleBinding | Kind::ClusterRoleBinding => {
                Change::Binding(object.map(|b| Binding::from_json(namespace, name, b)))
            }
        };
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.change(namespace, name, change);
    }

    /// Decides. RBAC only ever says yes or nothing.
    pub fn authorize(&self, asked: &Attributes) -> Decision {
        let namespace = match &asked.target {
            Target::Resource(target) => target.namespace,
            Target::Path(_) => "",
        };
        let index = self.read();
        let mut missing = Vec::new();
        for binding in index.bindings(asked.user, namespace) {
            match index.rules(&binding.role, &binding.namespace) {
                Some(rules) if rules.iter().any(|rule| rule.allows(asked)) => {
                    let grant = binding.describe(asked.user);
                    return Decision::Allow(format!("RBAC: allowed by {grant}"));
                }
                Some(_) => {}
                None => missing.push(Index::unresolved(&binding.role)),
            }
        }
        if missing.is_empty() {
            return Decision::NoOpinion(String::new());
        }
        let errors = escalation::one_error(missing.iter().map(Unresolved::to_string));
        Decision::NoOpinion(format!("RBAC: {errors}"))
    }

    /// Every rule a user has in a namespace (or, with an empty one, cluster-wide), once per binding.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Vec<Rule> {
        self.resolve(user, namespace).0
    }

    /// The roles a user's bindings name that are not there.
    pub fn unresolved(&self, user: &User, namespace: &str) -> Vec<Unresolved> {
        self.resolve(user, namespace).1
    }

    /// [`Rbac::rules_for`] and [`Rbac::unresolved`] of the same moment.
    pub fn resolve(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<Unresolved>) {
        let index = self.read();
        let (mut rules, mut missing, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        for binding in index.bindings(user, namespace) {
            if !seen.insert(Arc::as_ptr(binding)) {
                continue;
            }
            match index.rules(&binding.role, &binding.namespace) {
                Some(found) => rules.extend_from_slice(found),
                None => missing.push(Index::unresolved(&binding.role)),
            }
        }
        (rules, missing)
    }

    /// The single permissions among `wanted` the user does not hold in the namespace; none when the user may
    /// grant them.
    pub fn uncovered(&self, user: &User, namespace: &str, wanted: &[Rule]) -> Vec<Rule> {
        not_covered(&self.rules_for(user, namespace), wanted)
    }

    /// The rules behind a binding's `roleRef`; none when there is no such role.
    pub fn rules_of_role_ref(&self, role_ref: &Value, namespace: &str) -> Option<Vec<Rule>> {
        let role = RoleRef::from_json(role_ref);
        self.read().rules(&role, namespace).map(|r| r.to_vec())
    }

    fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Change {
    Rules(Option<Rules>),
    Binding(Option<Binding>),
}

impl Index {
    // An empty namespace is the cluster's scope for roles and bindings alike.
    fn change(&mut self, namespace: &str, name: &str, change: Change) {
        match change {
            Change::Rules(rules) if namespace.is_empty() => {
                replace(&mut self.cluster_roles, name, rules);
            }
            Change::Rules(rules) => {
                let roles = self.roles.entry(namespace.into()).or_default();
                replace(roles, name, rules);
                if roles.is_empty() {
                    self.roles.remove(namespace);
                }
            }
            Change::Binding(binding) if namespace.is_empty() => self.cluster.replace(name, binding),
            Change::Binding(binding) => {
                let scope = self.namespaces.entry(namespace.into()).or_default();
                scope.replace(name, binding);
                if scope.is_empty() {
                    self.namespaces.remove(namespace);
                }
            }
        }
    }

    /// The bindings that count for a user in a namespace: the cluster's, then the namespace's.
    fn bindings<'a>(
        &'a self,
        user: &'a User,
        namespace: &str,
    ) -> impl Iterator<Item = &'a Arc<Binding>> {
        let local = self.namespaces.get(namespace);
        let local = local.into_iter().flat_map(move |scope| scope.of(user));
        self.cluster.of(user).chain(local)
    }

    fn rules(&self, role: &RoleRef, namespace: &str) -> Option<&Rules> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(&role.name),
            "Role" => self.roles.get(namespace)?.get(&role.name),
            _ => None,
        }
    }

    fn unresolved(role: &RoleRef) -> Unresolved {
        Unresolved { role: role.clone() }
    }
}

fn replace(roles: &mut HashMap<String, Rules>, name: &str, rules: Option<Rules>) {
    match rules {
        Some(rules) => roles.insert(name.into(), rules),
        None => roles.remove(name),
    };
}

#[cfg(test)]
mod tests;
