//! What pods use, and which scopes they are in.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kinds::pod_resources::{self, Amounts};
use kube_kit::selector::{self, Requirement};
use serde_json::{Map, Value};

use super::measure::count;
use super::{add, amounts_in, amounts_to_value, items, text};

const COUNT: &str = "count/pods";
const REQUESTS: &str = "requests.";
const HUGE_PAGES: &str = "hugepages-";
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

/// Resources with a limit beside the request.
const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Where a quota makes every container say what it wants. Upstream calls it a mistake that stays.
const MUST_BE_SAID: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];

/// Whether pods count under this name.
pub(super) fn tracks(name: &str) -> bool {
    let plain = name
        .strip_prefix(REQUESTS)
        .or_else(|| name.strip_prefix("limits."))
        .unwrap_or(name);
    let request = name.strip_prefix(REQUESTS);
    matches!(name, COUNT | "pods")
        || COMPUTE.contains(&plain)
        || request.unwrap_or(name).starts_with(HUGE_PAGES)
        || request.is_some_and(|request| !is_native(name) || request.starts_with(DEVICE_CLASS))
}

fn is_native(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

// Upstream's `IsExtendedResourceName`: of a domain that is not Kubernetes' own, and still a name with
// `requests.` before it.
fn is_extended(resource: &str) -> bool {
    let extended = !is_native(resource)
        && !resource.starts_with(REQUESTS)
        && selector::label_key_errors(&format!("{REQUESTS}{resource}")).is_empty();
    extended || resource.starts_with(DEVICE_CLASS)
}

/// What a pod uses: always itself, and what it asks for until it is over.
pub(super) fn usage(pod: &Value, now: Timestamp) -> Amounts {
    let mut usage = Amounts::from([(COUNT.to_owned(), count(1))]);
    if is_charged(pod, now) {
        add(
            &mut usage,
            &compute(&of_pod(pod, "requests"), &of_pod(pod, "limits")),
        );
    }
    usage
}

/// Whether a pod still holds what it asked for: it has not ended, and is not overdue to be gone.
pub fn is_charged(pod: &Value, now: Timestamp) -> bool {
    let ended = matches!(text(&pod["status"]["phase"]), "Failed" | "Succeeded");
    let deleted = text(&pod["metadata"]["deletionTimestamp"]).parse::<Timestamp>();
    let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
    let overdue = match (deleted, grace) {
        (Ok(deleted), Some(grace)) => deleted
            .checked_add(SignedDuration::from_secs(grace))
            .is_ok_and(|end| now > end),
        _ => false,
    };
    !ended && !overdue
}

fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::from([("pods".to_owned(), count(1))]);
    for (name, amount) in requests {
        let compute = COMPUTE.contains(&name.as_str());
        if compute || name.starts_with(HUGE_PAGES) {
            usage.insert(name.clone(), amount.clone());
        }
        if compute || name.starts_with(HUGE_PAGES) || is_extended(name) {
            usage.insert(format!("{REQUESTS}{name}"), amount.clone());
        }
    }
    for (name, amount) in limits {
        if COMPUTE.contains(&name.as_str()) {
            usage.insert(format!("limits.{name}"), amount.clone());
        }
    }
    usage
}

// Containers (as they are or are becoming), replaced by what the pod as a whole names, plus overhead.
fn of_pod(pod: &Value, list: &str) -> Amounts {
    let Some(spec) = pod["spec"].as_object() else {
        return Amounts::new();
    };
    let mut total = match has_actual_resources(pod) {
        true => pod_resources::of_containers(&with_actual(pod, spec, list), list),
        false => pod_resources::of_containers(spec, list),
    };
    let whole = pod_resources::amounts(&pod["spec"], list);
    let known = whole
        .into_iter()
        .filter(|(name, _)| pod_resources::at_pod_level(name));
    total.extend(known);
    let mut overhead = amounts_in(&spec.get("overhead").cloned().unwrap_or_default());
    if list == "limits" {
        overhead.retain(|name, _| total.get(name).is_some_and(|limit| !limit.is_zero()));
    }
    add(&mut total, &overhead);
    total
}

const STATUSES: [(&str, &str); 2] = [
    ("containers", "containerStatuses"),
    ("initContainers", "initContainerStatuses"),
];

