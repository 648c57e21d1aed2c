//! Keeps the status of disruption budgets: how many pods may go, now, without harm.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::ReplicationController;
use k8s_openapi::api::policy::v1::{
    PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_kit::selector::LabelSelector as Selector;
use serde_json::Value;

use client_runtime::{
    Actor, Cache, Change, End, ObjectKey, Queue, Recorder, Severity, SyncError, Synced,
};
use client_runtime::{enqueue_changes, is_outdated};

use super::fractions::{Rounding, scaled};
use super::ownership::{self, Owner};
use super::pod_view::PodView;
use super::pods::reason;
use crate::Manager;

const ACCOUNT: &str = "disruption-controller";
/// Upstream's `DeletionTimeout`: how long an eviction may take until it is believed to have failed.
const EVICTION_TIMEOUT: i64 = 120;
const CONDITION: &str = "DisruptionAllowed";

struct Shell {
    budgets: Cache<PodDisruptionBudget>,
    pods: Cache<PodView>,
    replica_sets: Cache<ReplicaSet>,
    stateful_sets: Cache<StatefulSet>,
    controllers: Cache<ReplicationController>,
    actor: Actor,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let actor = manager.act_as(ACCOUNT);
    let shell = Arc::new(Shell {
        budgets: manager.whole::<PodDisruptionBudget>(),
        pods: manager.shared::<PodView>(),
        replica_sets: manager.whole::<ReplicaSet>(),
        stateful_sets: manager.whole::<StatefulSet>(),
        controllers: manager.whole::<ReplicationController>(),
        recorder: manager.recorder("controllermanager", actor.clone()),
        actor,
    });
    let queue = Arc::new(Queue::new());
    enqueue_changes(&shell.budgets, &queue);
    let (noticing, noticed) = (Arc::clone(&shell), Arc::clone(&queue));
    shell
        .pods
        .on_change(move |change| noticed.add_all(noticing.affected(change)));
    let ready = [
        shell.budgets.completion(),
        shell.pods.completion(),
        shell.replica_sets.completion(),
        shell.stateful_sets.completion(),
        shell.controllers.completion(),
    ];
    manager.start_work(name, queue, 1, ready, move |key| {
        let shell = Arc::clone(&shell);
        async move { shell.sync(&key).await }
    });
}

impl Shell {
    fn affected(&self, change: &Change<'_, PodView>) -> Vec<ObjectKey> {
        let pods = [change.before, change.after];
        let budgets = self.budgets.within(&change.key.namespace, |budget| {
            let selector = selector(budget);
            pods.iter()
                .flatten()
                .any(|pod| ownership::matches(&selector, &pod.labels))
        });
        budgets.into_iter().map(|(key, _)| key).collect()
    }

    async fn sync(&self, key: &ObjectKey) -> Synced {
        let Some(budget) = self.budgets.get(key) else {
            return Ok(End::Done);
        };
        let selector = selector(&budget);
        let pods = self.pods.within(&key.namespace, |pod| {
            ownership::matches(&selector, &pod.labels)
        });
        let pods: Vec<Arc<PodView>> = pods.into_iter().map(|(_, pod)| pod).collect();
        if pods.is_empty() {
            self.recorder.about(
                &*budget,
                Severity::Normal,
                "NoPods",
                "No matching pods found",
            );
        }
        let now = Timestamp::now();
        let expected = match self.expected(&key.namespace, &budget, &pods).await {
            Ok(expected) => expected,
            Err(error) => {
                let why = reason(&error);
                let text = format!("Failed to calculate the number of expected pods: {why}");
                self.recorder.about(
                    &*budget,
                    Severity::Warning,
                    "CalculateExpectedPodCountFailed",
                    text,
                );
                self.write(&budget, failed(&budget, &why, now)).await?;
                return Err(error);
            }
        };
        let (status, again) = status(&budget, &pods, expected, now);
        self.write(&budget, status).await?;
        Ok(again.map_or(End::Done, End::After))
    }

    async fn write(
        &self,
        budget: &PodDisruptionBudget,
        status: PodDisruptionBudgetStatus,
    ) -> Result<(), SyncError> {
        if budget.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let changed = PodDisruptionBudget {
            status: Some(status),
            ..budget.clone()
        };
        match self.actor.replace_part("status", &changed).await {
            Err(error) if is_outdated(&error) => Err(SyncError::NotYet(reason(&error))),
            other => other.map(drop),
        }
    }

    // How many pods there should be, and how many of them must be well (upstream's `getExpectedPodCount`).
    async fn expected(
        &self,
        namespace: &str,
        budget: &PodDisruptionBudget,
        pods: &[Arc<PodView>],
    ) -> Result<(i32, i32), SyncError> {
        let none = PodDisruptionBudgetSpec::default();
        let spec = budget.spec.as_ref().unwrap_or(&none);
        if !needs_scale(spec) {
            return Ok(desired(spec, i32::try_from(pods.len()).unwrap_or(i32::MAX)));
        }
        let mut scales: BTreeMap<String, i32> = BTreeMap::new();
        for pod in pods {
            let Some(owner) = &pod.owner else {
                let text = format!("found no controllers for pod \"{}\"", pod.name);
                return Err(SyncError::NotYet(text));
            };
            if !scales.contains_key(&owner.uid) {
                let scale = self.scale(namespace, owner).await?;
                scales.insert(scale.0, scale.1);
                scales.entry(owner.uid.clone()).or_insert(0);
            }
        }
        Ok(desired(spec, scales.values().sum()))
    }

    // The uid and the size of what scales a pod: its owner, or the owner's owner.
    async fn scale(&self, namespace: &str, owner: &Owner) -> Result<(String, i32), SyncError> {
        let key = ObjectKey::new(namespace, &owner.name);
        let known = match owner.kind.as_str() {
            "ReplicaSet" => {
                let set = self.replica_sets.get(&key);
                if let Some(above) = set.as_ref().and_then(|set| Owner::of(&set.metadata)) {
                    let path = format!(
                        "/apis/apps/v1/namespaces/{namespace}/deployments/{}/scale",
                        above.name
                    );
                    return Ok((above.uid.clone(), self.read_scale(&path).await?));
                }
                set.map(|set| {
                    set.spec
                        .as_ref()
                        .and_then(|spec| spec.replicas)
                        .unwrap_or(1)
                })
            }
            "StatefulSet" => {
                let set = self.stateful_sets.get(&key);
                set.map(|set| {
                    set.spec
                        .as_ref()
                        .and_then(|spec| spec.replicas)
                        .unwrap_or(1)
                })
            }
            "ReplicationController" => {
                let set = self.controllers.get(&key);
                set.map(|set| {
                    set.spec
                        .as_ref()
                        .and_then(|spec| spec.replicas)
                        .unwrap_or(1)
                })
            }
            kind => {
                let text = format!("{kind} does not implement the scale subresource");
                return Err(SyncError::NotYet(text));
            }
        };
        Ok((owner.uid.clone(), known.unwrap_or(0)))
    }

    async fn read_scale(&self, path: &str) -> Result<i32, SyncError> {
        let scale: Value = self.actor.read(path).await?.unwrap_or_default();
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
        Ok(i32::try_from(replicas).unwrap_or(i32::MAX))
    }
}

fn selector(budget: &PodDisruptionBudget) -> Selector {
    ownership::selector(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()))
}

