//! Nodes register and then say that they live: a lease every ten seconds, a status every five minutes.
//!
//! One task does it for all of them. It goes round once per period in small steps, so that the writes are spread
//! evenly however many nodes there are.

use std::sync::Arc;
use std::time::Duration;

use client_runtime::{Actor, Answer, Cache, End, ObjectKey, Queue, Runtime, Synced, is_outdated};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::Patch;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::Config;
use crate::node::{self, Known};

/// The kubelet's: a quarter of the 40 s that a lease lasts.
const RENEWAL: Duration = Duration::from_secs(10);
/// Steps of one round.
const STEPS: usize = 40;
/// Rounds between two statuses, for the kubelet's five minutes.
const STATUS_ROUNDS: usize = 30;
/// Requests at the same time.
const AT_ONCE: usize = 16;
const LEASES: &str = "kube-node-lease";

/// Starts the nodes; gives what is known of each.
pub(crate) fn start(runtime: &mut Runtime<Config>) -> Cache<Known> {
    let nodes = runtime.watch(Api::all(runtime.client()), "", Known::of);
    let (actor, config) = (runtime.root.clone(), Arc::clone(&runtime.config));
    start_recovering(runtime, &nodes, config.count);
    let known = nodes.clone();
    runtime.spawn(async move {
        known.completion().reached().await;
        // Those that have registered must be heard of while others still do.
        tokio::join!(
            register(&actor, &config),
            beat(&actor, &known, config.count)
        );
    });
    nodes
}

async fn register(actor: &Actor, config: &Config) {
    let each = (0..config.count).map(|number| async move {
        let name = node::name(number);
        while let Err(error) = register_one(actor, config, number).await {
            tracing::warn!(node = name, %error, "a node could not register; tried again");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    stream::iter(each)
        .buffer_unordered(AT_ONCE)
        .for_each(async |()| {})
        .await;
    tracing::info!(count = config.count, "hollow nodes are registered");
}

// One that was here before keeps its ranges, taints and labels, and says that it is back.
async fn register_one(actor: &Actor, config: &Config, number: usize) -> Answer<()> {
    let object = node::object(number, config, Timestamp::now());
    let typed: Node = match serde_json::from_value(object) {
        Ok(typed) => typed,
        Err(error) => return Err(client_runtime::SyncError::Other(error.to_string())),
    };
    let node = match actor.create("", &typed).await {
        Err(error) if is_outdated(&error) => tell(actor, &node::name(number)).await?,
        other => other?,
    };
    let uid = node.metadata.uid.unwrap_or_default();
    renew(actor, number, None, &uid).await;
    Ok(())
}

/// Says that a node is well.
async fn tell(actor: &Actor, name: &str) -> Answer<Node> {
    let conditions = node::conditions(Timestamp::now());
    let patch = Patch::Strategic(json!({ "status": { "conditions": conditions } }));
    actor.patch(("", name), Some("status"), &patch).await
}

async fn beat(actor: &Actor, nodes: &Cache<Known>, count: usize) {
    let mut versions: Vec<Option<String>> = vec![None; count];
    let mut ticks = interval(RENEWAL / u32::try_from(STEPS).unwrap_or(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for step in 0_usize.. {
        ticks.tick().await;
        let (round, part) = (step / STEPS, step % STEPS);
        let turn = (part * count / STEPS)..((part + 1) * count / STEPS);
        let due = turn.filter_map(|number| {
            let known = nodes.get(&ObjectKey::new("", node::name(number)))?;
            (!known.is_silent).then(|| (number, versions[number].take(), known))
        });
        let due: Vec<_> = due.collect();
        let renewed: Vec<(usize, Option<String>)> = stream::iter(due)
            .map(|(number, version, known)| async move {
                if (round + number) % STATUS_ROUNDS == STATUS_ROUNDS - 1 {
                    still_well(actor, number).await;
                }
                (number, renew(actor, number, version, &known.uid).await)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        for (number, version) in renewed {
            versions[number] = version;
        }
    }
}

async fn still_well(actor: &Actor, number: usize) {
    let conditions = node::heartbeat(Timestamp::now());
    let patch = Patch::Strategic(json!({ "status": { "conditions": conditions } }));
    let name = node::name(number);
    let told = actor.patch::<Node>(("", &name), Some("status"), &patch);
    if let Err(error) = told.await {
        tracing::debug!(node = name, %error, "a status could not be written");
    }
}

// Gives the version of the lease; without one it is read or made at the next turn.
async fn renew(actor: &Actor, number: usize, version: Option<String>, uid: &str) -> Option<String> {
    let name = node::name(number);
    let mut lease = node::lease(&name, uid, Timestamp::now());
    let written = match version {
        Some(version) => {
            lease.metadata.resource_version = Some(version);
            actor.replace(&lease).await
        }
        None => first_lease(actor, &name, lease).await,
    };
    match written {
        Ok(lease) => lease.metadata.resource_version,
        Err(error) => {
            tracing::debug!(node = name, %error, "a lease could not be renewed; tried again");
            None
        }
    }
}

async fn first_lease(actor: &Actor, name: &str, mut lease: Lease) -> Answer<Lease> {
    match actor.get::<Lease>(LEASES, name).await? {
        None => actor.create(LEASES, &lease).await,
        Some(known) => {
            lease.metadata.resource_version = known.metadata.resource_version;
            actor.replace(&lease).await
        }
    }
}

// A node that is called lost while it lives says at once that it is not.
fn start_recovering(runtime: &mut Runtime<Config>, nodes: &Cache<Known>, count: usize) {
    let queue = Arc::new(Queue::new());
    let noticed = Arc::clone(&queue);
    nodes.on_change(move |change| {
        let is_ours = node::number(&change.key.name, count).is_some();
        if is_ours && change.after.is_some_and(is_misjudged) {
            noticed.add(change.key.clone());
        }
    });
    let (nodes, actor) = (nodes.clone(), runtime.root.clone());
    let complete = [nodes.completion()];
    runtime.start_work("hollow", queue, AT_ONCE, complete, move |key: ObjectKey| {
        let is_due = nodes.get(&key).is_some_and(|known| is_misjudged(&known));
        recover(actor.clone(), key, is_due)
    });
}

fn is_misjudged(known: &Known) -> bool {
    !known.is_silent && !known.is_ready
}

async fn recover(actor: Actor, key: ObjectKey, is_due: bool) -> Synced {
    if is_due {
        match tell(&actor, &key.name).await {
            Err(error) if !is_outdated(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(End::Done)
}
