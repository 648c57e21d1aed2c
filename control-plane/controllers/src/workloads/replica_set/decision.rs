//! What a set of replicas needs: how many pods more or fewer, and what its status says.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::pod_view::PodView;
use super::super::ranking;
use super::kinds::ReplicaKind;

/// No more pods are made or deleted for one set at a time (upstream's `BurstReplicas`).
const BURST: usize = 500;
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    Create(usize),
    Delete(usize),
}

/// Why the number of pods is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    reason: &'static str,
    message: String,
}

impl Failure {
    pub(super) fn create(message: String) -> Failure {
        Failure {
            reason: "FailedCreate",
            message,
        }
    }

    pub(super) fn delete(message: String) -> Failure {
        Failure {
            reason: "FailedDelete",
            message,
        }
    }
}

/// A set and its pods, counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Observed {
    wanted: usize,
    active: usize,
    ready: i32,
    available: i32,
    fully_labeled: i32,
    terminating: Option<i32>,
    generation: Option<i64>,
    now: Timestamp,
    /// In how many seconds the next ready pod becomes available.
    pub(super) next_available: Option<u64>,
}

impl Observed {
    pub(super) fn of<K: ReplicaKind>(set: &K, pods: &[Arc<PodView>], now: Timestamp) -> Observed {
        let min_ready = set.min_ready_seconds();
        let labels = set
            .template()
            .and_then(|t| t.metadata.as_ref()?.labels.as_ref());
        let mut observed = Observed {
            wanted: usize::try_from(set.replicas()).unwrap_or(0),
            generation: set.meta().generation,
            now,
            ..Observed::default()
        };
        for pod in pods.iter().filter(|pod| pod.is_active()) {
            let has = |(key, value): (&String, &String)| pod.labels.get(key) == Some(value);
            observed.active += 1;
            observed.fully_labeled += i32::from(labels.is_none_or(|all| all.iter().all(has)));
            observed.ready += i32::from(pod.is_ready());
            observed.available += i32::from(pod.is_available(min_ready, now));
        }
        if K::KIND == "ReplicaSet" {
            let terminating = pods.iter().filter(|pod| pod.is_terminating()).count();
            observed.terminating = Some(i32::try_from(terminating).unwrap_or(i32::MAX));
        }
        observed.next_available = next_available(pods, min_ready, now);
        observed
    }

    pub(super) fn step(&self) -> Step {
        match (self.active, self.wanted) {
            (active, wanted) if active < wanted => Step::Create((wanted - active).min(BURST)),
            (active, wanted) if active > wanted => Step::Delete((active - wanted).min(BURST)),
            _ => Step::Nothing,
        }
    }

    /// The pods that go when `count` have to.
    pub(super) fn doomed<'a>(
        &self,
        pods: &'a [Arc<PodView>],
        related: &[Arc<PodView>],
        count: usize,
    ) -> Vec<&'a Arc<PodView>> {
        let active: Vec<_> = pods.iter().filter(|pod| pod.is_active()).collect();
        ranking::least_valuable(&active, related, count, self.now)
    }

    /// The status that is to be written, if it is not there already.
    pub(super) fn next_status(
        &self,
        before: &ReplicaSetStatus,
        failure: Option<&Failure>,
    ) -> Option<ReplicaSetStatus> {
        let some = |count: i32| (count != 0).then_some(count);
        let mut status = ReplicaSetStatus {
            replicas: i32::try_from(self.active).unwrap_or(i32::MAX),
            fully_labeled_replicas: some(self.fully_labeled),
            ready_replicas: some(self.ready),
            available_replicas: some(self.available),
            terminating_replicas: self.terminating,
            observed_generation: self.generation,
            conditions: before.conditions.clone(),
        };
        self.note(&mut status.conditions, failure);
        (status != *before).then_some(status)
    }

    // An old failure keeps its words, as upstream; it goes when there is none any more.
    fn note(&self, conditions: &mut Option<Vec<ReplicaSetCondition>>, failure: Option<&Failure>) {
        let mut all = conditions.take().unwrap_or_default();
        let is_noted = all.iter().any(|c| c.type_ == REPLICA_FAILURE);
        match failure {
            Some(failure) if !is_noted => all.push(ReplicaSetCondition {
                type_: REPLICA_FAILURE.into(),
                status: "True".into(),
                reason: Some(failure.reason.into()),
                message: Some(failure.message.clone()),
                last_transition_time: Some(Time(self.now)),
            }),
            Some(_) => {}
            None => all.retain(|c| c.type_ != REPLICA_FAILURE),
        }
        *conditions = (!all.is_empty()).then_some(all);
    }
}

