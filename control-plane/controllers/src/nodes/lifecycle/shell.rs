//! Shows the nodes to the monitor and writes what it asks for.

use std::collections::BTreeMap;
use std::sync::Arc;

use client_runtime::{
    Actor, Answer, Cache, End, ObjectKey, Queue, Recorder, Severity, SyncError, Synced, is_outdated,
};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::Patch;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{Action, Deed, Monitor, Unknown};
use crate::Manager;
use crate::nodes::clock::Clock;
use crate::nodes::residents::Residents;
use crate::nodes::state::{NodeState, Resident, Status};
use crate::nodes::taints::{self, Swap};

/// Whose account it has, and the source of its events.
pub(crate) const ACCOUNT: &str = "node-controller";
/// Writes at the same time, as upstream's `UpdateWorkerSize`.
const AT_ONCE: usize = 8;
/// How often a write is tried when others write to the node, too.
const TRIES: usize = 5;

/// When a node's lease was last renewed.
struct Renewed(Option<Timestamp>);

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let nodes = manager.shared::<NodeState>();
    let pods = manager.shared::<Resident>();
    let leases = Api::namespaced(manager.client(), "kube-node-lease");
    let leases = manager.watch(leases, "", |lease: Lease| {
        Renewed(lease.spec.and_then(|spec| spec.renew_time).map(|at| at.0))
    });
    let actor = manager.act_as(ACCOUNT);
    let recorder = manager.recorder(ACCOUNT, actor.clone());
    start_unreadying(manager, name, (&nodes, &pods), (&actor, &recorder));
    start_keeping_away(manager, name, &nodes, &actor);
    let hand = Hand {
        nodes: nodes.clone(),
        actor,
        recorder,
    };
    let monitor = Monitor::new(manager.config.node_lifecycle.clone());
    let complete = [nodes.completion(), leases.completion(), pods.completion()];
    let period = manager.config.node_lifecycle.monitor_period;
    manager.spawn(async move {
        for completion in complete {
            completion.reached().await;
        }
        watch_over(monitor, hand, leases, period).await;
    });
}

async fn watch_over(
    mut monitor: Monitor,
    hand: Hand,
    leases: Cache<Renewed>,
    period: std::time::Duration,
) {
    let clock = Clock::start();
    let mut next = Instant::now();
    loop {
        let turn = monitor.due().map(|due| clock.instant(due));
        let deeds = tokio::select! {
            () = sleep_until(next) => {
                let nodes = hand.nodes.all().into_iter().map(|(key, node)| (key.name, node));
                let nodes: BTreeMap<String, Arc<NodeState>> = nodes.collect();
                let renewed = |name: &str| leases.get(&lease(name)).and_then(|lease| lease.0);
                let deeds = monitor.look(&nodes, renewed, clock.now());
                next = Instant::now() + period;
                deeds
            }
            () = sleep_until(turn.unwrap_or(next)), if turn.is_some() => {
                monitor.evict(|name| hand.nodes.get(&node_key(name)), clock.now())
            }
        };
        hand.act_on(deeds).await;
    }
}

fn lease(node: &str) -> ObjectKey {
    ObjectKey::new("kube-node-lease", node)
}

fn node_key(name: &str) -> ObjectKey {
    ObjectKey::new("", name)
}

/// What writes.
struct Hand {
    nodes: Cache<NodeState>,
    actor: Actor,
    recorder: Recorder,
}

impl Hand {
    // What fails is decided again at the next look.
    async fn act_on(&self, deeds: Vec<Deed>) {
        let each = deeds.into_iter().map(|deed| async move {
            if let Err(error) = self.act(&deed).await
                && !is_outdated(&error)
            {
                tracing::warn!(node = deed.node, %error, "a node could not be dealt with; it is looked at again");
            }
        });
        stream::iter(each)
            .buffer_unordered(AT_ONCE)
            .for_each(async |()| {})
            .await;
    }

    async fn act(&self, deed: &Deed) -> Answer<()> {
        match &deed.action {
            Action::Tell {
                uid,
                reason,
                message,
            } => {
                let about = about_node(&deed.node, uid);
                self.recorder
                    .event(about, Severity::Normal, reason, message.clone());
                Ok(())
            }
            Action::Forget(unknown) => self.forget(&deed.node, unknown).await,
            Action::Taint(swap) => {
                let known = self.nodes.get(&node_key(&deed.node));
                taint(&self.actor, &deed.node, known.as_deref(), swap).await
            }
        }
    }

    async fn forget(&self, name: &str, unknown: &[Unknown]) -> Answer<()> {
        let Some(node) = self.nodes.get(&node_key(name)) else {
            return Ok(());
        };
        let patch = json!({
            "metadata": { "resourceVersion": node.version },
            "status": { "conditions": conditions(&node, unknown, Timestamp::now()) },
        });
        let patch = Patch::Strategic(patch);
        let written = self.actor.patch::<Node>(("", name), Some("status"), &patch);
        written.await.map(drop)
    }
}

fn conditions(node: &NodeState, unknown: &[Unknown], now: Timestamp) -> Vec<Value> {
    let one = |unknown: &Unknown| {
        let (reason, message) = match unknown.was_there {
            true => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            false => (
                "NodeStatusNeverUpdated",
                "Kubelet never posted node status.",
            ),
        };
        let mut condition = json!({ "type": unknown.kind, "status": "Unknown", "reason": reason,
            "message": message, "lastTransitionTime": Time(now) });
        if !unknown.was_there {
            condition["lastHeartbeatTime"] = json!(node.created.map(Time));
        }
        condition
    };
    unknown.iter().map(one).collect()
}

