//! What is kept of a pod for those who make, count and reach pods: one small view instead of whole pods.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;

use client_runtime::{Cache, Runtime, Watched};

use super::ownership::Owner;

/// The finalizer that keeps a job's pod until it has been counted.
pub(crate) const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// Conditions that nobody here looks at by their names.
const USUAL: [&str; 6] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    "PodResizePending",
];

/// Where a pod stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Phase {
    #[default]
    Pending,
    Unknown,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    fn of(name: Option<&str>) -> Phase {
        match name {
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            Some("Unknown") => Phase::Unknown,
            _ => Phase::Pending,
        }
    }
}

/// What is kept of a pod.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct PodView {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) owner: Option<Owner>,
    pub(crate) created: Timestamp,
    pub(crate) is_deleted: bool,
    pub(crate) phase: Phase,
    /// Since when it is ready, if it is.
    pub(crate) ready_since: Option<Timestamp>,
    pub(crate) node: Option<String>,
    /// The node its affinity pins it to, as daemons' pods are before they are bound.
    pub(crate) pinned_to: Option<String>,
    pub(crate) restarts: i32,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) hostname: Option<String>,
    pub(crate) subdomain: Option<String>,
    /// Ports with a name: name, protocol, number.
    pub(crate) ports: Vec<(String, String, i32)>,
    pub(crate) deletion_cost: i32,
    /// Whether a job still has to count it.
    pub(crate) is_tracked: bool,
    pub(crate) index: Option<i32>,
    pub(crate) index_failures: i32,
    /// How its containers ended, if any did.
    pub(crate) exits: Vec<Exit>,
    /// Conditions that are no pod's usual ones, such as `DisruptionTarget`.
    pub(crate) conditions: Vec<(String, String)>,
    /// Volumes that want a claim of their own: their names.
    pub(crate) ephemeral_volumes: Vec<String>,
    /// Whether it names resource claims.
    pub(crate) has_resource_claims: bool,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) container: String,
    pub(crate) code: i32,
    pub(crate) at: Option<Timestamp>,
}

impl Watched for PodView {
    fn watch<C>(runtime: &mut Runtime<C>) -> Cache<Self> {
        let all: Api<Pod> = Api::all(runtime.client());
        runtime.watch(all, "", |pod: Pod| PodView::of(&pod))
    }
}

impl PodView {
    pub(crate) fn of(pod: &Pod) -> PodView {
        let (meta, none) = (&pod.metadata, PodStatus::default());
        let status = pod.status.as_ref().unwrap_or(&none);
        let empty = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        PodView {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            owner: Owner::of(meta),
            created: meta
                .creation_timestamp
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |t| t.0),
            is_deleted: meta.deletion_timestamp.is_some(),
            phase: Phase::of(status.phase.as_deref()),
            ready_since: ready_since(status),
            node: spec.node_name.clone().filter(|node| !node.is_empty()),
            pinned_to: pinned_to(spec),
            restarts: restarts(spec, status),
            addresses: addresses(status),
            hostname: spec.hostname.clone().filter(|name| !name.is_empty()),
            subdomain: spec.subdomain.clone().filter(|name| !name.is_empty()),
            ports: named_ports(spec),
            deletion_cost: number(meta, DELETION_COST).unwrap_or(0),
            is_tracked: has_finalizer(meta, JOB_TRACKING),
            index: number(meta, COMPLETION_INDEX).filter(|index| *index >= 0),
            index_failures: number(meta, INDEX_FAILURES).unwrap_or(0),
            exits: exits(status),
            conditions: unusual_conditions(status),
            ephemeral_volumes: ephemeral_volumes(spec),
            has_resource_claims: spec.resource_claims.iter().flatten().next().is_some(),
        }
    }

    /// Whether it runs or will run (upstream's `IsPodActive`).
    pub(crate) fn is_active(&self) -> bool {
        !self.is_finished() && !self.is_deleted
    }

    /// Whether it has ended by itself.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether it is on its way out and not there yet (upstream's `IsPodTerminating`).
    pub(crate) fn is_terminating(&self) -> bool {
        !self.is_finished() && self.is_deleted
    }

    /// Whether it is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready_since.is_some()
    }

    /// Whether it has been ready for so many seconds (upstream's `IsPodAvailable`).
    pub(crate) fn is_available(&self, min_ready_seconds: i32, now: Timestamp) -> bool {
        match self.ready_since {
            None => false,
            Some(_) if min_ready_seconds <= 0 => true,
            Some(since) => since.as_second() + i64::from(min_ready_seconds) <= now.as_second(),
        }
    }

    /// Whether a condition that is not one of the usual ones holds.
    pub(crate) fn has_condition(&self, name: &str, status: &str) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|(known, value)| known == name && value == status)
    }
}

