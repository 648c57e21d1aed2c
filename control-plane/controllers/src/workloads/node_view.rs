//! What is kept of a node for those who place pods or tell where they are.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use kube::Api;
use kube_kit::quantity::Quantity;

use client_runtime::{Cache, Runtime, Watched};

/// The label with a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// What is kept of a node.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct NodeView {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) is_ready: bool,
    /// Thousandths of a processor that pods may have.
    pub(crate) millicpu: i64,
    pub(crate) has_ttl: Option<String>,
}

impl Watched for NodeView {
    fn watch<C>(runtime: &mut Runtime<C>) -> Cache<Self> {
        let all: Api<Node> = Api::all(runtime.client());
        runtime.watch(all, "", |node: Node| NodeView::of(&node))
    }
}

impl NodeView {
    pub(crate) fn of(node: &Node) -> NodeView {
        let (no_spec, no_status) = (NodeSpec::default(), NodeStatus::default());
        let spec = node.spec.as_ref().unwrap_or(&no_spec);
        let status = node.status.as_ref().unwrap_or(&no_status);
        let mut conditions = status.conditions.iter().flatten();
        let cpu = status.allocatable.as_ref().and_then(|all| all.get("cpu"));
        let cpu = cpu.and_then(|cpu| cpu.0.parse::<Quantity>().ok());
        let annotations = node.metadata.annotations.as_ref();
        NodeView {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: spec.taints.clone().unwrap_or_default(),
            is_ready: conditions.any(|c| c.type_ == "Ready" && c.status == "True"),
            millicpu: cpu.map_or(0, |cpu| cpu.milli_value()),
            has_ttl: annotations
                .and_then(|all| all.get("node.alpha.kubernetes.io/ttl"))
                .cloned(),
        }
    }

    /// The zone it says it is in.
    pub(crate) fn zone(&self) -> Option<&str> {
        self.labels.get(ZONE).map(String::as_str)
    }
}