fn next_available(pods: &[Arc<PodView>], min_ready: i32, now: Timestamp) -> Option<u64> {
    let waiting = pods
        .iter()
        .filter(|pod| pod.is_active() && !pod.is_available(min_ready, now));
    let waits = waiting.filter_map(|pod| {
        let at = pod.ready_since?.as_second() + i64::from(min_ready);
        Some(u64::try_from(at - now.as_second()).unwrap_or(0))
    });
    waits.min()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec};

    use super::super::super::pod_view::Phase;
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1000).unwrap()
    }

    fn set(replicas: i32, min_ready: i32) -> ReplicaSet {
        ReplicaSet {
            spec: Some(ReplicaSetSpec {
                replicas: Some(replicas),
                min_ready_seconds: Some(min_ready),
                ..ReplicaSetSpec::default()
            }),
            ..ReplicaSet::default()
        }
    }

    fn pods(of: &[(Phase, Option<i64>, bool)]) -> Vec<Arc<PodView>> {
        let pod = |(phase, ready, is_deleted): &(Phase, Option<i64>, bool)| PodView {
            phase: *phase,
            ready_since: ready.map(|at| Timestamp::from_second(at).unwrap()),
            is_deleted: *is_deleted,
            ..PodView::default()
        };
        of.iter().map(|one| Arc::new(pod(one))).collect()
    }

    #[test]
    fn only_active_pods_count_and_no_more_than_a_burst_at_once() {
        let of = |replicas, all: &[_]| Observed::of(&set(replicas, 0), &pods(all), now()).step();
        let (running, dead) = (
            (Phase::Running, Some(1), false),
            (Phase::Failed, None, false),
        );
        assert_eq!(of(2, &[running, running]), Step::Nothing);
        assert_eq!(of(2, &[running, dead]), Step::Create(1));
        assert_eq!(
            of(2, &[running, (Phase::Running, Some(1), true)]),
            Step::Create(1)
        );
        assert_eq!(of(0, &[running, running, dead]), Step::Delete(2));
        assert_eq!(of(10_000, &[]), Step::Create(BURST));
        assert_eq!(of(-1, &[]), Step::Nothing);
    }

    #[test]
    fn a_pod_is_available_after_its_time() {
        let all = pods(&[
            (Phase::Running, Some(900), false),
            (Phase::Running, Some(995), false),
            (Phase::Running, None, false),
            (Phase::Running, Some(1), true),
        ]);
        let observed = Observed::of(&set(3, 30), &all, now());
        let status = observed
            .next_status(&ReplicaSetStatus::default(), None)
            .unwrap();
        assert_eq!(status.replicas, 3);
        assert_eq!(status.ready_replicas, Some(2));
        assert_eq!(status.available_replicas, Some(1));
        assert_eq!(status.terminating_replicas, Some(1));
        assert_eq!(observed.next_available, Some(25));
        assert_eq!(observed.next_status(&status, None), None, "nothing new");
    }

    #[test]
    fn a_failure_is_noted_and_forgotten() {
        let observed = Observed::of(&set(1, 0), &[], now());
        let failure = Failure::create("exceeded quota".into());
        let status = observed
            .next_status(&ReplicaSetStatus::default(), Some(&failure))
            .unwrap();
        let condition = &status.conditions.as_ref().unwrap()[0];
        assert_eq!(condition.reason.as_deref(), Some("FailedCreate"));
        assert_eq!(condition.message.as_deref(), Some("exceeded quota"));
        let status = observed.next_status(&status, None).unwrap();
        assert_eq!(status.conditions, None);
    }
}
