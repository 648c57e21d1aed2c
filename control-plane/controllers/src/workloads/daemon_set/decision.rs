//! What a daemon set needs next (upstream's `manage` and `rollingUpdate`): one pod on each node that should run it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetStatus};

use super::super::fractions::{Rounding, scaled};
use super::super::node_view::NodeView;
use super::super::pod_view::{Phase, PodView};
use super::super::revisions::REVISION_LABEL;
use super::placing::{Fit, fit};

/// What there is to decide from.
pub(super) struct Observed<'a> {
    pub(super) set: &'a DaemonSet,
    pub(super) spec: &'a DaemonSetSpec,
    pub(super) nodes: &'a BTreeMap<String, Arc<NodeView>>,
    pub(super) pods: &'a [Arc<PodView>],
    /// The hash of the template as it is now.
    pub(super) hash: &'a str,
    pub(super) now: Timestamp,
}

/// What is to happen.
#[derive(Debug, Default)]
pub(super) struct Decided {
    /// Nodes that get a pod.
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<Arc<PodView>>,
    /// Pods that have ended and are to be replaced, each on its node.
    pub(super) ended: Vec<(String, Arc<PodView>)>,
    pub(super) status: DaemonSetStatus,
    pub(super) again_after: Option<Duration>,
}

/// Decides.
pub(super) fn decide(observed: &Observed<'_>) -> Decided {
    let mut decision = Decision::new(observed);
    decision.out.status = decision.counted();
    if observed.set.metadata.deletion_timestamp.is_some() {
        return decision.out;
    }
    decision.place();
    if decision.is_rolling() {
        match decision.surge {
            0 => decision.replace_in_place(),
            _ => decision.replace_with_surge(),
        }
    }
    decision.look_again();
    decision.out
}

struct OnNode<'a> {
    fit: Fit,
    pods: Vec<&'a Arc<PodView>>,
}

struct Decision<'a> {
    observed: &'a Observed<'a>,
    nodes: BTreeMap<&'a str, OnNode<'a>>,
    /// Pods meant for nodes that are not there.
    lost: Vec<&'a Arc<PodView>>,
    min_ready: i32,
    surge: i32,
    unavailable: i32,
    out: Decided,
}

