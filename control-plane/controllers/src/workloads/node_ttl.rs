//! Tells kubelets how long they may keep secrets and config maps before they ask again: the longer, the more nodes
//! there are.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use serde_json::json;

use client_runtime::{Actor, Cache, End, ObjectKey, Queue, Synced, enqueue_changes, is_outdated};

use super::node_view::NodeView;
use crate::Manager;

const ACCOUNT: &str = "ttl-controller";
const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";
/// From how many nodes on, and until how few, which number of seconds holds (upstream's `ttlBoundaries`).
const BOUNDARIES: [(usize, usize, u32); 5] = [
    (0, 100, 0),
    (90, 500, 15),
    (450, 1000, 30),
    (900, 2000, 60),
    (1800, usize::MAX, 300),
];

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let nodes = manager.shared::<NodeView>();
    let queue = Arc::new(Queue::new());
    enqueue_changes(&nodes, &queue);
    let actor = manager.act_as(ACCOUNT);
    manager.start_work(name, queue, 5, [nodes.completion()], move |key| {
        sync(nodes.clone(), actor.clone(), key)
    });
}

async fn sync(nodes: Cache<NodeView>, actor: Actor, key: ObjectKey) -> Synced {
    let Some(node) = nodes.get(&key) else {
        return Ok(End::Done);
    };
    let known = node.has_ttl.as_deref().and_then(|text| text.parse().ok());
    let wanted = ttl(nodes.all().len(), known);
    if known == Some(wanted) {
        return Ok(End::Done);
    }
    let patch = json!({ "metadata": { "annotations": { ANNOTATION: wanted.to_string() } } });
    match actor
        .patch::<Node>(("", &key.name), None, &Patch::Strategic(patch))
        .await
    {
        Err(error) if is_outdated(&error) => Ok(End::Done),
        other => other.map(|_| End::Done),
    }
}

// What a node has stays as long as its boundaries hold, so that a node more or less changes nothing.
fn ttl(nodes: usize, known: Option<u32>) -> u32 {
    let holds = |(least, most, _): &&(usize, usize, u32)| (*least..*most).contains(&nodes);
    let kept = BOUNDARIES
        .iter()
        .filter(holds)
        .find(|(_, _, ttl)| Some(*ttl) == known);
    let first = BOUNDARIES.iter().find(holds);
    kept.or(first).map_or(0, |(_, _, ttl)| *ttl)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_nodes_ask_less_often_and_a_few_more_or_less_change_nothing() {
        for (nodes, known, expected) in [
            (1, None, 0),
            (99, None, 0),
            (100, Some(0), 15),
            (95, Some(15), 15),
            (89, Some(15), 0),
            (700, None, 30),
            (5000, None, 300),
        ] {
            assert_eq!(ttl(nodes, known), expected, "{nodes} {known:?}");
        }
    }
}
