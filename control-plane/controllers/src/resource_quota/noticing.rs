//! What makes a quota count anew.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{
    ConfigMap, ReplicationController, ResourceQuota, Secret, Service,
};
use kube::{Api, Resource};
use policy::quota::{self, GroupResource};
use serde_json::Value;

use crate::Manager;
use crate::watched::{ClaimState, PodState};
use client_runtime::Need;
use client_runtime::Queue;
use client_runtime::{Cache, ObjectKey};

/// Resources whose objects are seen to go. Others are counted more often instead.
const WATCHED: [(&str, &str); 12] = [
    ("", "pods"),
    ("", "services"),
    ("", "persistentvolumeclaims"),
    ("", "configmaps"),
    ("", "secrets"),
    ("", "replicationcontrollers"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
];

/// Whether objects of a resource are seen to go.
pub(super) fn is_watched(resource: &GroupResource) -> bool {
    WATCHED.contains(&(resource.group.as_str(), resource.resource.as_str()))
}

/// What is kept of a quota.
#[derive(Debug, PartialEq)]
pub(super) struct QuotaState {
    tracked: BTreeSet<GroupResource>,
    spec: Value,
    status: Value,
}

/// Watches quotas and what they count, and asks for those to be counted that need it.
pub(super) fn watch(manager: &mut Manager, queue: &Arc<Queue<ObjectKey>>) -> Cache<QuotaState> {
    let quotas = manager.watch(Api::all(manager.client()), "", state);
    let (need, need_of_pods) = (Need::default(), manager.need::<PodState>());
    let (noticed, arisen) = (Arc::clone(queue), need.clone());
    quotas.on_change(move |change| {
        arisen.arises();
        need_of_pods.arises();
        if change
            .after
            .is_some_and(|after| asks_for_count(change.before, after))
        {
            noticed.add(change.key.clone());
        }
    });
    let notice = Notice {
        quotas: quotas.clone(),
        queue: Arc::clone(queue),
        need: need.clone(),
    };
    let all = Api::all(manager.client());
    let services = manager.watch_when(Some(need), all, "", service_cost);
    let (pods, claims) = (manager.shared::<PodState>(), manager.shared::<ClaimState>());
    notice.of_cost(manager, &services, "services", |cost| cost);
    notice.of_cost(manager, &pods, "pods", |pod| &pod.cost);
    notice.of_cost(manager, &claims, "persistentvolumeclaims", |c| &c.cost);
    notice.of_number::<ConfigMap>(manager, "", "configmaps");
    notice.of_number::<Secret>(manager, "", "secrets");
    notice.of_number::<ReplicationController>(manager, "", "replicationcontrollers");
    notice.of_number::<Deployment>(manager, "apps", "deployments");
    notice.of_number::<ReplicaSet>(manager, "apps", "replicasets");
    notice.of_number::<StatefulSet>(manager, "apps", "statefulsets");
    notice.of_number::<DaemonSet>(manager, "apps", "daemonsets");
    notice.of_number::<Job>(manager, "batch", "jobs");
    notice.of_number::<CronJob>(manager, "batch", "cronjobs");
    quotas
}

fn state(quota: ResourceQuota) -> QuotaState {
    let quota = serde_json::to_value(quota).unwrap_or_default();
    QuotaState {
        tracked: quota::tracked_resources(&quota),
        spec: quota["spec"].clone(),
        status: quota["status"].clone(),
    }
}

// Admission changes what is used all the time, and that is no reason. A quota that is merely shown
// again is counted again.
fn asks_for_count(before: Option<&QuotaState>, after: &QuotaState) -> bool {
    before.is_none_or(|before| before == after || before.spec != after.spec)
        || after.spec["hard"] != after.status["hard"]
}

struct Notice {
    quotas: Cache<QuotaState>,
    queue: Arc<Queue<ObjectKey>>,
    /// Arises with the first quota.
    need: Need,
}

impl Notice {
    // Objects of the core group that can become cheaper while they stay.
    fn of_cost<V, C>(
        &self,
        manager: &mut Manager,
        cache: &Cache<V>,
        plural: &str,
        cost: fn(&V) -> &C,
    ) where
        V: Send + Sync + 'static,
        C: PartialEq + 'static,
    {
        let (resource, tell) = (GroupResource::new("", plural), self.tell());
        cache.on_change(move |change| {
            if change.before.is_some() && change.before.map(cost) != change.after.map(cost) {
                tell(&resource, &change.key.namespace);
            }
        });
        self.count_when_complete(manager, cache);
    }

    // What went between the first count of a quota and the start of a watch was seen by neither.
    fn count_when_complete<V: Send + Sync + 'static>(
        &self,
        manager: &mut Manager,
        cache: &Cache<V>,
    ) {
        let (quotas, queue) = (self.quotas.clone(), Arc::clone(&self.queue));
        manager.when_complete(cache, move || {
            for (key, _) in quotas.all() {
                queue.add(key);
            }
        });
    }

    // Objects that only count while they are there.
    fn of_number<K>(&self, manager: &mut Manager, group: &str, plural: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        let all: Api<K> = Api::all(manager.client());
        let cache = manager.watch_metadata(Some(self.need.clone()), all, drop);
        let (resource, tell) = (GroupResource::new(group, plural), self.tell());
        cache.on_change(move |change| {
            if change.after.is_none() {
                tell(&resource, &change.key.namespace);
            }
        });
        self.count_when_complete(manager, &cache);
    }

    fn tell(&self) -> impl Fn(&GroupResource, &str) + Send + Sync + 'static {
        let (quotas, queue) = (self.quotas.clone(), Arc::clone(&self.queue));
        move |resource, namespace| {
            for (key, quota) in quotas.all() {
                if key.namespace == namespace && quota.tracked.contains(resource) {
                    queue.add(key);
                }
            }
        }
    }
}

fn service_cost(service: Service) -> (Option<String>, usize) {
    let spec = service.spec.as_ref();
    let ports = spec.and_then(|s| s.ports.as_ref()).map_or(0, Vec::len);
    (spec.and_then(|s| s.type_.clone()), ports)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn quota(hard: &str, in_force: &str, used: &str) -> QuotaState {
        QuotaState {
            tracked: BTreeSet::new(),
            spec: json!({ "hard": { "pods": hard } }),
            status: json!({ "hard": { "pods": in_force }, "used": { "pods": used } }),
        }
    }

    #[test]
    fn a_charge_alone_is_no_reason_to_count() {
        let before = quota("2", "2", "0");
        assert!(asks_for_count(None, &before), "new");
        assert!(asks_for_count(Some(&before), &before), "shown again");
        assert!(
            !asks_for_count(Some(&before), &quota("2", "2", "1")),
            "charged"
        );
        assert!(
            asks_for_count(Some(&before), &quota("3", "2", "0")),
            "raised"
        );
        assert!(
            asks_for_count(Some(&before), &quota("2", "1", "0")),
            "not in force"
        );
    }
}
