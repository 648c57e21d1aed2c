//! Nobody grants what they do not hold: writes of roles and bindings.
//!
//! A role may be written by who holds all its rules, or has the verb `escalate` on it; a binding by who holds
//! all rules of its role, or has the verb `bind` on that role (upstream's policy-based storage).

use access::rbac::{Rule, escalation_message};
use access::{Attributes, ResourceTarget, Target, User};
use serde_json::Value;

use crate::authorization::{Authorizer, SUPERUSERS};
use crate::rest::Call;
use crate::settings::AuthorizationMode;
use crate::status::{ApiError, Result};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Refuses a role or binding that would give more than its writer has.
pub(crate) fn check(
    authorizer: &Authorizer,
    call: &Call,
    new: &Value,
    old: Option<&Value>,
) -> Result<()> {
    let concerned = call.resource.gv.group == GROUP && authorizer.has(AuthorizationMode::Rbac);
    if !concerned || call.user.is_in(SUPERUSERS) || old.is_some_and(|old| only_ends(new, old)) {
        return Ok(());
    }
    let namespace = call.path.namespace();
    let wanted = match new.get("roleRef") {
        Some(role_ref) => match may_bind(authorizer, &call.user, namespace, role_ref) {
            true => return Ok(()),
            false => rules_of(authorizer, role_ref, namespace)?,
        },
        None => match old.is_some_and(|old| same_rules(new, old)) || may_escalate(authorizer, call)
        {
            true => return Ok(()),
            false => rules_in(new),
        },
    };
    let (held, missing) = authorizer.rbac.resolve(&call.user, namespace);
    let uncovered = access::rbac::not_covered(&held, &wanted);
    if uncovered.is_empty() {
        return Ok(());
    }
    let why = escalation_message(&call.user, &uncovered, &missing);
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    Err(ApiError::forbidden(call.resource, name, &why))
}

// Whoever lets a role collect others' rules can make it hold anything.
fn rules_in(role: &Value) -> Vec<Rule> {
    let mut rules = Rule::all_from_json(&role["rules"]);
    if role.get("aggregationRule").is_some_and(|a| !a.is_null()) {
        let everything = serde_json::json!([
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]);
        rules = Rule::all_from_json(&everything);
    }
    rules
}

fn same_rules(new: &Value, old: &Value) -> bool {
    ["rules", "aggregationRule"]
        .iter()
        .all(|field| new[*field] == old[*field])
}

// The garbage collector and finalizers' owners may end an object whatever it grants.
fn only_ends(new: &Value, old: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in [
                "ownerReferences",
                "finalizers",
                "managedFields",
                "resourceVersion",
            ] {
                metadata.remove(field);
            }
        }
        object
    };
    without(new) == without(old)
}

fn may_escalate(authorizer: &Authorizer, call: &Call) -> bool {
    let target = ResourceTarget {
        namespace: call.path.namespace(),
        group: GROUP,
        version: "*",
        resource: call.resource.plural,
        name: call.path.name(),
        ..ResourceTarget::default()
    };
    allows(authorizer, &call.user, "escalate", target)
}

fn may_bind(authorizer: &Authorizer, user: &User, namespace: &str, role_ref: &Value) -> bool {
    let resource = match role_ref["kind"].as_str() {
        Some("ClusterRole") => "clusterroles",
        Some("Role") => "roles",
        _ => return false,
    };
    let text = |field: &str| role_ref[field].as_str().unwrap_or_default();
    let target = ResourceTarget {
        namespace,
        group: text("apiGroup"),
        version: "*",
        resource,
        name: text("name"),
        ..ResourceTarget::default()
    };
    allows(authorizer, user, "bind", target)
}

fn allows(authorizer: &Authorizer, user: &User, verb: &str, target: ResourceTarget<'_>) -> bool {
    let target = Target::Resource(target);
    authorizer
        .decide(&Attributes { user, verb, target })
        .is_allowed()
}

fn rules_of(authorizer: &Authorizer, role_ref: &Value, namespace: &str) -> Result<Vec<Rule>> {
    let plural = match role_ref["kind"].as_str() {
        Some("Role") => "roles",
        _ => "clusterroles",
    };
    let resource = kinds::resources::find(GROUP, "v1", plural).expect("in the table");
    let name = role_ref["name"].as_str().unwrap_or_default();
    authorizer
        .rbac
        .rules_of_role_ref(role_ref, namespace)
        .ok_or_else(|| ApiError::not_found(resource, name))
}
