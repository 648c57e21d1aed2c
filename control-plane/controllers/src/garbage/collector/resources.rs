//! Every resource whose objects can be watched and deleted, from aggregated discovery.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use client_runtime::{Actor, Answer, SyncError};
use serde_json::Value;

const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A resource in its preferred version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
}

impl Resource {
    /// As objects name it.
    pub(super) fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Where an object is.
    pub(super) fn path(&self, namespace: &str, name: &str) -> String {
        let root = match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match self.namespaced {
            true => format!("{root}/namespaces/{namespace}/{}/{name}", self.plural),
            false => format!("{root}/{}/{name}", self.plural),
        }
    }
}

/// What discovery said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Those that can be listed, watched and deleted.
    pub(super) watchable: BTreeSet<Arc<Resource>>,
    /// Every resource by group and kind: an owner may be of any.
    by_kind: HashMap<(String, String), Arc<Resource>>,
    /// Groups that did not answer: nothing of theirs has gone for that reason.
    pub(super) silent: BTreeSet<String>,
}

impl Known {
    /// The resource of a kind, whatever version is named.
    pub(super) fn find(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.by_kind.get(&(group.to_owned(), kind.to_owned()))
    }
}

/// Asks the API server.
pub(super) async fn discover(actor: &Actor) -> Answer<Known> {
    let lists = [list(actor, "/api").await?, list(actor, "/apis").await?];
    Ok(known(&lists))
}

async fn list(actor: &Actor, path: &str) -> Answer<Value> {
    let list = actor.read_as(path, ACCEPT).await?.unwrap_or_default();
    match list["kind"] == "APIGroupDiscoveryList" {
        true => Ok(list),
        false => Err(SyncError::Other(format!(
            "{path} gave no aggregated discovery"
        ))),
    }
}

fn known(lists: &[Value]) -> Known {
    let mut known = Known::default();
    for group in lists.iter().flat_map(|list| array(&list["items"])) {
        let name = text(&group["metadata"]["name"]);
        for version in array(&group["versions"]) {
            if version["freshness"] == "Stale" {
                known.silent.insert(name.to_owned());
                continue;
            }
            for listed in array(&version["resources"]) {
                let place = (
                    name.to_owned(),
                    text(&listed["responseKind"]["kind"]).to_owned(),
                );
                // The first version that has it is the preferred one.
                if known.by_kind.contains_key(&place) {
                    continue;
                }
                let resource = Arc::new(resource(name, version, listed));
                if is_watchable(name, listed) {
                    known.watchable.insert(Arc::clone(&resource));
                }
                known.by_kind.insert(place, resource);
            }
        }
    }
    known
}

fn resource(group: &str, version: &Value, listed: &Value) -> Resource {
    Resource {
        group: group.to_owned(),
        version: text(&version["version"]).to_owned(),
        kind: text(&listed["responseKind"]["kind"]).to_owned(),
        plural: text(&listed["resource"]).to_owned(),
        namespaced: listed["scope"] == "Namespaced",
    }
}

// Events are many, own nothing and end by themselves (upstream's `DefaultIgnoredResources`).
fn is_watchable(group: &str, listed: &Value) -> bool {
    let can = |verb: &str| array(&listed["verbs"]).iter().any(|known| known == verb);
    let is_event = listed["resource"] == "events" && matches!(group, "" | "events.k8s.io");
    can("delete") && can("list") && can("watch") && !is_event
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

    #[test]
    fn watchable_is_what_can_be_listed_watched_and_deleted_but_for_events() {
        let all = ["delete", "list", "watch"];
        let one = |plural: &str, kind: &str, scope: &str, verbs: &[&str]| {
            json!({ "resource": plural, "scope": scope, "verbs": verbs,
                "responseKind": { "kind": kind } })
        };
        let core = json!({ "items": [{ "metadata": {}, "versions": [{ "version": "v1", "resources": [
            one("pods", "Pod", "Namespaced", &all), one("nodes", "Node", "Cluster", &all),
            one("events", "Event", "Namespaced", &all), one("bindings", "Binding", "Namespaced", &["create"]),
        ] }] }] });
        let groups = json!({ "items": [
            { "metadata": { "name": "apps" }, "versions": [
                { "version": "v1", "resources": [one("deployments", "Deployment", "Namespaced", &all)] },
                { "version": "v1beta1", "resources": [one("deployments", "Deployment", "Namespaced", &all)] },
            ] },
            { "metadata": { "name": "metrics.k8s.io" }, "versions": [{ "version": "v1", "freshness": "Stale" }] },
        ] });
        let known = known(&[core, groups]);
        let watchable: Vec<String> = known.watchable.iter().map(|r| r.path("ns", "x")).collect();
        assert_eq!(
            watchable,
            [
                "/api/v1/nodes/x",
                "/api/v1/namespaces/ns/pods/x",
                "/apis/apps/v1/namespaces/ns/deployments/x",
            ]
        );
        let found = known
            .find("apps/v1beta2", "Deployment")
            .map(|r| r.api_version());
        assert_eq!(found.as_deref(), Some("apps/v1"));
        assert!(known.find("v1", "Binding").is_some() && known.find("v1", "Deployment").is_none());
        assert!(known.silent.contains("metrics.k8s.io"));
    }
}
