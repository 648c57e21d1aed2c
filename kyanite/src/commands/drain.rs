//! Takes pods from nodes as people do before they take the node: nothing new comes to it, and what is there is asked to
//! leave, as far as disruption budgets allow.

use std::time::Duration;

use kube_kit::selector::LabelSelector;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::Client;
use crate::exit::{Code, Result};

/// How often pods that may not leave yet are asked again.
const AGAIN: Duration = Duration::from_millis(500);
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A pod, by its namespace and name.
type Pod = (String, String);

/// What a drain sees and does.
pub(super) trait Ground {
    /// The pods on a node.
    async fn pods(&self, node: &str) -> Result<Vec<Value>>;
    /// Asks a pod to leave; what keeps it, if something does.
    async fn evict(&self, pod: &Pod) -> Result<Option<String>>;
}

/// Why a node could not be drained.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) pod: Pod,
    /// What was said when it was last asked; nothing where it was asked and stays.
    pub(super) said: Option<String>,
}

/// Drains a node within some time.
pub(super) async fn drain(
    ground: &impl Ground,
    node: &str,
    patience: Duration,
) -> Result<std::result::Result<(), Blocked>> {
    let deadline = Instant::now() + patience;
    loop {
        let pods = ground.pods(node).await?;
        let leaving = leaving(&pods);
        let Some(first) = leaving.first() else {
            return Ok(Ok(()));
        };
        let mut blocked = None;
        for pod in leaving.iter().filter(|pod| !is_going(pod)) {
            if let Some(said) = ground.evict(&name(pod)).await? {
                blocked.get_or_insert((name(pod), said));
            }
        }
        if Instant::now() >= deadline {
            return Ok(Err(match blocked {
                Some((pod, said)) => Blocked {
                    pod,
                    said: Some(said),
                },
                None => Blocked {
                    pod: name(first),
                    said: None,
                },
            }));
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn name(pod: &Value) -> Pod {
    let text = |field: &str| {
        pod["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    (text("namespace"), text("name"))
}

fn is_going(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

/// The pods that a drain waits for: not those that come with every node, nor those that have ended.
pub(super) fn leaving(pods: &[Value]) -> Vec<&Value> {
    let stays = |pod: &Value| {
        let mut owners = pod["metadata"]["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten();
        let is_everywhere = owners.any(|o| o["kind"] == "DaemonSet" && o["controller"] == true);
        let is_mirror = !pod["metadata"]["annotations"][MIRROR].is_null();
        let phase = &pod["status"]["phase"];
        is_everywhere || is_mirror || *phase == "Succeeded" || *phase == "Failed"
    };
    pods.iter().filter(|pod| !stays(pod)).collect()
}

impl Ground for Client {
    async fn pods(&self, node: &str) -> Result<Vec<Value>> {
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
        let mut list = self.get(&path).await?;
        match list["items"].take() {
            Value::Array(pods) => Ok(pods),
            _ => Ok(Vec::new()),
        }
    }

    async fn evict(&self, (namespace, pod): &Pod) -> Result<Option<String>> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/eviction");
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": pod}});
        match self.create(&path, &eviction).await {
            Ok(_) => Ok(None),
            Err(failure) if failure.code == Code::NotFound => Ok(None),
            Err(failure) if failure.code == Code::Unavailable => Err(failure),
            Err(failure) => Ok(Some(failure.message)),
        }
    }
}

/// Keeps new pods from a node, or lets them come again.
pub(super) async fn cordon(client: &Client, node: &str, closed: bool) -> Result<()> {
    let why = closed.then_some("upgrade");
    let annotations = json!({
        "cluster-autoscaler.kubernetes.io/scale-down-disabled": closed.then_some("true"),
        "kubernetes.azure.com/azure-cluster-autoscaler-scale-down-disabled-reason": why,
    });
    let patch = json!({"metadata": {"annotations": annotations},
        "spec": {"unschedulable": closed.then_some(true)}});
    match client.merge(&format!("/api/v1/nodes/{node}"), &patch).await {
        Err(failure) if failure.code != Code::NotFound => Err(failure),
        _ => Ok(()),
    }
}

/// Whether a node answers at all: nobody on one that does not can be asked to leave.
pub(super) async fn is_ready(client: &Client, node: &str) -> bool {
    let found = client.get(&format!("/api/v1/nodes/{node}")).await;
    let found = found.unwrap_or_default();
    let conditions = found["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// The budgets that a pod counts for.
pub(super) fn budgets_of<'b>(budgets: &'b [Value], pod: &Value) -> Vec<&'b Value> {
    let its = |budget: &&Value| {
        let selector = LabelSelector::from_object(&budget["spec"]["selector"]);
        budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
            && selector.is_ok_and(|own| own.matches_labels(&pod["metadata"]["labels"]))
    };
    budgets.iter().filter(its).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Mutex;

    use super::*;

    /// Pods that leave so many asks after the first, or never.
    struct Paper(Mutex<Vec<(&'static str, Option<u32>)>>);

    impl Ground for Paper {
        async fn pods(&self, _: &str) -> Result<Vec<Value>> {
            let pods = self.0.lock().unwrap();
            let pod = |(name, _): &(&str, _)| json!({"metadata": {"namespace": "n", "name": name}});
            Ok(pods.iter().map(pod).collect())
        }

        async fn evict(&self, (_, name): &Pod) -> Result<Option<String>> {
            let mut pods = self.0.lock().unwrap();
            let at = pods.iter().position(|(own, _)| own == name).unwrap();
            match &mut pods[at].1 {
                Some(0) => {
                    pods.remove(at);
                    Ok(None)
                }
                Some(left) => {
                    *left -= 1;
                    Ok(Some("not yet".into()))
                }
                None => Ok(Some("never".into())),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_budgets_and_no_longer_than_it_may() {
        let (seconds, blocked) = (Duration::from_secs, |said: &str| {
            Err(Blocked {
                pod: ("n".into(), "b".into()),
                said: Some(said.into()),
            })
        });
        for (pods, patience, expected, took) in [
            (vec![], seconds(60), Ok(()), 0),
            (
                vec![("a", Some(0)), ("b", Some(0))],
                seconds(60),
                Ok(()),
                500,
            ),
            (
                vec![("a", Some(0)), ("b", Some(20))],
                seconds(60),
                Ok(()),
                10_500,
            ),
            (
                vec![("a", Some(0)), ("b", Some(20))],
                seconds(5),
                blocked("not yet"),
                5_000,
            ),
            (
                vec![("a", Some(0)), ("b", None)],
                seconds(1800),
                blocked("never"),
                1_800_000,
            ),
        ] {
            let (paper, begun) = (Paper(Mutex::new(pods.clone())), Instant::now());
            let outcome = drain(&paper, "node", patience).await.unwrap();
            assert_eq!(outcome, expected, "{pods:?}");
            assert_eq!(begun.elapsed().as_millis(), took, "{pods:?}");
        }
    }

    #[test]
    fn what_a_drain_has_to_wait_for() {
        let pods = [
            json!({"metadata": {"name": "plain"}}),
            json!({"metadata": {"name": "going", "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            json!({"metadata": {"name": "set", "ownerReferences": [{"kind": "ReplicaSet", "controller": true}]}}),
            json!({"metadata": {"name": "daemon", "ownerReferences": [{"kind": "DaemonSet", "controller": true}]}}),
            json!({"metadata": {"name": "mirror", "annotations": {(MIRROR): "x"}}}),
            json!({"metadata": {"name": "done"}, "status": {"phase": "Succeeded"}}),
            json!({"metadata": {"name": "failed"}, "status": {"phase": "Failed"}}),
        ];
        let names: Vec<String> = leaving(&pods).into_iter().map(|pod| name(pod).1).collect();
        assert_eq!(names, ["plain", "going", "set"]);
    }
}
