//! The status of a pod from its spec and what the runtime has: phases, conditions and container states in upstream's
//! words. Nothing here asks anybody anything.

mod conditions;
mod container;
mod phase;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, Pod, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::decide::{Verdict, Verdicts};
use crate::resize::{Condition, PodResources};
use crate::seen::Seen;
use crate::spec::{self, Role};

/// Why a container does not run, as the last turn of its pod found out.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// `ImagePullBackOff` and the like.
    pub reason: String,
    /// The text that goes with it.
    pub message: String,
}

/// An end that was put to a pod: eviction, deadline, refusal.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    /// The pod's reason.
    pub reason: String,
    /// The pod's message.
    pub message: String,
    /// Whether the pod was taken out although it did nothing wrong, which `DisruptionTarget` tells controllers.
    pub disruption: bool,
}

/// All that a status is made of.
pub struct Facts<'a> {
    /// The pod with its last known status.
    pub pod: &'a Pod,
    /// What the runtime has.
    pub seen: &'a Seen,
    /// Why containers wait, by name.
    pub waiting: &'a BTreeMap<String, Waiting>,
    /// Verdicts of liveness and start-up probes.
    pub verdicts: &'a Verdicts,
    /// Verdicts of readiness probes by container id.
    pub readiness: &'a BTreeMap<String, Verdict>,
    /// Last words of containers by id.
    pub messages: &'a BTreeMap<String, String>,
    /// Whether the pod is being stopped.
    pub terminating: bool,
    /// Whether everything of it has stopped for good.
    pub terminal: bool,
    /// What was done to it.
    pub ending: Option<&'a Ending>,
    /// The node's addresses, the family of the first one first.
    pub host_ips: &'a [String],
    /// What the runtime has accepted of the containers' resources.
    pub actuated: &'a PodResources,
    /// Whether the pod is resized, or waits for it.
    pub resizes: &'a [Condition],
    /// Now.
    pub now: Timestamp,
}

impl Facts<'_> {
    fn old(&self) -> Option<&PodStatus> {
        self.pod.status.as_ref()
    }
}

/// Works the status out.
pub fn generate(facts: &Facts<'_>) -> PodStatus {
    let pod = facts.pod;
    let mut status = PodStatus {
        init_container_statuses: container::statuses(facts, &[Role::Init, Role::Sidecar]),
        container_statuses: container::statuses(facts, &[Role::Main]),
        ephemeral_container_statuses: container::ephemeral(facts),
        ..PodStatus::default()
    };
    if let Some(old) = facts.old() {
        status.qos_class.clone_from(&old.qos_class);
        status.start_time.clone_from(&old.start_time);
        status
            .nominated_node_name
            .clone_from(&old.nominated_node_name);
        status
            .resource_claim_statuses
            .clone_from(&old.resource_claim_statuses);
    }
    status.start_time.get_or_insert(Time(seconds(facts.now)));
    status
        .qos_class
        .get_or_insert_with(|| crate::resources::qos(pod).to_string());
    status.observed_generation = pod.metadata.generation;
    phase::decide(facts, &mut status);
    addresses(facts, &mut status);
    conditions::set(facts, &mut status);
    status
}

/// Whether a condition is the kubelet's alone.
pub fn is_own(kind: &str) -> bool {
    conditions::OWNED.contains(&kind)
}

/// Without fractions, as upstream keeps times.
pub fn seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

fn addresses(facts: &Facts<'_>, status: &mut PodStatus) {
    let host = facts.host_ips;
    status.host_ip = host.first().cloned();
    let of_host = host.iter().map(|ip| HostIP { ip: ip.clone() }).collect();
    status.host_ips = Some(of_host).filter(|ips: &Vec<_>| !ips.is_empty());
    let sandbox = facts
        .seen
        .sandboxes
        .iter()
        .find(|s| s.ready)
        .or(facts.seen.sandboxes.first());
    let ips: Vec<String> = match spec::host_network(facts.pod) {
        true if sandbox.is_some() => host.to_vec(),
        true => Vec::new(),
        false => sandbox.map(|s| s.ips.clone()).unwrap_or_default(),
    };
    if ips.is_empty() {
        // They stay after the sandbox has gone.
        let old = facts.old();
        status.pod_ip = old.and_then(|o| o.pod_ip.clone());
        status.pod_ips = old.and_then(|o| o.pod_ips.clone());
        return;
    }
    status.pod_ip = ips.first().cloned();
    status.pod_ips = Some(ips.into_iter().map(|ip| PodIP { ip }).collect());
}