fn has_actual_resources(pod: &Value) -> bool {
    STATUSES
        .iter()
        .flat_map(|(_, statuses)| items(&pod["status"][*statuses]))
        .any(|status| status["resources"].is_object())
}

// While a pod is resized it holds the larger of what it has and what it wants; what it wants does not
// count when the node cannot give it.
fn with_actual(pod: &Value, spec: &Map<String, Value>, list: &str) -> Map<String, Value> {
    let infeasible = items(&pod["status"]["conditions"])
        .find(|condition| condition["type"] == "PodResizePending")
        .is_some_and(|condition| condition["reason"] == "Infeasible");
    let mut spec = spec.clone();
    for (containers, statuses) in STATUSES {
        let listed = spec.get_mut(containers).and_then(Value::as_array_mut);
        for container in listed.into_iter().flatten() {
            let counts = containers == "containers" || pod_resources::is_sidecar(container);
            let status = items(&pod["status"][statuses])
                .find(|status| status["name"] == container["name"])
                .filter(|status| counts && status["resources"].is_object());
            if let Some(status) = status {
                let held = held(container, status, list, infeasible);
                container["resources"][list] = amounts_to_value(&held);
            }
        }
    }
    spec
}

fn held(container: &Value, status: &Value, list: &str, infeasible: bool) -> Amounts {
    let mut held = pod_resources::amounts(status, list);
    let mut raise = |floor: Amounts| {
        for (name, amount) in floor {
            let current = held.entry(name).or_insert_with(|| amount.clone());
            if *current < amount {
                *current = amount;
            }
        }
    };
    if list == "requests" {
        raise(amounts_in(&status["allocatedResources"]));
    }
    if !infeasible {
        raise(pod_resources::amounts(container, list));
    }
    held
}

/// Whether the pod ends by itself some time.
pub(super) fn is_terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds >= 0)
}

/// Whether a pod is in a scope.
pub(super) fn in_scope(scope: &Requirement, pod: &Value) -> bool {
    match scope.key() {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = text(&pod["spec"]["priorityClassName"]);
            scope.matches(Some(class).filter(|class| !class.is_empty()))
        }
        "CrossNamespacePodAffinity" => crosses_namespaces(&pod["spec"]["affinity"]),
        _ => false,
    }
}

fn is_best_effort(pod: &Value) -> bool {
    match text(&pod["status"]["qosClass"]) {
        "" => kinds::qos::qos_class(pod) == "BestEffort",
        class => class == "BestEffort",
    }
}

fn crosses_namespaces(affinity: &Value) -> bool {
    let crosses = |term: &Value| {
        items(&term["namespaces"]).next().is_some() || term["namespaceSelector"].is_object()
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let affinity = &affinity[*kind];
        items(&affinity["requiredDuringSchedulingIgnoredDuringExecution"]).any(crosses)
            || items(&affinity["preferredDuringSchedulingIgnoredDuringExecution"])
                .any(|weighted| crosses(&weighted["podAffinityTerm"]))
    })
}

/// Which containers leave cpu or memory open that the quota counts. A pod that says it for all of
/// them together has said it.
pub(super) fn unsaid(names: &[&str], pod: &Value) -> Option<String> {
    let said_by_pod = ["requests", "limits"].iter().any(|list| {
        pod_resources::amounts(&pod["spec"], list)
            .keys()
            .any(|name| pod_resources::at_pod_level(name))
    });
    if said_by_pod {
        return None;
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in ["containers", "initContainers"]
        .iter()
        .flat_map(|list| items(&pod["spec"][*list]))
    {
        let said = compute(
            &pod_resources::amounts(container, "requests"),
            &pod_resources::amounts(container, "limits"),
        );
        for name in names {
            if MUST_BE_SAID.contains(name) && !said.contains_key(*name) {
                let open = missing.entry(name).or_default();
                open.insert(text(&container["name"]));
            }
        }
    }
    let parts: Vec<String> = missing
        .into_iter()
        .map(|(name, containers)| {
            let containers: Vec<&str> = containers.into_iter().collect();
            format!("{name} for: {}", containers.join(","))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("must specify {}", parts.join("; ")))
}
