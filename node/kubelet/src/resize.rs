//! Pods that get other resources while they run: what was asked for, what this node granted, and what containers really
//! have. Pure, but for [`ledger`], which keeps the last two across restarts (upstream's `pkg/kubelet/allocation`).
//!
//! *Desired* is the pod's spec. *Allocated* is what the node counts for the pod: workers only ever see pods with that.
//! *Actuated* is what the runtime has accepted.

pub mod ledger;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use crate::admission;
use crate::cri::ContainerState;
use crate::resources::{self, Qos};
use crate::seen::{self, Seen};
use crate::spec;

/// The resources of a pod's containers, by name, and of the pod as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodResources {
    /// Of the pod as a whole, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ResourceRequirements>,
    /// Of its containers.
    pub containers: BTreeMap<String, ResourceRequirements>,
}

impl PodResources {
    /// What a pod's spec says.
    pub fn of(pod: &Pod) -> Self {
        let each = spec::containers(pod).map(|(_, c)| {
            let own = c.resources.clone().unwrap_or_default();
            (c.name.clone(), own)
        });
        Self {
            pod: spec::spec(pod).resources.clone(),
            containers: each.collect(),
        }
    }

    /// The pod with these resources instead of its spec's.
    pub fn lay_over(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        if Self::of(pod) == *self {
            return Arc::clone(pod);
        }
        let mut laid = (**pod).clone();
        let spec = laid.spec.get_or_insert_default();
        spec.resources.clone_from(&self.pod);
        let inits = spec.init_containers.iter_mut().flatten();
        for container in inits.chain(&mut spec.containers) {
            if let Some(own) = self.containers.get(&container.name) {
                container.resources = Some(own.clone());
            }
        }
        Arc::new(laid)
    }

    /// Whether both mean the same to the kernel; `1` and `1000m` do.
    pub fn is_same(&self, other: &Self) -> bool {
        let amounts = |all: &Self| -> BTreeMap<String, Amounts> {
            let each = all.containers.iter();
            each.map(|(name, own)| (name.clone(), Amounts::of(own)))
                .collect()
        };
        let whole = |all: &Self| Amounts::of(&all.pod.clone().unwrap_or_default());
        whole(self) == whole(other) && amounts(self) == amounts(other)
    }
}

/// What can be changed of a container that runs: thousandths of processors and bytes; 0 is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    cpu_request: i64,
    cpu_limit: i64,
    memory_request: i64,
    memory_limit: i64,
}

impl Amounts {
    /// As a spec or the ledger has it.
    pub fn of(resources: &ResourceRequirements) -> Self {
        let (requests, limits) = (resources.requests.as_ref(), resources.limits.as_ref());
        let amount = |list, name| resources::amount(list, name).unwrap_or(0);
        Self {
            cpu_request: amount(requests, "cpu"),
            cpu_limit: amount(limits, "cpu"),
            memory_request: amount(requests, "memory"),
            memory_limit: amount(limits, "memory"),
        }
    }

    /// How a resource differs: its limit counts, its request where the limit is the same.
    fn change(self, to: Self, resource: Resource) -> i64 {
        let (limit, request) = match resource {
            Resource::Memory => (
                to.memory_limit - self.memory_limit,
                to.memory_request - self.memory_request,
            ),
            Resource::Cpu => (
                to.cpu_limit - self.cpu_limit,
                to.cpu_request - self.cpu_request,
            ),
        };
        if limit != 0 { limit } else { request }
    }
}

/// What can be resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Memory.
    Memory,
    /// Processors.
    Cpu,
}

impl Resource {
    /// The API's name.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Memory => "memory",
            Resource::Cpu => "cpu",
        }
    }
}

/// What the node says to a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Now.
    Granted,
    /// When there is room; the text says what is missing.
    Deferred(String),
    /// Never on this node.
    Infeasible(String),
}

/// Whether a pod can have what its spec asks for now. `others` are the node's other pods, as allocated.
pub fn judge(pod: &Pod, others: &[&Pod], allocatable: &BTreeMap<String, i64>) -> Verdict {
    // Upstream's words up to 1.35; from 1.36 on its API server refuses before a kubelet is asked.
    for name in ["memory", "cpu"] {
        let requested = resources::pod_request(pod, name);
        let capacity = allocatable.get(name).copied().unwrap_or(i64::MAX);
        if requested > capacity {
            return Verdict::Infeasible(format!(
                "Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}"
            ));
        }
    }
    match admission::room(pod, others, allocatable) {
        Some((_, missing)) => Verdict::Deferred(missing),
        None => Verdict::Granted,
    }
}

