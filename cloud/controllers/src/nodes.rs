//! Nodes and their machines: what is kept of a node, and how one is changed.

pub(crate) mod initialise;
pub(crate) mod instances;
pub(crate) mod lifecycle;
pub(crate) mod machine;
pub(crate) mod manager;
pub(crate) mod routes;

use std::collections::BTreeMap;

use client_runtime::{Actor, Answer, Cache, Runtime, SyncError, Watched, is_outdated};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Taint};
use kube::Api;
use kube::api::Patch;
use serde_json::{Value, json};

/// Azure does not know this node.
const MANAGED: &str = "kubernetes.azure.com/managed";
/// The node's machine is in another group of resources.
const GROUP: &str = "kubernetes.azure.com/resource-group";
/// The addresses that the kubelet was told to use.
const PROVIDED: &str = "alpha.kubernetes.io/provided-node-ip";
/// How often a write is tried that others get in the way of.
const TRIES: usize = 20;

/// What is kept of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct NodeView {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) created: Option<Timestamp>,
    pub(crate) deleting: bool,
    pub(crate) provider_id: String,
    pub(crate) pod_cidrs: Vec<String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) labels: BTreeMap<String, String>,
    /// Types and addresses.
    pub(crate) addresses: Vec<(String, String)>,
    /// What the kubelet was told to use.
    pub(crate) provided: Vec<String>,
    pub(crate) ready: bool,
    /// Status and reason of `NetworkUnavailable`.
    pub(crate) network_unavailable: Option<(String, String)>,
}

impl Watched for NodeView {
    fn watch<C>(runtime: &mut Runtime<C>) -> Cache<Self> {
        runtime.watch(Api::all(runtime.client()), "", NodeView::of)
    }
}

impl NodeView {
    pub(crate) fn of(node: Node) -> NodeView {
        let (meta, spec, status) = (
            node.metadata,
            node.spec.unwrap_or_default(),
            node.status.unwrap_or_default(),
        );
        let conditions = status.conditions.unwrap_or_default();
        let condition = |kind: &str| conditions.iter().find(|c| c.type_ == kind);
        let annotations = meta.annotations.unwrap_or_default();
        let provided = annotations.get(PROVIDED).map_or("", String::as_str);
        let mut pod_cidrs = spec.pod_cidrs.unwrap_or_default();
        if pod_cidrs.is_empty() {
            pod_cidrs.extend(spec.pod_cidr.filter(|cidr| !cidr.is_empty()));
        }
        NodeView {
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            version: meta.resource_version.unwrap_or_default(),
            created: meta.creation_timestamp.map(|time| time.0),
            deleting: meta.deletion_timestamp.is_some(),
            provider_id: spec.provider_id.unwrap_or_default(),
            pod_cidrs,
            taints: spec.taints.unwrap_or_default(),
            labels: meta.labels.unwrap_or_default(),
            addresses: status
                .addresses
                .unwrap_or_default()
                .into_iter()
                .map(|address| (address.type_, address.address))
                .collect(),
            provided: provided
                .split(',')
                .map(str::trim)
                .filter(|ip| !ip.is_empty())
                .map(str::to_owned)
                .collect(),
            ready: condition("Ready").is_some_and(|c| c.status == "True"),
            network_unavailable: condition("NetworkUnavailable")
                .map(|c| (c.status.clone(), c.reason.clone().unwrap_or_default())),
        }
    }

    /// Whether Azure knows its machine.
    pub(crate) fn is_managed(&self) -> bool {
        let label = self.labels.get(MANAGED);
        !label.is_some_and(|value| value.eq_ignore_ascii_case("false"))
    }

    /// Whether it never said that it is of a cloud: no provider id, and nobody was asked to give it one.
    pub(crate) fn is_stranger(&self) -> bool {
        self.provider_id.is_empty() && !self.has_taint(initialise::UNINITIALIZED)
    }

    /// The group of its machine, where that is another one than the cluster's.
    pub(crate) fn group(&self) -> Option<&str> {
        let group = self.labels.get(GROUP).map(String::as_str);
        group.filter(|group| !group.is_empty())
    }

    pub(crate) fn has_taint(&self, key: &str) -> bool {
        self.taints.iter().any(|taint| taint.key == key)
    }

    /// Addresses of the cluster's network, in their order.
    pub(crate) fn internal_ips(&self) -> impl Iterator<Item = std::net::IpAddr> {
        let internal = self
            .addresses
            .iter()
            .filter(|(kind, _)| kind == "InternalIP");
        internal.filter_map(|(_, address)| address.parse().ok())
    }

    pub(crate) fn reference(&self) -> ObjectReference {
        ObjectReference {
            kind: Some("Node".into()),
            api_version: Some("v1".into()),
            name: Some(self.name.clone()),
            // Upstream's events about nodes carry the name here, and `kubectl describe node` looks for that.
            uid: Some(self.name.clone()),
            ..ObjectReference::default()
        }
    }
}

/// Changes a node by what `change` says of it as it is; nothing where there is nothing to change. Others write nodes all
/// the time, so it is tried several times.
pub(crate) async fn change(
    actor: &Actor,
    node: &NodeView,
    change: impl Fn(&NodeView) -> Option<Value>,
) -> Answer<()> {
    let mut current = node.clone();
    for _ in 0..TRIES {
        let Some(mut patch) = change(&current) else {
            return Ok(());
        };
        patch["metadata"]["resourceVersion"] = json!(current.version);
        let place = ("", node.name.as_str());
        let patched = actor
            .patch::<Node>(place, None, &Patch::Strategic(patch))
            .await;
        match patched {
            Err(error) if is_outdated(&error) => {}
            other => return other.map(drop),
        }
        match actor.get::<Node>("", &node.name).await?.map(NodeView::of) {
            Some(now) if now.uid == node.uid => current = now,
            _ => return Ok(()),
        }
    }
    let cause = format!("node {} could not be written: others write it", node.name);
    Err(SyncError::NotYet(cause))
}

/// Sets a condition of a node's status.
pub(crate) async fn set_condition(
    actor: &Actor,
    node: &str,
    status: &str,
    reason: &str,
    message: &str,
) -> Answer<()> {
    let now = Timestamp::now();
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let patch = json!({"status": {"conditions": [{"type": "NetworkUnavailable", "status": status, "reason": reason,
        "message": message, "lastTransitionTime": now, "lastHeartbeatTime": now}]}});
    let patch = Patch::Strategic(patch);
    match actor
        .patch::<Node>(("", node), Some("status"), &patch)
        .await
    {
        // It has gone.
        Err(error) if is_outdated(&error) => Ok(()),
        other => other.map(drop),
    }
}