impl<'a> Decision<'a> {
    fn new(observed: &'a Observed<'a>) -> Decision<'a> {
        let template = &observed.spec.template;
        let mut nodes: BTreeMap<&str, OnNode<'_>> = observed
            .nodes
            .iter()
            .map(|(name, node)| {
                (
                    name.as_str(),
                    OnNode {
                        fit: fit(template, name, node),
                        pods: Vec::new(),
                    },
                )
            })
            .collect();
        let mut lost = Vec::new();
        for pod in observed.pods {
            let name = pod
                .node
                .as_deref()
                .or(pod.pinned_to.as_deref())
                .unwrap_or_default();
            match nodes.get_mut(name) {
                Some(node) => node.pods.push(pod),
                None => lost.push(pod),
            }
        }
        for node in nodes.values_mut() {
            node.pods
                .sort_by_key(|pod| (pod.node.is_none(), pod.created));
        }
        let desired = nodes.values().filter(|node| node.fit.starts).count();
        let (surge, unavailable) =
            limits(observed.spec, i32::try_from(desired).unwrap_or(i32::MAX));
        let min_ready = observed.spec.min_ready_seconds.unwrap_or(0);
        Decision {
            observed,
            nodes,
            lost,
            min_ready,
            surge,
            unavailable,
            out: Decided::default(),
        }
    }

    fn is_rolling(&self) -> bool {
        let strategy = self.observed.spec.update_strategy.as_ref();
        strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
    }

    fn is_new(&self, pod: &PodView) -> bool {
        pod.labels.get(REVISION_LABEL).map(String::as_str) == Some(self.observed.hash)
    }

    fn is_available(&self, pod: &PodView) -> bool {
        !pod.is_deleted && pod.is_available(self.min_ready, self.observed.now)
    }

    // Upstream's `podsShouldBeOnNode`, for every node.
    fn place(&mut self) {
        let mut create = Vec::new();
        let mut delete: Vec<Arc<PodView>> = Vec::new();
        for (name, node) in &self.nodes {
            if node.fit.starts && node.pods.is_empty() {
                create.push((*name).to_owned());
            } else if node.fit.stays {
                let alive = self.end_finished(&node.pods, &mut delete);
                delete.extend(self.surplus(&alive).into_iter().map(Arc::clone));
            } else {
                let left = node.pods.iter().filter(|pod| !pod.is_deleted);
                delete.extend(left.map(|pod| Arc::clone(pod)));
            }
        }
        // Pods that no scheduler has bound to a node that is gone will never run; others are the collector's.
        let lost = self
            .lost
            .iter()
            .filter(|pod| pod.node.is_none() && !pod.is_deleted);
        delete.extend(lost.map(|pod| Arc::clone(pod)));
        let (ended, rest): (Vec<_>, Vec<_>) = delete.into_iter().partition(|pod| pod.is_finished());
        for pod in ended {
            let node = pod
                .node
                .clone()
                .or(pod.pinned_to.clone())
                .unwrap_or_default();
            self.out.ended.push((node, pod));
        }
        self.out.create = create;
        self.out.delete = rest;
    }

    // Pods that ended by themselves go; gives those that live.
    fn end_finished(
        &self,
        pods: &[&'a Arc<PodView>],
        delete: &mut Vec<Arc<PodView>>,
    ) -> Vec<&'a Arc<PodView>> {
        let alive = pods.iter().copied().filter(|pod| !pod.is_deleted);
        let (ended, alive): (Vec<_>, Vec<_>) = alive.partition(|pod| pod.is_finished());
        delete.extend(ended.into_iter().map(Arc::clone));
        alive
    }

    // The oldest stays; with a surge the oldest new one may be there beside the oldest old one.
    fn surplus(&self, alive: &[&'a Arc<PodView>]) -> Vec<&'a Arc<PodView>> {
        if self.surge == 0 {
            return alive.iter().skip(1).copied().collect();
        }
        let (new, old): (Vec<_>, Vec<_>) = alive.iter().copied().partition(|pod| self.is_new(pod));
        let mut surplus: Vec<_> = new
            .iter()
            .skip(1)
            .chain(old.iter().skip(1))
            .copied()
            .collect();
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!self.is_available(old) || self.is_available(new))
        {
            surplus.push(*old);
        }
        surplus
    }

    // The new and the old pod of a node, if there is at most one of each.
    fn pair(&self, node: &OnNode<'a>) -> (Option<&'a Arc<PodView>>, Option<&'a Arc<PodView>>) {
        let alive = || node.pods.iter().copied().filter(|pod| !pod.is_deleted);
        (
            alive().find(|pod| self.is_new(pod)),
            alive().find(|pod| !self.is_new(pod)),
        )
    }

    fn replace_in_place(&mut self) {
        let (mut unavailable, mut free, mut dear) = (0, Vec::new(), Vec::new());
        for node in self.nodes.values().filter(|node| node.fit.starts) {
            match self.pair(node) {
                (Some(new), _) => unavailable += i32::from(!self.is_available(new)),
                (None, Some(old)) if !self.is_available(old) => {
                    unavailable += 1;
                    free.push(Arc::clone(old));
                }
                (None, Some(old)) => dear.push(Arc::clone(old)),
                (None, None) => unavailable += 1,
            }
        }
        let room = usize::try_from(self.unavailable - unavailable).unwrap_or(0);
        self.delete_too(free.into_iter().chain(dear.into_iter().take(room)));
    }

    fn replace_with_surge(&mut self) {
        let (mut surge, mut free, mut dear) = (0, Vec::new(), Vec::new());
        for (name, node) in self.nodes.iter().filter(|(_, node)| node.fit.starts) {
            match self.pair(node) {
                (Some(new), Some(_)) => surge += i32::from(!self.is_available(new)),
                (None, Some(old)) if !self.is_available(old) => free.push((*name).to_owned()),
                (None, Some(_)) => dear.push((*name).to_owned()),
                _ => {}
            }
        }
        let room = usize::try_from(self.surge - surge).unwrap_or(0);
        self.out
            .create
            .extend(free.into_iter().chain(dear.into_iter().take(room)));
    }

    fn delete_too(&mut self, more: impl Iterator<Item = Arc<PodView>>) {
        for pod in more {
            let is_known = |known: &Arc<PodView>| known.uid == pod.uid;
            let has_ended = self.out.ended.iter().any(|(_, known)| is_known(known));
            if !has_ended && !self.out.delete.iter().any(is_known) {
                self.out.delete.push(pod);
            }
        }
    }

    fn counted(&self) -> DaemonSetStatus {
        let before = self.observed.set.status.clone().unwrap_or_default();
        let mut status = DaemonSetStatus {
            observed_generation: self.observed.set.metadata.generation,
            collision_count: before.collision_count,
            conditions: before.conditions,
            ..DaemonSetStatus::default()
        };
        let (mut updated, mut available) = (0, 0);
        for node in self.nodes.values() {
            if !node.fit.starts {
                status.number_misscheduled += i32::from(!node.pods.is_empty());
                continue;
            }
            status.desired_number_scheduled += 1;
            let Some(pod) = node.pods.first() else {
                continue;
            };
            status.current_number_scheduled += 1;
            status.number_ready += i32::from(pod.is_ready());
            available += i32::from(pod.is_available(self.min_ready, self.observed.now));
            updated += i32::from(self.is_new(pod));
        }
        let some = |count: i32| Some(count).filter(|count| *count > 0);
        status.updated_number_scheduled = some(updated);
        status.number_available = some(available);
        status.number_unavailable = some(status.desired_number_scheduled - available);
        status
    }

    fn look_again(&mut self) {
        let waiting = self.observed.pods.iter().filter(|pod| {
            pod.phase == Phase::Running && !pod.is_deleted && !self.is_available(pod)
        });
        let waits = waiting.filter_map(|pod| {
            let at = pod.ready_since?.as_second() + i64::from(self.min_ready);
            u64::try_from(at - self.observed.now.as_second()).ok()
        });
        self.out.again_after = waits.min().map(|wait| Duration::from_secs(wait.max(1)));
    }
}

