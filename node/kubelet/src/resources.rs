//! Requests, limits and what they mean to the kernel: QoS classes, shares, quotas and scores, by upstream's formulas.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::spec::{self, Role};

/// How much a pod may count on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qos {
    /// It asked for all it may use.
    Guaranteed,
    /// It asked for something.
    Burstable,
    /// It asked for nothing.
    BestEffort,
}

impl fmt::Display for Qos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Qos::Guaranteed => "Guaranteed",
            Qos::Burstable => "Burstable",
            Qos::BestEffort => "BestEffort",
        })
    }
}

type List = BTreeMap<String, Quantity>;

/// The period of CPU quotas, in microseconds.
pub const PERIOD: i64 = 100_000;
const LEAST_SHARES: i64 = 2;
const MOST_SHARES: i64 = 262_144;

/// A quantity in thousandths.
pub fn milli(quantity: &Quantity) -> i64 {
    parsed(quantity).map_or(0, |q| q.milli_value())
}

/// A quantity in whole units, rounded up.
pub fn whole(quantity: &Quantity) -> i64 {
    parsed(quantity).map_or(0, |q| q.value())
}

fn parsed(quantity: &Quantity) -> Option<kube_kit::quantity::Quantity> {
    quantity.0.parse().ok()
}

/// A container's requests.
pub fn requests(container: &Container) -> Option<&List> {
    container.resources.as_ref()?.requests.as_ref()
}

/// A container's limits.
pub fn limits(container: &Container) -> Option<&List> {
    container.resources.as_ref()?.limits.as_ref()
}

/// One resource of a list, in the unit that is counted: thousandths of CPUs, bytes, pieces.
pub fn amount(list: Option<&List>, name: &str) -> Option<i64> {
    let quantity = list?.get(name)?;
    Some(if name == "cpu" {
        milli(quantity)
    } else {
        whole(quantity)
    })
}

/// The pod's class. The API server has set it; this is for pods that come from files.
pub fn qos(pod: &Pod) -> Qos {
    if let Some(class) = pod.status.as_ref().and_then(|s| s.qos_class.as_deref()) {
        return match class {
            "Guaranteed" => Qos::Guaranteed,
            "BestEffort" => Qos::BestEffort,
            _ => Qos::Burstable,
        };
    }
    let of_pod = spec::spec(pod).resources.as_ref();
    let lists: Vec<(Option<&List>, Option<&List>)> = match of_pod {
        Some(pod) => vec![(pod.requests.as_ref(), pod.limits.as_ref())],
        None => spec::containers(pod)
            .map(|(_, c)| (requests(c), limits(c)))
            .collect(),
    };
    let counts = |list: Option<&List>, name: &str| amount(list, name).filter(|n| *n > 0);
    let both = ["cpu", "memory"];
    let asks = |(r, l): &(Option<&List>, Option<&List>)| {
        both.iter()
            .any(|name| counts(*r, name).or(counts(*l, name)).is_some())
    };
    if !lists.iter().any(asks) {
        return Qos::BestEffort;
    }
    let full = |(r, l): &(Option<&List>, Option<&List>)| {
        both.iter().all(|name| {
            let limit = counts(*l, name);
            limit.is_some() && counts(*r, name).is_none_or(|request| Some(request) == limit)
        })
    };
    match lists.iter().all(full) {
        true => Qos::Guaranteed,
        false => Qos::Burstable,
    }
}

/// A request, which is the limit where only that is given.
pub fn request(container: &Container, name: &str) -> i64 {
    let request = amount(requests(container), name);
    request
        .or_else(|| amount(limits(container), name))
        .unwrap_or(0)
}

/// What the whole pod asks for: the larger of what runs together and each step before it, and what the sandbox takes.
pub fn pod_request(pod: &Pod, name: &str) -> i64 {
    let of_pod = spec::spec(pod)
        .resources
        .as_ref()
        .and_then(|r| r.requests.as_ref());
    let overhead = amount(spec::spec(pod).overhead.as_ref(), name).unwrap_or(0);
    if let Some(request) = amount(of_pod, name) {
        return request + overhead;
    }
    sum(pod, |c| request(c, name)) + overhead
}

/// What the whole pod may use, if every container says so.
pub fn pod_limit(pod: &Pod, name: &str) -> Option<i64> {
    let of_pod = spec::spec(pod)
        .resources
        .as_ref()
        .and_then(|r| r.limits.as_ref());
    if let Some(limit) = amount(of_pod, name) {
        return Some(limit);
    }
    let limit = |c: &Container| amount(limits(c), name).filter(|n| *n > 0);
    let all = spec::containers(pod).all(|(_, c)| limit(c).is_some());
    let overhead = amount(spec::spec(pod).overhead.as_ref(), name).unwrap_or(0);
    all.then(|| sum(pod, |c| limit(c).unwrap_or(0)) + overhead)
}

fn sum(pod: &Pod, of: impl Fn(&Container) -> i64) -> i64 {
    let (mut sidecars, mut steps, mut mains) = (0, 0, 0);
    for (role, container) in spec::containers(pod) {
        let amount = of(container);
        match role {
            Role::Sidecar => {
                sidecars += amount;
                steps = steps.max(sidecars);
            }
            Role::Init => steps = steps.max(sidecars + amount),
            _ => mains += amount,
        }
    }
    steps.max(mains + sidecars)
}

/// Weight of a CPU request.
pub fn shares(milli: i64) -> i64 {
    match milli {
        0 => LEAST_SHARES,
        _ => (milli * 1024 / 1000).clamp(LEAST_SHARES, MOST_SHARES),
    }
}

/// The same weight as cgroup2 counts it.
pub fn weight(shares: i64) -> i64 {
    1 + (shares.clamp(LEAST_SHARES, MOST_SHARES) - 2) * 9999 / 262_142
}

/// Microseconds per period of a CPU limit.
pub fn quota(milli: i64) -> i64 {
    match milli {
        0 => 0,
        _ => (milli * PERIOD / 1000).max(1000),
    }
}

/// How ready the kernel is to end a container when memory runs out.
pub fn oom_score(pod: &Pod, container: &Container, role: Role, memory: i64) -> i64 {
    let critical = spec::spec(pod).priority.unwrap_or(0) >= 2_000_000_000;
    match qos(pod) {
        _ if critical => return -997,
        Qos::Guaranteed => return -997,
        Qos::BestEffort => return 1000,
        Qos::Burstable => {}
    }
    let score = |c: &Container| {
        let part = 1000 * request(c, "memory") / memory.max(1);
        (1000 - part).clamp(3, 999)
    };
    // A sidecar is not ended before what it serves.
    let mains = spec::spec(pod)
        .containers
        .iter()
        .map(score)
        .min()
        .unwrap_or(999);
    match role {
        Role::Sidecar => score(container).min(mains),
        _ => score(container),
    }
}
