//! Fills roles with an aggregation rule with the rules of the roles it selects.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::Api;
use kube_kit::selector::LabelSelector;
use serde_json::json;

use crate::Manager;
use client_runtime::Actor;
use client_runtime::{Cache, ObjectKey};
use client_runtime::{End, Queue};
use client_runtime::{SyncError, Synced};

const ACCOUNT: &str = "clusterrole-aggregation-controller";

/// Starts the controller. Any change of any role may concern any aggregated one.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let roles = manager.watch(Api::all(manager.client()), "", |mut role: ClusterRole| {
        role.metadata.managed_fields = None;
        role.metadata.annotations = None;
        role
    });
    let queue = Arc::new(Queue::new());
    let (noticed, known) = (Arc::clone(&queue), roles.clone());
    roles.on_change(move |_| {
        let all = known.all().into_iter();
        let aggregated = all.filter(|(_, role)| role.aggregation_rule.is_some());
        aggregated.for_each(|(key, _)| noticed.add(key));
    });
    let actor = manager.act_as(ACCOUNT);
    manager.start_work(name, queue, 5, [roles.completion()], move |key| {
        sync(roles.clone(), actor.clone(), key)
    });
}

async fn sync(roles: Cache<ClusterRole>, actor: Actor, key: ObjectKey) -> Synced {
    let Some(role) = roles.get(&key) else {
        return Ok(End::Done);
    };
    let all: Vec<Arc<ClusterRole>> = roles.all().into_iter().map(|(_, role)| role).collect();
    let all: Vec<&ClusterRole> = all.iter().map(Arc::as_ref).collect();
    let Some(rules) = missing(&role, &all).map_err(SyncError::Other)? else {
        return Ok(End::Done);
    };
    let fields = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": key.name},
        "rules": rules,
    });
    actor
        .apply::<ClusterRole>(&key.name, ACCOUNT, &fields)
        .await?;
    Ok(End::Done)
}

/// The rules an aggregated role should have, if it has others. `all` is in order of names.
fn missing(role: &ClusterRole, all: &[&ClusterRole]) -> Result<Option<Vec<PolicyRule>>, String> {
    let Some(rule) = &role.aggregation_rule else {
        return Ok(None);
    };
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in rule.cluster_role_selectors.iter().flatten() {
        let selector = serde_json::to_value(selector).map_err(|e| e.to_string())?;
        let selector = LabelSelector::from_object(&selector).map_err(|e| e.to_string())?;
        for other in all.iter().filter(|other| selects(&selector, other)) {
            if other.metadata.name == role.metadata.name {
                continue;
            }
            for rule in other.rules.iter().flatten().map(normal) {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
    }
    let has: Vec<PolicyRule> = role.rules.iter().flatten().map(normal).collect();
    Ok((has != rules).then_some(rules))
}

fn selects(selector: &LabelSelector, role: &ClusterRole) -> bool {
    let labels = role.metadata.labels.as_ref();
    selector.matches(|key| labels?.get(key).map(String::as_str))
}

// An empty list and none at all mean the same.
fn normal(rule: &PolicyRule) -> PolicyRule {
    let filled = |list: &Option<Vec<String>>| list.clone().filter(|list| !list.is_empty());
    PolicyRule {
        api_groups: filled(&rule.api_groups),
        non_resource_urls: filled(&rule.non_resource_urls),
        resource_names: filled(&rule.resource_names),
        resources: filled(&rule.resources),
        verbs: rule.verbs.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::Value;

    fn role(value: Value) -> ClusterRole {
        serde_json::from_value(value).unwrap()
    }

    fn labelled(name: &str, resources: &[&str]) -> ClusterRole {
        let rules: Vec<Value> = resources
            .iter()
            .map(|r| json!({"apiGroups": [""], "resources": [r], "verbs": ["get"]}))
            .collect();
        role(json!({"metadata": {"name": name, "labels": {"to": "view"}}, "rules": rules}))
    }

    fn aggregated(rules: Value) -> ClusterRole {
        role(
            json!({"metadata": {"name": "view", "labels": {"to": "view"}}, "rules": rules,
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "view"}}]}}),
        )
    }

    #[test]
    fn rules_are_united_in_order_of_names_and_once_each() {
        let view = aggregated(Value::Null);
        let (a, b) = (
            labelled("a", &["pods", "nodes"]),
            labelled("b", &["pods", "secrets"]),
        );
        let other = role(json!({"metadata": {"name": "c"}, "rules": [{"verbs": ["*"]}]}));
        let rules = missing(&view, &[&a, &b, &other, &view]).unwrap().unwrap();
        let resources: Vec<String> = rules
            .iter()
            .flat_map(|r| r.resources.clone().unwrap())
            .collect();
        assert_eq!(resources, ["pods", "nodes", "secrets"]);
    }

    #[test]
    fn a_role_that_is_right_is_left_alone() {
        let a = labelled("a", &["pods"]);
        let rule = json!([{"apiGroups": [""], "resources": ["pods"], "resourceNames": [], "verbs": ["get"]}]);
        let view = aggregated(rule);
        assert_eq!(missing(&view, &[&a, &view]).unwrap(), None);
        assert_eq!(
            missing(&view, &[&view]).unwrap(),
            Some(vec![]),
            "nothing is selected"
        );
        assert_eq!(missing(&a, &[&a, &view]).unwrap(), None, "not aggregated");
    }

    #[test]
    fn a_selector_that_cannot_be_read_changes_nothing() {
        let bad = role(
            json!({"metadata": {"name": "x"}, "aggregationRule": {"clusterRoleSelectors":
            [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]}}),
        );
        assert!(missing(&bad, &[]).is_err());
    }
}