/// How events name a node.
pub(crate) fn about_node(name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Node".into()),
        api_version: Some("v1".into()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// Swaps taints in one write, on condition that nobody else has written in between.
async fn taint(actor: &Actor, name: &str, known: Option<&NodeState>, swap: &Swap) -> Answer<()> {
    let mut read;
    let mut known = known;
    for _ in 0..TRIES {
        let Some(node) = known else {
            return Ok(());
        };
        let Some(after) = swap.applied(&node.taints, Timestamp::now()) else {
            return Ok(());
        };
        let patch = Patch::Strategic(json!({
            "metadata": { "resourceVersion": node.version },
            "spec": { "taints": after },
        }));
        match actor.patch::<Node>(("", name), None, &patch).await {
            Err(error) if is_outdated(&error) => {
                read = actor.get::<Node>("", name).await?.map(NodeState::of);
                known = read.as_ref();
            }
            other => return other.map(drop),
        }
    }
    let cause =
        format!("the taints of node {name} could not be written: others write all the time");
    Err(SyncError::NotYet(cause))
}

// New pods are kept away by what the conditions say, at once; and older labels say what the newer ones say.
fn start_keeping_away(
    manager: &mut Manager,
    name: &'static str,
    nodes: &Cache<NodeState>,
    actor: &Actor,
) {
    let queue = Arc::new(Queue::new());
    let noticed = Arc::clone(&queue);
    nodes.on_change(move |change| {
        if change.after.is_some_and(|node| {
            !node.labels_to_set.is_empty() || taints::by_condition(node).is_some()
        }) {
            noticed.add(change.key.name.clone());
        }
    });
    let (nodes, actor) = (nodes.clone(), actor.clone());
    manager.start_work(name, queue, AT_ONCE, [nodes.completion()], move |node| {
        keep_away(nodes.clone(), actor.clone(), node)
    });
}

async fn keep_away(nodes: Cache<NodeState>, actor: Actor, name: String) -> Synced {
    let Some(node) = nodes.get(&node_key(&name)) else {
        return Ok(End::Done);
    };
    if let Some(swap) = taints::by_condition(&node) {
        taint(&actor, &name, Some(&node), &swap).await?;
    }
    if !node.labels_to_set.is_empty() {
        let labels: BTreeMap<_, _> = node.labels_to_set.iter().cloned().collect();
        let patch = Patch::Strategic(json!({ "metadata": { "labels": labels } }));
        match actor.patch::<Node>(("", &name), None, &patch).await {
            Err(error) if !is_outdated(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(End::Done)
}

// Pods of a node that is not ready are not ready either, those that land there later included.
fn start_unreadying(
    manager: &mut Manager,
    name: &'static str,
    (nodes, pods): (&Cache<NodeState>, &Cache<Resident>),
    (actor, recorder): (&Actor, &Recorder),
) {
    let queue = Arc::new(Queue::new());
    let (noticed, residents) = (Arc::clone(&queue), Residents::of(pods));
    nodes.on_change(move |change| {
        let is_lost = |node: &NodeState| node.status_of("Ready") == Some(Status::Unknown);
        if change.after.is_some_and(is_lost) && !change.before.is_some_and(is_lost) {
            noticed.add_all(residents.on(&change.key.name));
        }
    });
    let (noticed, known) = (Arc::clone(&queue), nodes.clone());
    pods.on_change(move |change| {
        let moved = change.after.filter(|pod| {
            pod.is_ready && change.before.is_none_or(|before| before.node != pod.node)
        });
        if moved.is_some_and(|pod| is_lost(&known, &pod.node)) {
            noticed.add(change.key.clone());
        }
    });
    let (nodes, pods) = (nodes.clone(), pods.clone());
    let (actor, recorder) = (actor.clone(), recorder.clone());
    let complete = [nodes.completion(), pods.completion()];
    manager.start_work(name, queue, AT_ONCE, complete, move |key: ObjectKey| {
        let pod = pods
            .get(&key)
            .filter(|pod| pod.is_ready && is_lost(&nodes, &pod.node));
        unready(actor.clone(), recorder.clone(), key, pod)
    });
}

fn is_lost(nodes: &Cache<NodeState>, name: &str) -> bool {
    let node = nodes.get(&node_key(name));
    node.is_some_and(|node| node.condition("Ready").is_some() && !node.is_ready())
}

async fn unready(
    actor: Actor,
    recorder: Recorder,
    key: ObjectKey,
    pod: Option<Arc<Resident>>,
) -> Synced {
    let Some(pod) = pod else {
        return Ok(End::Done);
    };
    recorder.event(
        about_pod(&key, &pod.uid),
        Severity::Warning,
        "NodeNotReady",
        "Node is not ready",
    );
    let condition =
        json!({ "type": "Ready", "status": "False", "lastTransitionTime": Time(Timestamp::now()) });
    let patch = Patch::Strategic(
        json!({ "metadata": { "uid": pod.uid }, "status": { "conditions": [condition] } }),
    );
    let place = (key.namespace.as_str(), key.name.as_str());
    match actor.patch::<Pod>(place, Some("status"), &patch).await {
        Err(error) if !is_outdated(&error) => Err(error),
        _ => Ok(End::Done),
    }
}

/// How events name a pod.
pub(crate) fn about_pod(key: &ObjectKey, uid: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".into()),
        api_version: Some("v1".into()),
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}