/// Where a pod stands in the queue of those that wait: what takes nothing first, then by priority, class and time.
pub fn turn(desired: &Pod, allocated: &Pod, since: Option<Timestamp>) -> impl Ord + use<> {
    let more = ["cpu", "memory"].iter().any(|name| {
        resources::pod_request(desired, name) > resources::pod_request(allocated, name)
    });
    let priority = spec::spec(desired).priority.unwrap_or(0);
    let guaranteed = resources::qos(desired) == Qos::Guaranteed;
    let since = since.unwrap_or(Timestamp::MAX);
    (more, Reverse(priority), Reverse(guaranteed), since)
}

/// A container whose limits change while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// Its name.
    pub name: String,
    /// The runtime's id.
    pub id: String,
    /// Whether a limit of its memory gets lower, to how much.
    pub lower_memory: Option<i64>,
}

/// What has to be done so that containers have what was allocated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Containers that must start anew for it.
    pub restart: BTreeSet<String>,
    /// Whose memory changes, what gets less first.
    pub memory: Vec<Update>,
    /// Whose processors change, what gets less first.
    pub cpu: Vec<Update>,
    /// Whether the pod's cgroup has to be looked at.
    pub pod: bool,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        !self.pod
    }

    /// The updates of one resource.
    pub fn of(&self, resource: Resource) -> &[Update] {
        match resource {
            Resource::Memory => &self.memory,
            Resource::Cpu => &self.cpu,
        }
    }
}

/// Plans (upstream's `computePodResizeAction`). `pod` is as allocated.
pub fn plan(pod: &Pod, actuated: &PodResources, seen: &Seen) -> Plan {
    let mut plan = Plan::default();
    let whole = |all: &Option<ResourceRequirements>| Amounts::of(&all.clone().unwrap_or_default());
    // A pod that has just been made has nothing that could differ.
    plan.pod = !actuated.containers.is_empty()
        && whole(&spec::spec(pod).resources) != whole(&actuated.pod);
    for (_, container) in spec::containers(pod) {
        let Some(had) = actuated.containers.get(&container.name).map(Amounts::of) else {
            continue;
        };
        let gets = allocated(container);
        if had == gets {
            continue;
        }
        plan.pod = true;
        let Some(found) = running(seen, &container.name) else {
            // It has the right size when it starts.
            continue;
        };
        if restarts(container, had, gets) {
            plan.restart.insert(container.name.clone());
            continue;
        }
        let lower = gets.memory_limit > 0
            && (had.memory_limit == 0 || gets.memory_limit < had.memory_limit);
        let update = Update {
            name: container.name.clone(),
            id: found.id.clone(),
            lower_memory: lower.then_some(gets.memory_limit),
        };
        for (resource, list) in [
            (Resource::Memory, &mut plan.memory),
            (Resource::Cpu, &mut plan.cpu),
        ] {
            match had.change(gets, resource) {
                0 => {}
                less if less < 0 => list.insert(0, update.clone()),
                _ => list.push(update.clone()),
            }
        }
    }
    plan
}

/// Whether containers run that have not got what was allocated.
pub fn is_in_progress(pod: &Pod, actuated: &PodResources, seen: &Seen) -> bool {
    spec::containers(pod).any(|(_, container)| {
        let had = actuated.containers.get(&container.name).map(Amounts::of);
        running(seen, &container.name).is_some()
            && had.is_some_and(|had| had != allocated(container))
    })
}

fn allocated(container: &Container) -> Amounts {
    Amounts::of(&container.resources.clone().unwrap_or_default())
}

fn running<'a>(seen: &'a Seen, name: &str) -> Option<&'a seen::Container> {
    seen.current(name)
        .filter(|c| c.state == ContainerState::Running)
}

fn restarts(container: &Container, had: Amounts, gets: Amounts) -> bool {
    let policy = |resource: Resource| {
        let mut all = container.resize_policy.iter().flatten();
        all.find(|p| p.resource_name == resource.name())
            .is_some_and(|p| p.restart_policy == "RestartContainer")
    };
    [Resource::Memory, Resource::Cpu]
        .into_iter()
        .any(|resource| had.change(gets, resource) != 0 && policy(resource))
}

/// What a container gets in the step of one resource: the others stay as they are until their step.
pub fn step(
    resource: Resource,
    had: &ResourceRequirements,
    gets: &ResourceRequirements,
) -> ResourceRequirements {
    let name = resource.name();
    let mixed = |had: &Option<BTreeMap<String, Quantity>>,
                 gets: &Option<BTreeMap<String, Quantity>>| {
        let mut list = had.clone().unwrap_or_default();
        list.remove(name);
        let new = gets.as_ref().and_then(|list| list.get(name));
        list.extend(new.map(|quantity| (name.to_owned(), quantity.clone())));
        Some(list).filter(|list| !list.is_empty())
    };
    ResourceRequirements {
        requests: mixed(&had.requests, &gets.requests),
        limits: mixed(&had.limits, &gets.limits),
        claims: gets.claims.clone(),
    }
}

