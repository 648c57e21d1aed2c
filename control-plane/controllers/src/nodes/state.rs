//! What is kept of nodes and of the pods on them.

use client_runtime::{Cache, Runtime, Watched};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;

impl Watched for NodeState {
    fn watch<C>(runtime: &mut Runtime<C>) -> Cache<Self> {
        runtime.watch(Api::all(runtime.client()), "", NodeState::of)
    }
}

impl Watched for Resident {
    fn watch<C>(runtime: &mut Runtime<C>) -> Cache<Self> {
        runtime.watch(Api::all(runtime.client()), "", Resident::of)
    }
}

/// The state of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// It is so.
    True,
    /// It is not so.
    False,
    /// Nobody can tell.
    Unknown,
}

impl Status {
    fn of(text: &str) -> Status {
        match text {
            "True" => Status::True,
            "False" => Status::False,
            _ => Status::Unknown,
        }
    }
}

/// What is kept of a condition of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) kind: String,
    pub(crate) status: Status,
    pub(crate) heartbeat: Option<Timestamp>,
    pub(crate) transition: Option<Timestamp>,
}

/// What is kept of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct NodeState {
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) created: Option<Timestamp>,
    pub(crate) deleting: bool,
    /// Region and zone in one, empty where it has neither.
    pub(crate) zone: String,
    /// Whether it counts for the state of its zone.
    pub(crate) is_exempt: bool,
    pub(crate) unschedulable: bool,
    pub(crate) taints: Vec<Taint>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) pod_cidrs: Vec<String>,
    /// Older labels that are to say what the newer ones say.
    pub(crate) labels_to_set: Vec<(&'static str, String)>,
}

impl NodeState {
    pub(crate) fn of(node: Node) -> NodeState {
        let (meta, spec) = (node.metadata, node.spec.unwrap_or_default());
        let label = |name: &str| meta.labels.as_ref().and_then(|labels| labels.get(name));
        let conditions = node.status.and_then(|status| status.conditions);
        NodeState {
            zone: zone(&label),
            is_exempt: label("node.kubernetes.io/exclude-disruption").is_some(),
            labels_to_set: labels_to_set(&label),
            deleting: meta.deletion_timestamp.is_some(),
            created: meta.creation_timestamp.map(|at| at.0),
            uid: meta.uid.unwrap_or_default(),
            version: meta.resource_version.unwrap_or_default(),
            unschedulable: spec.unschedulable == Some(true),
            taints: spec.taints.unwrap_or_default(),
            conditions: conditions
                .into_iter()
                .flatten()
                .map(Condition::of)
                .collect(),
            pod_cidrs: match spec.pod_cidrs {
                Some(several) if !several.is_empty() => several,
                _ => spec
                    .pod_cidr
                    .into_iter()
                    .filter(|c| !c.is_empty())
                    .collect(),
            },
        }
    }

    pub(crate) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }

    pub(crate) fn status_of(&self, kind: &str) -> Option<Status> {
        self.condition(kind).map(|condition| condition.status)
    }

    /// Whether the kubelet says that it is, and is believed.
    pub(crate) fn is_ready(&self) -> bool {
        self.status_of("Ready") == Some(Status::True)
    }

    #[cfg(test)]
    pub(crate) fn set(&mut self, kind: &str, status: Status) {
        self.conditions.retain(|condition| condition.kind != kind);
        self.conditions.push(Condition {
            kind: kind.into(),
            status,
            heartbeat: None,
            transition: None,
        });
    }
}

impl Condition {
    fn of(condition: NodeCondition) -> Condition {
        let at = |time: Option<Time>| time.map(|time| time.0);
        Condition {
            status: Status::of(&condition.status),
            heartbeat: at(condition.last_heartbeat_time),
            transition: at(condition.last_transition_time),
            kind: condition.type_,
        }
    }
}

// Upstream's `GetZoneKey`: the older labels count first.
fn zone<'a>(label: &impl Fn(&str) -> Option<&'a String>) -> String {
    let either =
        |old: &str, new: &str| label(old).or_else(|| label(new)).map_or("", String::as_str);
    let region = either(
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    );
    let zone = either(
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    );
    match (region, zone) {
        ("", "") => String::new(),
        (region, zone) => format!("{region}:\0:{zone}"),
    }
}

// Upstream's `labelReconcileInfo`.
fn labels_to_set<'a>(label: &impl Fn(&str) -> Option<&'a String>) -> Vec<(&'static str, String)> {
    [
        ("beta.kubernetes.io/os", "kubernetes.io/os"),
        ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ]
    .into_iter()
    .filter(|(old, new)| label(new).is_some() && label(old) != label(new))
    .filter_map(|(old, new)| Some((old, label(new)?.clone())))
    .collect()
}

/// What is kept of a pod for those who watch over nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Resident {
    pub(crate) uid: String,
    /// Where it runs; empty before it is bound.
    pub(crate) node: String,
    pub(crate) created: Option<Timestamp>,
    pub(crate) deleting: bool,
    /// Succeeded or failed.
    pub(crate) has_ended: bool,
    /// Failed because it was evicted.
    pub(crate) was_evicted: bool,
    pub(crate) is_ready: bool,
    pub(crate) tolerations: Vec<Toleration>,
}

impl Resident {
    pub(crate) fn of(pod: Pod) -> Resident {
        let (meta, spec) = (pod.metadata, pod.spec.unwrap_or_default());
        let status = pod.status.unwrap_or_default();
        let phase = status.phase.as_deref();
        let mut conditions = status.conditions.iter().flatten();
        Resident {
            uid: meta.uid.unwrap_or_default(),
            node: spec.node_name.unwrap_or_default(),
            created: meta.creation_timestamp.map(|at| at.0),
            deleting: meta.deletion_timestamp.is_some(),
            has_ended: matches!(phase, Some("Failed" | "Succeeded")),
            was_evicted: phase == Some("Failed") && status.reason.as_deref() == Some("Evicted"),
            is_ready: conditions.any(|c| c.type_ == "Ready" && c.status == "True"),
            tolerations: spec.tolerations.unwrap_or_default(),
        }
    }
}
