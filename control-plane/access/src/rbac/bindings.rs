//! Bindings of one scope (the cluster, or a namespace), found by their subjects.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube_kit::selector::quoted;
use serde_json::Value;

use crate::User;

/// A role binding or cluster role binding.
#[derive(Debug)]
pub(super) struct Binding {
    pub name: String,
    /// Empty for a cluster role binding.
    pub namespace: String,
    pub role: RoleRef,
    subjects: Vec<Subject>,
}

/// The role a binding grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RoleRef {
    pub kind: String,
    pub name: String,
}

impl RoleRef {
    pub(super) fn from_json(role_ref: &Value) -> RoleRef {
        RoleRef {
            kind: text(role_ref, "kind").into(),
            name: text(role_ref, "name").into(),
        }
    }
}

#[derive(Debug)]
struct Subject {
    key: Key,
    /// As reasons print it: `Group "system:masters"`.
    description: String,
}

/// What a subject is looked up by. A service account is the user it authenticates as.
#[derive(Debug, PartialEq, Eq)]
enum Key {
    User(String),
    Group(String),
}

impl Subject {
    /// A subject; none where it can match nobody (an unknown kind, a service account without a namespace).
    fn from_json(subject: &Value, binding_namespace: &str) -> Option<Subject> {
        let name = text(subject, "name");
        let kind = text(subject, "kind");
        let (key, described) = match kind {
            "User" => (Key::User(name.into()), name.into()),
            "Group" => (Key::Group(name.into()), name.into()),
            "ServiceAccount" => {
                let own = text(subject, "namespace");
                let namespace = if own.is_empty() {
                    binding_namespace
                } else {
                    own
                };
                if namespace.is_empty() {
                    return None;
                }
                let user = format!("system:serviceaccount:{namespace}:{name}");
                (Key::User(user), format!("{name}/{namespace}"))
            }
            _ => return None,
        };
        let description = format!("{kind} {}", quoted(&described));
        Some(Subject { key, description })
    }

    fn applies_to(&self, user: &User) -> bool {
        match &self.key {
            Key::User(name) => *name == user.name,
            Key::Group(group) => user.is_in(group),
        }
    }
}

impl Binding {
    pub(super) fn from_json(namespace: &str, name: &str, binding: &Value) -> Binding {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        Binding {
            name: name.into(),
            namespace: namespace.into(),
            role: RoleRef::from_json(&binding["roleRef"]),
            subjects: subjects
                .filter_map(|s| Subject::from_json(s, namespace))
                .collect(),
        }
    }

    /// What a decision says about who granted it: the binding, its role, and the first subject the user is.
    pub(super) fn describe(&self, user: &User) -> String {
        let (kind, name) = match self.namespace.as_str() {
            "" => ("ClusterRoleBinding", quoted(&self.name)),
            namespace => ("RoleBinding", quoted(&format!("{}/{namespace}", self.name))),
        };
        let subject = self.subjects.iter().find(|s| s.applies_to(user));
        format!(
            "{kind} {name} of {} {} to {}",
            self.role.kind,
            quoted(&self.role.name),
            subject.map_or("", |s| &s.description),
        )
    }
}

/// The bindings of one subject, by name, so that answers do not depend on the order of events.
type ByName = BTreeMap<String, Arc<Binding>>;

/// All bindings of one scope.
#[derive(Debug, Default)]
pub(super) struct Scope {
    bindings: HashMap<String, Arc<Binding>>,
    users: HashMap<String, ByName>,
    groups: HashMap<String, ByName>,
}

impl Scope {
    pub(super) fn is_empty(&self) -> bool {
        self.bindings.is_empty()
    }

    /// Puts a binding in the place of the one of its name, or only takes that one out.
    pub(super) fn replace(&mut self, name: &str, binding: Option<Binding>) {
        if let Some(old) = self.bindings.remove(name) {
            for subject in &old.subjects {
                let (index, key) = self.index_of(&subject.key);
                if let Some(bindings) = index.get_mut(key) {
                    bindings.remove(name);
                    if bindings.is_empty() {
                        index.remove(key);
                    }
                }
            }
        }
        if let Some(binding) = binding.map(Arc::new) {
            for subject in &binding.subjects {
                let (index, key) = self.index_of(&subject.key);
                let bindings = index.entry(key.into()).or_default();
                bindings.insert(name.into(), Arc::clone(&binding));
            }
            self.bindings.insert(name.into(), binding);
        }
    }

    fn index_of<'k>(&mut self, key: &'k Key) -> (&mut HashMap<String, ByName>, &'k str) {
        match key {
            Key::User(name) => (&mut self.users, name),
            Key::Group(name) => (&mut self.groups, name),
        }
    }

    /// Every binding of a user: those of the name first, then group by group. One that names several of the
    /// user's subjects comes several times.
    pub(super) fn of<'a>(&'a self, user: &'a User) -> impl Iterator<Item = &'a Arc<Binding>> {
        let own = self.users.get(&user.name);
        let groups = user
            .groups
            .iter()
            .filter_map(|group| self.groups.get(group));
        own.into_iter().chain(groups).flat_map(BTreeMap::values)
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}