/// What a container has, as its status tells: the runtime's word where it has one, else what it accepted last. Values
/// that the kernel does not tell apart are told as they were asked for.
pub fn in_effect(
    allocated: &ResourceRequirements,
    actuated: Option<&ResourceRequirements>,
    reported: Option<&seen::Limits>,
) -> ResourceRequirements {
    let mut told = allocated.clone();
    let accepted = |list: Option<&BTreeMap<String, Quantity>>, name: &str| {
        list.and_then(|list| list.get(name)).cloned()
    };
    let requests = actuated.and_then(|a| a.requests.as_ref());
    let limits = actuated.and_then(|a| a.limits.as_ref());
    if let Some(list) = &mut told.requests {
        put(list, "memory", accepted(requests, "memory"));
        let own = accepted(requests, "cpu");
        let means = |q: &Quantity| resources::shares(resources::milli(q));
        let cpu = match reported.map(|r| r.cpu_shares).filter(|n| *n > 0) {
            // Who asks for nothing has the least weight there is, and nothing is told of it.
            Some(shares) if own.as_ref().map_or(resources::shares(0), means) != shares => {
                // Rounded up, as shares were rounded down.
                Some(Quantity(format!("{}m", (shares * 1000 + 1023) / 1024)))
            }
            _ => own,
        };
        put(list, "cpu", cpu);
    }
    if let Some(list) = &mut told.limits {
        let own = accepted(limits, "memory");
        let memory = match reported.map(|r| r.memory).filter(|n| *n > 0) {
            Some(bytes) if own.as_ref().map(resources::whole) != Some(bytes) => {
                Some(Quantity(bytes.to_string()))
            }
            _ => own,
        };
        put(list, "memory", memory);
        let own = accepted(limits, "cpu");
        let means = |q: &Quantity| resources::quota(resources::milli(q));
        let cpu = match reported.map(|r| r.cpu_quota).filter(|n| *n > 0) {
            Some(quota) if own.as_ref().map(means) != Some(quota) => {
                Some(Quantity(format!("{}m", quota * 1000 / resources::PERIOD)))
            }
            _ => own,
        };
        put(list, "cpu", cpu);
    }
    told
}

fn put(list: &mut BTreeMap<String, Quantity>, name: &str, value: Option<Quantity>) {
    if let Some(value) = value {
        list.insert(name.to_owned(), value);
    }
}

/// A condition of a pod that is being resized, or waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `PodResizePending` or `PodResizeInProgress`.
    pub kind: &'static str,
    /// Why it is not done.
    pub reason: Option<String>,
    /// In words.
    pub message: Option<String>,
    /// The generation of the spec that asked for it.
    pub generation: Option<i64>,
}

/// A resize that has not been granted.
pub const PENDING: &str = "PodResizePending";
/// A resize that was granted and is not done.
pub const IN_PROGRESS: &str = "PodResizeInProgress";

impl Condition {
    /// A resize is on its way.
    pub fn in_progress(generation: Option<i64>) -> Self {
        Self {
            kind: IN_PROGRESS,
            reason: None,
            message: None,
            generation,
        }
    }

    /// A resize that was not granted.
    pub fn pending(reason: &str, message: String, generation: Option<i64>) -> Self {
        Self {
            kind: PENDING,
            reason: Some(reason.to_owned()),
            message: Some(message),
            generation,
        }
    }

    /// What a pod's status says, for a kubelet that has just begun.
    pub fn told(pod: &Pod, kind: &'static str) -> Option<Self> {
        let conditions = pod.status.as_ref()?.conditions.as_ref()?;
        let told = conditions.iter().find(|c| c.type_ == kind)?;
        Some(Self {
            kind,
            reason: told.reason.clone().filter(|text| !text.is_empty()),
            message: told.message.clone().filter(|text| !text.is_empty()),
            generation: told.observed_generation,
        })
    }
}

/// The text of an event about a resize: what happened, and the resources as JSON in upstream's order.
pub fn event(what: &str, pod: &Pod, generation: Option<i64>, error: &str) -> String {
    #[derive(Serialize)]
    struct Named {
        name: String,
        resources: ResourceRequirements,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Summary<'a> {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        init_containers: Vec<Named>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        containers: Vec<Named>,
        generation: i64,
        #[serde(skip_serializing_if = "str::is_empty")]
        error: &'a str,
    }
    let named = |containers: &[Container]| {
        let each = containers.iter().map(|c| Named {
            name: c.name.clone(),
            resources: c.resources.clone().unwrap_or_default(),
        });
        each.collect()
    };
    let summary = Summary {
        init_containers: named(spec::init_containers(pod)),
        containers: named(&spec::spec(pod).containers),
        generation: generation.unwrap_or_default(),
        error,
    };
    match serde_json::to_string(&summary) {
        Ok(text) => format!("{what}: {text}"),
        Err(_) => what.to_owned(),
    }
}
