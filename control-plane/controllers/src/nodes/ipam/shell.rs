//! Follows nodes, and writes ranges to those that have none.

use std::sync::{Arc, Mutex, MutexGuard};

use client_runtime::{
    Actor, Cache, Change, End, ObjectKey, Queue, Recorder, Severity, SyncError, Synced, is_outdated,
};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use serde_json::json;

use super::{Allocator, Exhausted};
use crate::Manager;
use crate::nodes::lifecycle::{ACCOUNT, about_node};
use crate::nodes::state::NodeState;

/// Upstream's `cidrUpdateWorkers`.
const AT_ONCE: usize = 30;

/// Starts the controller, if nodes are to get ranges from us.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let Some(settings) = manager.config.node_ipam.clone() else {
        tracing::info!(controller = name, "off: nodes get their ranges elsewhere");
        return;
    };
    if let Err(cause) = settings.check() {
        tracing::error!(controller = name, %cause, "off: its ranges cannot be used");
        return;
    }
    let nodes = manager.shared::<NodeState>();
    let actor = manager.act_as(ACCOUNT);
    let shell = Shell {
        recorder: manager.recorder("cidrAllocator", actor.clone()),
        actor,
        nodes: nodes.clone(),
        allocator: Arc::new(Mutex::new(Allocator::new(&settings))),
        queue: Arc::new(Queue::new()),
    };
    let noticing = shell.clone();
    // What exists is noticed before the work begins, so that nobody is given what another has.
    nodes.on_change(move |change| noticing.notice(change));
    let queue = Arc::clone(&shell.queue);
    manager.start_work(name, queue, AT_ONCE, [nodes.completion()], move |node| {
        sync(shell.clone(), node)
    });
}

#[derive(Clone)]
struct Shell {
    actor: Actor,
    recorder: Recorder,
    nodes: Cache<NodeState>,
    allocator: Arc<Mutex<Allocator>>,
    queue: Arc<Queue<String>>,
}

impl Shell {
    fn notice(&self, change: &Change<'_, NodeState>) {
        let name = &change.key.name;
        match change.after {
            None => {
                if self.allocator().release(name) {
                    self.wake_waiting();
                }
            }
            Some(node) if node.pod_cidrs.is_empty() => self.queue.add(name.clone()),
            Some(node) => {
                let is_news = change.before.is_none_or(|b| b.pod_cidrs != node.pod_cidrs);
                if is_news {
                    self.occupy(name, &node.pod_cidrs);
                }
            }
        }
    }

    fn occupy(&self, node: &str, cidrs: &[String]) {
        for cidr in self.allocator().occupy(node, cidrs) {
            tracing::warn!(node, cidr, "a node's range is no part of the cluster's");
        }
    }

    // Somebody may have been waiting for what was given back.
    fn wake_waiting(&self) {
        let without = self.nodes.all().into_iter();
        let without = without.filter(|(_, node)| node.pod_cidrs.is_empty());
        self.queue.add_all(without.map(|(key, _)| key.name));
    }

    fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator
            .lock()
            .expect("nothing panics while it holds the ranges")
    }
}

async fn sync(shell: Shell, name: String) -> Synced {
    let node = shell.nodes.get(&ObjectKey::new("", name.clone()));
    let Some(node) = node.filter(|node| node.pod_cidrs.is_empty() && !node.deleting) else {
        return Ok(End::Done);
    };
    let allocated = shell.allocator().allocate(&name);
    let parts = match allocated {
        Ok(parts) => parts,
        Err(Exhausted) => {
            let message = format!("Node {name} status is now: CIDRNotAvailable");
            let about = about_node(&name, &node.uid);
            shell
                .recorder
                .event(about, Severity::Normal, "CIDRNotAvailable", message);
            return Err(SyncError::NotYet("no range is left".into()));
        }
    };
    match write(&shell.actor, &name, &node.uid, &parts).await {
        Err(error) if is_refused(&error) => look_again(&shell, &name).await,
        // What was set aside stays so: the write may have arrived.
        other => other.map(|()| End::Done),
    }
}

async fn write(actor: &Actor, name: &str, uid: &str, parts: &[IpNet]) -> Result<(), SyncError> {
    let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
    let patch = Patch::Strategic(json!({
        "metadata": { "uid": uid },
        "spec": { "podCIDR": parts.first(), "podCIDRs": parts },
    }));
    actor.patch::<Node>(("", name), None, &patch).await?;
    tracing::info!(node = name, ?parts, "a node got its ranges");
    Ok(())
}

// Gone, another node of the same name, or one that has ranges already, which cannot be changed.
fn is_refused(error: &SyncError) -> bool {
    let is_invalid = matches!(error, SyncError::Api(error)
        if client_runtime::is(error, http::StatusCode::UNPROCESSABLE_ENTITY));
    is_outdated(error) || is_invalid
}

async fn look_again(shell: &Shell, name: &str) -> Synced {
    let node = shell.actor.get::<Node>("", name).await?.map(NodeState::of);
    match node {
        None => {
            shell.allocator().release(name);
            Ok(End::Done)
        }
        Some(node) if node.pod_cidrs.is_empty() => {
            Err(SyncError::NotYet("the node is another one now".into()))
        }
        Some(node) => {
            shell.occupy(name, &node.pod_cidrs);
            Ok(End::Done)
        }
    }
}