fn ready_since(status: &PodStatus) -> Option<Timestamp> {
    let mut conditions = status.conditions.iter().flatten();
    let ready = conditions.find(|c| c.type_ == "Ready" && c.status == "True")?;
    let since = ready.last_transition_time.as_ref();
    Some(since.map_or(Timestamp::UNIX_EPOCH, |t| t.0))
}

fn pinned_to(spec: &PodSpec) -> Option<String> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let fields = required
        .node_selector_terms
        .iter()
        .flat_map(|t| t.match_fields.iter().flatten());
    let mut names = fields.filter(|f| f.key == "metadata.name" && f.operator == "In");
    names.next()?.values.as_ref()?.first().cloned()
}

// The most restarts of any container that goes on: regular ones, and init containers that are sidecars.
fn restarts(spec: &PodSpec, status: &PodStatus) -> i32 {
    let is_sidecar = |c: &Container| c.restart_policy.as_deref() == Some("Always");
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|c| is_sidecar(c));
    let sidecars: Vec<&str> = sidecars.map(|c| c.name.as_str()).collect();
    let regular = status.container_statuses.iter().flatten();
    let init = status.init_container_statuses.iter().flatten();
    let init = init.filter(|c| sidecars.contains(&c.name.as_str()));
    regular
        .chain(init)
        .map(|c| c.restart_count)
        .max()
        .unwrap_or(0)
}

fn addresses(status: &PodStatus) -> Vec<IpAddr> {
    let all = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
    let mut all: Vec<IpAddr> = all.filter_map(|ip| ip.parse().ok()).collect();
    if all.is_empty() {
        all.extend(
            status
                .pod_ip
                .as_deref()
                .and_then(|ip| ip.parse::<IpAddr>().ok()),
        );
    }
    all
}

fn named_ports(spec: &PodSpec) -> Vec<(String, String, i32)> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars);
    let ports = ports.flat_map(|container| container.ports.iter().flatten());
    let named = ports.filter_map(|port| {
        let name = port.name.clone().filter(|name| !name.is_empty())?;
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
        Some((name, protocol, port.container_port))
    });
    named.collect()
}

fn number(meta: &ObjectMeta, annotation: &str) -> Option<i32> {
    meta.annotations.as_ref()?.get(annotation)?.parse().ok()
}

fn has_finalizer(meta: &ObjectMeta, name: &str) -> bool {
    meta.finalizers.iter().flatten().any(|one| one == name)
}

fn exits(status: &PodStatus) -> Vec<Exit> {
    let regular = status.container_statuses.iter().flatten();
    let init = status.init_container_statuses.iter().flatten();
    let ended = |container: &ContainerStatus| {
        let end = container.state.as_ref()?.terminated.as_ref()?;
        Some(Exit {
            container: container.name.clone(),
            code: end.exit_code,
            at: end.finished_at.as_ref().map(|t| t.0),
        })
    };
    regular.chain(init).filter_map(ended).collect()
}

fn unusual_conditions(status: &PodStatus) -> Vec<(String, String)> {
    let conditions = status.conditions.iter().flatten();
    let unusual = conditions.filter(|c| !USUAL.contains(&c.type_.as_str()));
    unusual
        .map(|c| (c.type_.clone(), c.status.clone()))
        .collect()
}

fn ephemeral_volumes(spec: &PodSpec) -> Vec<String> {
    let volumes = spec.volumes.iter().flatten();
    let ephemeral = volumes.filter(|volume| volume.ephemeral.is_some());
    ephemeral.map(|volume| volume.name.clone()).collect()
}
