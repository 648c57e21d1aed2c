//! Follows nodes and pods, and deletes the pods whose time has come.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use client_runtime::{
    Actor, Cache, End, ObjectKey, Queue, Recorder, Severity, Synced, is_outdated,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Patch;
use serde_json::json;

use super::{Step, Timers};
use crate::Manager;
use crate::nodes::clock::Clock;
use crate::nodes::lifecycle::{ACCOUNT, about_pod};
use crate::nodes::residents::Residents;
use crate::nodes::state::{NodeState, Resident};
use crate::nodes::taints::NO_EXECUTE;

/// Upstream's `UpdateWorkerSize`.
const AT_ONCE: usize = 8;
const REASON: &str = "TaintManagerEviction";

/// Starts the controller. It acts as the node controller does, of which it was a part once.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let nodes = manager.shared::<NodeState>();
    let pods = manager.shared::<Resident>();
    let actor = manager.act_as(ACCOUNT);
    let shell = Shell {
        recorder: manager.recorder("taint-eviction-controller", actor.clone()),
        actor,
        nodes: nodes.clone(),
        pods: pods.clone(),
        timers: Arc::default(),
        clock: Clock::start(),
    };
    let queue = Arc::new(Queue::new());
    notice(&shell, &queue);
    let complete = [nodes.completion(), pods.completion()];
    manager.start_work(name, queue, AT_ONCE, complete, move |key| {
        sync(shell.clone(), key)
    });
}

#[derive(Clone)]
struct Shell {
    actor: Actor,
    recorder: Recorder,
    nodes: Cache<NodeState>,
    pods: Cache<Resident>,
    timers: Arc<Mutex<Timers>>,
    clock: Clock,
}

fn notice(shell: &Shell, queue: &Arc<Queue<ObjectKey>>) {
    let residents = Residents::of(&shell.pods);
    let noticed = Arc::clone(queue);
    shell.nodes.on_change(move |change| {
        let of = |node: Option<&NodeState>| node.map(no_execute).unwrap_or_default();
        if of(change.before) != of(change.after) {
            noticed.add_all(residents.on(&change.key.name));
        }
    });
    let (noticed, shell) = (Arc::clone(queue), shell.clone());
    shell.pods.clone().on_change(move |change| {
        let relevant =
            |pod: Option<&Resident>| pod.map(|p| (p.node.clone(), p.tolerations.clone()));
        let is_news = relevant(change.before) != relevant(change.after);
        let node = change.after.map(|pod| pod.node.as_str());
        if is_news && (shell.is_timed(change.key) || node.is_some_and(|n| shell.is_tainted(n))) {
            noticed.add(change.key.clone());
        }
    });
}

fn no_execute(node: &NodeState) -> Vec<Taint> {
    let taints = node.taints.iter();
    taints.filter(|t| t.effect == NO_EXECUTE).cloned().collect()
}

impl Shell {
    fn is_timed(&self, key: &ObjectKey) -> bool {
        self.timers().has(key)
    }

    fn is_tainted(&self, node: &str) -> bool {
        let node = self.nodes.get(&ObjectKey::new("", node));
        node.is_some_and(|node| node.taints.iter().any(|taint| taint.effect == NO_EXECUTE))
    }

    fn timers(&self) -> std::sync::MutexGuard<'_, Timers> {
        self.timers
            .lock()
            .expect("nothing panics while it holds the timers")
    }

    fn step(&self, key: &ObjectKey, pod: Option<&Resident>) -> Step {
        let taints = pod.and_then(|pod| self.nodes.get(&ObjectKey::new("", pod.node.clone())));
        let taints = taints.map(|node| no_execute(&node)).unwrap_or_default();
        let known = pod.map(|pod| (taints.as_slice(), pod.tolerations.as_slice()));
        self.timers().step(key, known, self.clock.now().at)
    }

    fn tell(&self, key: &ObjectKey, uid: &str, what: &str) {
        let message = format!("{what} Pod {}/{}", key.namespace, key.name);
        self.recorder
            .event(about_pod(key, uid), Severity::Normal, REASON, message);
    }
}

async fn sync(shell: Shell, key: ObjectKey) -> Synced {
    let pod = shell.pods.get(&key).filter(|pod| !pod.deleting);
    let step = shell.step(&key, pod.as_deref());
    let uid = pod.map(|pod| pod.uid.clone()).unwrap_or_default();
    match step {
        Step::Nothing => Ok(End::Done),
        Step::Cancelled => {
            shell.tell(&key, &uid, "Cancelling deletion of");
            Ok(End::Done)
        }
        Step::Wait(due) => {
            let wait = due - shell.clock.now().at;
            Ok(End::After(Duration::try_from(wait).unwrap_or_default()))
        }
        Step::Delete => {
            shell.tell(&key, &uid, "Marking for deletion");
            evict(&shell.actor, &key, &uid).await
        }
    }
}

async fn evict(actor: &Actor, key: &ObjectKey, uid: &str) -> Synced {
    let condition = json!({ "type": "DisruptionTarget", "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": Time(Timestamp::now()) });
    let patch = Patch::Strategic(
        json!({ "metadata": { "uid": uid }, "status": { "conditions": [condition] } }),
    );
    let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
    match actor
        .patch::<Pod>((namespace, name), Some("status"), &patch)
        .await
    {
        // Gone, or another one of the same name.
        Err(error) if is_outdated(&error) => return Ok(End::Done),
        other => other?,
    };
    actor.delete::<Pod>(namespace, name, Some(uid)).await?;
    tracing::info!(namespace, name, "evicted from a tainted node");
    Ok(End::Done)
}