// How many pods more than one node each, and how many nodes without one there may be.
fn limits(spec: &DaemonSetSpec, desired: i32) -> (i32, i32) {
    let strategy = spec.update_strategy.as_ref();
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
    let surge = surge
        .and_then(|value| scaled(value, desired, Rounding::Up))
        .unwrap_or(0);
    let down = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    let down = down
        .and_then(|value| scaled(value, desired, Rounding::Up))
        .unwrap_or(1);
    match (surge, down) {
        (0, 0) => (0, 1),
        limits => limits,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(node: &str, hash: &str, change: impl Fn(&mut PodView)) -> Arc<PodView> {
        let mut pod = PodView {
            name: format!("{node}-{hash}"),
            uid: format!("{node}-{hash}"),
            node: Some(node.into()),
            phase: Phase::Running,
            ready_since: Some(Timestamp::UNIX_EPOCH),
            labels: [(REVISION_LABEL.to_owned(), hash.to_owned())].into(),
            ..PodView::default()
        };
        change(&mut pod);
        Arc::new(pod)
    }

    fn decided(
        rolling: Value,
        nodes: &[&str],
        pods: &[Arc<PodView>],
    ) -> (Vec<String>, Vec<String>, DaemonSetStatus) {
        let set: DaemonSet =
            serde_json::from_value(json!({ "spec": { "selector": {}, "template": {},
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": rolling } } }))
            .unwrap();
        let nodes = nodes
            .iter()
            .map(|name| ((*name).to_owned(), Arc::new(NodeView::default())))
            .collect();
        let decided = decide(&Observed {
            set: &set,
            spec: set.spec.as_ref().unwrap(),
            nodes: &nodes,
            pods,
            hash: "new",
            now: Timestamp::from_second(100).unwrap(),
        });
        let deleted = decided
            .delete
            .iter()
            .chain(decided.ended.iter().map(|(_, pod)| pod));
        (
            decided.create,
            deleted.map(|pod| pod.name.clone()).collect(),
            decided.status,
        )
    }

    #[test]
    fn every_node_has_one_pod() {
        let plain = json!({ "maxUnavailable": 1 });
        let (create, delete, status) =
            decided(plain.clone(), &["a", "b"], &[pod("a", "new", |_| {})]);
        assert_eq!((create, delete), (vec!["b".to_owned()], vec![]));
        assert_eq!(
            (status.desired_number_scheduled, status.number_available),
            (2, Some(1))
        );
        let failed = pod("a", "new", |pod| pod.phase = Phase::Failed);
        assert_eq!(decided(plain.clone(), &["a"], &[failed]).1, ["a-new"]);
        let twice = [
            pod("a", "new", |_| {}),
            pod("a", "new", |pod| {
                pod.name = "younger".into();
                pod.created = Timestamp::from_second(5).unwrap();
            }),
        ];
        assert_eq!(decided(plain.clone(), &["a"], &twice).1, ["younger"]);
        let pinned = pod("gone", "new", |pod| {
            pod.node = None;
            pod.pinned_to = Some("gone".into());
        });
        assert_eq!(
            decided(plain, &["a"], &[pod("a", "new", |_| {}), pinned]).1,
            ["gone-new"]
        );
    }

    #[test]
    fn an_update_takes_as_many_nodes_as_may_be_without() {
        let nodes = ["a", "b", "c"];
        let old: Vec<_> = nodes.iter().map(|node| pod(node, "old", |_| {})).collect();
        assert_eq!(
            decided(json!({ "maxUnavailable": 1 }), &nodes, &old).1,
            ["a-old"]
        );
        assert_eq!(
            decided(json!({ "maxUnavailable": "50%" }), &nodes, &old).1,
            ["a-old", "b-old"]
        );
        let sick = [
            old[0].clone(),
            old[1].clone(),
            pod("c", "old", |pod| pod.ready_since = None),
        ];
        assert_eq!(
            decided(json!({ "maxUnavailable": 1 }), &nodes, &sick).1,
            ["c-old"],
            "it costs nothing"
        );
        let starting = [
            old[0].clone(),
            old[1].clone(),
            pod("c", "new", |pod| pod.ready_since = None),
        ];
        assert!(
            decided(json!({ "maxUnavailable": 1 }), &nodes, &starting)
                .1
                .is_empty()
        );
    }

    #[test]
    fn with_a_surge_the_new_pod_comes_before_the_old_one_goes() {
        let surge = json!({ "maxSurge": 1, "maxUnavailable": 0 });
        let (old_a, old_b) = (pod("a", "old", |_| {}), pod("b", "old", |_| {}));
        let (create, delete, _) =
            decided(surge.clone(), &["a", "b"], &[old_a.clone(), old_b.clone()]);
        assert_eq!((create, delete), (vec!["a".to_owned()], vec![]));
        let starting = pod("a", "new", |pod| pod.ready_since = None);
        let (create, delete, _) = decided(
            surge.clone(),
            &["a", "b"],
            &[old_a.clone(), starting, old_b.clone()],
        );
        assert!(create.is_empty() && delete.is_empty());
        let (create, delete, _) =
            decided(surge, &["a", "b"], &[old_a, pod("a", "new", |_| {}), old_b]);
        assert_eq!(delete, ["a-old"]);
        assert_eq!(create, ["b"]);
    }
}