fn needs_scale(spec: &PodDisruptionBudgetSpec) -> bool {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

fn desired(spec: &PodDisruptionBudgetSpec, expected: i32) -> (i32, i32) {
    let up = |value| scaled(value, expected, Rounding::Up).unwrap_or(0);
    let healthy = match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => (expected - up(most)).max(0),
        (None, Some(least)) => up(least),
        (None, None) => 0,
    };
    (expected, healthy)
}

fn status(
    budget: &PodDisruptionBudget,
    pods: &[Arc<PodView>],
    (expected, desired): (i32, i32),
    now: Timestamp,
) -> (PodDisruptionBudgetStatus, Option<Duration>) {
    let before = budget.status.clone().unwrap_or_default();
    let (disrupted, again) = still_disrupted(&before, pods, now);
    let is_counted =
        |pod: &PodView| pod.is_ready() && !pod.is_deleted && !disrupted.contains_key(&pod.name);
    let current = pods.iter().filter(|pod| is_counted(pod)).count();
    let current = i32::try_from(current).unwrap_or(i32::MAX);
    let allowed = if expected <= 0 {
        0
    } else {
        (current - desired).max(0)
    };
    let said = match allowed > 0 {
        true => ("True", "SufficientPods", ""),
        false => ("False", "InsufficientPods", ""),
    };
    let status = PodDisruptionBudgetStatus {
        current_healthy: Some(current),
        desired_healthy: Some(desired),
        expected_pods: Some(expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: Some(disrupted).filter(|disrupted| !disrupted.is_empty()),
        observed_generation: budget.metadata.generation,
        conditions: Some(conditions(&before, budget, said, now)),
    };
    (status, again)
}

// Evictions that were allowed and have not been seen yet; those that take too long have failed.
fn still_disrupted(
    before: &PodDisruptionBudgetStatus,
    pods: &[Arc<PodView>],
    now: Timestamp,
) -> (BTreeMap<String, Time>, Option<Duration>) {
    let mut disrupted = before.disrupted_pods.clone().unwrap_or_default();
    let is_there = |name: &str| pods.iter().any(|pod| pod.name == name && !pod.is_deleted);
    let ends = |since: &Time| since.0.as_second() + EVICTION_TIMEOUT - now.as_second();
    disrupted.retain(|name, since| is_there(name) && ends(since) > 0);
    let again = disrupted.values().map(ends).min();
    let again = again.map(|left| Duration::from_secs(u64::try_from(left).unwrap_or(0).max(1)));
    (disrupted, again)
}

fn failed(budget: &PodDisruptionBudget, why: &str, now: Timestamp) -> PodDisruptionBudgetStatus {
    let before = budget.status.clone().unwrap_or_default();
    PodDisruptionBudgetStatus {
        disruptions_allowed: Some(0),
        conditions: Some(conditions(
            &before,
            budget,
            ("False", "SyncFailed", why),
            now,
        )),
        observed_generation: budget.metadata.generation,
        current_healthy: Some(before.current_healthy.unwrap_or(0)),
        desired_healthy: Some(before.desired_healthy.unwrap_or(0)),
        expected_pods: Some(before.expected_pods.unwrap_or(0)),
        ..before
    }
}

fn conditions(
    before: &PodDisruptionBudgetStatus,
    budget: &PodDisruptionBudget,
    (status, reason, message): (&str, &str, &str),
    now: Timestamp,
) -> Vec<Condition> {
    let mut all = before.conditions.clone().unwrap_or_default();
    let known = all
        .iter()
        .position(|condition| condition.type_ == CONDITION);
    let known = known.map(|place| all.remove(place));
    let same = known.filter(|condition| condition.status == status);
    let since = same.map_or(Time(now), |condition| condition.last_transition_time);
    all.push(Condition {
        type_: CONDITION.into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: budget.metadata.generation,
        last_transition_time: since,
    });
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
        serde_json::from_value(json!({ "metadata": {}, "spec": spec, "status": status })).unwrap()
    }

    fn pods(ready: usize, others: usize) -> Vec<Arc<PodView>> {
        let pod = |number: usize| PodView {
            name: format!("p{number}"),
            ready_since: (number < ready).then_some(Timestamp::UNIX_EPOCH),
            ..PodView::default()
        };
        (0..ready + others)
            .map(|number| Arc::new(pod(number)))
            .collect()
    }

    #[test]
    fn as_many_may_go_as_are_more_than_enough() {
        for (spec, ready, others, expected) in [
            (json!({ "minAvailable": 2 }), 3, 0, (1, 2, 3, 3)),
            (json!({ "minAvailable": 3 }), 3, 1, (0, 3, 3, 4)),
            (json!({ "minAvailable": "50%" }), 5, 0, (2, 3, 5, 5)),
            (json!({ "maxUnavailable": 1 }), 4, 1, (0, 4, 4, 5)),
            (json!({ "maxUnavailable": "30%" }), 10, 0, (3, 7, 10, 10)),
            (json!({ "minAvailable": 0 }), 0, 0, (0, 0, 0, 0)),
        ] {
            let budget = budget(spec.clone(), json!({}));
            let pods = pods(ready, others);
            let count = i32::try_from(pods.len()).unwrap();
            let wanted = desired(budget.spec.as_ref().unwrap(), count);
            let (status, _) = status(&budget, &pods, wanted, Timestamp::UNIX_EPOCH);
            let seen = [
                status.disruptions_allowed,
                status.desired_healthy,
                status.current_healthy,
                status.expected_pods,
            ];
            assert_eq!(
                seen,
                [expected.0, expected.1, expected.2, expected.3].map(Some),
                "{spec}"
            );
        }
    }

    #[test]
    fn an_eviction_under_way_counts_until_it_is_seen_or_takes_too_long() {
        let disrupted = json!({ "disruptedPods": { "p0": "1970-01-01T00:00:00Z", "gone": "1970-01-01T00:00:00Z" },
            "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0 });
        let budget = budget(json!({ "minAvailable": 1 }), disrupted);
        let at = |seconds| {
            status(
                &budget,
                &pods(2, 0),
                (2, 1),
                Timestamp::from_second(seconds).unwrap(),
            )
        };
        let (early, again) = at(10);
        assert_eq!(
            (early.current_healthy, early.disruptions_allowed),
            (Some(1), Some(0))
        );
        assert_eq!(again, Some(Duration::from_secs(110)));
        let (late, again) = at(121);
        assert_eq!(
            (late.current_healthy, late.disruptions_allowed),
            (Some(2), Some(1))
        );
        assert_eq!((late.disrupted_pods, again), (None, None));
    }
}
