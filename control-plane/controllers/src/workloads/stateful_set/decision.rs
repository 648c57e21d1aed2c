//! What a stateful set needs next (upstream's `updateStatefulSet`): pods made in order, ended in reverse, replaced one
//! by one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetStatus};

use super::super::fractions::{Rounding, scaled};
use super::super::pod_view::{Phase, PodView};
use super::super::revisions::REVISION_LABEL;

/// One change to a pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    /// Make the pod of an ordinal, as the current revision says or as the new one does.
    Create { ordinal: i32, is_current: bool },
    /// Replace a pod that has ended.
    Replace(Arc<PodView>),
    /// End a pod that is beyond the set, with what becomes of its claims.
    Condemn(Arc<PodView>),
    /// End a pod that is of an old revision.
    Update(Arc<PodView>),
}

/// The changes, the status, and when to look again.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub(super) actions: Vec<Action>,
    pub(super) status: StatefulSetStatus,
    pub(super) again_after: Option<Duration>,
}

/// What there is to decide from.
pub(super) struct Observed<'a> {
    pub(super) set: &'a StatefulSet,
    pub(super) spec: &'a StatefulSetSpec,
    pub(super) pods: &'a [Arc<PodView>],
    /// The names of the two revisions.
    pub(super) current: &'a str,
    pub(super) update: &'a str,
    pub(super) now: Timestamp,
}

/// The ordinals a set has.
pub(super) fn ordinals(spec: &StatefulSetSpec) -> std::ops::Range<i32> {
    let start = spec
        .ordinals
        .as_ref()
        .and_then(|ordinals| ordinals.start)
        .unwrap_or(0);
    start..start + spec.replicas.unwrap_or(1)
}

/// The ordinal of a pod by its name, if it may be one of the set's.
pub(super) fn ordinal(set: &str, pod: &str) -> Option<i32> {
    let number = pod.strip_prefix(set)?.strip_prefix('-')?;
    let parsed = number.parse::<i32>().ok().filter(|ordinal| *ordinal >= 0)?;
    (number == parsed.to_string()).then_some(parsed)
}

/// Decides.
pub(super) fn decide(observed: &Observed<'_>) -> Decided {
    let mut decision = Decision::new(observed);
    decision.out.status = decision.counted();
    if observed.set.metadata.deletion_timestamp.is_none() {
        decision.change();
    }
    decision.complete();
    decision.out
}

struct Decision<'a> {
    observed: &'a Observed<'a>,
    /// Pods within the set, by ordinal.
    replicas: BTreeMap<i32, &'a Arc<PodView>>,
    /// Pods beyond it, highest ordinal first.
    condemned: Vec<&'a Arc<PodView>>,
    min_ready: i32,
    out: Decided,
}

