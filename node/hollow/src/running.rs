//! Pods of all nodes: one watch, one queue.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use client_runtime::{Actor, Answer, Cache, End, ObjectKey, Queue, Runtime, Synced, is_outdated};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch};
use serde_json::{Value, json};

use crate::Config;
use crate::addresses::Addresses;
use crate::node::{self, Known};
use crate::pods::{Place, Step, decide};
use crate::residents::Resident;

/// Pods that are written about at the same time.
const AT_ONCE: usize = 32;
/// Pods that nobody has bound are nobody's business here.
const BOUND: &str = "spec.nodeName!=";

#[derive(Clone)]
struct Shell {
    actor: Actor,
    nodes: Cache<Known>,
    pods: Cache<Option<Resident>>,
    addresses: Arc<Mutex<Addresses>>,
    has_pod_ranges: bool,
}

/// Starts to run pods.
pub(crate) fn start(runtime: &mut Runtime<Config>, nodes: &Cache<Known>) {
    let count = runtime.config.count;
    let pods = runtime.watch(Api::all(runtime.client()), BOUND, move |pod: Pod| {
        Resident::of(pod, |name| node::number(name, count))
    });
    let shell = Shell {
        actor: runtime.root.clone(),
        nodes: nodes.clone(),
        pods: pods.clone(),
        addresses: Arc::default(),
        has_pod_ranges: runtime.config.has_pod_ranges,
    };
    let queue = Arc::new(Queue::new());
    notice(&shell, &queue);
    let complete = [nodes.completion(), pods.completion()];
    runtime.start_work("hollow", queue, AT_ONCE, complete, move |key| {
        sync(shell.clone(), key)
    });
}

fn notice(shell: &Shell, queue: &Arc<Queue<ObjectKey>>) {
    let (noticed, known) = (Arc::clone(queue), shell.clone());
    shell.pods.on_change(move |change| match change.after {
        Some(Some(pod)) => {
            if !pod.is_on_host_network {
                known.addresses().note(change.key, &pod.addresses);
            }
            noticed.add(change.key.clone());
        }
        Some(None) => {}
        None => known.addresses().take_back(change.key),
    });
    // Its pods go on when a node speaks again, and start when it has addresses.
    let (noticed, pods) = (Arc::clone(queue), shell.pods.clone());
    shell.nodes.on_change(move |change| {
        let relevant = |node: Option<&Known>| node.map(|n| (n.is_silent, n.ranges.clone()));
        if relevant(change.before) == relevant(change.after) {
            return;
        }
        let is_there = |pod: &Option<Resident>| {
            let pod = pod.as_ref();
            pod.is_some_and(|pod| node::name(pod.node) == change.key.name)
        };
        let there = pods.all().into_iter().filter(|(_, pod)| is_there(pod));
        noticed.add_all(there.map(|(key, _)| key));
    });
}

impl Shell {
    fn addresses(&self) -> MutexGuard<'_, Addresses> {
        self.addresses
            .lock()
            .expect("nothing panics while it holds the addresses")
    }

    fn place(&self, key: &ObjectKey, pod: &Resident, known: &Known) -> Option<Place> {
        let host = IpAddr::V4(node::address(pod.node));
        let addresses = match pod.is_on_host_network || !self.has_pod_ranges {
            true => Vec::new(),
            false => Some(self.addresses().give(key, &known.ranges)).filter(|a| !a.is_empty())?,
        };
        Some(Place { host, addresses })
    }
}

async fn sync(shell: Shell, key: ObjectKey) -> Synced {
    let pod = shell.pods.get(&key);
    let Some(pod) = pod.as_deref().and_then(Option::as_ref) else {
        return Ok(End::Done);
    };
    let known = shell.nodes.get(&ObjectKey::new("", node::name(pod.node)));
    let Some(known) = known.filter(|known| !known.is_silent) else {
        return Ok(End::Done);
    };
    let place = || shell.place(&key, pod, &known);
    let outcome = match decide(pod, place, Timestamp::now()) {
        Step::Nothing => return Ok(End::Done),
        Step::Wait(wait) => return Ok(End::After(wait)),
        Step::Tell(status) => tell(&shell.actor, &key, pod, status).await,
        Step::Let { go } => let_go(&shell.actor, &key, pod, go).await,
    };
    match outcome {
        // Gone, or another one of the same name: the watch tells.
        Err(error) if is_outdated(&error) => Ok(End::Done),
        other => other.map(|()| End::Done),
    }
}

async fn tell(actor: &Actor, key: &ObjectKey, pod: &Resident, status: Value) -> Answer<()> {
    let patch = Patch::Strategic(json!({ "metadata": { "uid": pod.uid }, "status": status }));
    let place = (key.namespace.as_str(), key.name.as_str());
    let told = actor.patch::<Pod>(place, Some("status"), &patch);
    told.await.map(drop)
}

async fn let_go(actor: &Actor, key: &ObjectKey, pod: &Resident, last: Option<Value>) -> Answer<()> {
    if let Some(status) = last {
        tell(actor, key, pod, status).await?;
    }
    let at_once = DeleteParams::default().grace_period(0);
    let uid = Some(pod.uid.as_str());
    actor
        .delete_with::<Pod>(&key.namespace, &key.name, uid, at_once)
        .await
}
