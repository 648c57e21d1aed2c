//! Looks at all pods now and then, and removes those that are to go.

use std::time::Duration;

use client_runtime::{Actor, Answer, Cache, ObjectKey, is_outdated};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch};
use serde_json::json;

use super::{Known, Missing, Why, collect};
use crate::Manager;
use crate::nodes::clock::Clock;
use crate::nodes::state::{NodeState, Resident};

const ACCOUNT: &str = "pod-garbage-collector";
/// Upstream's `gcCheckPeriod`.
const PERIOD: Duration = Duration::from_secs(20);
const AT_ONCE: usize = 8;

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, _name: &'static str) {
    let nodes = manager.shared::<NodeState>();
    let pods = manager.shared::<Resident>();
    let actor = manager.act_as(ACCOUNT);
    let threshold = manager.config.terminated_pod_gc_threshold;
    manager.spawn(async move {
        nodes.completion().reached().await;
        pods.completion().reached().await;
        look(actor, nodes, pods, threshold).await;
    });
}

async fn look(actor: Actor, nodes: Cache<NodeState>, pods: Cache<Resident>, threshold: usize) {
    let (clock, mut missing) = (Clock::start(), Missing::default());
    loop {
        let node = |name: &str| nodes.get(&ObjectKey::new("", name));
        let going = collect(&pods.all(), node, &mut missing, threshold, clock.now().at);
        let each = going.into_iter().map(|(known, why)| {
            let actor = actor.clone();
            async move {
                let key = known.0.clone();
                if let Err(error) = remove(&actor, known, why).await {
                    let ObjectKey { namespace, name } = key;
                    tracing::warn!(namespace, name, %error, "a pod could not be removed; it is tried again");
                }
            }
        });
        stream::iter(each)
            .buffer_unordered(AT_ONCE)
            .for_each(async |()| {})
            .await;
        tokio::time::sleep(PERIOD).await;
    }
}

async fn remove(actor: &Actor, (key, pod): Known, why: Why) -> Answer<()> {
    if why == Why::Orphaned && actor.get::<Node>("", &pod.node).await?.is_some() {
        return Ok(());
    }
    let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
    if !pod.has_ended {
        let mut status = json!({ "phase": "Failed" });
        if why == Why::Orphaned {
            status["conditions"] = json!([{ "type": "DisruptionTarget", "status": "True",
                "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists",
                "lastTransitionTime": Time(Timestamp::now()) }]);
        }
        let patch = Patch::Strategic(json!({ "metadata": { "uid": pod.uid }, "status": status }));
        match actor
            .patch::<Pod>((namespace, name), Some("status"), &patch)
            .await
        {
            Err(error) if is_outdated(&error) => return Ok(()),
            other => other?,
        };
    }
    let at_once = DeleteParams::default().grace_period(0);
    actor
        .delete_with::<Pod>(namespace, name, Some(&pod.uid), at_once)
        .await?;
    tracing::info!(namespace, name, ?why, "removed: its time is over");
    Ok(())
}
