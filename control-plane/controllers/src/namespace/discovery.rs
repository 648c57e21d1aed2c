//! Which resources a namespace may hold: the preferred version of each, from aggregated discovery.

use std::collections::BTreeSet;

use serde_json::Value;

use client_runtime::SyncError;
use client_runtime::{Actor, Answer};

const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A resource whose objects can be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) can_list: bool,
    pub(super) can_delete_all: bool,
}

impl Resource {
    /// Where a namespace's objects are.
    pub(super) fn path(&self, namespace: &str) -> String {
        let (group, version, plural) = (&self.group, &self.version, &self.plural);
        match group.as_str() {
            "" => format!("/api/{version}/namespaces/{namespace}/{plural}"),
            _ => format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}"),
        }
    }

    /// Whether these are the pods.
    pub(super) fn is_pods(&self) -> bool {
        self.group.is_empty() && self.plural == "pods"
    }
}

/// What was found, and what could not be looked at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Discovered {
    pub(super) resources: Vec<Resource>,
    pub(super) failure: Option<String>,
}

/// Asks the API server.
pub(super) async fn discover(actor: &Actor) -> Discovered {
    match lists(actor).await {
        Ok(lists) => discovered(&lists),
        Err(error) => Discovered {
            failure: Some(error.to_string()),
            ..Discovered::default()
        },
    }
}

async fn lists(actor: &Actor) -> Answer<[Value; 2]> {
    let core = list(actor, "/api").await?;
    Ok([core, list(actor, "/apis").await?])
}

// An answer that names nothing must not pass for a namespace that holds nothing.
async fn list(actor: &Actor, path: &str) -> Answer<Value> {
    let list = actor.read_as(path, ACCEPT).await?.unwrap_or_default();
    match list["kind"] == "APIGroupDiscoveryList" {
        true => Ok(list),
        false => Err(SyncError::Other(format!(
            "{path} gave no aggregated discovery"
        ))),
    }
}

fn discovered(lists: &[Value]) -> Discovered {
    let mut found = Discovered::default();
    let mut stale = BTreeSet::new();
    for group in lists.iter().flat_map(|list| array(&list["items"])) {
        let group_name = text(&group["metadata"]["name"]);
        let mut seen = BTreeSet::new();
        for version in array(&group["versions"]) {
            if version["freshness"] == "Stale" {
                stale.insert(format!("{group_name}/{}", text(&version["version"])));
                continue;
            }
            for resource in array(&version["resources"]) {
                // The first version that has it is the preferred one.
                if seen.insert(text(&resource["resource"])) {
                    found
                        .resources
                        .extend(deletable(group_name, version, resource));
                }
            }
        }
    }
    found.failure = failure(&stale);
    found
}

fn deletable(group: &str, version: &Value, resource: &Value) -> Option<Resource> {
    let can = |verb: &str| array(&resource["verbs"]).iter().any(|known| known == verb);
    (resource["scope"] == "Namespaced" && can("delete")).then(|| Resource {
        group: group.to_owned(),
        version: text(&version["version"]).to_owned(),
        plural: text(&resource["resource"]).to_owned(),
        can_list: can("list"),
        can_delete_all: can("deletecollection"),
    })
}

// Upstream's sentence for groups whose server does not answer.
fn failure(stale: &BTreeSet<String>) -> Option<String> {
    if stale.is_empty() {
        return None;
    }
    let each: Vec<String> = stale
        .iter()
        .map(|version| format!("{version}: stale GroupVersion discovery: {version}"))
        .collect();
    Some(format!(
        "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
        stale.len(),
        each.join(", ")
    ))
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(plural: &str, scope: &str, verbs: &[&str]) -> Value {
        json!({ "resource": plural, "scope": scope, "verbs": verbs })
    }

    #[test]
    fn each_deletable_resource_counts_once_in_its_preferred_version() {
        let all = ["delete", "deletecollection", "list"];
        let core = json!({ "items": [{ "metadata": {}, "versions": [{ "version": "v1", "resources": [
            resource("pods", "Namespaced", &all),
            resource("nodes", "Cluster", &all),
            resource("bindings", "Namespaced", &["create"]),
        ] }] }] });
        let groups = json!({ "items": [{ "metadata": { "name": "apps" }, "versions": [
            { "version": "v1", "resources": [resource("deployments", "Namespaced", &["delete"])] },
            { "version": "v1beta1", "resources": [
                resource("deployments", "Namespaced", &all), resource("others", "Namespaced", &all),
            ] },
        ] }] });
        let found = discovered(&[core, groups]);
        let paths: Vec<String> = found.resources.iter().map(|r| r.path("team")).collect();
        assert_eq!(
            paths,
            [
                "/api/v1/namespaces/team/pods",
                "/apis/apps/v1/namespaces/team/deployments",
                "/apis/apps/v1beta1/namespaces/team/others",
            ]
        );
        assert!(found.resources[0].is_pods() && found.resources[0].can_delete_all);
        assert!(!found.resources[1].can_list && !found.resources[1].can_delete_all);
        assert_eq!(found.failure, None);
    }

    #[test]
    fn a_stale_group_is_a_failure_and_the_rest_is_used() {
        let list = json!({ "items": [
            { "metadata": { "name": "metrics.k8s.io" }, "versions": [{ "version": "v1beta1", "freshness": "Stale" }] },
            { "metadata": { "name": "apps" }, "versions": [
                { "version": "v1", "freshness": "Current", "resources": [resource("deployments", "Namespaced", &["delete"])] },
            ] },
        ] });
        let found = discovered(&[list]);
        assert_eq!(found.resources.len(), 1);
        assert_eq!(
            found.failure.as_deref(),
            Some(
                "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: metrics.k8s.io/v1beta1: stale GroupVersion discovery: metrics.k8s.io/v1beta1"
            )
        );
    }
}
