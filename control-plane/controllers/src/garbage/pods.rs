//! Removes pods whose time is over: those that ended long ago, those of nodes that are gone or written off, and
//! those that were deleted before they got anywhere.

mod shell;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client_runtime::ObjectKey;
use jiff::SignedDuration;

use crate::nodes::state::{NodeState, Resident};
use crate::nodes::taints::OUT_OF_SERVICE;
pub(crate) use shell::start;

/// How long a node must be missing before its pods are lost: it may only be unknown to us yet.
const QUARANTINE: Duration = Duration::from_secs(40);

/// Why a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// It ended, and too many have since.
    Ended,
    /// Its node is down for good, says a taint.
    OutOfService,
    /// Its node does not exist; to be made sure of.
    Orphaned,
    /// It was deleted before it was bound.
    NeverBound,
}

/// What is remembered between two looks: since when which node has been missing.
#[derive(Debug, Default)]
pub(crate) struct Missing(HashMap<String, SignedDuration>);

/// A pod and what is known of it.
pub(crate) type Known = (ObjectKey, Arc<Resident>);

/// Which pods go now, and why.
pub(crate) fn collect(
    pods: &[Known],
    node: impl Fn(&str) -> Option<Arc<NodeState>>,
    missing: &mut Missing,
    threshold: usize,
    now: SignedDuration,
) -> Vec<(Known, Why)> {
    let mut going = ended(pods, threshold);
    let mut still_missing = HashMap::new();
    for (key, pod) in pods {
        let why = match node(&pod.node) {
            _ if pod.node.is_empty() => pod.deleting.then_some(Why::NeverBound),
            Some(node) => (pod.deleting && is_written_off(&node)).then_some(Why::OutOfService),
            None => {
                let since = *missing.0.get(&pod.node).unwrap_or(&now);
                still_missing.insert(pod.node.clone(), since);
                let quarantine = SignedDuration::try_from(QUARANTINE).unwrap_or_default();
                (now - since >= quarantine).then_some(Why::Orphaned)
            }
        };
        going.extend(why.map(|why| ((key.clone(), Arc::clone(pod)), why)));
    }
    missing.0 = still_missing;
    going
}

// Evicted ones first, then the oldest. A threshold of 0 keeps everything.
fn ended(pods: &[Known], threshold: usize) -> Vec<(Known, Why)> {
    let mut ended: Vec<&Known> = pods.iter().filter(|(_, pod)| pod.has_ended).collect();
    if threshold == 0 || ended.len() <= threshold {
        return Vec::new();
    }
    ended.sort_by_key(|(key, pod)| (!pod.was_evicted, pod.created, key.clone()));
    let surplus = ended.len() - threshold;
    let surplus = ended.into_iter().take(surplus);
    surplus.map(|known| (known.clone(), Why::Ended)).collect()
}

fn is_written_off(node: &NodeState) -> bool {
    !node.is_ready() && node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::state::Status;
    use k8s_openapi::api::core::v1::Taint;

    fn pod(name: &str, node: &str, change: impl FnOnce(&mut Resident)) -> Known {
        let mut pod = Resident {
            uid: name.into(),
            node: node.into(),
            ..Resident::default()
        };
        change(&mut pod);
        (ObjectKey::new("default", name), Arc::new(pod))
    }

    fn names(going: &[(Known, Why)]) -> Vec<(&str, Why)> {
        going
            .iter()
            .map(|((key, _), why)| (key.name.as_str(), *why))
            .collect()
    }

    #[test]
    fn ended_pods_beyond_the_threshold_go_evicted_and_oldest_first() {
        let at = |second| jiff::Timestamp::from_second(second).ok();
        let ended = |name: &str, created, evicted| {
            pod(name, "n", |pod| {
                pod.has_ended = true;
                pod.was_evicted = evicted;
                pod.created = at(created);
            })
        };
        let pods = [
            ended("new", 30, false),
            ended("old", 10, false),
            ended("evicted", 40, true),
            pod("running", "n", |_| {}),
        ];
        let node = |_: &str| Some(Arc::new(NodeState::default()));
        let go = |threshold| {
            collect(
                &pods,
                node,
                &mut Missing::default(),
                threshold,
                SignedDuration::ZERO,
            )
        };
        assert_eq!(
            names(&go(1)),
            [("evicted", Why::Ended), ("old", Why::Ended)]
        );
        assert!(go(3).is_empty() && go(0).is_empty());
    }

    #[test]
    fn pods_of_a_missing_node_wait_for_its_quarantine() {
        let pods = [pod("orphan", "gone", |_| {})];
        let mut missing = Missing::default();
        let mut at = |seconds, exists: bool| {
            let node = |_: &str| exists.then(|| Arc::new(NodeState::default()));
            let now = SignedDuration::from_secs(seconds);
            !collect(&pods, node, &mut missing, 0, now).is_empty()
        };
        assert!(!at(0, false) && !at(20, false) && at(40, false));
        assert!(
            !at(60, true) && !at(80, false) && !at(100, false),
            "it was back"
        );
        assert!(at(120, false));
    }

    #[test]
    fn a_node_that_is_written_off_gives_up_its_deleted_pods() {
        let deleted = |pod: &mut Resident| pod.deleting = true;
        let pods = [
            pod("deleted", "n", deleted),
            pod("alive", "n", |_| {}),
            pod("unbound", "", deleted),
            pod("waiting", "", |_| {}),
        ];
        let mut node = NodeState {
            taints: vec![Taint {
                key: OUT_OF_SERVICE.into(),
                effect: "NoExecute".into(),
                ..Taint::default()
            }],
            ..NodeState::default()
        };
        let go = |node: &NodeState| {
            let node = Arc::new(node.clone());
            collect(
                &pods,
                |_| Some(Arc::clone(&node)),
                &mut Missing::default(),
                0,
                SignedDuration::ZERO,
            )
        };
        assert_eq!(
            names(&go(&node)),
            [("deleted", Why::OutOfService), ("unbound", Why::NeverBound)]
        );
        node.set("Ready", Status::True);
        assert_eq!(names(&go(&node)), [("unbound", Why::NeverBound)]);
    }
}
