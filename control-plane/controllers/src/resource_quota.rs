//! Keeps the status of resource quotas true: what is in force and what the namespace uses.
//!
//! Admission adds what new objects use. This controller counts anew when a quota changes, when
//! something that it counts goes or shrinks, and every few minutes.

mod noticing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceQuota;
use policy::quota::{self, GroupResource};
use serde_json::Value;

use crate::Manager;
use client_runtime::ObjectKey;
use client_runtime::{Actor, is, is_outdated};
use client_runtime::{End, Queue};
use client_runtime::{SyncError, Synced};

const ACCOUNT: &str = "resourcequota-controller";
/// Upstream's `--concurrent-resource-quota-syncs`.
const AT_ONCE: usize = 5;
/// Upstream's `--resource-quota-sync-period`.
const COUNT_AGAIN: Duration = Duration::from_secs(300);
/// How soon a quota is counted again that counts what nobody watches.
const COUNT_UNWATCHED: Duration = Duration::from_secs(10);

/// How soon a quota is counted again that gave something back: an object that was charged and not yet
/// stored when the objects were listed is then seen.
const COUNT_FREED: Duration = Duration::from_secs(1);

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let queue = Arc::new(Queue::new());
    let quotas = noticing::watch(manager, &queue);
    let (client, actor) = (manager.client(), manager.act_as(ACCOUNT));
    manager.start_work(name, queue, AT_ONCE, [quotas.completion()], move |key| {
        sync(client.clone(), actor.clone(), key)
    });
}

// The quota is read before the objects: a charge that comes in between changes it, and the write with
// the version read then fails and is done over.
async fn sync(client: kube::Client, actor: Actor, key: ObjectKey) -> Synced {
    let resource = GroupResource::new("", "resourcequotas");
    let path = path(&resource, &key.namespace).expect("quotas are in the table");
    let Some(mut quota) = read_quota(&client, &path, &key.name).await? else {
        return Ok(End::Done);
    };
    let mut objects = BTreeMap::new();
    let tracked = quota::tracked_resources(&quota);
    for resource in &tracked {
        if let Some(path) = self::path(resource, &key.namespace) {
            let list = read(&client, &path).await?.unwrap_or_default();
            objects.insert(resource.clone(), items(list));
        }
    }
    let mut freed = false;
    if let Some(status) = quota::next_status(&quota, &objects, Timestamp::now()) {
        freed = quota::gives_back(&quota["status"], &status);
        quota["status"] = status;
        let quota: ResourceQuota =
            serde_json::from_value(quota).map_err(|e| SyncError::Other(e.to_string()))?;
        match actor.replace_part("status", &quota).await {
            Err(error) if is_outdated(&error) => return Err(SyncError::NotYet(error.to_string())),
            written => written?,
        };
    }
    let watched = tracked.iter().all(noticing::is_watched);
    Ok(End::After(match (freed, watched) {
        (true, _) => COUNT_FREED,
        (false, true) => COUNT_AGAIN,
        (false, false) => COUNT_UNWATCHED,
    }))
}

// The manager's role may list everything, but not get quotas: a list of one is what it may ask for.
async fn read_quota(
    client: &kube::Client,
    path: &str,
    name: &str,
) -> Result<Option<Value>, SyncError> {
    let of_one = format!("{path}?fieldSelector=metadata.name%3D{name}");
    let list = read(client, &of_one).await?.unwrap_or_default();
    Ok(items(list).into_iter().next())
}

async fn read(client: &kube::Client, path: &str) -> Result<Option<Value>, SyncError> {
    let request = Request::get(path).body(Vec::new());
    let request = request.map_err(|e| SyncError::Other(e.to_string()))?;
    match client.request(request).await {
        Err(error) if is(&error, StatusCode::NOT_FOUND) => Ok(None),
        other => Ok(other.map(Some)?),
    }
}

fn items(mut list: Value) -> Vec<Value> {
    match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

// Where a namespace's objects are; nothing for a resource that is not served.
fn path(resource: &GroupResource, namespace: &str) -> Option<String> {
    let found = kinds::resources::all().iter().find(|known| {
        known.gv == known.stored
            && known.namespaced
            && known.gv.group == resource.group
            && known.plural == resource.resource
    })?;
    let root = match found.gv.group {
        "" => "/api/v1".to_owned(),
        group => format!("/apis/{group}/{}", found.gv.version),
    };
    Some(format!("{root}/namespaces/{namespace}/{}", found.plural))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_listed_in_their_stored_version() {
        let of = |group, resource| path(&GroupResource::new(group, resource), "team");
        assert_eq!(
            of("", "pods").as_deref(),
            Some("/api/v1/namespaces/team/pods")
        );
        assert_eq!(
            of("apps", "deployments").as_deref(),
            Some("/apis/apps/v1/namespaces/team/deployments")
        );
        assert_eq!(of("", "nodes"), None, "not in a namespace");
        assert_eq!(of("example.com", "widgets"), None, "not served");
    }
}