impl<'a> Decision<'a> {
    fn new(observed: &'a Observed<'a>) -> Decision<'a> {
        let name = observed.set.metadata.name.as_deref().unwrap_or_default();
        let inside = ordinals(observed.spec);
        let (mut replicas, mut beyond) = (BTreeMap::new(), BTreeMap::new());
        for pod in observed.pods {
            match ordinal(name, &pod.name) {
                Some(ordinal) if inside.contains(&ordinal) => replicas.insert(ordinal, pod),
                Some(ordinal) => beyond.insert(ordinal, pod),
                None => None,
            };
        }
        Decision {
            observed,
            replicas,
            condemned: beyond.into_values().rev().collect(),
            min_ready: observed.spec.min_ready_seconds.unwrap_or(0),
            out: Decided::default(),
        }
    }

    fn is_ordered(&self) -> bool {
        self.observed.spec.pod_management_policy.as_deref() != Some("Parallel")
    }

    fn is_rolling(&self) -> bool {
        let strategy = self.observed.spec.update_strategy.as_ref();
        strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
    }

    fn partition(&self) -> Option<i32> {
        let strategy = self.observed.spec.update_strategy.as_ref()?;
        strategy
            .rolling_update
            .as_ref()
            .map(|rolling| rolling.partition.unwrap_or(0))
    }

    fn is_ready(pod: &PodView) -> bool {
        pod.phase == Phase::Running && pod.is_ready()
    }

    fn is_available(&self, pod: &PodView) -> bool {
        Self::is_ready(pod) && pod.is_available(self.min_ready, self.observed.now)
    }

    fn is_healthy(&self, pod: &PodView) -> bool {
        Self::is_ready(pod) && !pod.is_deleted
    }

    fn revision(pod: &PodView) -> &str {
        pod.labels
            .get(REVISION_LABEL)
            .map(String::as_str)
            .unwrap_or_default()
    }

    fn counted(&self) -> StatefulSetStatus {
        let before = self.observed.set.status.clone().unwrap_or_default();
        let pods = || self.replicas.values().chain(&self.condemned);
        let count = |is: &dyn Fn(&PodView) -> bool| {
            i32::try_from(pods().filter(|pod| is(pod)).count()).unwrap_or(i32::MAX)
        };
        let of = |revision: &str| {
            let counted = |pod: &PodView| !pod.is_deleted && Self::revision(pod) == revision;
            Some(count(&counted)).filter(|count| *count > 0)
        };
        StatefulSetStatus {
            observed_generation: self.observed.set.metadata.generation,
            replicas: count(&|_| true),
            ready_replicas: Some(count(&Self::is_ready)).filter(|count| *count > 0),
            available_replicas: Some(count(&|pod| self.is_available(pod))),
            current_replicas: of(self.observed.current),
            updated_replicas: of(self.observed.update),
            current_revision: Some(self.observed.current.to_owned()),
            update_revision: Some(self.observed.update.to_owned()),
            collision_count: Some(before.collision_count.unwrap_or(0)),
            conditions: before.conditions,
        }
    }

    fn change(&mut self) {
        if self.fill() {
            return;
        }
        if self.shrink() {
            return;
        }
        if self.is_rolling() {
            self.replace_old();
        }
    }

    // From the lowest ordinal up; in order means that each waits for those before it. Gives whether to stop here.
    fn fill(&mut self) -> bool {
        let is_ordered = self.is_ordered();
        for ordinal in ordinals(self.observed.spec) {
            let Some(pod) = self.replicas.get(&ordinal).copied() else {
                let is_current = self.takes_current(ordinal);
                self.out.actions.push(Action::Create {
                    ordinal,
                    is_current,
                });
                if is_ordered {
                    return true;
                }
                continue;
            };
            if pod.is_finished() {
                if !pod.is_deleted {
                    self.out.actions.push(Action::Replace(Arc::clone(pod)));
                }
                if is_ordered {
                    return true;
                }
                continue;
            }
            if is_ordered && (pod.is_deleted || !self.is_available(pod)) {
                self.look_again(pod);
                return true;
            }
        }
        false
    }

    // Upstream's `newVersionedStatefulSetPod`: below the partition, pods stay what they were.
    fn takes_current(&self, ordinal: i32) -> bool {
        let start = ordinals(self.observed.spec).start;
        let kept = match self.partition() {
            Some(partition) => partition,
            None if self.is_rolling() => {
                let status = self.observed.set.status.as_ref();
                status
                    .and_then(|status| status.current_replicas)
                    .unwrap_or(0)
            }
            None => 0,
        };
        ordinal < start + kept
    }

    // From the highest ordinal down. Gives whether to stop here.
    fn shrink(&mut self) -> bool {
        let sick = self.first_unhealthy();
        for pod in self.condemned.clone() {
            if !self.is_ordered() {
                if !pod.is_deleted {
                    self.out.actions.push(Action::Condemn(Arc::clone(pod)));
                }
                continue;
            }
            if pod.is_deleted {
                return true;
            }
            // One that is not well goes only if it is the one everything waits for.
            if !Self::is_ready(pod) && sick.as_deref() != Some(pod.name.as_str()) {
                return true;
            }
            self.out.actions.push(Action::Condemn(Arc::clone(pod)));
            return true;
        }
        false
    }

    fn first_unhealthy(&self) -> Option<String> {
        let rising = self.condemned.iter().rev();
        let mut all = self.replicas.values().chain(rising);
        all.find(|pod| !self.is_healthy(pod))
            .map(|pod| pod.name.clone())
    }

    // From the highest ordinal down to the partition, as many at a time as may be unavailable.
    fn replace_old(&mut self) {
        let start = ordinals(self.observed.spec).start;
        let first = start + self.partition().unwrap_or(0);
        let most = self.most_unavailable();
        let mut unavailable = self
            .replicas
            .values()
            .filter(|pod| !self.is_unavailable_free(pod))
            .count();
        for (_, pod) in self.replicas.range(first..).rev() {
            let is_old = Self::revision(pod) != self.observed.update;
            let is_fit = self.is_available(pod) && !pod.is_deleted;
            if is_old && !pod.is_deleted {
                // One that is not available anyway costs nothing to replace.
                if is_fit && unavailable >= most {
                    return;
                }
                self.out.actions.push(Action::Update(Arc::clone(pod)));
                unavailable += usize::from(is_fit);
                if most == 1 {
                    return;
                }
                continue;
            }
            if !is_fit && most == 1 {
                let pod = Arc::clone(pod);
                self.look_again(&pod);
                return;
            }
        }
    }

    fn is_unavailable_free(&self, pod: &PodView) -> bool {
        self.is_available(pod) && !pod.is_deleted
    }

    fn most_unavailable(&self) -> usize {
        let strategy = self.observed.spec.update_strategy.as_ref();
        let value = strategy.and_then(|s| s.rolling_update.as_ref()?.max_unavailable.as_ref());
        let replicas = self.observed.spec.replicas.unwrap_or(1);
        let most = value.and_then(|value| scaled(value, replicas, Rounding::Up));
        usize::try_from(most.unwrap_or(1)).unwrap_or(1).max(1)
    }

    fn look_again(&mut self, pod: &PodView) {
        let Some(since) = pod
            .ready_since
            .filter(|_| !pod.is_deleted && self.min_ready > 0)
        else {
            return;
        };
        let left = since.as_second() + i64::from(self.min_ready) - self.observed.now.as_second();
        self.out.again_after = Some(Duration::from_secs(u64::try_from(left).unwrap_or(0).max(1)));
    }

    // Once everything is new and ready, the new revision is the current one.
    fn complete(&mut self) {
        let status = &mut self.out.status;
        let is_complete = self
            .observed
            .spec
            .update_strategy
            .as_ref()
            .is_none_or(|strategy| strategy.type_.as_deref() != Some("OnDelete"))
            && status.updated_replicas.unwrap_or(0) == status.replicas
            && status.ready_replicas.unwrap_or(0) == status.replicas;
        if is_complete && self.out.actions.is_empty() {
            status.current_replicas = status.updated_replicas;
            status.current_revision = status.update_revision.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(spec: &Value) -> StatefulSet {
        let mut whole = json!({ "selector": {}, "template": {}, "serviceName": "db" });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        serde_json::from_value(json!({ "metadata": { "name": "db" }, "spec": whole })).unwrap()
    }

    fn pod(ordinal: i32, revision: &str, change: impl Fn(&mut PodView)) -> Arc<PodView> {
        let mut pod = PodView {
            name: format!("db-{ordinal}"),
            phase: Phase::Running,
            ready_since: Some(Timestamp::UNIX_EPOCH),
            labels: [(REVISION_LABEL.to_owned(), revision.to_owned())].into(),
            ..PodView::default()
        };
        change(&mut pod);
        Arc::new(pod)
    }

    fn actions(spec: &Value, pods: &[Arc<PodView>]) -> Vec<String> {
        let set = set(spec);
        let decided = decide(&Observed {
            spec: set.spec.as_ref().unwrap(),
            set: &set,
            pods,
            current: "old",
            update: "new",
            now: Timestamp::from_second(100).unwrap(),
        });
        let text = |action: &Action| match action {
            Action::Create {
                ordinal,
                is_current: true,
            } => format!("create old {ordinal}"),
            Action::Create { ordinal, .. } => format!("create {ordinal}"),
            Action::Replace(pod) => format!("replace {}", pod.name),
            Action::Condemn(pod) => format!("condemn {}", pod.name),
            Action::Update(pod) => format!("update {}", pod.name),
        };
        decided.actions.iter().map(text).collect()
    }

    #[test]
    fn pods_come_one_after_the_other_each_when_the_one_before_is_ready() {
        let spec = json!({ "replicas": 3, "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } } });
        let ready = |ordinal| pod(ordinal, "new", |_| {});
        assert_eq!(actions(&spec, &[]), ["create 0"]);
        let starting = pod(0, "new", |pod| pod.ready_since = None);
        assert!(actions(&spec, &[starting]).is_empty());
        assert_eq!(actions(&spec, &[ready(0)]), ["create 1"]);
        assert_eq!(actions(&spec, &[ready(0), ready(2)]), ["create 1"]);
        let failed = pod(1, "new", |pod| pod.phase = Phase::Failed);
        assert_eq!(actions(&spec, &[ready(0), failed]), ["replace db-1"]);
        assert!(actions(&spec, &[ready(0), ready(1), ready(2)]).is_empty());
        let parallel = json!({ "replicas": 3, "podManagementPolicy": "Parallel" });
        assert_eq!(
            actions(&parallel, &[]),
            ["create 0", "create 1", "create 2"]
        );
        let later =
            json!({ "replicas": 2, "ordinals": { "start": 5 }, "podManagementPolicy": "Parallel" });
        assert_eq!(actions(&later, &[]), ["create 5", "create 6"]);
    }

    #[test]
    fn pods_go_from_the_highest_and_wait_for_the_healthy() {
        let spec = json!({ "replicas": 1 });
        let ready = |ordinal| pod(ordinal, "new", |_| {});
        assert_eq!(
            actions(&spec, &[ready(0), ready(1), ready(2)]),
            ["condemn db-2"]
        );
        let going = pod(2, "new", |pod| pod.is_deleted = true);
        assert!(actions(&spec, &[ready(0), ready(1), going]).is_empty());
        let sick = pod(0, "new", |pod| pod.ready_since = None);
        assert!(actions(&spec, &[sick, ready(1), ready(2)]).is_empty());
        let parallel = json!({ "replicas": 1, "podManagementPolicy": "Parallel" });
        let all = [ready(0), ready(1), ready(2)];
        assert_eq!(actions(&parallel, &all), ["condemn db-2", "condemn db-1"]);
    }

    #[test]
    fn an_update_goes_down_to_the_partition_one_at_a_time() {
        let spec = |partition, most: Option<i32>| {
            json!({ "replicas": 3, "updateStrategy": { "type": "RollingUpdate",
            "rollingUpdate": { "partition": partition, "maxUnavailable": most } } })
        };
        let old = |ordinal| pod(ordinal, "old", |_| {});
        let new = |ordinal| pod(ordinal, "new", |_| {});
        assert_eq!(
            actions(&spec(0, None), &[old(0), old(1), old(2)]),
            ["update db-2"]
        );
        let unready = pod(2, "new", |pod| pod.ready_since = None);
        assert!(actions(&spec(0, None), &[old(0), old(1), unready]).is_empty());
        assert_eq!(
            actions(&spec(0, None), &[old(0), old(1), new(2)]),
            ["update db-1"]
        );
        assert!(actions(&spec(2, None), &[old(0), old(1), new(2)]).is_empty());
        assert_eq!(
            actions(&spec(0, Some(2)), &[old(0), old(1), old(2)]),
            ["update db-2", "update db-1"]
        );
        assert_eq!(actions(&spec(2, None), &[old(0)]), ["create old 1"]);
        let by_hand = json!({ "replicas": 1, "updateStrategy": { "type": "OnDelete" } });
        assert!(actions(&by_hand, &[old(0)]).is_empty());
    }

    #[test]
    fn only_whole_numbers_are_ordinals() {
        assert_eq!(ordinal("db", "db-3"), Some(3));
        for name in ["db-03", "db-x", "db3", "dbx-3", "db--1"] {
            assert_eq!(ordinal("db", name), None, "{name}");
        }
    }
}
